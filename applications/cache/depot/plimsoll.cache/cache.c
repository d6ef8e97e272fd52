/* A cache in front of a key-value server over UDP: a get of a key that it has is answered at the driver hook and never
 * reaches the host's network stack; all else passes.
 *
 * The server is the only one that fills it, and does so before it acknowledges a set, so that no get sees a value older
 * than one that was acknowledged. A set or delete that passes makes the hook forget its key: the next gets ask the server. */
#include "offcode.h"

enum { ETHERNET = 14, IPV4 = 20, UDP = 17, HEADERS = ETHERNET + IPV4 + 8 };
enum { MAP_TYPE_LRU_HASH = 9, ENTRIES = 16384 };
enum { KEY_WORDS = 4, VALUE_WORDS = 8 };
enum { GET = 1, SET = 2, DELETE = 3, ANSWER = 0x80 };
#define MAGIC 0x31564b50u /* PKV1 */

static long (*map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete_elem)(void *map, const void *key) = (void *)3;

/* Mirrored by `server.rs`. */
struct message {
	u32 magic;
	u8 operation;
	u8 status;   /* of an answer: 0 done, 1 the key has no value, 2 refused */
	u8 length;   /* of the value */
	u8 unused;
	u64 number;  /* the client's own, repeated in the answer */
	u64 key[KEY_WORDS];
	u64 value[VALUE_WORDS];
} __attribute__((packed));

struct key {
	u64 words[KEY_WORDS];
};

/* The kernel writes an entry that changes from its start to its end, also while a frame is answered from it. */
struct entry {
	u64 first;   /* of this filling, as `last` */
	u64 epoch;
	u64 length;
	u64 key[KEY_WORDS];
	u64 value[VALUE_WORDS];
	u64 last;
};

struct {
	MAP_NUMBER(type, MAP_TYPE_LRU_HASH);
	MAP_NUMBER(max_entries, ENTRIES);
	MAP_TYPE(key, struct key);
	MAP_TYPE(value, struct entry);
} ENTRY SEC(".maps");

const volatile u64 PORT = 7400;
u64 epoch = 0;
u64 hits = 0;
u64 misses = 0;
u64 sets = 0;
u64 fills = 0;

ALWAYS_INLINE void swap_bytes(u8 *one, u8 *other, u32 length)
{
	for (u32 n = 0; n < length; n++) {
		u8 kept = one[n];
		one[n] = other[n];
		other[n] = kept;
	}
}

SEC("xdp")
int answer(struct xdp_md *ctx)
{
	u8 *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct message *message = (void *)(frame + HEADERS);

	if ((u8 *)(message + 1) > end || *(u16 *)(frame + 12) != __builtin_bswap16(0x0800))
		return XDP_PASS;
	if (frame[14] != 0x45 || frame[23] != UDP || *(u16 *)(frame + 20) & __builtin_bswap16(0x3fff))
		return XDP_PASS;
	if (*(u16 *)(frame + 36) != __builtin_bswap16((u16)PORT)
	    || *(u16 *)(frame + 38) != __builtin_bswap16(8 + sizeof(struct message)) || message->magic != MAGIC)
		return XDP_PASS;

	struct key key;
	for (u32 n = 0; n < KEY_WORDS; n++)
		key.words[n] = message->key[n];
	if (message->operation == SET || message->operation == DELETE) {
		__sync_fetch_and_add(&sets, 1);
		map_delete_elem(&ENTRY, &key);
		return XDP_PASS;
	}
	if (message->operation != GET)
		return XDP_PASS;
	struct entry *entry = map_lookup_elem(&ENTRY, &key);
	if (!entry)
		goto miss;
	/* The end is read before what lies between, the start after it. */
	u64 last = *(volatile u64 *)&entry->last;
	u64 value[VALUE_WORDS], differs = 0;
	for (u32 n = 0; n < KEY_WORDS; n++)
		differs |= *(volatile u64 *)&entry->key[n] ^ key.words[n];
	for (u32 n = 0; n < VALUE_WORDS; n++)
		value[n] = *(volatile u64 *)&entry->value[n];
	u64 length = *(volatile u64 *)&entry->length;
	u64 since = *(volatile u64 *)&entry->epoch;
	if (*(volatile u64 *)&entry->first != last || differs || since != *(volatile u64 *)&epoch)
		goto miss;

	for (u32 n = 0; n < VALUE_WORDS; n++)
		message->value[n] = value[n];
	message->length = length;
	message->status = 0;
	message->operation = GET | ANSWER;
	swap_bytes(frame, frame + 6, 6);
	swap_bytes(frame + 26, frame + 30, 4);
	swap_bytes(frame + 34, frame + 36, 2);
	/* No checksum: over IPv4 a datagram may go without. */
	*(u16 *)(frame + 40) = 0;
	__sync_fetch_and_add(&hits, 1);
	return XDP_TX;
miss:
	__sync_fetch_and_add(&misses, 1);
	return XDP_PASS;
}

struct filling {
	u64 key[KEY_WORDS];
	u64 length;
	u64 value[VALUE_WORDS];
};

static __attribute__((noinline)) int fill(struct offcode_call *call)
{
	struct filling *filling = (void *)call->bytes;
	struct entry entry;
	struct key key;

	if (call->length != sizeof(*filling) || filling->length > sizeof(filling->value))
		return 1;
	for (u32 n = 0; n < KEY_WORDS; n++)
		entry.key[n] = key.words[n] = filling->key[n];
	for (u32 n = 0; n < VALUE_WORDS; n++)
		entry.value[n] = filling->value[n];
	entry.length = filling->length;
	entry.epoch = epoch;
	entry.first = entry.last = ktime_get_ns();
	/* Refused without memory: then it has none for the key. */
	if (map_update_elem(&ENTRY, &key, &entry, 0))
		map_delete_elem(&ENTRY, &key);
	__sync_fetch_and_add(&fills, 1);
	call->length = 0;
	return 0;
}

static __attribute__((noinline)) int forget(struct offcode_call *call)
{
	struct filling *filling = (void *)call->bytes;
	struct key key;

	if (call->length != sizeof(key))
		return 1;
	for (u32 n = 0; n < KEY_WORDS; n++)
		key.words[n] = filling->key[n];
	map_delete_elem(&ENTRY, &key);
	call->length = 0;
	return 0;
}

/* By number: fill(key, length, value), forget(key), clear(), counts() -> (hits, misses, sets, fills). */
SEC("syscall")
int call(struct offcode_call *call)
{
	u64 *numbers = (u64 *)call->bytes;

	switch (call->method) {
	case 0:
		return fill(call);
	case 1:
		return forget(call);
	case 2:
		__sync_fetch_and_add(&epoch, 1);
		call->length = 0;
		return 0;
	case 3:
		numbers[0] = hits;
		numbers[1] = misses;
		numbers[2] = sets;
		numbers[3] = fills;
		call->length = 32;
		return 0;
	}
	return 2;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

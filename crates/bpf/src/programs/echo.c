/* An offcode for tests of the site, and an example of its convention: counts frames, and calls by
 * their methods, echoes messages, adds numbers. */
#include "offcode.h"

OFFCODE_IN(64);
OFFCODE_OUT(1 << 19);

static long (*map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;

struct {
	MAP_NUMBER(type, 1); /* hash */
	MAP_NUMBER(max_entries, 8);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} calls SEC(".maps");

u64 frames = 0;
u64 refuse_start = 0;
u64 LIMIT = 0;

SEC("xdp")
int count_frames(struct xdp_md *ctx)
{
	__sync_fetch_and_add(&frames, 1);
	return XDP_PASS;
}

SEC("classifier")
int count_packets(struct __sk_buff *ctx)
{
	__sync_fetch_and_add(&frames, 1);
	return TC_PASS;
}

SEC("syscall")
int initialize(void *ctx)
{
	frames = 0;
	return 0;
}

SEC("syscall")
int start(void *ctx)
{
	return refuse_start ? 1 : 0;
}

/* Method 0: the sum of two u32 as u64. Method 1: how many frames were counted. Method 2: the attribute LIMIT. */
SEC("syscall")
int call(struct offcode_call *call)
{
	u64 *numbers = (u64 *)call->bytes;
	u32 method = call->method;
	u64 *so_far = map_lookup_elem(&calls, &method), count = so_far ? *so_far + 1 : 1;

	map_update_elem(&calls, &method, &count, 0);
	switch (call->method) {
	case 0:
		if (call->length != 8)
			return 1;
		numbers[0] = (numbers[0] & 0xffffffff) + (numbers[0] >> 32);
		break;
	case 1:
		numbers[0] = frames;
		break;
	case 2:
		numbers[0] = LIMIT;
		break;
	default:
		return 2;
	}
	call->length = 8;
	return 0;
}

/* Sends back what was written, as far as OUT has room; the rest stays in IN. */
static long echo_one(u32 index, void *unused)
{
	u32 key = 0;
	struct offcode_in *in = map_lookup_elem(&IN, &key);
	if (!in)
		return 1;
	u64 read = in->read;
	if (read == *(volatile u64 *)&in->written)
		return 1;
	key = 1 + (read & (IN_SLOTS - 1));
	struct offcode_slot *slot = map_lookup_elem(&IN, &key);
	if (!slot)
		return 1;
	u64 length = slot->length;
	if (length > IN_SLOT_BYTES)
		length = IN_SLOT_BYTES;
	if (ringbuf_output(&OUT, slot->bytes, length, 0))
		return 1;
	*(volatile u64 *)&in->read = read + 1;
	return 0;
}

SEC("syscall")
int message(void *ctx)
{
	bpf_loop(IN_SLOTS, echo_one, 0, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

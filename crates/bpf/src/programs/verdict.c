/* For tests of hooks: a body that returns the verdict it is told to for datagrams, at tc hooks TC_VERDICT, and counts them by the first byte of their
 * payload, if that is not 0. It has a function, a callback and a stack of its own, two channels, and one of frames. */
#include "offcode.h"

u64 VERDICT = XDP_PASS;
u64 TC_VERDICT = TC_PASS;
u64 SPIN = 0;
u64 REPORT = 0;  /* datagrams go to the channel `first` too, a byte of each */

struct {
	MAP_NUMBER(type, MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, MAP_MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64[256]);
} SEEN SEC(".maps");

OFFCODE_CHANNEL(first, 4, 4096);
OFFCODE_CHANNEL(second, 4, 4096);
OFFCODE_FRAMES(copies);

/* Answers each message of one byte by the number of its channel and that byte. */
ALWAYS_INLINE int answer(void *input, void *output, u8 number)
{
	u32 key = 0;
	struct offcode_in *in = map_lookup_elem(input, &key);

	if (!in)
		return 1;
	u64 read = in->read;
	if (read == *(volatile u64 *)&in->written)
		return 0;
	key = 1 + (read & 3);
	struct offcode_slot *slot = map_lookup_elem(input, &key);
	if (!slot)
		return 1;
	u8 said[2] = {number, slot->bytes[0]};
	if (slot->length == 1 && ringbuf_output(output, said, sizeof(said), 0))
		return 1;
	*(volatile u64 *)&in->read = read + 1;
	return 0;
}

SEC("syscall")
int message_first(void *ctx)
{
	return answer(&IN_first, &OUT_first, 1);
}

SEC("syscall")
int message(void *ctx)
{
	return answer(&IN_second, &OUT_second, 2);
}

static long add_one(u32 index, u64 *sum)
{
	*sum += 1;
	return 0;
}

ALWAYS_INLINE int first_byte(u8 *frame, u8 *end)
{
	if (frame + 43 > end || frame[12] != 8 || frame[13] || frame[23] != 17)
		return 0;
	return frame[42];
}

static __attribute__((noinline)) int payload(struct xdp_md *ctx)
{
	return first_byte((void *)(long)ctx->data, (void *)(long)ctx->data_end);
}

/* Of a packet the kernel may have only a part at hand; a short datagram is whole. */
SEC("classifier")
int verdict_of_packet(struct __sk_buff *ctx)
{
	u32 key = 0, at = first_byte((void *)(long)ctx->data, (void *)(long)ctx->data_end);
	u64 *seen = map_lookup_elem(&SEEN, &key);

	if (seen && at < 256)
		__sync_fetch_and_add(seen + at, 1);
	return at ? (int)TC_VERDICT : TC_PASS;
}

SEC("xdp")
int verdict(struct xdp_md *ctx)
{
	u64 sums[24] = {};
	u32 key = 0, at = payload(ctx);
	u64 *seen = map_lookup_elem(&SEEN, &key);

	if (SPIN)
		bpf_loop(SPIN & 1023, add_one, sums, 0);
	if (seen && at < 256)
		__sync_fetch_and_add(seen + at, 1);
	if (at && REPORT) {
		u8 said = at;
		ringbuf_output(&OUT_first, &said, sizeof(said), 0);
	}
	if (at && VERDICT == XDP_REDIRECT)
		return redirect_map(&FRAMES_copies, ctx->rx_queue_index, XDP_DROP);
	/* Neighbours are found in any case. Of `sums[0]` the verifier would follow each turn of the loop. */
	return at ? VERDICT + sums[1] : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

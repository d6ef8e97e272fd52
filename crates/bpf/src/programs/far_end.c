/* For tests: the far end of a site's channel, one step a call. A producer that sends one frame for each call of `allow`. */
#include "offcode.h"

OFFCODE_IN(16);
OFFCODE_OUT(1 << 16);
OFFCODE_FRAME();

u64 allowed = 0;
u64 made = 0;

SEC("xdp")
int produce(struct xdp_md *ctx)
{
	u8 *frame = (void *)(long)ctx->data;

	if (made >= allowed || frame + 43 > (u8 *)(long)ctx->data_end)
		return XDP_DROP;
	frame[42] = made;
	made += 1;
	return XDP_TX;
}

struct step {
	u64 length;  /* of the message; all bits set: none */
	u8 bytes[1024];
};

/* Takes the next message out of IN. */
SEC("syscall")
int take(struct step *step)
{
	u32 key = 0;
	struct offcode_in *in = map_lookup_elem(&IN, &key);
	if (!in)
		return 1;
	u64 read = in->read;
	step->length = ~0ull;
	if (read == *(volatile u64 *)&in->written)
		return 0;
	key = 1 + (read & (IN_SLOTS - 1));
	struct offcode_slot *slot = map_lookup_elem(&IN, &key);
	if (!slot || slot->length > sizeof(step->bytes))
		return 2;
	/* The verifier wants constant offsets into a context. */
#pragma clang loop unroll(full)
	for (u32 at = 0; at < sizeof(step->bytes) / 8; at++)
		((u64 *)step->bytes)[at] = ((u64 *)slot->bytes)[at];
	step->length = slot->length;
	*(volatile u64 *)&in->read = read + 1;
	return 0;
}

/* Writes a message to OUT; 1 where there is no room. */
SEC("syscall")
int put(struct step *step)
{
	static u8 copy[1024];
	u64 length = step->length;

	if (length > sizeof(copy))
		return 2;
#pragma clang loop unroll(full)
	for (u32 at = 0; at < sizeof(copy) / 8; at++)
		((u64 *)copy)[at] = ((u64 *)step->bytes)[at];
	return ringbuf_output(&OUT, copy, length, 0) ? 1 : 0;
}

/* Method 0: lets one more frame leave. Method 1: how many have left. */
SEC("syscall")
int call(struct offcode_call *call)
{
	if (call->method == 0)
		allowed += 1;
	*(u64 *)call->bytes = made;
	call->length = 8;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

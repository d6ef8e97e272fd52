/* The packet filter: counts every frame, or at a tc hook every packet, drops UDP datagrams over IPv4 to one port. */
#include "offcode.h"

enum { ETHERNET = 14, UDP = 17, HEADERS = ETHERNET + 20 + 8 };

u64 PORT = 0;
u64 frames = 0;
u64 bytes = 0;
u64 dropped = 0;

/* Whether it is kept out. */
ALWAYS_INLINE int is_out(u8 *frame, u8 *end, u64 length)
{
	__sync_fetch_and_add(&frames, 1);
	__sync_fetch_and_add(&bytes, length);
	if (frame + HEADERS > end || *(u16 *)(frame + 12) != __builtin_bswap16(0x0800))
		return 0;
	/* A fragment beyond the first has no ports; with options they are elsewhere. */
	if (frame[14] != 0x45 || frame[23] != UDP || *(u16 *)(frame + 20) & __builtin_bswap16(0x1fff))
		return 0;
	if (!PORT || *(u16 *)(frame + 36) != __builtin_bswap16((u16)PORT))
		return 0;
	__sync_fetch_and_add(&dropped, 1);
	return 1;
}

SEC("xdp")
int filter(struct xdp_md *ctx)
{
	u8 *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	return is_out(frame, end, end - frame) ? XDP_DROP : XDP_PASS;
}

SEC("classifier")
int filter_packet(struct __sk_buff *ctx)
{
	return is_out((void *)(long)ctx->data, (void *)(long)ctx->data_end, ctx->len) ? TC_DROP : TC_PASS;
}

/* Method 0: keep_out(u16 port) -> u16, the port before. Method 1: counts() -> (u64 frames, u64 bytes, u64 dropped). */
SEC("syscall")
int call(struct offcode_call *call)
{
	u64 *numbers = (u64 *)call->bytes;

	switch (call->method) {
	case 0: {
		u16 before = PORT;
		if (call->length != 2)
			return 1;
		PORT = *(u16 *)call->bytes;
		*(u16 *)call->bytes = before;
		call->length = 2;
		return 0;
	}
	case 1:
		numbers[0] = frames;
		numbers[1] = bytes;
		numbers[2] = dropped;
		call->length = 24;
		return 0;
	}
	return 2;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

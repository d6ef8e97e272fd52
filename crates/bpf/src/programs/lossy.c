/* A link that loses packets: drops a share of the IP packets that arrive, at random. */
#include "kernel.h"

static u32 (*get_prandom_u32)(void) = (void *)7;

enum { ETHERTYPE_AT = 12, ETHERNET = 14 };

/* Dropped of 2^32 packets. */
u64 THRESHOLD = 0;
u64 lost = 0;

SEC("xdp")
int lossy(struct xdp_md *ctx)
{
	u8 *data = (u8 *)(u64)ctx->data, *end = (u8 *)(u64)ctx->data_end;
	u16 type;

	if (data + ETHERNET > end)
		return XDP_PASS;
	type = (u16)data[ETHERTYPE_AT] << 8 | data[ETHERTYPE_AT + 1];
	/* Neighbours stay known: what is lost is a transport's to repeat. */
	if ((type != 0x0800 && type != 0x86dd) || get_prandom_u32() >= THRESHOLD)
		return XDP_PASS;
	__sync_fetch_and_add(&lost, 1);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* A body for hooks that does nothing: what one run of a program costs. */
#include "kernel.h"

SEC("xdp")
int idle(struct xdp_md *ctx)
{
	return XDP_PASS;
}

SEC("classifier")
int idle_packet(struct __sk_buff *ctx)
{
	return TC_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* A body for a driver hook that does nothing: what one run of a program costs. */
#include "kernel.h"

SEC("xdp")
int idle(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

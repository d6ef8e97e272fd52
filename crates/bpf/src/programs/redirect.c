/* Sends frames to the AF_XDP socket of their queue: all, or the UDP datagrams to one port. The rest goes on to the
 * kernel, as does everything of a queue without a socket. */
#include "kernel.h"

enum { QUEUES = 64 };

/* Set before loading; 0: every frame. */
volatile const u32 UDP_PORT = 0;

/* Of one queue, whose frames one core handles at a time; a cache line each. Read by `Redirect` in place. */
struct counters {
	u64 redirected;
	u64 passed;
	u64 unused[6];
};

struct {
	MAP_NUMBER(type, MAP_TYPE_XSKMAP);
	MAP_NUMBER(max_entries, QUEUES);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u32);
} SOCKETS SEC(".maps");

struct {
	MAP_NUMBER(type, MAP_TYPE_ARRAY);
	MAP_NUMBER(map_flags, MAP_MMAPABLE);
	MAP_NUMBER(max_entries, QUEUES);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct counters);
} COUNTERS SEC(".maps");

enum { ETHERNET = 14, IPV4 = 20, IPV6 = 40, UDP = 17 };

ALWAYS_INLINE u32 big_endian(const unsigned char *at)
{
	return (u32)at[0] << 8 | at[1];
}

ALWAYS_INLINE int wanted(const struct xdp_md *frame)
{
	const unsigned char *at = (void *)(long)frame->data, *end = (void *)(long)frame->data_end;
	u32 type, port = UDP_PORT;

	if (!port)
		return 1;
	if (at + ETHERNET > end)
		return 0;
	type = big_endian(at + 12);
	at += ETHERNET;
	if (type == 0x0800) {
		u32 length;

		if (at + IPV4 > end)
			return 0;
		length = (at[0] & 15) * 4;
		/* A fragment: only the first carries ports, and the kernel must see all. */
		if (length < IPV4 || at[9] != UDP || big_endian(at + 6) & 0x3fff)
			return 0;
		at += length;
	} else if (type == 0x86dd) {
		if (at + IPV6 > end || at[6] != UDP)
			return 0;
		at += IPV6;
	} else {
		return 0;
	}
	return at + 4 <= end && big_endian(at + 2) == port;
}

SEC("xdp")
int redirect(struct xdp_md *frame)
{
	u32 queue = frame->rx_queue_index;
	struct counters *counters = map_lookup_elem(&COUNTERS, &queue);
	long action = XDP_PASS;

	if (wanted(frame))
		action = redirect_map(&SOCKETS, queue, XDP_PASS);
	if (counters) {
		if (action == XDP_PASS)
			counters->passed += 1;
		else
			counters->redirected += 1;
	}
	return action;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

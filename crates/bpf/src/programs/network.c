/* Sends the UDP datagrams of a process's ports to the AF_XDP socket of their queue. Everything else goes on to the
 * kernel: other traffic, and of ours what the ports do not read from frames: fragments, IPv4 options, IPv6 extension
 * headers, datagrams longer than a frame of theirs, and what comes by a queue without a socket. A kernel socket at the
 * same address takes that.
 * Also datagrams whose checksum the sending kernel has left to a device, which on a link without a wire comes through:
 * they may be many in one (UDP_SEGMENT), and only the kernel can tell and cut them.
 *
 * It takes frames in pieces, so that the kernel need not make one piece of 64 KiB of a merged datagram before it passes. */
#include "kernel.h"

enum { MAP_TYPE_HASH = 1, QUEUES = 64, PORTS_MOST = 4096 };

static u64 (*whole_length)(struct xdp_md *frame) = (void *)188;

/* Set before loading: the longest frame that fits into the socket's memory. */
volatile const u32 LONGEST = 1792;

/* Of one queue, whose frames one core handles at a time; a cache line each. Read by `Nic` in place. */
struct counters {
	u64 redirected;
	u64 passed;
	u64 ours;      /* of the passed, those for our ports, and of which that cannot be known: fragments, extension headers */
	u64 unused[5];
};

/* IPv4 addresses as ::ffff:a.b.c.d. */
struct endpoint {
	u8 address[16];
	u8 port[2];
	u8 unused[2];
};

struct {
	MAP_NUMBER(type, MAP_TYPE_XSKMAP);
	MAP_NUMBER(max_entries, QUEUES);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u32);
} SOCKETS SEC(".maps");

struct {
	MAP_NUMBER(type, MAP_TYPE_HASH);
	MAP_NUMBER(max_entries, PORTS_MOST);
	MAP_TYPE(key, struct endpoint);
	MAP_TYPE(value, u32);
} PORTS SEC(".maps");

struct {
	MAP_NUMBER(type, MAP_TYPE_ARRAY);
	MAP_NUMBER(map_flags, MAP_MMAPABLE);
	MAP_NUMBER(max_entries, QUEUES);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct counters);
} COUNTERS SEC(".maps");

enum { ETHERNET = 14, IPV4 = 20, IPV6 = 40, UDP_HEADER = 8, UDP = 17 };
/* Next headers of IPv6 that a datagram may stand behind. */
enum { HOP_BY_HOP = 0, ROUTING = 43, FRAGMENT = 44, FOR_DESTINATION = 60 };
enum verdict { OTHER, OURS, PLAIN };

ALWAYS_INLINE u32 big_endian(const u8 *at)
{
	return (u32)at[0] << 8 | at[1];
}

/* Whether `check` is the sum of what stands before a datagram and no more. The addresses are `words` of 16 bits. */
ALWAYS_INLINE int unfinished(const u16 *addresses, u32 words, u16 length, u16 check)
{
	u32 sum = length + __builtin_bswap16(UDP);

#pragma clang loop unroll(full)
	for (u32 word = 0; word < words; word++)
		sum += addresses[word];
	sum = (sum >> 16) + (sum & 0xffff);
	return ((sum >> 16) + (sum & 0xffff)) == check;
}

ALWAYS_INLINE enum verdict judge(const struct xdp_md *frame)
{
	const u8 *at = (void *)(long)frame->data, *end = (void *)(long)frame->data_end;
	u64 first = end - at;
	u32 type, plain = first <= LONGEST && whole_length((struct xdp_md *)frame) == first;
	const u16 *addresses;
	u32 words;
	struct endpoint to = {};

	if (at + ETHERNET > end)
		return OTHER;
	type = big_endian(at + 12);
	at += ETHERNET;
	if (type == 0x0800) {
		if (at + IPV4 + UDP_HEADER > end || at[9] != UDP)
			return OTHER;
		if (big_endian(at + 6) & 0x3fff)
			return OURS;
		to.address[10] = 0xff;
		to.address[11] = 0xff;
		__builtin_memcpy(to.address + 12, at + 16, 4);
		addresses = (const u16 *)(at + 12);
		words = 4;
		if (at[0] != 0x45) {
			u32 length = (at[0] & 15) * 4;

			if (length < IPV4)
				return OTHER;
			plain = 0;
			at += length;
		} else {
			at += IPV4;
		}
	} else if (type == 0x86dd) {
		if (at + IPV6 + UDP_HEADER > end)
			return OTHER;
		if (at[6] == FRAGMENT || at[6] == HOP_BY_HOP || at[6] == ROUTING || at[6] == FOR_DESTINATION)
			return at[IPV6] == UDP ? OURS : OTHER;
		if (at[6] != UDP)
			return OTHER;
		__builtin_memcpy(to.address, at + 24, 16);
		addresses = (const u16 *)(at + 8);
		words = 16;
		at += IPV6;
	} else {
		return OTHER;
	}
	if (at + UDP_HEADER > end)
		return OTHER;
	to.port[0] = at[2];
	to.port[1] = at[3];
	if (!map_lookup_elem(&PORTS, &to))
		return OTHER;
	if (!plain)
		return OURS;
	/* Two calls, so that each has a loop of constant length. */
	u16 length = *(const u16 *)(at + 4), check = *(const u16 *)(at + 6);
	int many = words == 4 ? unfinished(addresses, 4, length, check) : unfinished(addresses, 16, length, check);

	return many ? OURS : PLAIN;
}

SEC("xdp.frags")
int network(struct xdp_md *frame)
{
	u32 queue = frame->rx_queue_index;
	struct counters *counters = map_lookup_elem(&COUNTERS, &queue);
	enum verdict verdict = judge(frame);
	long action = XDP_PASS;

	if (verdict == PLAIN)
		action = redirect_map(&SOCKETS, queue, XDP_PASS);
	if (counters) {
		if (action == XDP_PASS) {
			counters->passed += 1;
			if (verdict != OTHER)
				counters->ours += 1;
		} else {
			counters->redirected += 1;
		}
	}
	return action;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Receives for the message engine at the driver hook: checks sequence, places packets into memory that the endpoint
 * polls, and acknowledges them, so that the endpoint's core finds them without having spent anything on their way.
 *
 * The endpoint's engine stays the judge of order and completeness. What the program owes it: each packet that it
 * acknowledges is in the endpoint's memory, and each packet is there at most once more than it left this program. What
 * it cannot judge goes to the kernel and so to the endpoint's socket; the endpoint tells by `taken` what came that way.
 *
 * Two cores may have packets of one endpoint at the same time: a lock guards who takes which slot; slots are filled
 * outside of it. */
#include "lanes.h"

enum { MAP_TYPE_HASH = 1, MAP_TYPE_ARRAY_OF_MAPS = 12 };

static long (*spin_lock)(void *lock) = (void *)93;
static long (*spin_unlock)(void *lock) = (void *)94;
static long (*redirect)(u32 interface, u64 flags) = (void *)23;
static long (*load_bytes)(void *ctx, u32 offset, void *into, u32 length) = (void *)189;

/* Set before loading; not 0: a frame is turned around by redirecting it to where it came from. XDP_TX on a veth leaves
 * it in the other end's ring until something else wakes that end, unless a program is attached there too. */
volatile const u32 TURN_BY_REDIRECT = 0;

enum { ETHERNET = 14, IPV4 = 20, IPV6 = 40, UDP = 8 };

/* An endpoint of each family, in network order. */
struct endpoint {
	u32 address;
	u16 port;
	u16 zero;
};

struct endpoint_v6 {
	u64 address[2];
	u16 port;
	u16 zero[3];
};

struct {
	MAP_NUMBER(type, MAP_TYPE_HASH);
	MAP_NUMBER(max_entries, LANES);
	MAP_TYPE(key, struct endpoint);
	MAP_TYPE(value, u32);
} ENDPOINTS SEC(".maps");

struct {
	MAP_NUMBER(type, MAP_TYPE_HASH);
	MAP_NUMBER(max_entries, LANES);
	MAP_TYPE(key, struct endpoint_v6);
	MAP_TYPE(value, u32);
} ENDPOINTS_V6 SEC(".maps");

struct lane_map {
	MAP_NUMBER(type, MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, MAP_MMAPABLE);
	/* By numbers: clang leaves out the types that only a pointer of a pointer leads to. */
	MAP_NUMBER(key_size, sizeof(u32));
	MAP_NUMBER(value_size, sizeof(struct lane));
};

struct {
	MAP_NUMBER(type, MAP_TYPE_ARRAY_OF_MAPS);
	MAP_NUMBER(max_entries, LANES);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u32);
	struct lane_map *values[];
} MEMORY SEC(".maps");

/* By this name the kernel knows it. */
struct bpf_spin_lock {
	u32 value;
};

/* What the program knows of a session. */
struct progress {
	u64 session;  /* 1 << 32 | its number; 0: none yet */
	u32 expected; /* the first packet that is not there */
	u32 told;     /* as the peer was last told */
	u64 beyond;   /* bit i: packet expected + 1 + i is there */
};

struct state {
	struct bpf_spin_lock lock;
	u32 unused;
	u64 tail;     /* packets placed */
	struct progress progress[SESSIONS];
};

/* The program's own, where no endpoint writes. */
struct {
	MAP_NUMBER(type, MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, LANES);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct state);
} STATE SEC(".maps");

struct header {
	u32 session;
	u32 sequence;
	u32 expected;
	u16 flags;
	u16 length;
	u64 beyond;
};

ALWAYS_INLINE u32 network(u32 value)
{
	return __builtin_bswap16((u16)value);
}

/* `ports::xdp::layout::place_of` */
ALWAYS_INLINE u32 place_of(u32 address, u32 port, u32 session)
{
	return (((address * 0x9E3779B1u) ^ (port * 0x85EBCA6Bu) ^ session) * 0xC2B2AE35u) >> 20;
}

ALWAYS_INLINE u32 ones(u64 bits)
{
	bits -= (bits >> 1) & 0x5555555555555555ull;
	bits = (bits & 0x3333333333333333ull) + ((bits >> 2) & 0x3333333333333333ull);
	bits = (bits + (bits >> 4)) & 0x0F0F0F0F0F0F0F0Full;
	return (bits * 0x0101010101010101ull) >> 56;
}

/* `bits`: bit i is packet expected + i. Goes on to the first that is not there. */
ALWAYS_INLINE void advance(struct progress *progress, u64 bits)
{
	u32 there = ones(bits & ~(bits + 1));

	progress->expected += there;
	/* Shifts by 64 do not shift. */
	progress->beyond = bits >> (there / 2) >> (there - there / 2) >> 1;
}

ALWAYS_INLINE int left_to_kernel(struct lane *lane, u32 why)
{
	__sync_fetch_and_add(&lane->count[why], 1);
	__sync_fetch_and_add(&lane->passed, 1);
	return XDP_PASS;
}

ALWAYS_INLINE u32 folded(u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* Makes an IP header that of the answer; the sum of both addresses. */
ALWAYS_INLINE u32 turn_v4(u16 *ip)
{
	u32 from = *(u32 *)(ip + 6), to = *(u32 *)(ip + 8);
	u32 pair = (from & 0xffff) + (from >> 16) + (to & 0xffff) + (to >> 16);

	/* With don't-fragment and a time to live of 64. */
	ip[0] = network(0x4500);
	ip[1] = network(IPV4 + UDP + HEADER_BYTES);
	ip[2] = 0;
	ip[3] = network(0x4000);
	ip[4] = network(64 << 8 | 17);
	ip[5] = ~folded((u32)ip[0] + ip[1] + ip[3] + ip[4] + pair);
	*(u32 *)(ip + 6) = to;
	*(u32 *)(ip + 8) = from;
	return pair;
}

ALWAYS_INLINE u32 turn_v6(u16 *ip)
{
	u32 *from = (u32 *)(ip + 4), *to = (u32 *)(ip + 12), pair = 0;

	/* Without a flow label, with a hop limit of 64. */
	ip[0] = network(0x6000);
	ip[1] = 0;
	ip[2] = network(UDP + HEADER_BYTES);
	ip[3] = network(17 << 8 | 64);
#pragma clang loop unroll(full)
	for (u32 at = 0; at < 4; at++) {
		u32 word = from[at];

		pair += (word & 0xffff) + (word >> 16) + (to[at] & 0xffff) + (to[at] >> 16);
		from[at] = to[at];
		to[at] = word;
	}
	return pair;
}

/* Turns the frame around as an acknowledgement. `ip` is the length of its IP header, which tells the family. */
ALWAYS_INLINE int acknowledge(struct xdp_md *ctx, const u32 ip, u32 session, u32 expected, u64 beyond)
{
	const u32 payload = ETHERNET + ip + UDP;

	if (xdp_adjust_tail(ctx, (int)(payload + HEADER_BYTES) - (int)(ctx->data_end - ctx->data)))
		return XDP_DROP;
	u8 *frame = (void *)(long)ctx->data;
	if (frame + payload + HEADER_BYTES > (u8 *)(long)ctx->data_end)
		return XDP_DROP;

	u16 *ethernet = (u16 *)frame;
	for (u32 at = 0; at < 3; at++) {
		u16 to = ethernet[at];
		ethernet[at] = ethernet[at + 3];
		ethernet[at + 3] = to;
	}
	u16 *header = (u16 *)(frame + ETHERNET);
	u32 pair = ip == IPV4 ? turn_v4(header) : turn_v6(header);
	u16 *udp = header + ip / 2;
	u16 port = udp[0];
	udp[0] = udp[1];
	udp[1] = port;
	udp[2] = network(UDP + HEADER_BYTES);

	u32 words[HEADER_BYTES / 4] = { session, 0, expected, 0, (u32)beyond, (u32)(beyond >> 32) };
	u32 sum = pair + network(17) + udp[0] + udp[1] + 2 * udp[2];
#pragma clang loop unroll(full)
	for (u32 at = 0; at < HEADER_BYTES / 4; at++) {
		((u16 *)(frame + payload))[2 * at] = words[at];
		((u16 *)(frame + payload))[2 * at + 1] = words[at] >> 16;
		sum += (words[at] & 0xffff) + (words[at] >> 16);
	}
	sum = ~folded(sum) & 0xffff;
	udp[3] = sum ? sum : 0xffff;
	return TURN_BY_REDIRECT ? redirect(ctx->ingress_ifindex, 0) : XDP_TX;
}

/* Takes care of a datagram to endpoint `number`, whose headers lie within the frame. `ip` is the length of its IP header,
 * which tells the family: each has a copy of this, in which all offsets are constant. */
ALWAYS_INLINE int take(struct xdp_md *ctx, u8 *frame, u8 *end, const u32 ip, const u32 *number)
{
	const u32 payload = ETHERNET + ip + UDP;
	u8 *udp = frame + ETHERNET + ip;

	if (!number)
		return XDP_PASS;
	u32 key = *number, first = 0;
	struct state *state = map_lookup_elem(&STATE, &key);
	void *memory = map_lookup_elem(&MEMORY, &key);
	if (!state || !memory)
		return XDP_PASS;
	struct lane *lane = map_lookup_elem(memory, &first);
	if (!lane)
		return XDP_PASS;

	/* The length in an IPv4 header counts itself. */
	u32 packet = network(*(u16 *)(frame + (ip == IPV4 ? 16 : 18))), itself = ip == IPV4 ? IPV4 : 0;
	u32 bytes = network(*(u16 *)(udp + 4)), length = bytes - UDP;
	if (bytes < UDP + HEADER_BYTES || bytes + itself > packet || frame + payload + HEADER_BYTES > end ||
	    length > (u32)(end - frame) - payload)
		return left_to_kernel(lane, COUNT_FOREIGN);
	/* IPv6 has no datagrams without a checksum: the kernel drops such. */
	if (ip == IPV6 && !*(u16 *)(udp + 6))
		return left_to_kernel(lane, COUNT_FOREIGN);
	struct header header = *(struct header *)(frame + payload);
	u32 carries = header.flags & FLAG_CARRIES;
	if (header.flags & ~(FLAG_CARRIES | FLAG_PING) || !carries != (length == HEADER_BYTES))
		return left_to_kernel(lane, COUNT_FOREIGN);
	if (length > SLOT_BYTES || length != HEADER_BYTES + (u32)header.length)
		return left_to_kernel(lane, COUNT_LONG);

	const u32 *from = (u32 *)(frame + ETHERNET + (ip == IPV4 ? 12 : 8));
	const u64 *whole = (u64 *)from;
	u32 address = ip == IPV4 ? from[0] : from[0] ^ from[1] ^ from[2] ^ from[3], port = *(u16 *)udp;
	u64 peer = (u64)address << 32 | port << 16 | (ip == IPV4 ? PEER_V4 : PEER_V6);
	u32 place = place_of(address, port, header.session);
	struct session *session = 0;
	for (u32 probe = 0; probe < PROBES; probe++) {
		struct session *here = &lane->sessions[place & (SESSIONS - 1)];
		u64 who = *(volatile u64 *)&here->peer;
		if (who == peer && here->session == header.session &&
		    (ip == IPV4 || (here->address[0] == whole[0] && here->address[1] == whole[1]))) {
			session = here;
			break;
		}
		if (!who)
			break;
		place++;
	}
	if (!session)
		return left_to_kernel(lane, COUNT_UNKNOWN);
	place &= SESSIONS - 1;
	u32 taken = *(volatile u32 *)&session->taken;

	enum { PLACE, DUPLICATED, FULL, FAR } outcome = PLACE;
	u32 ahead = 0, filled = 0;
	spin_lock(&state->lock);
	struct progress *progress = &state->progress[place];
	if (progress->session != (1ull << 32 | header.session)) {
		progress->session = 1ull << 32 | header.session;
		progress->expected = progress->told = taken;
		progress->beyond = 0;
	}
	u32 by_other_ways = taken - progress->expected;
	if (UNLIKELY(by_other_ways - 1 < 1u << 31)) {
		u32 half = (by_other_ways - 1) / 2;
		progress->expected = taken;
		advance(progress, by_other_ways > 64 ? 0 : progress->beyond >> half >> (by_other_ways - 1 - half));
	}
	if ((int)(taken - progress->told) > 0)
		progress->told = taken;

	u64 tail = state->tail, waiting = tail - *(volatile u64 *)&lane->read;
	if (carries) {
		ahead = header.sequence - progress->expected;
		u64 bit = 1ull << ((ahead - 1) & 63);
		if ((int)ahead < 0 || (ahead - 1 < 64 && progress->beyond & bit))
			outcome = DUPLICATED;
		else if (ahead > 64)
			outcome = FAR;
		else if (waiting >= SLOTS)
			outcome = FULL;
		else if (ahead)
			progress->beyond |= bit;
		else {
			filled = progress->beyond != 0;
			progress->expected++;
			advance(progress, progress->beyond);
		}
	} else if (waiting >= SLOTS) {
		outcome = FULL;
	}
	/* Where a quarter of the slots wait the peer is told nothing new: what its window still lets it send fits the rest,
	 * and the endpoint lets it go on once it has caught up. */
	u32 open = waiting < SLOTS / 4;
	u32 answer = header.flags & FLAG_PING || outcome == DUPLICATED || (outcome == PLACE && ahead) || filled ||
		     (open && progress->expected - progress->told >= ACKNOWLEDGE_EVERY);
	if (outcome == FAR)
		answer = 0;
	if (answer && open)
		progress->told = progress->expected;
	u32 expected = progress->told;
	u64 beyond = expected == progress->expected ? progress->beyond : 0;
	u32 complete = answer && open && !progress->beyond;
	if (outcome == PLACE)
		state->tail = tail + 1;
	spin_unlock(&state->lock);

	if (outcome == FAR)
		return left_to_kernel(lane, COUNT_FAR);
	if (answer) {
		__sync_fetch_and_add(&lane->count[COUNT_ACKNOWLEDGED], 1);
		if (!open)
			__sync_fetch_and_add(&lane->count[COUNT_HELD_BACK], 1);
	}
	if (outcome == PLACE) {
		struct slot *slot = &lane->slots[tail & (SLOTS - 1)];

		if (length > SLOT_BYTES || load_bytes(ctx, payload, slot->bytes, length))
			length = 0;
		/* A ping is answered. */
		*(u16 *)(slot->bytes + HEADER_FLAGS) = carries | (complete ? FLAG_ACKNOWLEDGED : 0);
		slot->session = place;
		slot->length = length;
		__sync_fetch_and_add(&lane->count[COUNT_PLACED], 1);
		if (ahead)
			__sync_fetch_and_add(&lane->count[COUNT_AHEAD], 1);
		__sync_lock_test_and_set(&slot->published, tail + 1);
	} else {
		__sync_fetch_and_add(&lane->count[outcome == FULL ? COUNT_FULL : COUNT_DUPLICATED], 1);
	}
	return answer ? acknowledge(ctx, ip, header.session, expected, beyond) : XDP_DROP;
}

SEC("xdp")
int receive(struct xdp_md *ctx)
{
	u8 *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (frame + ETHERNET + IPV4 + UDP > end)
		return XDP_PASS;
	if (LIKELY(*(u16 *)(frame + 12) == network(0x0800))) {
		/* Without options and no fragment, UDP. */
		if (frame[14] != 0x45 || frame[23] != 17 || *(u16 *)(frame + 20) & network(0x3fff))
			return XDP_PASS;
		struct endpoint to = { .address = *(u32 *)(frame + 30), .port = *(u16 *)(frame + 36) };
		u32 *number = map_lookup_elem(&ENDPOINTS, &to);
		return take(ctx, frame, end, IPV4, number);
	}
	/* UDP at once: neither a fragment nor another extension header. */
	if (*(u16 *)(frame + 12) != network(0x86dd) || frame + ETHERNET + IPV6 + UDP > end || frame[14] >> 4 != 6 ||
	    frame[20] != 17)
		return XDP_PASS;
	u64 *address = (u64 *)(frame + 38);
	struct endpoint_v6 to = { .address = { address[0], address[1] }, .port = *(u16 *)(frame + 56) };
	u32 *number = map_lookup_elem(&ENDPOINTS_V6, &to);
	return take(ctx, frame, end, IPV6, number);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* What the receiving program shares with an endpoint: its lane, memory of which the endpoint's process maps all and no
 * other process any. Native byte order, unless it says network order.
 *
 * Mirrored by `ports::xdp::layout`; a test reads this file and compares. The program trusts nothing in a lane:
 * a process that writes nonsense there hurts itself alone. Words of one writer share cache lines, those of two do
 * not. */
#pragma once
#include "kernel.h"

enum {
	LANES = 64,        /* endpoints of an interface */
	SESSIONS = 4096,   /* peers of an endpoint, a power of two */
	PROBES = 16,       /* places where a session may be, from that of its hash on */
	SLOTS = 2048,      /* packets that wait for the endpoint, a power of two */
	SLOT_BYTES = 2032, /* the longest packet */
};

/* The engine's sequencing header, `engine::wire::Sequencing`, little endian; a packet of the message layer follows. */
enum {
	HEADER_SESSION = 0,
	HEADER_SEQUENCE = 4,
	HEADER_EXPECTED = 8,
	HEADER_FLAGS = 12, /* 16 bits */
	HEADER_LENGTH = 14, /* of the packet that follows, 16 bits */
	HEADER_BEYOND = 16,
	HEADER_BYTES = 24,

	FLAG_CARRIES = 1,
	FLAG_PING = 2,
	FLAG_ACKNOWLEDGED = 4, /* never on the wire: the program's word to the engine */
};

/* Packets between two acknowledgements, as the engine's ACKNOWLEDGE_EVERY. */
enum { ACKNOWLEDGE_EVERY = 16 };

/* What stands in the low bits of `peer`. */
enum {
	PEER_V4 = 1,
	PEER_V6 = 2,
};

/* Where a peer's packets are known by. Written by the endpoint; `peer` last, which makes it valid: address << 32 |
 * port << 16 | family, both in network order, where the 32-bit words of an IPv6 address are put into one by exclusive or;
 * 0: none, and no session is behind it. */
struct session {
	u64 peer;
	u32 session;
	u32 taken;      /* the first packet that the endpoint has not, as it last told the peer */
	u64 address[2]; /* of an IPv6 peer, the whole, in network order */
};

/* A packet with its sequencing header. */
struct slot {
	u64 published; /* its number among all packets of the lane, from 1; written last */
	u32 session;   /* the place of its session */
	u32 length;
	u8 bytes[SLOT_BYTES];
};

/* What the program counts. */
enum {
	COUNT_PLACED = 0,
	COUNT_ACKNOWLEDGED = 1, /* acknowledgements sent */
	COUNT_DUPLICATED = 2,      /* packets that were there already */
	COUNT_AHEAD = 3,        /* packets placed before one that was sent earlier */
	COUNT_FULL = 4,         /* packets dropped: no slot was free */
	COUNT_HELD_BACK = 5,    /* acknowledgements that tell nothing new, since a quarter of the slots wait */
	/* Left to the kernel and so to the endpoint's socket. */
	COUNT_UNKNOWN = 6,      /* of no session */
	COUNT_FAR = 7,          /* too far ahead */
	COUNT_LONG = 8,         /* longer than a slot, or several that the kernel has not yet cut apart (generic mode) */
	COUNT_FOREIGN = 9,      /* not of the engine, such as introductions, or malformed */
	COUNTS = 16,
};

struct lane {
	u64 read;       /* packets that the endpoint has done with */
	u64 unused[7];
	u64 passed;     /* packets left to the kernel: there is something at the socket, or soon will be */
	u64 unused2[7];
	u64 count[COUNTS];
	struct session sessions[SESSIONS];
	struct slot slots[SLOTS];
};

/* What the bodies of the traffic generator share with the program that asks for it: 64-bit words, native byte order.
 *
 * Mirrored by `traffic::control` and `traffic::receiver`; a test of each reads this file and compares. Words of one writer
 * share cache lines, those of two do not. */
#pragma once
#include "kernel.h"

/* The control block of one sender, the same for every body. */
enum {
	/* As asked; written before the sender starts. */
	CONTROL_MODE = 0,         /* MODE_RATE or MODE_PACED */
	CONTROL_FRAMES = 1,       /* frames to send, all bits set: no limit */
	CONTROL_END_NS = 2,       /* CLOCK_MONOTONIC when to end, all bits set: never */
	CONTROL_ENTRIES = 3,      /* entries of the table, at least 1 */
	CONTROL_LENGTH = 4,       /* bytes of the template */
	CONTROL_TAG = 5,          /* of this stream, 16 bits */
	CONTROL_FLAGS = 6,
	CONTROL_CLOCK_EVERY = 7,  /* MODE_RATE: frames between two looks at the clock, a power of two */
	CONTROL_START_NS = 8,     /* when the first frame is due, 0: at once */
	CONTROL_STOP = 9,         /* not 0: end now */
	CONTROL_IP_SUM = 10,      /* IPv4: sum of the header's words, without total length and checksum */
	CONTROL_UDP_SUM = 11,     /* sum of pseudo header and ports, without both lengths; see FLAG_UDP_CHECKSUM */
	CONTROL_LATE_NS = 12,     /* a frame that leaves later than this after it was due missed its deadline */
	CONTROL_RUNS = 13,        /* at a driver hook: runs that one call of the kernel asks for */
	CONTROL_BATCH = 14,       /* there, MODE_RATE: frames that go through the program before any leaves */
	CONTROL_ALIVE_NS = 15,    /* CLOCK_MONOTONIC when to end unless whoever asked moves it on, all bits set: never */

	/* Written by the sender alone. */
	CONTROL_SENT = 16,
	CONTROL_BYTES = 17,
	CONTROL_MISSED = 18,
	CONTROL_ERRORS = 19,      /* frames that the body could not hand over */
	CONTROL_POSITION = 20,    /* entry of the table that is next */
	CONTROL_DUE_NS = 21,      /* when the next frame is due */
	CONTROL_FIRST_NS = 22,
	CONTROL_LAST_NS = 23,
	CONTROL_STATE = 24,       /* STATE_... */
	CONTROL_LATEST_NS = 25,   /* the most that a frame was late */
	CONTROL_CLOCK_NS = 26,    /* the last look at the clock */
	CONTROL_TURNS = 27,       /* how often the body looked whether a frame was due */

	CONTROL_TEMPLATE = 32,    /* the longest frame, from its Ethernet header on */
	CONTROL_TABLE = 256,      /* entries: gap to the next frame in ns << 16 | bytes of this frame */
	CONTROL_WORDS = 65792,
	TABLE_ENTRIES = 65536,
};

enum { MODE_RATE = 0, MODE_PACED = 1 };
enum { STATE_IDLE = 0, STATE_RUNNING = 1, STATE_FINISHED = 2 };
enum { FLAG_IPV6 = 1, FLAG_UDP_CHECKSUM = 2 };

/* The first bytes of the UDP payload; what follows is zeros:
 *   u64 tag << 48 | sequence number, from 0
 *   u64 CLOCK_MONOTONIC when it was written, in ns */
enum { PAYLOAD_BYTES = 16 };

/* What a receiver has counted on one queue. One writer: the core that serves the queue. */
enum {
	RESULT_RECEIVED = 0,
	RESULT_BYTES = 1,
	RESULT_FOREIGN = 2,       /* frames that are not of this stream */
	RESULT_FIRST_NS = 3,
	RESULT_LAST_NS = 4,
	RESULT_NEXT = 5,          /* highest sequence number + 1 */
	RESULT_LOWEST = 6,        /* lowest sequence number */
	RESULT_DUPLICATED = 7,
	RESULT_REORDERED = 8,     /* arrived after a higher number */
	RESULT_STALE = 9,         /* too late to tell duplicated from reordered */
	RESULT_GAPS = 10,
	RESULT_GAP_MAX_NS = 11,
	RESULT_GAP_MIN_NS = 12,
	RESULT_SQUARES_LOW = 13,  /* of gap - target, 128 bits */
	RESULT_SQUARES_HIGH = 14,
	RESULT_BURSTS = 15,       /* gaps of at most burst_ns */
	RESULT_WITHIN_64 = 16,    /* |gap - target|, each gap in the narrowest only */
	RESULT_WITHIN_128 = 17,
	RESULT_WITHIN_256 = 18,
	RESULT_WITHIN_512 = 19,
	RESULT_WITHIN_1000 = 20,
	RESULT_WINDOW = 32,       /* a bit for each of the last WINDOW_BITS sequence numbers */
	RESULT_HISTOGRAM = 64,    /* of gaps: exact below 32 ns, then 32 buckets an octave */
	RESULT_WORDS = 1088,
	WINDOW_BITS = 1024,
	HISTOGRAM_BUCKETS = 1024,
	QUEUES = 8,
};

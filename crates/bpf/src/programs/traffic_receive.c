/* The traffic generator's receiver at the driver hook: times arrivals, keeps the histogram of gaps, and finds by sequence
 * number what was lost, duplicated or reordered. */
#include "offcode.h"
#include "traffic.h"

/* As asked; set before the program is verified, so that what is not asked for costs nothing. */
const volatile u64 tag = 0;
const volatile u64 port = 0;       /* UDP destination */
const volatile u64 target_ns = 0;  /* the gap that is meant */
const volatile u64 burst_ns = 0;
const volatile u64 timing = 1;     /* 0: no clock, no gaps */
const volatile u64 verdict = XDP_DROP;

struct result {
	u64 word[RESULT_WORDS];
};

struct {
	MAP_NUMBER(type, MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, QUEUES);
	MAP_NUMBER(map_flags, MAP_MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct result);
} RESULT SEC(".maps");

enum { ETHERNET = 14, IPV4 = 20, IPV6 = 40, UDP = 8 };

ALWAYS_INLINE u32 bucket_of(u64 gap)
{
	u32 exponent = 5;

	if (gap < 32)
		return gap;
	if (gap >> 35)
		gap = (1ull << 35) - 1;
	u64 rest = gap >> 5;
	if (rest >> 16) {
		exponent += 16;
		rest >>= 16;
	}
	if (rest >> 8) {
		exponent += 8;
		rest >>= 8;
	}
	if (rest >> 4) {
		exponent += 4;
		rest >>= 4;
	}
	if (rest >> 2) {
		exponent += 2;
		rest >>= 2;
	}
	exponent += rest >> 1;
	return (exponent - 4) * 32 + ((gap >> (exponent - 5)) & 31);
}

ALWAYS_INLINE void time_arrival(u64 *word, u64 now)
{
	if (LIKELY(word[RESULT_RECEIVED])) {
		u64 gap = now - word[RESULT_LAST_NS];
		u64 off = gap > target_ns ? gap - target_ns : target_ns - gap;

		word[RESULT_GAPS] += 1;
		word[RESULT_HISTOGRAM + (bucket_of(gap) & (HISTOGRAM_BUCKETS - 1))] += 1;
		if (off <= 1000) {
			u32 band = off <= 128 ? (off <= 64 ? RESULT_WITHIN_64 : RESULT_WITHIN_128)
				 : off <= 256 ? RESULT_WITHIN_256
				 : off <= 512 ? RESULT_WITHIN_512
					      : RESULT_WITHIN_1000;
			word[band] += 1;
		}
		if (gap <= burst_ns)
			word[RESULT_BURSTS] += 1;
		/* Squares of up to half a minute fit. */
		u64 square = off >> 32 ? ~0ull : off * off;
		u64 low = word[RESULT_SQUARES_LOW] + square;
		word[RESULT_SQUARES_LOW] = low;
		if (UNLIKELY(low < square))
			word[RESULT_SQUARES_HIGH] += 1;
		if (UNLIKELY(gap > word[RESULT_GAP_MAX_NS]))
			word[RESULT_GAP_MAX_NS] = gap;
		if (UNLIKELY(gap < word[RESULT_GAP_MIN_NS] || word[RESULT_GAPS] == 1))
			word[RESULT_GAP_MIN_NS] = gap;
	} else {
		word[RESULT_FIRST_NS] = now;
	}
	word[RESULT_LAST_NS] = now;
}

ALWAYS_INLINE u64 *window_of(u64 *word, u64 sequence)
{
	return &word[RESULT_WINDOW + ((sequence >> 6) & (WINDOW_BITS / 64 - 1))];
}

ALWAYS_INLINE void follow(u64 *word, u64 sequence)
{
	u64 next = word[RESULT_NEXT];
	u64 bit = 1ull << (sequence & 63);

	if (LIKELY(sequence == next && word[RESULT_RECEIVED])) {
		u64 *window = window_of(word, sequence);
		*window = sequence & 63 ? *window | bit : 1;
		word[RESULT_NEXT] = sequence + 1;
		return;
	}
	if (!word[RESULT_RECEIVED]) {
		*window_of(word, sequence) = bit;
		word[RESULT_LOWEST] = sequence;
		word[RESULT_NEXT] = sequence + 1;
		return;
	}
	if (sequence > next) {
		/* Numbers were left out: the words of the window between belong to new numbers now. */
		u64 entered = (next - 1) >> 6, last = sequence >> 6;
		for (u32 n = 0; n < WINDOW_BITS / 64; n++) {
			entered += 1;
			if (entered > last)
				break;
			word[RESULT_WINDOW + ((last - n) & (WINDOW_BITS / 64 - 1))] = 0;
		}
		*window_of(word, sequence) |= bit;
		word[RESULT_NEXT] = sequence + 1;
		return;
	}
	if (((next - 1) >> 6) - (sequence >> 6) >= WINDOW_BITS / 64) {
		word[RESULT_STALE] += 1;
		return;
	}
	u64 *window = window_of(word, sequence);
	if (*window & bit) {
		word[RESULT_DUPLICATED] += 1;
	} else {
		*window |= bit;
		word[RESULT_REORDERED] += 1;
		if (sequence < word[RESULT_LOWEST])
			word[RESULT_LOWEST] = sequence;
	}
}

/* The payload of a frame of the stream, or 0. */
ALWAYS_INLINE u64 *payload_of(u8 *frame, u8 *end)
{
	if (frame + ETHERNET + IPV4 + UDP + PAYLOAD_BYTES > end)
		return 0;
	u16 type = *(u16 *)(frame + 12);
	if (LIKELY(type == __builtin_bswap16(0x0800))) {
		if (frame[14] != 0x45 || frame[23] != 17)
			return 0;
		if (*(u16 *)(frame + ETHERNET + IPV4 + 2) != __builtin_bswap16((u16)port))
			return 0;
		return (u64 *)(frame + ETHERNET + IPV4 + UDP);
	}
	if (type != __builtin_bswap16(0x86dd) || frame + ETHERNET + IPV6 + UDP + PAYLOAD_BYTES > end)
		return 0;
	if (frame[20] != 17 || *(u16 *)(frame + ETHERNET + IPV6 + 2) != __builtin_bswap16((u16)port))
		return 0;
	return (u64 *)(frame + ETHERNET + IPV6 + UDP);
}

SEC("xdp")
int receive(struct xdp_md *ctx)
{
	u8 *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	/* Further queues share the last entry; the reader tells that they were there. */
	u32 queue = ctx->rx_queue_index;
	if (UNLIKELY(queue >= QUEUES))
		queue = QUEUES - 1;
	struct result *result = map_lookup_elem(&RESULT, &queue);
	if (!result)
		return XDP_ABORTED;
	u64 *word = result->word;
	u64 *payload = payload_of(frame, end);
	if (UNLIKELY(!payload || payload[0] >> 48 != tag)) {
		word[RESULT_FOREIGN] += 1;
		return XDP_PASS;
	}
	if (timing)
		time_arrival(word, ktime_get_ns());
	follow(word, payload[0] & ((1ull << 48) - 1));
	word[RESULT_BYTES] += end - frame;
	word[RESULT_RECEIVED] += 1;
	return verdict == XDP_PASS ? XDP_PASS : XDP_DROP;
}

/* Method 0, of a queue and a number as u32: so many words of what the queue has counted, from that many times as many on. */
enum { PART = 64 };

SEC("syscall")
int call(struct offcode_call *call)
{
	u32 queue = ((u32 *)call->bytes)[0], part = ((u32 *)call->bytes)[1];
	u64 *to = (u64 *)call->bytes;

	if (call->method != 0 || call->length != 8)
		return 1;
	struct result *result = map_lookup_elem(&RESULT, &queue);
	if (!result || part >= RESULT_WORDS / PART)
		return 2;
	u64 *from = &result->word[part * PART];
	/* Offsets into a call's context are constants. */
#pragma clang loop unroll(full)
	for (u32 n = 0; n < PART; n++)
		to[n] = *(volatile u64 *)&from[n];
	call->length = PART * sizeof(u64);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

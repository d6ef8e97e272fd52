/* Runs the offcodes of one hook in turn, one frame after the other, until a verdict ends it. The loader puts the body of
 * the n-th offcode into the place of `stage_n`: it becomes a function of this program. See `linux::xdp::chain`.
 *
 * Who includes this says what differs between hooks:
 *   HOOK             the section
 *   CONTEXT          what a program gets
 *   FAILED           the verdict where nothing can run
 *   IN_BOUNDS(v)     what the kernel makes of the verdict v
 *   PLACE_OF(v)      its place among the verdicts that are counted
 *   GONE_THROUGH(v)  what the hook gets where the last stage's verdict v lets the next one run */
#pragma once
#include "kernel.h"

enum { STAGES = 10, VERDICTS = 8 };

/* Constants of one load. */
volatile const u32 COUNT = 0;              /* stages that are filled */
volatile const u32 PLACES[STAGES] = {};    /* which element of COUNTS is a stage's */
volatile const u32 CHAINS[STAGES] = {};    /* verdicts after which the next stage runs, a bit each */
volatile const u32 BETWEEN = 0;            /* a power of two less one: a stage's first runs, and of those behind one of so many, are timed */

/* Of one offcode on one core. */
struct counts {
	u64 runs;
	u64 timed;   /* runs that were */
	u64 ns;      /* of these */
	u64 verdicts[VERDICTS];
};

struct all_counts {
	struct counts of[STAGES];
};

struct {
	MAP_NUMBER(type, MAP_TYPE_PERCPU_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct all_counts);
} COUNTS SEC(".maps");

/* A function of its own, about whose result the compiler assumes nothing. */
#define STAGE(n)                                                             \
	__attribute__((noinline)) int stage_##n(CONTEXT *ctx)                \
	{                                                                    \
		volatile int verdict = FAILED;                               \
		return ctx ? verdict : FAILED + 1;                           \
	}
STAGE(0) STAGE(1) STAGE(2) STAGE(3) STAGE(4) STAGE(5) STAGE(6) STAGE(7) STAGE(8) STAGE(9)

/* Two looks at the clock before the stage tell what a look takes. */
#define RUN(n)                                                               \
	if (COUNT <= n)                                                      \
		return GONE_THROUGH(verdict);                                \
	place = PLACES[n];                                                   \
	if (place < STAGES) {                                                \
		struct counts *counts = &all->of[place];                     \
		u64 looked = 0, begun = 0;                                   \
		if (!(counts->runs++ & BETWEEN) || counts->timed <= BETWEEN) { \
			looked = ktime_get_ns();                             \
			begun = ktime_get_ns();                              \
		}                                                            \
		verdict = stage_##n(ctx);                                    \
		if (begun) {                                                 \
			u64 own = begun - looked, took = ktime_get_ns() - begun; \
			counts->timed += 1;                                  \
			counts->ns += took > own ? took - own : 0;           \
		}                                                            \
		verdict = IN_BOUNDS(verdict);                                \
		which = PLACE_OF(verdict);                                   \
		/* The verifier sees a bound only where the compiler does not. */ \
		asm volatile("" : "+r"(which));                              \
		which &= VERDICTS - 1;                                       \
		counts->verdicts[which] += 1;                                \
		if (!(CHAINS[n] >> which & 1))                               \
			return verdict;                                      \
	}

SEC(HOOK)
int dispatcher(CONTEXT *ctx)
{
	u32 key = 0, place;
	u64 which;
	int verdict = FAILED;
	struct all_counts *all = map_lookup_elem(&COUNTS, &key);

	if (!all)
		return FAILED;
	RUN(0) RUN(1) RUN(2) RUN(3) RUN(4) RUN(5) RUN(6) RUN(7) RUN(8) RUN(9)
	return GONE_THROUGH(verdict);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

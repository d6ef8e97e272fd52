/* What each core does for the network: softirq counts and time by vector, and interrupts taken.
 *
 * Softirqs of one core do not nest, so one start time a core is enough. Time counts from handler entry to exit,
 * hardware interrupts that fall into it included. */
#include "kernel.h"

#define VECTORS 10

/* Mirrored by `SoftirqSensor` as an array of u64; keep the order. */
struct core_work {
	u64 count[VECTORS];
	u64 time_ns[VECTORS];
	u64 device_interrupts;
	u64 interprocessor_interrupts;
	u64 entered_ns;
};

struct {
	MAP_NUMBER(type, MAP_TYPE_PERCPU_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct core_work);
} WORK SEC(".maps");

static __attribute__((always_inline)) struct core_work *this_core(void)
{
	u32 key = 0;
	return map_lookup_elem(&WORK, &key);
}

SEC("raw_tp/softirq_entry")
int on_softirq_entry(struct raw_tracepoint_args *ctx)
{
	struct core_work *work = this_core();
	if (work)
		work->entered_ns = ktime_get_ns();
	return 0;
}

SEC("raw_tp/softirq_exit")
int on_softirq_exit(struct raw_tracepoint_args *ctx)
{
	struct core_work *work = this_core();
	u64 vector = ctx->args[0];
	/* No start: the programs were attached in the middle of this handler. */
	if (!work || !work->entered_ns || vector >= VECTORS)
		return 0;
	work->count[vector] += 1;
	work->time_ns[vector] += ktime_get_ns() - work->entered_ns;
	work->entered_ns = 0;
	return 0;
}

SEC("raw_tp/irq_handler_entry")
int on_device_interrupt(struct raw_tracepoint_args *ctx)
{
	struct core_work *work = this_core();
	if (work)
		work->device_interrupts += 1;
	return 0;
}

/* Attached to every kind of inter-processor interrupt that the architecture traces. */
SEC("raw_tp/reschedule_entry")
int on_interprocessor_interrupt(struct raw_tracepoint_args *ctx)
{
	struct core_work *work = this_core();
	if (work)
		work->interprocessor_interrupts += 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The traffic generator's body at the driver hook: makes frames in the kernel's live-frames mode.
 *
 * `send` runs once for each frame that is to leave. In MODE_RATE it fills it and sends it. In MODE_PACED it waits for its
 * time first; whoever runs it uses batches of one frame then, since a batch leaves together. */
#include "offcode.h"
#include "traffic.h"

/* It waits for the call `begin`. */
OFFCODE_FRAME();

struct control {
	u64 word[CONTROL_WORDS];
};

struct {
	MAP_NUMBER(type, MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, MAP_MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct control);
} CONTROL SEC(".maps");

/* Interrupts of this core's other work wait while a program runs: it gives the core back this often. */
#define LONGEST_WAIT_NS 200000
/* A look at the clock takes more than 10 ns. */
#define LOOKS (LONGEST_WAIT_NS / 10)

enum { ETHERNET = 14, IPV4 = 20, IPV6 = 40, UDP = 8 };

struct wait {
	volatile u64 *word;
	u64 due;
	u64 until;
	u64 now;
};

static long look(u32 index, struct wait *wait)
{
	wait->now = ktime_get_ns();
	return wait->now >= wait->due || wait->now >= wait->until;
}

ALWAYS_INLINE u16 big_endian(u32 number)
{
	return __builtin_bswap16(number);
}

ALWAYS_INLINE u64 folded(u64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

ALWAYS_INLINE u64 sum_of(u64 word)
{
	return (word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48);
}

static __attribute__((noinline)) int finish(u64 *state)
{
	u32 key = 0;
	struct offcode_frame *frame = map_lookup_elem(&FRAME, &key);

	if (!state)
		return XDP_ABORTED;
	*(volatile u64 *)state = STATE_FINISHED;
	if (frame)
		*(volatile u64 *)&frame->finished = 1;
	return XDP_DROP;
}

/* `udp` is a constant where this is inlined. */
ALWAYS_INLINE int fill(struct xdp_md *ctx, volatile u64 *word, u32 udp, u32 length, u64 sequence, u64 now)
{
	u8 *frame = (void *)(long)ctx->data;
	u64 *payload = (void *)(frame + udp + UDP);

	if ((void *)(payload + 2) > (void *)(long)ctx->data_end)
		return 0;
	payload[0] = word[CONTROL_TAG] << 48 | sequence;
	payload[1] = now;
	u16 udp_length = big_endian(length - udp);
	if (udp == ETHERNET + IPV4) {
		u16 total = big_endian(length - ETHERNET);
		*(u16 *)(frame + ETHERNET + 2) = total;
		*(u16 *)(frame + ETHERNET + 10) = ~folded(word[CONTROL_IP_SUM] + total);
	} else {
		*(u16 *)(frame + ETHERNET + 4) = udp_length;
	}
	*(u16 *)(frame + udp + 4) = udp_length;
	u16 check = 0;
	if (udp != ETHERNET + IPV4 || word[CONTROL_FLAGS] & FLAG_UDP_CHECKSUM) {
		u64 sum = word[CONTROL_UDP_SUM] + 2 * (u64)udp_length + sum_of(payload[0]) + sum_of(now);
		check = ~folded(sum);
		if (!check)
			check = 0xffff;
	}
	*(u16 *)(frame + udp + 6) = check;
	return 1;
}

SEC("xdp")
int send(struct xdp_md *ctx)
{
	u32 key = 0;
	struct control *control = map_lookup_elem(&CONTROL, &key);
	if (!control)
		return XDP_ABORTED;
	volatile u64 *word = control->word;

	u64 sequence = word[CONTROL_SENT];
	if (UNLIKELY(word[CONTROL_STOP] || sequence >= word[CONTROL_FRAMES] || word[CONTROL_STATE] == STATE_FINISHED)) {
		return finish((u64 *)&word[CONTROL_STATE]);
	}
	u64 paced = word[CONTROL_MODE] == MODE_PACED;
	u64 now = word[CONTROL_CLOCK_NS];
	if (UNLIKELY(!sequence) || paced || !(sequence & (word[CONTROL_CLOCK_EVERY] - 1))) {
		now = ktime_get_ns();
		word[CONTROL_TURNS] += 1;
	}
	if (UNLIKELY(now >= word[CONTROL_END_NS] || now >= word[CONTROL_ALIVE_NS])) {
		return finish((u64 *)&word[CONTROL_STATE]);
	}
	if (UNLIKELY(!sequence)) {
		word[CONTROL_STATE] = STATE_RUNNING;
		if (!word[CONTROL_DUE_NS]) {
			u64 start = word[CONTROL_START_NS];
			word[CONTROL_DUE_NS] = start ? start : now;
		}
	}
	if (paced || UNLIKELY(!sequence)) {
		struct wait wait = { word, word[CONTROL_DUE_NS], now + LONGEST_WAIT_NS, now };
		if (wait.due > now) {
			bpf_loop(LOOKS, look, &wait, 0);
			now = wait.now;
			if (now < wait.due)
				/* Nothing leaves; the next run goes on waiting. */
				return XDP_DROP;
		}
	}
	word[CONTROL_CLOCK_NS] = now;

	u64 position = word[CONTROL_POSITION] & (TABLE_ENTRIES - 1);
	u64 entry = word[CONTROL_TABLE + position];
	u32 length = entry & 0xffff;
	u32 has = ctx->data_end - ctx->data;
	if (UNLIKELY(length != has) && xdp_adjust_tail(ctx, (int)length - (int)has)) {
		word[CONTROL_ERRORS] += 1;
		return finish((u64 *)&word[CONTROL_STATE]);
	}
	int filled = word[CONTROL_FLAGS] & FLAG_IPV6 ? fill(ctx, word, ETHERNET + IPV6, length, sequence, now)
						     : fill(ctx, word, ETHERNET + IPV4, length, sequence, now);
	if (UNLIKELY(!filled)) {
		word[CONTROL_ERRORS] += 1;
		return finish((u64 *)&word[CONTROL_STATE]);
	}

	if (paced) {
		u64 due = word[CONTROL_DUE_NS];
		u64 behind = now - due;
		if (UNLIKELY(behind > word[CONTROL_LATE_NS]))
			word[CONTROL_MISSED] += 1;
		if (UNLIKELY(behind > word[CONTROL_LATEST_NS]))
			word[CONTROL_LATEST_NS] = behind;
		word[CONTROL_DUE_NS] = due + (entry >> 16);
	}
	position += 1;
	word[CONTROL_POSITION] = position >= word[CONTROL_ENTRIES] ? 0 : position;
	if (UNLIKELY(!sequence))
		word[CONTROL_FIRST_NS] = now;
	word[CONTROL_LAST_NS] = now;
	word[CONTROL_BYTES] += length;
	word[CONTROL_SENT] = sequence + 1;
	return XDP_TX;
}

SEC("syscall")
int start(void *ctx)
{
	u32 key = 0;
	struct offcode_frame *frame = map_lookup_elem(&FRAME, &key);

	if (!frame)
		return 1;
	frame->finished = 1;
	return 0;
}

static int begin(volatile u64 *word, struct offcode_frame *frame)
{
	if (!word[CONTROL_LENGTH] || word[CONTROL_LENGTH] > sizeof(frame->bytes))
		return 1;
	/* The runs that are left of the last call would end the new profile. */
	if (!*(volatile u64 *)&frame->finished || *(volatile u64 *)&frame->calling || word[CONTROL_STATE])
		return 3;
	frame->length = word[CONTROL_LENGTH];
	/* A batch leaves together. */
	frame->batch = word[CONTROL_MODE] == MODE_PACED ? 1 : word[CONTROL_BATCH];
	frame->runs = word[CONTROL_RUNS];
	for (u32 at = 0; at < sizeof(frame->bytes) / 8; at++)
		((u64 *)frame->bytes)[at] = word[CONTROL_TEMPLATE + at];
	*(volatile u64 *)&frame->finished = 0;
	return 0;
}

/* Method 0 begins what CONTROL asks for, 1 ends it; each results in the frames sent. */
SEC("syscall")
int call(struct offcode_call *call)
{
	u32 key = 0;
	struct control *control = map_lookup_elem(&CONTROL, &key);
	struct offcode_frame *frame = map_lookup_elem(&FRAME, &key);

	if (!control || !frame)
		return 1;
	*(u64 *)call->bytes = control->word[CONTROL_SENT];
	call->length = 8;
	switch (call->method) {
	case 0:
		return begin(control->word, frame);
	case 1:
		*(volatile u64 *)&control->word[CONTROL_STOP] = 1;
		return 0;
	}
	return 2;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

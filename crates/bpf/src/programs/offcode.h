/* What the body of an offcode at a driver hook shares with its site. See `runtime::site::xdp` for the convention.
 *
 * A program in SEC("xdp") is the body, one in SEC("classifier") that for tc hooks. Optional programs in SEC("syscall"), by name:
 *   initialize, start, stop   the phases; not 0 refuses
 *   call                      carries out a call: reads and writes `struct offcode_call`; not 0 refuses
 *   message                   something was written to IN
 * Optional maps:
 *   OUT   a ring buffer: what the offcode writes to its channel
 *   IN    a shared array: entry 0 is `struct offcode_in`, each other entry a `struct offcode_slot`
 *   OUT_name, IN_name   the same for the channel `name`, whose handler is `message_name`, or `message`
 *   FRAMES_name   sockets: the channel `name` is one of frames; not at tc hooks
 *   FRAME the frame of a producer, `struct offcode_frame`
 * Attributes set the variable (u64, not static) of the same name. */
#pragma once
#include "kernel.h"

#define CALL_BYTES 1024

/* The context of `call`: what `offcode::call::Header` says, arguments in, result out. */
struct offcode_call {
	u64 interface;
	u16 method;
	u16 reserved;
	u32 length;   /* in: of the arguments; out: of the result */
	unsigned char bytes[CALL_BYTES];
};

/* Entry 0 of IN. Each counter is written by one side. */
struct offcode_in {
	u64 written;  /* messages that user space has put into the slots */
	u64 unused[7];
	u64 read;     /* messages that the program has taken */
};

#define IN_SLOT_BYTES 4096
struct offcode_slot {
	u64 length;
	unsigned char bytes[IN_SLOT_BYTES];
};

/* `slots` is a power of two. */
#define OFFCODE_INPUT(map, slots)                         \
	struct {                                          \
		MAP_NUMBER(type, MAP_TYPE_ARRAY);         \
		MAP_NUMBER(max_entries, (slots) + 1);     \
		MAP_NUMBER(map_flags, MAP_MMAPABLE);      \
		MAP_TYPE(key, u32);                       \
		MAP_TYPE(value, struct offcode_slot);     \
	} map SEC(".maps");                               \
	enum { map##_SLOTS = (slots) }

#define OFFCODE_OUTPUT(map, bytes)                        \
	struct {                                          \
		MAP_NUMBER(type, MAP_TYPE_RINGBUF);       \
		MAP_NUMBER(max_entries, bytes);           \
	} map SEC(".maps")

#define OFFCODE_IN(slots) OFFCODE_INPUT(IN, slots)
#define OFFCODE_OUT(bytes) OFFCODE_OUTPUT(OUT, bytes)

/* A channel of its own for the name: IN_name with so many slots, OUT_name with so many bytes. */
#define OFFCODE_CHANNEL(name, slots, bytes)               \
	OFFCODE_INPUT(IN_##name, slots);                  \
	OFFCODE_OUTPUT(OUT_##name, bytes)

/* A channel of frames: what `redirect_map(&FRAMES_name, ctx->rx_queue_index, otherwise)` is returned for goes to its other
 * end, and `otherwise` is the verdict where nobody has that. */
#define OFFCODE_FRAMES(name)                              \
	struct {                                          \
		MAP_NUMBER(type, MAP_TYPE_XSKMAP);        \
		MAP_NUMBER(max_entries, 64);              \
		MAP_TYPE(key, u32);                       \
		MAP_TYPE(value, u32);                     \
	} FRAMES_##name SEC(".maps")

/* For a producer: the frame that its program is run on. What `bytes` holds at the start is in every frame; the program
 * writes what changes. It sets `finished` when it has nothing more to send; what it does not send it drops. */
struct offcode_frame {
	u64 length;
	u64 batch;     /* frames that leave together; 1 where the program waits for the right moment */
	u64 finished;
	u64 runs;      /* that one call of the kernel asks for, 0: the site chooses; a call costs as much as thousands of them */
	u64 calling;   /* the site sets it while a call of the kernel runs, which goes on for a while after `finished` */
	u64 unused[3];
	u8 bytes[1536];
};

#define OFFCODE_FRAME()                                   \
	struct {                                          \
		MAP_NUMBER(type, MAP_TYPE_ARRAY);         \
		MAP_NUMBER(max_entries, 1);               \
		MAP_NUMBER(map_flags, MAP_MMAPABLE);      \
		MAP_TYPE(key, u32);                       \
		MAP_TYPE(value, struct offcode_frame);    \
	} FRAME SEC(".maps")

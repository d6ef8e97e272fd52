/* An offcode's body in C, as a wasm module without imports. docs/wasm-abi.md explains what is behind this.
 *
 *   clang --target=wasm32 -O2 -ffreestanding -nostdlib -Wl,--no-entry -I. -o body.wasm body.c
 *
 * The author writes one function, which is handed every event, and one line:
 *
 *   static const uint8_t interfaces[][16] = {{0x6f, ...}};
 *   static void on_event(const struct offcode_record *event, const uint8_t *payload) {
 *       switch (event->kind) { case OFFCODE_MESSAGE: ... }
 *   }
 *   OFFCODE_BODY(on_event, interfaces)
 */
#ifndef OFFCODE_H
#define OFFCODE_H

#include <stddef.h>
#include <stdint.h>

#define OFFCODE_VERSION 4u
#define OFFCODE_CHANNELS 64u
#define OFFCODE_OUT_OF_BAND 0u
#define OFFCODE_GONE 0xFFFFFFFFu

/* Sizes of the two areas; a body may define others before it includes this. */
#ifndef OFFCODE_INPUT
#define OFFCODE_INPUT 131072u
#endif
#ifndef OFFCODE_OUTPUT
#define OFFCODE_OUTPUT 131072u
#endif

enum offcode_event {
    OFFCODE_INITIALIZE = 1,
    OFFCODE_START = 2,
    OFFCODE_CALL = 3,     /* detail: method; payload: interface (uint64_t), arguments */
    OFFCODE_ANSWERED = 4, /* channel, id; detail: 1 with the result, 0 with a sentence why not */
    OFFCODE_CHANNEL = 5,  /* channel; detail: 1 if it was attached; payload: its name */
    OFFCODE_MESSAGE = 6,  /* channel; payload: the message */
    OFFCODE_TURN = 7,
    OFFCODE_ATTRIBUTE = 8, /* detail: 1 if it was set, 0 before initialize; payload: name length (uint32_t), name, value */
    OFFCODE_STOP = 9,
    OFFCODE_SAVE = 10,    /* id: from which byte of the state on; offcode_state or offcode_refuse answers */
    OFFCODE_RESTORE = 11, /* detail: 1 with the last part; payload: the next bytes of the state */
    OFFCODE_TIMER = 12,   /* id: the timer's number */
    OFFCODE_WORDS = 13,   /* offcode_words reads it */
};

enum offcode_action {
    OFFCODE_WRITE = 1,
    OFFCODE_LOG = 2,
    OFFCODE_REPLY = 3,
    OFFCODE_REFUSE = 4,
    OFFCODE_WORKED = 5,
    OFFCODE_STATE = 6,
    OFFCODE_SET_TIMER = 7,
    OFFCODE_SHARE = 8,
    OFFCODE_STORE = 9,
    OFFCODE_LOAD = 10,
    OFFCODE_OPEN_MAP = 11,
};

/* Before each payload, which is padded to 8 bytes. */
struct offcode_record {
    uint16_t kind;
    uint16_t detail;
    uint32_t length; /* of the payload */
    uint32_t channel;
    uint32_t id;
};

struct offcode_input {
    uint64_t now; /* ns since the runtime started */
    uint32_t channels; /* valid entries of room */
    uint32_t unused;
    uint32_t room[OFFCODE_CHANNELS]; /* messages that may be written in this entry, or OFFCODE_GONE */
    _Alignas(8) uint8_t records[OFFCODE_INPUT - 16 - 4 * OFFCODE_CHANNELS];
};

_Static_assert(sizeof(struct offcode_record) == 16, "as the host has it");
_Static_assert(offsetof(struct offcode_input, records) == 272, "as the host has it");

static struct offcode_input offcode_in;
static _Alignas(8) uint8_t offcode_out[OFFCODE_OUTPUT];
static uint32_t offcode_used; /* of offcode_out */
static struct {
    uint32_t length;
    char text[252];
} offcode_last_words;

static inline uint64_t offcode_now(void) { return offcode_in.now; }

/* By words: the instruction that copies memory calls into the host, which small payloads do not pay for. */
static inline void offcode_copy(void *to, const void *from, uint32_t length) {
    uint8_t *t = to;
    const uint8_t *f = from;
    for (; length >= 8; length -= 8, t += 8, f += 8) {
        uint64_t word;
        __builtin_memcpy(&word, f, 8);
        __builtin_memcpy(t, &word, 8);
    }
    while (length--) *t++ = *f++;
}

/* Numbers in arguments and results of interfaces with encoding = "fixed" are little endian, as memory is here. */
static inline uint64_t offcode_u64(const uint8_t *at) {
    uint64_t value;
    __builtin_memcpy(&value, at, 8);
    return value;
}

/* What stands for an interface in calls: the two halves of its GUID, big endian, by exclusive or. */
static inline uint64_t offcode_short(const uint8_t guid[16]) {
    uint64_t high = 0, low = 0;
    for (int i = 0; i < 8; i++) {
        high = high << 8 | guid[i];
        low = low << 8 | guid[8 + i];
    }
    return high ^ low;
}

/* Begins an action with a payload of `length` bytes, which the caller fills. NULL if the output area has no room. */
static inline uint8_t *offcode_act(uint16_t kind, uint32_t channel, uint32_t length) {
    uint32_t left = OFFCODE_OUTPUT - offcode_used;
    if (left < 16 || length > left - 16) return NULL;
    uint32_t span = 16 + ((length + 7) & ~7u);
    if (span > left) return NULL;
    struct offcode_record *record = (struct offcode_record *)(offcode_out + offcode_used);
    *record = (struct offcode_record){.kind = kind, .length = length, .channel = channel};
    offcode_used += span;
    return (uint8_t *)(record + 1);
}

/* A place for a message of `length` bytes to `channel`, or NULL: no room (try again in a later turn), or no channel. */
static inline uint8_t *offcode_write_begin(uint32_t channel, uint32_t length) {
    uint32_t line = channel >> 31 ? OFFCODE_OUT_OF_BAND : channel; /* ways to peers share the out-of-band channel's room */
    if (line >= offcode_in.channels) return NULL;
    uint32_t room = offcode_in.room[line];
    if (room == 0 || room == OFFCODE_GONE) return NULL;
    uint8_t *payload = offcode_act(OFFCODE_WRITE, channel, length);
    if (payload) offcode_in.room[line] = room - 1;
    return payload;
}

/* 1 if the host has the message. */
static inline int offcode_write(uint32_t channel, const void *message, uint32_t length) {
    uint8_t *payload = offcode_write_begin(channel, length);
    if (!payload) return 0;
    offcode_copy(payload, message, length);
    return 1;
}

static inline int offcode_say(uint16_t kind, const void *text, uint32_t length) {
    uint8_t *payload = offcode_act(kind, 0, length);
    if (!payload) return 0;
    offcode_copy(payload, text, length);
    return 1;
}

static inline uint32_t offcode_length(const char *text) {
    uint32_t length = 0;
    while (text[length]) length++;
    return length;
}

/* Each call gets one of these two. A refusal also fails initialize or start, and answers an attribute that is told. */
static inline int offcode_reply(const void *result, uint32_t length) { return offcode_say(OFFCODE_REPLY, result, length); }
static inline int offcode_refuse(const char *why) { return offcode_say(OFFCODE_REFUSE, why, offcode_length(why)); }

static inline int offcode_log(const char *line) { return offcode_say(OFFCODE_LOG, line, offcode_length(line)); }

/* The value of an OFFCODE_ATTRIBUTE and its length, or NULL where it has another name. One with detail 1 may be refused. */
static inline const uint8_t *offcode_attribute(const struct offcode_record *event, const uint8_t *payload, const char *name, uint32_t *length) {
    uint32_t wanted = offcode_length(name), have;
    __builtin_memcpy(&have, payload, 4);
    if (have != wanted) return NULL;
    for (uint32_t i = 0; i < wanted; i++)
        if (payload[4 + i] != (uint8_t)name[i]) return NULL;
    *length = event->length - 4 - wanted;
    return payload + 4 + wanted;
}

/* Answers a save: the rest of the state, of which as much is taken as there is room for. The state is little endian without
 * padding: version (uint32_t), number of records (uint32_t), of each the lengths of name (uint16_t), key (uint32_t) and
 * value (uint32_t), then these three. */
static inline int offcode_state(const struct offcode_record *save, const uint8_t *state, uint32_t length) {
    uint32_t left = save->id < length ? length - save->id : 0, room = (OFFCODE_OUTPUT - offcode_used - 16) & ~7u;
    return offcode_say(OFFCODE_STATE, state + save->id, left < room ? left : room);
}

/* What follows is for a manifest that asks for timers, memory or maps; without it the host ends the instance. */

/* Sets a timer, 0 to 15: OFFCODE_TIMER comes not earlier than `at`, then each `every` ns; 0 is once, UINT64_MAX as `at` never. */
static inline int offcode_set_timer(uint32_t timer, uint64_t at, uint64_t every) {
    uint64_t times[2] = {at, every};
    uint8_t *payload = offcode_act(OFFCODE_SET_TIMER, 0, sizeof times);
    if (!payload) return 0;
    ((struct offcode_record *)payload)[-1].id = timer;
    offcode_copy(payload, times, sizeof times);
    return 1;
}

static inline int offcode_named(uint16_t kind, const char *words, uint32_t count) {
    uint8_t *payload = offcode_act(kind, 0, offcode_length(words));
    if (!payload) return 0;
    ((struct offcode_record *)payload)[-1].id = count;
    offcode_copy(payload, words, offcode_length(words));
    return 1;
}

/* Shares `count` words under a name. The first that are shared have number 0 in offcode_store, the next 1. */
static inline int offcode_share(const char *words, uint32_t count) { return offcode_named(OFFCODE_SHARE, words, count); }

static inline int offcode_store(uint32_t shared, uint32_t at, const uint64_t *values, uint32_t count) {
    uint8_t *payload = offcode_act(OFFCODE_STORE, shared, 8 * count);
    if (!payload) return 0;
    ((struct offcode_record *)payload)[-1].id = at;
    offcode_copy(payload, values, 8 * count);
    return 1;
}

/* From the next entry on OFFCODE_WORDS brings the first `count` words of `OFFCODE/WORDS`, each time that they have changed. */
static inline int offcode_load(const char *words, uint32_t count) { return offcode_named(OFFCODE_LOAD, words, count); }

/* The words of an OFFCODE_WORDS and how many they are, or NULL where they have another name. */
static inline const uint8_t *offcode_words(const struct offcode_record *event, const uint8_t *payload, const char *words, uint32_t *count) {
    uint32_t length = offcode_length(words), at = (4 + length + 7) & ~7u, have;
    __builtin_memcpy(&have, payload, 4);
    if (have != length || at > event->length) return NULL;
    for (uint32_t i = 0; i < length; i++)
        if (payload[4 + i] != (uint8_t)words[i]) return NULL;
    *count = (event->length - at) / 8;
    return payload + at;
}

/* A map of at most `most` entries, in memory of the body: `name.count` of them are in use, from the first on. The body looks for keys
 * itself. */
#define OFFCODE_MAP(name, key_type, value_type, most)                                                          \
    static struct {                                                                                            \
        uint32_t count, unused;                                                                                \
        struct __attribute__((packed)) {                                                                       \
            key_type key;                                                                                      \
            value_type value;                                                                                  \
        } entries[most];                                                                                       \
    } name

/* Tells the host where such a map is, once: `plimsoll ps --entries` shows it from then on. */
#define offcode_open_map(map)                                                                                  \
    offcode_say_map(#map, &map, sizeof(map).entries / sizeof(map).entries[0], sizeof(map).entries[0].key,      \
                    sizeof(map).entries[0].value)

static inline int offcode_say_map(const char *name, const void *at, uint32_t entries, uint32_t key, uint32_t value) {
    uint32_t sizes[3] = {key, value, (uint32_t)(uintptr_t)at}, length = offcode_length(name);
    uint8_t *payload = offcode_act(OFFCODE_OPEN_MAP, 0, sizeof sizes + length);
    if (!payload) return 0;
    ((struct offcode_record *)payload)[-1].id = entries;
    offcode_copy(payload, sizes, sizeof sizes);
    offcode_copy(payload + sizeof sizes, name, length);
    return 1;
}

/* A turn found work. */
static inline void offcode_worked(void) { offcode_act(OFFCODE_WORKED, 0, 0); }

/* Ends the instance; the host reports the sentence. */
static inline _Noreturn void offcode_panic(const char *why) {
    uint32_t length = offcode_length(why);
    if (length > sizeof offcode_last_words.text) length = sizeof offcode_last_words.text;
    offcode_last_words.length = length;
    offcode_copy(offcode_last_words.text, why, length);
    __builtin_trap();
}

/* The exports. `guids` is an array of uint8_t[16]. */
#define OFFCODE_BODY(on_event, guids)                                                                          \
    __attribute__((export_name("offcode_describe"))) const uint32_t *offcode_describe(void) {                  \
        static uint32_t descriptor[9];                                                                         \
        descriptor[0] = OFFCODE_VERSION;                                                                       \
        descriptor[1] = (uint32_t)(uintptr_t)&offcode_in;                                                      \
        descriptor[2] = sizeof offcode_in;                                                                     \
        descriptor[3] = (uint32_t)(uintptr_t)offcode_out;                                                      \
        descriptor[4] = sizeof offcode_out;                                                                    \
        descriptor[5] = (uint32_t)(uintptr_t)&offcode_last_words;                                              \
        descriptor[6] = sizeof offcode_last_words;                                                             \
        descriptor[7] = (uint32_t)(uintptr_t)(guids);                                                          \
        descriptor[8] = sizeof(guids) / 16;                                                                    \
        return descriptor;                                                                                     \
    }                                                                                                          \
    __attribute__((export_name("offcode_handle"))) uint32_t offcode_handle(uint32_t length) {                  \
        offcode_used = 0;                                                                                      \
        for (uint32_t at = 0; at < length;) {                                                                  \
            const struct offcode_record *record = (const struct offcode_record *)(offcode_in.records + at);    \
            at += 16 + ((record->length + 7) & ~7u);                                                           \
            (on_event)(record, (const uint8_t *)(record + 1));                                                 \
        }                                                                                                      \
        return offcode_used;                                                                                   \
    }

#endif

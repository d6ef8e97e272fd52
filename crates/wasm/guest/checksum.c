/* Aggregates what passes: the number of messages, their bytes, and the Internet checksum (RFC 1071) over all of them as
 * if they were one. Every 16th message, or as its attribute `every` says, it reports the three to the peer `report`, if
 * there is one.
 *
 * Interface 6d1c2a5e-4f0b-4c1e-9a57-0c7d8e9f1a2b, encoding = "fixed":
 *   0  totals() -> (u64 messages, u64 bytes, u64 checksum)
 *   1  clear()
 */
#include "offcode.h"

#define MOST 1000000

static const uint8_t interfaces[][16] = {
    {0x6d, 0x1c, 0x2a, 0x5e, 0x4f, 0x0b, 0x4c, 0x1e, 0x9a, 0x57, 0x0c, 0x7d, 0x8e, 0x9f, 0x1a, 0x2b},
};

static struct {
    uint64_t messages, bytes, checksum;
} totals;

static uint32_t report = OFFCODE_GONE;
static uint32_t every = 16;

static uint64_t folded(uint64_t sum) {
    while (sum >> 16) sum = (sum & 0xFFFF) + (sum >> 16);
    return sum;
}

static void count(const uint8_t *payload, uint32_t length) {
    uint64_t sum = 0;
    uint32_t i = 0;
    for (; i + 1 < length; i += 2) sum += (uint64_t)payload[i] << 8 | payload[i + 1];
    if (i < length) sum += (uint64_t)payload[i] << 8;
    totals.messages++;
    totals.bytes += length;
    totals.checksum = folded(totals.checksum + sum);
    if (totals.messages % every == 0 && report != OFFCODE_GONE) offcode_write(report, &totals, sizeof totals);
}

static void called(const struct offcode_record *event, const uint8_t *payload) {
    if (offcode_u64(payload) != offcode_short(interfaces[0])) {
        offcode_refuse("the checksum has no such interface");
    } else if (event->length != 8) {
        offcode_refuse("totals and clear take no arguments");
    } else if (event->detail == 0) {
        offcode_reply(&totals, sizeof totals);
    } else if (event->detail == 1) {
        totals.messages = totals.bytes = totals.checksum = 0;
        offcode_reply(NULL, 0);
    } else {
        offcode_refuse("the checksum has two methods");
    }
}

/* The state: one record of the three totals, and the number of the channel for reports. */
static struct __attribute__((packed)) {
    uint32_t version, records;
    uint16_t name_length;
    uint32_t key_length, value_length;
    char name[6];
    uint64_t totals[3];
    uint32_t report;
} state;

static void save(const struct offcode_record *event) {
    state.version = 1;
    state.records = 1;
    state.name_length = sizeof state.name;
    state.value_length = sizeof state.totals + sizeof state.report;
    offcode_copy(state.name, "totals", sizeof state.name);
    offcode_copy(state.totals, &totals, sizeof totals);
    state.report = report;
    offcode_state(event, (const uint8_t *)&state, sizeof state);
}

static void restore(const struct offcode_record *event, const uint8_t *payload) {
    if (event->length != sizeof state || event->detail != 1) {
        offcode_refuse("the checksum restores a state of one record");
        return;
    }
    offcode_copy(&state, payload, sizeof state);
    if (state.version != 1) {
        offcode_refuse("the checksum restores a state of version 1");
        return;
    }
    offcode_copy(&totals, state.totals, sizeof totals);
    report = state.report;
}

static int is_named(const uint8_t *name, uint32_t length, const char *wanted) {
    if (length != offcode_length(wanted)) return 0;
    for (uint32_t i = 0; i < length; i++)
        if (name[i] != (uint8_t)wanted[i]) return 0;
    return 1;
}

static void set(const struct offcode_record *event, const uint8_t *payload) {
    uint32_t length, number = 0;
    const uint8_t *value = offcode_attribute(event, payload, "every", &length);
    if (!value || event->detail == 0) return;
    for (uint32_t i = 0; i < length && number < MOST; i++)
        number = value[i] >= '0' && value[i] <= '9' ? 10 * number + (value[i] - '0') : MOST;
    if (number > 0 && number < MOST) every = number;
    else offcode_refuse("it is no number of messages below a million");
}

static void on_event(const struct offcode_record *event, const uint8_t *payload) {
    switch (event->kind) {
    case OFFCODE_MESSAGE: count(payload, event->length); break;
    case OFFCODE_CALL: called(event, payload); break;
    case OFFCODE_CHANNEL:
        if (is_named(payload, event->length, "report")) report = event->channel;
        break;
    case OFFCODE_ATTRIBUTE: set(event, payload); break;
    case OFFCODE_SAVE: save(event); break;
    case OFFCODE_RESTORE: restore(event, payload); break;
    case OFFCODE_STOP: offcode_log("checksum stops"); break;
    }
}

OFFCODE_BODY(on_event, interfaces)

/* Beats each millisecond: counts its beats in shared words, beside the level that the offcode test.other shares; and
 * in a map how many it saw of each level.
 *
 * Interface 5b0e6418-2c3f-4b5d-8e21-77109a6c3d42, without methods. Its manifest asks for timers, memory and maps.
 */
#include "offcode.h"

#define TIMER 2
#define PERIOD 1000000

static const uint8_t interfaces[][16] = {
    {0x5b, 0x0e, 0x64, 0x18, 0x2c, 0x3f, 0x4b, 0x5d, 0x8e, 0x21, 0x77, 0x10, 0x9a, 0x6c, 0x3d, 0x42},
};

/* Beats, and the level as of the last one. */
static uint64_t beats[2];

OFFCODE_MAP(levels, uint64_t, uint64_t, 3);

/* One that finds no room is not counted. */
static void count_level(uint64_t level) {
    uint32_t at = 0;
    while (at < levels.count && levels.entries[at].key != level) at++;
    if (at == 3) return;
    if (at == levels.count) {
        levels.entries[at].key = level;
        levels.entries[at].value = 0;
        levels.count++;
    }
    levels.entries[at].value++;
}

static void on_event(const struct offcode_record *event, const uint8_t *payload) {
    switch (event->kind) {
    case OFFCODE_INITIALIZE:
        offcode_share("beats", 2);
        offcode_load("test.other/level", 4);
        offcode_open_map(levels);
        break;
    case OFFCODE_START: offcode_set_timer(TIMER, offcode_now() + PERIOD, PERIOD); break;
    case OFFCODE_WORDS: {
        uint32_t count;
        const uint8_t *level = offcode_words(event, payload, "test.other/level", &count);
        if (level && count > 2) beats[1] = offcode_u64(level + 2 * 8);
        break;
    }
    case OFFCODE_TIMER:
        if (event->id != TIMER) break;
        beats[0]++;
        count_level(beats[1]);
        offcode_store(0, 0, beats, 2);
        break;
    case OFFCODE_CALL: offcode_refuse("a pulse has no methods"); break;
    }
}

OFFCODE_BODY(on_event, interfaces)

/* FI_MULTI_RECV: one buffer takes message after message until less than FI_OPT_MIN_MULTI_RECV is left. fi_msg(3). */
#include "conform.h"

static void many_into_few(size_t buffer_length, size_t least, int count, size_t longest) {
    struct wish wish = {.caps = FI_TAGGED | FI_MSG | FI_MULTI_RECV};
    struct end *end = open_end(&wish);
    if (!end) return;
    enum { BUFFERS = 3 };
    uint64_t state = 7;
    if (side == 0) {
        char *bytes = memory(longest);
        for (int i = 0; i < count; i++) {
            size_t length = draw(&state) % (longest + 1);
            fill(bytes, length, (unsigned)i);
            MUST(AGAIN(end, fi_senddata(end->ep, bytes, length, NULL, (uint64_t)i, end->peer, bytes)));
            EXPECT(end, end->sent, bytes);
        }
        free(bytes);
    } else {
        CHECK_EQUAL(fi_setopt(&end->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least), 0);
        size_t told = 0, told_length = sizeof told;
        if (fi_getopt(&end->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &told, &told_length) == 0) CHECK_EQUAL(told, least);
        char *buffers[BUFFERS], *next[BUFFERS];
        for (int i = 0; i < BUFFERS; i++) {
            buffers[i] = next[i] = memory(buffer_length);
            struct iovec piece = {buffers[i], buffer_length};
            struct fi_msg message = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &buffers[i]};
            MUST(AGAIN(end, fi_recvmsg(end->ep, &message, FI_MULTI_RECV | FI_COMPLETION)));
        }
        int expected = 0;
        while (expected < count) {
            struct fi_cq_tagged_entry entry;
            CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
            long which = (char **)entry.op_context - buffers;
            if (which < 0 || which >= BUFFERS) {
                CHECK(which >= 0 && which < BUFFERS);
                break;
            }
            if (entry.flags & FI_RECV) {
                size_t length = draw(&state) % (longest + 1);
                CHECK_EQUAL(entry.len, length);
                CHECK_EQUAL(entry.data, expected);
                CHECK((char *)entry.buf >= next[which] && (char *)entry.buf + entry.len <= buffers[which] + buffer_length);
                CHECK_BYTES(entry.buf, entry.len, (unsigned)expected);
                next[which] = (char *)entry.buf + entry.len;
                expected++;
            }
            if (entry.flags & FI_MULTI_RECV) { /* the provider has given the buffer back: post it again */
                CHECK((size_t)(buffers[which] + buffer_length - next[which]) < least + 64);
                next[which] = buffers[which];
                struct iovec piece = {buffers[which], buffer_length};
                struct fi_msg message = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &buffers[which]};
                MUST(AGAIN(end, fi_recvmsg(end->ep, &message, FI_MULTI_RECV | FI_COMPLETION)));
            }
        }
        meet(end);
        /* Receives that are still posted are cancelled. */
        for (int i = 0; i < BUFFERS; i++) CHECK_EQUAL(fi_cancel(&end->ep->fid, &buffers[i]), 0);
        for (int i = 0; i < BUFFERS; i++) {
            struct fi_cq_tagged_entry entry;
            struct fi_cq_err_entry error;
            CHECK_EQUAL(take(end, end->received, &entry, &error), FI_ECANCELED);
        }
        close_end(end);
        for (int i = 0; i < BUFFERS; i++) free(buffers[i]);
        return;
    }
    meet(end);
    close_end(end);
}

static void small(void) { many_into_few(65536, 4096, 5000, 400); }
static void middling(void) { many_into_few(200000, 16384, 1500, 16384); }
static void with_long_ones(void) { many_into_few(1 << 20, 300000, 100, 300000); }

/* Messages that arrived before the buffer was posted. */
static void unexpected(void) {
    struct wish wish = {.caps = FI_TAGGED | FI_MSG | FI_MULTI_RECV};
    struct end *end = open_end(&wish);
    if (!end) return;
    enum { COUNT = 50 };
    static int values[COUNT];
    if (side == 0) {
        for (int i = 0; i < COUNT; i++) {
            values[i] = i * 11;
            MUST(AGAIN(end, fi_inject(end->ep, &values[i], sizeof(int), end->peer)));
        }
        meet(end);
    } else {
        static char buffer[4096];
        meet(end);
        struct iovec piece = {buffer, sizeof buffer};
        struct fi_msg message = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = buffer};
        MUST(AGAIN(end, fi_recvmsg(end->ep, &message, FI_MULTI_RECV | FI_COMPLETION)));
        for (int i = 0; i < COUNT; i++) {
            struct fi_cq_tagged_entry entry;
            int value;
            CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
            CHECK_EQUAL(entry.len, sizeof(int));
            if (entry.len != sizeof(int)) break;
            memcpy(&value, entry.buf, sizeof value);
            CHECK_EQUAL(value, i * 11);
        }
    }
    close_end(end);
}

static void post(struct end *end, char *buffer, size_t length, uint64_t flags) {
    struct iovec piece = {buffer, length};
    struct fi_msg message = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = buffer};
    MUST(AGAIN(end, fi_recvmsg(end->ep, &message, flags | FI_COMPLETION)));
}

/* A buffer fills before receives that were posted later take messages, whether they wait for these or come late. */
static void in_turn_of(int late) {
    struct wish wish = {.caps = FI_TAGGED | FI_MSG | FI_MULTI_RECV};
    struct end *end = open_end(&wish);
    if (!end) return;
    enum { LENGTH = 64, EACH = 8, COUNT = 3 * EACH + 2 };
    static char buffers[3][EACH * LENGTH] __attribute__((aligned(64))), single[2][LENGTH];
    if (side == 0) {
        char bytes[LENGTH];
        if (!late) meet(end);
        for (int i = 0; i < COUNT; i++) {
            fill(bytes, LENGTH, (unsigned)i);
            MUST(AGAIN(end, fi_inject(end->ep, bytes, LENGTH, end->peer)));
        }
        if (late) meet(end);
    } else {
        if (late) meet(end);
        post(end, single[0], LENGTH, 0);
        post(end, buffers[0], sizeof buffers[0], FI_MULTI_RECV);
        post(end, buffers[1], sizeof buffers[1], FI_MULTI_RECV);
        post(end, single[1], LENGTH, 0);
        post(end, buffers[2], sizeof buffers[2], FI_MULTI_RECV);
        char extra[LENGTH];
        post(end, extra, LENGTH, 0);
        CHECK_EQUAL(fi_cancel(&end->ep->fid, extra), 0);
        struct fi_cq_tagged_entry entry;
        struct fi_cq_err_entry error;
        CHECK_EQUAL(take(end, end->received, &entry, &error), FI_ECANCELED);
        if (!late) meet(end);
        for (int i = 0; i < COUNT; i++) {
            int first = i == 0, second = i == 1 + 2 * EACH, which = (i - 1 - (i > 1 + 2 * EACH)) / EACH;
            char *expected = first ? single[0] : second ? single[1] : buffers[which];
            int place = first || second ? 0 : (i - 1 - (i > 1 + 2 * EACH)) % EACH;
            CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
            CHECK(entry.op_context == expected);
            CHECK(entry.buf == expected + place * LENGTH);
            CHECK_EQUAL((entry.flags & FI_MULTI_RECV) != 0, !first && !second && place == EACH - 1);
            CHECK_BYTES(entry.buf, LENGTH, (unsigned)i);
        }
    }
    meet(end);
    close_end(end);
}

static void in_turn(void) { in_turn_of(0); }
static void in_turn_late(void) { in_turn_of(1); }

const struct test_case multi_receive_cases[] = {
    {"small", small}, {"middling", middling}, {"with_long_ones", with_long_ones}, {"unexpected", unexpected},
    {"in_turn", in_turn}, {"in_turn_late", in_turn_late}, {NULL, NULL},
};

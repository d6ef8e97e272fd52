/* FI_PEEK, FI_CLAIM and FI_DISCARD: fi_tagged(3). */
#include "conform.h"

static struct fi_context2 contexts[64];

/* Peeks once: 1 if there is a message, else 0. */
static int look(struct end *end, uint64_t tag, uint64_t ignore, uint64_t flags, void *context, struct fi_cq_tagged_entry *entry) {
    struct fi_msg_tagged message = {.addr = FI_ADDR_UNSPEC, .tag = tag, .ignore = ignore, .context = context};
    struct fi_cq_err_entry error = {0};
    ssize_t called = AGAIN(end, fi_trecvmsg(end->ep, &message, FI_PEEK | flags));
    if (called == -FI_ENOMSG) return 0;
    MUST(called);
    int code = take(end, end->received, entry, &error);
    if (code == 0) {
        CHECK(entry->op_context == context);
        return 1;
    }
    CHECK_EQUAL(code, FI_ENOMSG);
    CHECK(error.op_context == context);
    return 0;
}

static void await(struct end *end, uint64_t tag, uint64_t ignore, uint64_t flags, void *context, struct fi_cq_tagged_entry *entry) {
    while (!look(end, tag, ignore, flags, context, entry)) turn(end);
}

static void receive(struct end *end, void *bytes, size_t length, uint64_t tag, uint64_t flags, void *context) {
    struct iovec piece = {bytes, length};
    struct fi_msg_tagged message = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = tag, .context = context};
    MUST(AGAIN(end, fi_trecvmsg(end->ep, &message, flags | FI_COMPLETION)));
}

static void nothing_there(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    struct fi_cq_tagged_entry entry;
    for (int i = 0; i < 20; i++) CHECK_EQUAL(look(end, 1, i % 2 ? ~0ull : 0, i % 3 ? 0 : FI_CLAIM, &contexts[0], &entry), 0);
    meet(end);
    close_end(end);
}

static const size_t LENGTHS_HERE[] = {0, 5, 1000, 9000, 100000, 2000000};
enum { COUNT_HERE = sizeof LENGTHS_HERE / sizeof *LENGTHS_HERE };

static void looking_takes_nothing(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    char *bytes = memory(2000000);
    for (int i = 0; i < COUNT_HERE; i++) {
        size_t length = LENGTHS_HERE[i];
        uint64_t tag = 0x500 + (uint64_t)i;
        if (side == 0) {
            fill(bytes, length, (unsigned)i);
            MUST(AGAIN(end, fi_tsenddata(end->ep, bytes, length, NULL, 70 + (uint64_t)i, end->peer, tag, bytes)));
            EXPECT(end, end->sent, bytes);
        } else {
            struct fi_cq_tagged_entry entry;
            for (int again = 0; again < 3; again++) {
                await(end, again ? tag : 0, again ? 0 : ~0ull, 0, &contexts[1], &entry);
                CHECK_EQUAL(entry.len, length);
                CHECK_EQUAL(entry.tag, tag);
                CHECK_EQUAL(entry.data, 70 + i);
                CHECK(entry.flags & FI_REMOTE_CQ_DATA);
                CHECK_EQUAL(look(end, tag + 1000, 0, 0, &contexts[2], &entry), 0);
            }
            receive(end, bytes, length, tag, 0, &contexts[3]);
            EXPECT(end, end->received, &contexts[3]);
            CHECK_BYTES(bytes, length, (unsigned)i);
            CHECK_EQUAL(look(end, tag, 0, 0, &contexts[1], &entry), 0);
        }
    }
    free(bytes);
    close_end(end);
}

/* Claimed messages can be received only by their claimant, in any order. */
static void claimed(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    if (side == 0) {
        char *bytes[COUNT_HERE];
        int last = 5;
        for (int i = 0; i < COUNT_HERE; i++) {
            bytes[i] = memory(LENGTHS_HERE[i]);
            fill(bytes[i], LENGTHS_HERE[i], (unsigned)i);
            MUST(AGAIN(end, fi_tsend(end->ep, bytes[i], LENGTHS_HERE[i], NULL, end->peer, 8, bytes[i])));
        }
        MUST(AGAIN(end, fi_tsend(end->ep, &last, sizeof last, NULL, end->peer, 8, &last)));
        struct fi_cq_tagged_entry entry;
        for (int i = 0; i <= COUNT_HERE; i++) CHECK_EQUAL(take(end, end->sent, &entry, NULL), 0);
        for (int i = 0; i < COUNT_HERE; i++) free(bytes[i]);
    } else {
        struct fi_cq_tagged_entry entry;
        char *bytes = memory(2000000);
        int last = 0;
        for (int i = 0; i < COUNT_HERE; i++) {
            await(end, 8, 0, FI_CLAIM, &contexts[10 + i], &entry);
            CHECK_EQUAL(entry.len, LENGTHS_HERE[i]);
        }
        receive(end, &last, sizeof last, 8, 0, &contexts[0]);
        EXPECT(end, end->received, &contexts[0]);
        CHECK_EQUAL(last, 5);
        CHECK_EQUAL(look(end, 0, ~0ull, 0, &contexts[1], &entry), 0);
        for (int i = COUNT_HERE - 1; i >= 0; i--) {
            receive(end, bytes, LENGTHS_HERE[i], 8, FI_CLAIM, &contexts[10 + i]);
            CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
            CHECK(entry.op_context == &contexts[10 + i]);
            CHECK_EQUAL(entry.len, LENGTHS_HERE[i]);
            CHECK_BYTES(bytes, LENGTHS_HERE[i], (unsigned)i);
        }
        free(bytes);
    }
    close_end(end);
}

/* Discarded messages are gone; their sends complete. */
static void discarded(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    if (side == 0) {
        char *bytes = memory(2000000);
        for (int way = 0; way < 2; way++)
            for (int i = 0; i < COUNT_HERE; i++) {
                MUST(AGAIN(end, fi_tsend(end->ep, bytes, LENGTHS_HERE[i], NULL, end->peer, 8, bytes)));
                EXPECT(end, end->sent, bytes);
            }
        free(bytes);
    } else {
        struct fi_cq_tagged_entry entry;
        for (int i = 0; i < COUNT_HERE; i++) {
            await(end, 8, 0, FI_DISCARD, &contexts[1], &entry);
            CHECK_EQUAL(entry.len, LENGTHS_HERE[i]);
        }
        for (int i = 0; i < COUNT_HERE; i++) {
            await(end, 8, 0, FI_CLAIM, &contexts[2], &entry);
            struct fi_msg_tagged message = {.addr = FI_ADDR_UNSPEC, .tag = 8, .context = &contexts[2]};
            MUST(AGAIN(end, fi_trecvmsg(end->ep, &message, FI_CLAIM | FI_DISCARD | FI_COMPLETION)));
            CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
            CHECK(entry.op_context == &contexts[2]);
        }
        CHECK_EQUAL(look(end, 0, ~0ull, 0, &contexts[3], &entry), 0);
    }
    close_end(end);
}

/* Closing with outstanding claims disturbs nobody. */
static void claimed_and_forgotten(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    static char bytes[400000];
    struct fi_cq_tagged_entry entry;
    MUST(AGAIN(end, fi_tsend(end->ep, bytes, 100, NULL, end->peer, 1, bytes)));
    MUST(AGAIN(end, fi_tsend(end->ep, bytes, sizeof bytes, NULL, end->peer, 1, bytes)));
    await(end, 1, 0, FI_CLAIM, &contexts[1], &entry);
    await(end, 1, 0, FI_CLAIM, &contexts[2], &entry);
    close_end(end);
}

const struct test_case peek_cases[] = {
    {"nothing_there", nothing_there},
    {"looking_takes_nothing", looking_takes_nothing},
    {"claimed", claimed},
    {"discarded", discarded},
    {"claimed_and_forgotten", claimed_and_forgotten},
    {NULL, NULL},
};

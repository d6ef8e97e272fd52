/* Matching of messages and receives: tags and ignored bits, order, sources, the two spaces; cancelling and truncation. */
#include "conform.h"

static void send_value(struct end *end, uint64_t tag, int value) {
    static int values[4096];
    static int next;
    int *at = &values[next++ % 4096];
    *at = value;
    MUST(AGAIN(end, fi_tsend(end->ep, at, sizeof *at, NULL, end->peer, tag, at)));
    EXPECT(end, end->sent, at);
}

static void ignored_bits(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    static const uint64_t tags[] = {0x1111222233334444, 0x1111222233335555, 0xffff222233334444, 0, ~0ull};
    if (side == 0) {
        for (int i = 0; i < 5; i++) send_value(end, tags[i], i);
        meet(end);
    } else {
        /* tag, ignored bits, which message it must get */
        static const struct {
            uint64_t tag, ignore;
            int value;
        } receives[] = {{~0ull, 0, 4},
                        {0x0000222233330000, 0xffff00000000ffff, 0},
                        {0xffff222200000000, 0x00000000ffffffff, 2},
                        {0, 0, 3},
                        {0xabcdef, ~0ull, 1}};
        for (int i = 0; i < 5; i++) {
            int value = -1;
            struct fi_cq_tagged_entry entry;
            MUST(AGAIN(end, fi_trecv(end->ep, &value, sizeof value, NULL, FI_ADDR_UNSPEC, receives[i].tag, receives[i].ignore, &value)));
            CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
            CHECK_EQUAL(value, receives[i].value);
            CHECK(entry.tag == tags[receives[i].value]); /* the message's, not the receive's */
        }
        meet(end);
    }
    close_end(end);
}

/* Posted receives are tried in the order posted, whatever they ignore. */
static void posted_order(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    static const uint64_t tags[6] = {5, 5, 5, 6, 6, 5};
    if (side == 0) {
        meet(end);
        for (int i = 0; i < 6; i++) send_value(end, tags[i], i);
    } else {
        static const uint64_t wanted[6] = {0, 5, 6, 5, 0, 0}, ignored[6] = {~0ull, 0, 0, 0, ~0ull, 7};
        static const int expected[6] = {0, 1, 3, 2, 4, 5};
        int values[6];
        for (int i = 0; i < 6; i++)
            MUST(AGAIN(end, fi_trecv(end->ep, &values[i], sizeof(int), NULL, FI_ADDR_UNSPEC, wanted[i], ignored[i], &values[i])));
        meet(end);
        for (int i = 0; i < 6; i++) {
            struct fi_cq_tagged_entry entry;
            CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
        }
        for (int i = 0; i < 6; i++) CHECK_EQUAL(values[i], expected[i]);
    }
    close_end(end);
}

/* FI_ORDER_SAS: no message overtakes another one for the same receives, whatever their lengths and calls. */
static void send_after_send(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    enum { COUNT = 120 };
    static const size_t lengths[] = {8, 400000, 0, 9000, 64, 70000, 200, 1000000, 4, 3000};
    char **bytes = memory(sizeof *bytes * COUNT);
    for (int i = 0; i < COUNT; i++) bytes[i] = memory(lengths[i % 10]);
    for (int round = 0; round < 2; round++) {
        struct fi_cq_tagged_entry entry;
        if (side == 0) {
            if (round) meet(end);
            int waited = 0;
            for (int i = 0; i < COUNT; i++) {
                size_t length = lengths[i % 10];
                fill(bytes[i], length, (unsigned)i);
                if (length <= 64 && i % 3 == 0 && length <= end->info->tx_attr->inject_size) {
                    MUST(AGAIN(end, fi_tinject(end->ep, bytes[i], length, end->peer, 3)));
                } else {
                    MUST(AGAIN(end, fi_tsend(end->ep, bytes[i], length, NULL, end->peer, 3, bytes[i])));
                    waited++;
                }
            }
            for (int i = 0; i < waited; i++) CHECK_EQUAL(take(end, end->sent, &entry, NULL), 0);
        } else {
            for (int i = 0; i < COUNT; i++)
                MUST(AGAIN(end, fi_trecv(end->ep, bytes[i], lengths[i % 10], NULL, FI_ADDR_UNSPEC, i % 2 ? 3 : 0, i % 2 ? 0 : ~0ull, bytes[i])));
            if (round) meet(end);
            for (int i = 0; i < COUNT; i++) CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
            for (int i = 0; i < COUNT; i++) CHECK_BYTES(bytes[i], lengths[i % 10], (unsigned)i);
        }
        meet(end);
    }
    for (int i = 0; i < COUNT; i++) free(bytes[i]);
    free(bytes);
    close_end(end);
}

/* Tagged and plain messages do not match each other's receives. */
static void two_spaces(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    int out[2] = {1, 2}, in[2] = {0, 0};
    if (side == 0) {
        MUST(AGAIN(end, fi_send(end->ep, &out[0], sizeof(int), NULL, end->peer, &out[0])));
        MUST(AGAIN(end, fi_tsend(end->ep, &out[1], sizeof(int), NULL, end->peer, 0, &out[1])));
        EXPECT(end, end->sent, &out[0]);
        EXPECT(end, end->sent, &out[1]);
    } else {
        MUST(AGAIN(end, fi_trecv(end->ep, &in[1], sizeof(int), NULL, FI_ADDR_UNSPEC, 0, ~0ull, &in[1])));
        EXPECT(end, end->received, &in[1]);
        MUST(AGAIN(end, fi_recv(end->ep, &in[0], sizeof(int), NULL, FI_ADDR_UNSPEC, &in[0])));
        EXPECT(end, end->received, &in[0]);
        CHECK_EQUAL(in[0], 1);
        CHECK_EQUAL(in[1], 2);
    }
    close_end(end);
}

/* With FI_DIRECTED_RECV a receive takes messages of its source alone. */
static void directed(void) {
    struct wish wish = {.caps = FI_TAGGED | FI_MSG | FI_DIRECTED_RECV | FI_SOURCE};
    struct end *end = open_end(&wish);
    if (!end) return;
    int own = 10 + side, remote = 20 + side, got_own = 0, got_remote = 0, got_any = 0;
    for (int tagged = 0; tagged < 2; tagged++) {
        fi_addr_t source[1] = {FI_ADDR_NOTAVAIL};
        struct fi_cq_tagged_entry entry;
        got_own = got_remote = got_any = 0;
        /* The peer's message matches, though this endpoint's own came first. */
        if (tagged) {
            MUST(AGAIN(end, fi_trecv(end->ep, &got_remote, sizeof(int), NULL, end->peer, 1, 0, &got_remote)));
            MUST(AGAIN(end, fi_trecv(end->ep, &got_own, sizeof(int), NULL, end->self, 1, 0, &got_own)));
            MUST(AGAIN(end, fi_tsend(end->ep, &own, sizeof own, NULL, end->self, 1, &own)));
        } else {
            MUST(AGAIN(end, fi_recv(end->ep, &got_remote, sizeof(int), NULL, end->peer, &got_remote)));
            MUST(AGAIN(end, fi_recv(end->ep, &got_own, sizeof(int), NULL, end->self, &got_own)));
            MUST(AGAIN(end, fi_send(end->ep, &own, sizeof own, NULL, end->self, &own)));
        }
        EXPECT(end, end->received, &got_own);
        EXPECT(end, end->sent, &own);
        CHECK_EQUAL(got_own, own);
        CHECK_EQUAL(got_remote, 0);
        meet(end);
        if (tagged) MUST(AGAIN(end, fi_tsend(end->ep, &remote, sizeof remote, NULL, end->peer, 1, &remote)));
        else MUST(AGAIN(end, fi_send(end->ep, &remote, sizeof remote, NULL, end->peer, &remote)));
        ssize_t count;
        while ((count = fi_cq_readfrom(end->received, &entry, 1, source)) == -FI_EAGAIN) turn(end);
        CHECK_EQUAL(count, 1);
        CHECK(entry.op_context == &got_remote);
        CHECK(source[0] == end->peer);
        EXPECT(end, end->sent, &remote);
        CHECK_EQUAL(got_remote, 20 + 1 - side);
        /* An unspecified source takes any. */
        MUST(AGAIN(end, fi_trecv(end->ep, &got_any, sizeof(int), NULL, FI_ADDR_UNSPEC, 2, 0, &got_any)));
        MUST(AGAIN(end, fi_tsend(end->ep, &own, sizeof own, NULL, end->self, 2, &own)));
        EXPECT(end, end->received, &got_any);
        EXPECT(end, end->sent, &own);
        CHECK_EQUAL(got_any, own);
        meet(end);
    }
    close_end(end);
}

/* Without it the source of a receive is ignored. */
static void source_is_ignored_unless_directed(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    if (end->info->caps & FI_DIRECTED_RECV) {
        leave_out("the provider grants FI_DIRECTED_RECV unasked");
    } else {
        int out = 3 + side, in = 0;
        MUST(AGAIN(end, fi_trecv(end->ep, &in, sizeof in, NULL, end->self, 1, 0, &in)));
        MUST(AGAIN(end, fi_tsend(end->ep, &out, sizeof out, NULL, end->peer, 1, &out)));
        EXPECT(end, end->received, &in);
        EXPECT(end, end->sent, &out);
        CHECK_EQUAL(in, 4 - side);
    }
    close_end(end);
}

static void cancelled(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    enum { COUNT = 50 };
    int values[COUNT];
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    for (int tagged = 0; tagged < 2; tagged++) {
        for (int i = 0; i < COUNT; i++) {
            values[i] = -1;
            if (tagged) MUST(AGAIN(end, fi_trecv(end->ep, &values[i], sizeof(int), NULL, FI_ADDR_UNSPEC, 7, 0, &values[i])));
            else MUST(AGAIN(end, fi_recv(end->ep, &values[i], sizeof(int), NULL, FI_ADDR_UNSPEC, &values[i])));
        }
        for (int i = 1; i < COUNT; i += 3) CHECK_EQUAL(fi_cancel(&end->ep->fid, &values[i]), 0);
        for (int i = 1; i < COUNT; i += 3) {
            int code = take(end, end->received, &entry, &error);
            CHECK_EQUAL(code, FI_ECANCELED);
            CHECK(error.op_context == &values[i]);
            CHECK((error.flags & FI_RECV) != 0);
        }
        meet(end);
        int sent = 0, out[COUNT];
        for (int i = 0; i < COUNT; i++) {
            out[i] = i;
            if (i % 3 == 1) continue;
            if (tagged) MUST(AGAIN(end, fi_tsend(end->ep, &out[i], sizeof(int), NULL, end->peer, 7, NULL)));
            else MUST(AGAIN(end, fi_send(end->ep, &out[i], sizeof(int), NULL, end->peer, NULL)));
            sent++;
        }
        for (int i = 0; i < sent; i++) CHECK_EQUAL(take(end, end->sent, &entry, NULL), 0);
        for (int i = 0; i < sent; i++) CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
        for (int i = 0; i < COUNT; i++) CHECK_EQUAL(values[i], i % 3 == 1 ? -1 : i);
        meet(end);
    }
    /* Nothing is posted under this context: it gets no completion. */
    fi_cancel(&end->ep->fid, &error);
    CHECK(!is_there(end, end->received));
    close_end(end);
}

static void truncated(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    static const size_t pairs[][2] = {{10, 5}, {1, 0}, {5000, 100}, {9000, 8999}, {100000, 10}, {3000000, 70000}};
    char *bytes = memory(3000000);
    for (int posted = 0; posted < 2; posted++)
        for (int i = 0; i < 6; i++) {
            size_t sent = pairs[i][0], room = pairs[i][1];
            struct fi_cq_tagged_entry entry;
            struct fi_cq_err_entry error = {0};
            if (side == 0) {
                if (posted) meet(end);
                fill(bytes, sent, (unsigned)i);
                MUST(AGAIN(end, fi_tsend(end->ep, bytes, sent, NULL, end->peer, 4, bytes)));
                EXPECT(end, end->sent, bytes);
                /* Later messages come whole. */
                MUST(AGAIN(end, fi_tsend(end->ep, bytes, 300 < sent ? 300 : sent, NULL, end->peer, 4, bytes)));
                EXPECT(end, end->sent, bytes);
            } else {
                memset(bytes, 0x55, room + 64);
                MUST(AGAIN(end, fi_trecv(end->ep, bytes, room, NULL, FI_ADDR_UNSPEC, 4, 0, bytes)));
                if (posted) meet(end);
                CHECK_EQUAL(take(end, end->received, &entry, &error), FI_ETRUNC);
                CHECK(error.op_context == bytes);
                CHECK_EQUAL(error.tag, 4);
                CHECK_EQUAL(error.olen, sent - room);
                CHECK_EQUAL(error.len, room);
                int touched = 0;
                for (int k = 0; k < 64; k++) touched += bytes[room + (size_t)k] != 0x55;
                CHECK_EQUAL(touched, 0);
                MUST(AGAIN(end, fi_trecv(end->ep, bytes, 300, NULL, FI_ADDR_UNSPEC, 4, 0, bytes)));
                CHECK_EQUAL(take(end, end->received, &entry, &error), 0);
                CHECK_EQUAL(entry.len, 300 < sent ? 300 : sent);
                CHECK_BYTES(bytes, entry.len, (unsigned)i);
            }
            meet(end);
        }
    free(bytes);
    close_end(end);
}

/* Receives from any source go on after the end of each source. */
static void sources_leave(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    enum { GUESTS = 4 };
    static int values[2][GUESTS + 1];
    struct fi_cq_tagged_entry entry;
    int last = GUESTS;
    if (side == 0) {
        for (int i = 0; i <= GUESTS; i++) {
            MUST(AGAIN(end, fi_recv(end->ep, &values[0][i], sizeof(int), NULL, FI_ADDR_UNSPEC, NULL)));
            MUST(AGAIN(end, fi_trecv(end->ep, &values[1][i], sizeof(int), NULL, FI_ADDR_UNSPEC, 0, ~0ull, NULL)));
        }
        for (int i = 0; i <= GUESTS; i++) {
            for (int form = 0; form < 2; form++) CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
            CHECK_EQUAL(values[0][i], i);
            CHECK_EQUAL(values[1][i], i);
            meet(end);
            meet(end);
        }
    } else {
        for (int i = 0; i < GUESTS; i++) {
            struct fid_ep *guest;
            MUST(fi_endpoint(end->domain, end->info, &guest, NULL));
            MUST(fi_ep_bind(guest, &end->av->fid, 0));
            MUST(fi_ep_bind(guest, &end->sent->fid, FI_TRANSMIT));
            MUST(fi_ep_bind(guest, &end->received->fid, FI_RECV));
            MUST(fi_enable(guest));
            MUST(AGAIN(end, fi_send(guest, &i, sizeof i, NULL, end->peer, &guest)));
            MUST(AGAIN(end, fi_tsend(guest, &i, sizeof i, NULL, end->peer, 7, &guest)));
            EXPECT(end, end->sent, &guest);
            EXPECT(end, end->sent, &guest);
            meet(end);
            CHECK_EQUAL(fi_close(&guest->fid), 0);
            meet(end);
        }
        MUST(AGAIN(end, fi_send(end->ep, &last, sizeof last, NULL, end->peer, &last)));
        MUST(AGAIN(end, fi_tsend(end->ep, &last, sizeof last, NULL, end->peer, 7, &last)));
        EXPECT(end, end->sent, &last);
        EXPECT(end, end->sent, &last);
        meet(end);
        meet(end);
    }
    close_end(end);
}

const struct test_case matching_cases[] = {
    {"ignored_bits", ignored_bits},
    {"posted_order", posted_order},
    {"send_after_send", send_after_send},
    {"two_spaces", two_spaces},
    {"directed", directed},
    {"source_is_ignored_unless_directed", source_is_ignored_unless_directed},
    {"cancelled", cancelled},
    {"truncated", truncated},
    {"sources_leave", sources_leave},
    {NULL, NULL},
};

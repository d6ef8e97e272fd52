/* Tagged and plain messages of every length by every call: fi_tagged(3), fi_msg(3). */
#include "conform.h"

static void every_length(int tagged) {
    struct end *end = open_end(NULL);
    if (!end) return;
    size_t longest = LENGTHS[LENGTHS_COUNT - 1];
    char *out = memory(longest), *in = memory(longest + 1);
    for (int i = 0; i < LENGTHS_COUNT; i++) {
        size_t length = LENGTHS[i];
        struct fi_cq_tagged_entry entry;
        fill(out, length, (unsigned)(i * 2 + side));
        memset(in, 0x21, longest + 1);
        /* Even lengths find their receive posted, odd ones do not. */
        int posted = i % 2 == 0;
        for (int step = 0; step < 2; step++) {
            if ((step == 0) == posted) {
                if (tagged) MUST(AGAIN(end, fi_trecv(end->ep, in, length, NULL, FI_ADDR_UNSPEC, (uint64_t)i, 0, in)));
                else MUST(AGAIN(end, fi_recv(end->ep, in, length, NULL, FI_ADDR_UNSPEC, in)));
            } else {
                if (tagged) MUST(AGAIN(end, fi_tsend(end->ep, out, length, NULL, end->peer, (uint64_t)i, out)));
                else MUST(AGAIN(end, fi_send(end->ep, out, length, NULL, end->peer, out)));
            }
            if (step == 0) meet(end);
        }
        CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
        CHECK(entry.op_context == in);
        CHECK_EQUAL(entry.len, length);
        CHECK((entry.flags & FI_RECV) && (entry.flags & (tagged ? FI_TAGGED : FI_MSG)));
        CHECK(!(entry.flags & FI_REMOTE_CQ_DATA));
        if (tagged) CHECK_EQUAL(entry.tag, i);
        CHECK_EQUAL(take(end, end->sent, &entry, NULL), 0);
        CHECK(entry.op_context == out);
        CHECK((entry.flags & FI_SEND) && (entry.flags & (tagged ? FI_TAGGED : FI_MSG)));
        CHECK_BYTES(in, length, (unsigned)(i * 2 + 1 - side));
        CHECK(in[length] == 0x21);
    }
    free(out);
    free(in);
    close_end(end);
}

static void tagged_every_length(void) { every_length(1); }
static void message_every_length(void) { every_length(0); }

static void long_message(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    size_t length = 64u << 20;
    char *bytes = memory(length);
    struct fi_cq_tagged_entry entry;
    if (side == 0) {
        fill(bytes, length, 4);
        MUST(AGAIN(end, fi_tsend(end->ep, bytes, length, NULL, end->peer, 1, bytes)));
        EXPECT(end, end->sent, bytes);
    } else {
        MUST(AGAIN(end, fi_trecv(end->ep, bytes, length, NULL, FI_ADDR_UNSPEC, 1, 0, bytes)));
        CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
        CHECK_EQUAL(entry.len, length);
        CHECK_BYTES(bytes, length, 4);
    }
    free(bytes);
    close_end(end);
}

static void unaligned(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    static const size_t lengths[] = {1, 13, 64, 1001, 9001, 70001, 1000003};
    char *out = memory(1000100), *in = memory(1000100);
    for (size_t offset = 1; offset < 16; offset += 3)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            size_t length = lengths[i], at = 17 - offset;
            fill(out + offset, length, (unsigned)(offset + (size_t)side));
            memset(in, 0x66, length + 64);
            MUST(AGAIN(end, fi_trecv(end->ep, in + at, length, NULL, FI_ADDR_UNSPEC, 0, 0, in)));
            MUST(AGAIN(end, fi_tsend(end->ep, out + offset, length, NULL, end->peer, 0, out)));
            EXPECT(end, end->received, in);
            EXPECT(end, end->sent, out);
            CHECK_BYTES(in + at, length, (unsigned)(offset + 1 - (size_t)side));
            int touched = 0;
            for (size_t k = 0; k < at; k++) touched += in[k] != 0x66;
            for (size_t k = at + length; k < length + 64; k++) touched += in[k] != 0x66;
            CHECK_EQUAL(touched, 0);
        }
    free(out);
    free(in);
    close_end(end);
}

/* One message in several pieces of memory on both sides, cut at different places. */
static void in_pieces(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    size_t out_pieces = end->info->tx_attr->iov_limit, in_pieces_count = end->info->rx_attr->iov_limit;
    static const size_t lengths[] = {1, 50, 3000, 40000, 900000};
    if (out_pieces > 16) out_pieces = 16;
    if (in_pieces_count > 16) in_pieces_count = 16;
    char *out = memory(900000), *in = memory(900000);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int call = 0; call < 4; call++) {
            struct iovec from[16], into[16];
            size_t length = lengths[i], at = 0;
            struct fi_cq_tagged_entry entry;
            for (size_t p = 0; p < out_pieces; p++) {
                size_t piece = p + 1 == out_pieces ? length - at : (length - at) / 2;
                from[p] = (struct iovec){out + at, piece};
                at += piece;
            }
            at = 0;
            for (size_t p = 0; p < in_pieces_count; p++) {
                size_t piece = p + 1 == in_pieces_count ? length - at : length / (in_pieces_count + 1);
                into[p] = (struct iovec){in + at, piece};
                at += piece;
            }
            fill(out, length, (unsigned)(call + side));
            memset(in, 0, length);
            struct fi_msg plain = {.msg_iov = from, .iov_count = out_pieces, .addr = end->peer, .context = out, .data = 3};
            struct fi_msg_tagged tagged = {.msg_iov = from, .iov_count = out_pieces, .addr = end->peer, .tag = 9, .context = out};
            struct fi_msg into_plain = {.msg_iov = into, .iov_count = in_pieces_count, .addr = FI_ADDR_UNSPEC, .context = in};
            struct fi_msg_tagged into_tagged = {
                .msg_iov = into, .iov_count = in_pieces_count, .addr = FI_ADDR_UNSPEC, .tag = 9, .ignore = 0, .context = in};
            switch (call) {
            case 0:
                MUST(AGAIN(end, fi_trecvv(end->ep, into, NULL, in_pieces_count, FI_ADDR_UNSPEC, 9, 0, in)));
                MUST(AGAIN(end, fi_tsendv(end->ep, from, NULL, out_pieces, end->peer, 9, out)));
                break;
            case 1:
                MUST(AGAIN(end, fi_trecvmsg(end->ep, &into_tagged, FI_COMPLETION)));
                MUST(AGAIN(end, fi_tsendmsg(end->ep, &tagged, FI_COMPLETION)));
                break;
            case 2:
                MUST(AGAIN(end, fi_recvv(end->ep, into, NULL, in_pieces_count, FI_ADDR_UNSPEC, in)));
                MUST(AGAIN(end, fi_sendv(end->ep, from, NULL, out_pieces, end->peer, out)));
                break;
            default:
                MUST(AGAIN(end, fi_recvmsg(end->ep, &into_plain, FI_COMPLETION)));
                MUST(AGAIN(end, fi_sendmsg(end->ep, &plain, FI_COMPLETION | FI_REMOTE_CQ_DATA)));
                break;
            }
            CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
            CHECK_EQUAL(entry.len, length);
            if (call == 3) CHECK((entry.flags & FI_REMOTE_CQ_DATA) && entry.data == 3);
            EXPECT(end, end->sent, out);
            CHECK_BYTES(in, length, (unsigned)(call + 1 - side));
        }
    }
    free(out);
    free(in);
    close_end(end);
}

/* The buffer is free when the call returns, and there is no completion. */
static void injected(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    size_t most = end->info->tx_attr->inject_size;
    if (most > 70000) most = 70000;
    size_t lengths[] = {0, 1, 8, most / 2, most};
    char *out = memory(most + 1), *in = memory(most + 1);
    for (int call = 0; call < 6; call++) {
        for (int i = 0; i < 5; i++) {
            size_t length = lengths[i];
            struct fi_cq_tagged_entry entry;
            int with_data = call == 1 || call == 4, tagged = call < 3;
            struct iovec piece = {out, length};
            struct fi_msg_tagged message = {.msg_iov = &piece, .iov_count = 1, .addr = end->peer, .tag = 5, .context = out};
            struct fi_msg plain = {.msg_iov = &piece, .iov_count = 1, .addr = end->peer, .context = out};
            fill(out, length, (unsigned)(call * 10 + i));
            switch (call) {
            case 0: MUST(AGAIN(end, fi_tinject(end->ep, out, length, end->peer, 5))); break;
            case 1: MUST(AGAIN(end, fi_tinjectdata(end->ep, out, length, 0xabc, end->peer, 5))); break;
            case 2: MUST(AGAIN(end, fi_tsendmsg(end->ep, &message, FI_INJECT | FI_COMPLETION))); break;
            case 3: MUST(AGAIN(end, fi_inject(end->ep, out, length, end->peer))); break;
            case 4: MUST(AGAIN(end, fi_injectdata(end->ep, out, length, 0xabc, end->peer))); break;
            default: MUST(AGAIN(end, fi_sendmsg(end->ep, &plain, FI_INJECT | FI_COMPLETION))); break;
            }
            memset(out, 0xee, most + 1);
            if (tagged) MUST(AGAIN(end, fi_trecv(end->ep, in, most, NULL, FI_ADDR_UNSPEC, 5, 0, in)));
            else MUST(AGAIN(end, fi_recv(end->ep, in, most, NULL, FI_ADDR_UNSPEC, in)));
            CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
            CHECK_EQUAL(entry.len, length);
            CHECK_EQUAL((entry.flags & FI_REMOTE_CQ_DATA) != 0, with_data);
            if (with_data) CHECK_EQUAL(entry.data, 0xabc);
            CHECK_BYTES(in, length, (unsigned)(call * 10 + i));
            if (call == 2 || call == 5) EXPECT(end, end->sent, out);
        }
    }
    meet(end);
    CHECK(!is_there(end, end->sent));
    if (end->info->tx_attr->inject_size < 70000)
        CHECK(fi_tinject(end->ep, out, most + 1, end->peer, 5) < 0);
    free(out);
    free(in);
    close_end(end);
}

static void remote_data(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    uint64_t mask = end->info->domain_attr->cq_data_size >= 8 ? ~0ull : (1ull << (8 * end->info->domain_attr->cq_data_size)) - 1;
    static const size_t lengths[] = {0, 4, 5000, 300000};
    char *out = memory(300000), *in = memory(300000);
    for (int i = 0; i < 16; i++) {
        size_t length = lengths[i % 4];
        uint64_t data = 0x0123456789abcdefull * (uint64_t)(i + 1) & mask;
        int tagged = i / 4 % 2;
        struct fi_cq_tagged_entry entry;
        fill(out, length, (unsigned)i);
        if (tagged) {
            MUST(AGAIN(end, fi_trecv(end->ep, in, length, NULL, FI_ADDR_UNSPEC, 5, 0, in)));
            MUST(AGAIN(end, fi_tsenddata(end->ep, out, length, NULL, data, end->peer, 5, out)));
        } else {
            MUST(AGAIN(end, fi_recv(end->ep, in, length, NULL, FI_ADDR_UNSPEC, in)));
            MUST(AGAIN(end, fi_senddata(end->ep, out, length, NULL, data, end->peer, out)));
        }
        CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
        CHECK(entry.flags & FI_REMOTE_CQ_DATA);
        CHECK(entry.data == data);
        CHECK_EQUAL(entry.len, length);
        EXPECT(end, end->sent, out);
        CHECK_BYTES(in, length, (unsigned)i);
    }
    free(out);
    free(in);
    close_end(end);
}

static void to_oneself(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    static const size_t lengths[] = {0, 1, 1000, 60000, 2000000};
    char *out = memory(2000000), *in = memory(2000000);
    for (int i = 0; i < 10; i++) {
        size_t length = lengths[i / 2];
        fill(out, length, (unsigned)i);
        if (i % 2) MUST(AGAIN(end, fi_trecv(end->ep, in, length, NULL, FI_ADDR_UNSPEC, 1, 0, in)));
        MUST(AGAIN(end, fi_tsend(end->ep, out, length, NULL, end->self, 1, out)));
        if (i % 2 == 0) MUST(AGAIN(end, fi_trecv(end->ep, in, length, NULL, FI_ADDR_UNSPEC, 1, 0, in)));
        EXPECT(end, end->received, in);
        EXPECT(end, end->sent, out);
        CHECK_BYTES(in, length, (unsigned)i);
    }
    free(out);
    free(in);
    close_end(end);
}

/* Bytes of a buffer beyond the message's length stay as they were. */
static void short_into_long(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    static const size_t lengths[] = {0, 3, 4000, 90000};
    char *bytes = memory(200000);
    for (int i = 0; i < 4; i++) {
        size_t length = lengths[i];
        struct fi_cq_tagged_entry entry;
        if (side == 0) {
            fill(bytes, length, (unsigned)i);
            MUST(AGAIN(end, fi_tsend(end->ep, bytes, length, NULL, end->peer, 1, bytes)));
            EXPECT(end, end->sent, bytes);
        } else {
            memset(bytes, 0x12, 200000);
            MUST(AGAIN(end, fi_trecv(end->ep, bytes, 200000, NULL, FI_ADDR_UNSPEC, 1, 0, bytes)));
            CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
            CHECK_EQUAL(entry.len, length);
            CHECK_BYTES(bytes, length, (unsigned)i);
            CHECK(bytes[length] == 0x12 && bytes[199999] == 0x12);
        }
    }
    free(bytes);
    close_end(end);
}

static void bad_calls_are_refused(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    char byte = 0;
    struct iovec pieces[64];
    for (int i = 0; i < 64; i++) pieces[i] = (struct iovec){&byte, 1};
    size_t limit = end->info->tx_attr->iov_limit;
    if (limit < 64) CHECK(fi_tsendv(end->ep, pieces, NULL, limit + 1, end->peer, 0, NULL) < 0);
    /* No such address: refused, or an error of its completion. */
    if (end->info->domain_attr->av_type == FI_AV_TABLE) {
        struct fi_cq_tagged_entry entry;
        ssize_t code = AGAIN(end, fi_tsend(end->ep, &byte, 1, NULL, 1000, 0, &byte));
        if (code == 0) CHECK(take(end, end->sent, &entry, NULL) != 0);
        else CHECK(code < 0);
    }
    close_end(end);
}

const struct test_case transfer_cases[] = {
    {"tagged_every_length", tagged_every_length},
    {"message_every_length", message_every_length},
    {"64_mib", long_message},
    {"unaligned", unaligned},
    {"in_pieces", in_pieces},
    {"injected", injected},
    {"remote_data", remote_data},
    {"to_oneself", to_oneself},
    {"short_into_long", short_into_long},
    {"bad_calls_are_refused", bad_calls_are_refused},
    {NULL, NULL},
};

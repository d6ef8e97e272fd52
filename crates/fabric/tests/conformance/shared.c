/* Shared contexts, fi_endpoint(3): several endpoints whose messages match receives posted for all of them. */
#include "conform.h"

enum { GUESTS = 3, MESSAGES = 30 };

struct sharing {
    struct end *end;
    struct fid_ep *receives, *endpoints[GUESTS];
    struct fid_stx *sends;
    fi_addr_t peers[GUESTS];
};

static int open_sharing(struct sharing *s) {
    struct end *end = s->end = open_end(NULL);
    if (!end) return 0;
    struct fi_info *hints = hints_for(FI_TAGGED | FI_MSG), *info = NULL;
    hints->ep_attr->tx_ctx_cnt = hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
    int code = fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &info);
    fi_freeinfo(hints);
    if (code == -FI_ENODATA) {
        leave_out("the provider has no shared contexts");
        close_end(end);
        return 0;
    }
    MUST(code);
    CHECK(info->ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT && info->domain_attr->max_ep_srx_ctx > 0);
    MUST(fi_srx_context(end->domain, info->rx_attr, &s->receives, NULL));
    MUST(fi_stx_context(end->domain, info->tx_attr, &s->sends, NULL));
    for (int i = 0; i < GUESTS; i++) {
        char mine[256] = "", theirs[256];
        size_t length = sizeof mine;
        MUST(fi_endpoint(end->domain, info, &s->endpoints[i], NULL));
        MUST(fi_ep_bind(s->endpoints[i], &end->av->fid, 0));
        MUST(fi_ep_bind(s->endpoints[i], &s->receives->fid, 0));
        MUST(fi_ep_bind(s->endpoints[i], &s->sends->fid, 0));
        MUST(fi_ep_bind(s->endpoints[i], &end->sent->fid, FI_TRANSMIT));
        MUST(fi_ep_bind(s->endpoints[i], &end->received->fid, FI_RECV));
        MUST(fi_enable(s->endpoints[i]));
        MUST(fi_getname(&s->endpoints[i]->fid, mine, &length));
        tell(mine, sizeof mine);
        hear(theirs, sizeof theirs);
        MUST(fi_av_insert(end->av, theirs, 1, &s->peers[i], 0, NULL) == 1 ? 0 : -FI_EINVAL);
    }
    fi_freeinfo(info);
    return 1;
}

static void close_sharing(struct sharing *s) {
    meet(s->end);
    CHECK_EQUAL(fi_close(&s->receives->fid), -FI_EBUSY);
    for (int i = 0; i < GUESTS; i++) CHECK_EQUAL(fi_close(&s->endpoints[i]->fid), 0);
    CHECK_EQUAL(fi_close(&s->receives->fid), 0);
    CHECK_EQUAL(fi_close(&s->sends->fid), 0);
    close_end(s->end);
}

static size_t length_of(int message) {
    static const size_t lengths[] = {8, 100, 3000, 20000, 300000};
    return lengths[message % 5];
}

/* Side 1 sends to all endpoints in turn. Each message comes once and whole, and those to one endpoint come in their order,
 * whether its receive or the message is first. */
static void messages(int tagged) {
    struct sharing s;
    if (!open_sharing(&s)) return;
    static char *bytes[MESSAGES];
    for (int i = 0; i < MESSAGES; i++) bytes[i] = memory(300000);
    for (int posted = 0; posted < 2; posted++) {
        if (side == 1) {
            meet(s.end);
            for (int i = 0; i < MESSAGES; i++) {
                memset(bytes[i], i, length_of(i));
                struct fid_ep *from = s.endpoints[i % GUESTS];
                fi_addr_t to = s.peers[i % GUESTS];
                if (tagged) MUST(AGAIN(s.end, fi_tsend(from, bytes[i], length_of(i), NULL, to, (uint64_t)(i % 2), bytes[i])));
                else MUST(AGAIN(s.end, fi_send(from, bytes[i], length_of(i), NULL, to, bytes[i])));
            }
            if (!posted) rest(50);
            meet(s.end);
            for (int i = 0; i < MESSAGES; i++) {
                struct fi_cq_tagged_entry entry;
                CHECK_EQUAL(take(s.end, s.end->sent, &entry, NULL), 0);
            }
        } else {
            if (!posted) meet(s.end), meet(s.end);
            for (int i = 0; i < MESSAGES; i++) {
                memset(bytes[i], 0x5a, 300000);
                if (tagged) MUST(AGAIN(s.end, fi_trecv(s.receives, bytes[i], 300000, NULL, FI_ADDR_UNSPEC, (uint64_t)(i % 2), 0, bytes[i])));
                else MUST(AGAIN(s.end, fi_recv(s.receives, bytes[i], 300000, NULL, FI_ADDR_UNSPEC, bytes[i])));
            }
            if (posted) meet(s.end), meet(s.end);
            int seen[MESSAGES] = {0}, last[2][GUESTS] = {{-1, -1, -1}, {-1, -1, -1}};
            for (int i = 0; i < MESSAGES; i++) {
                struct fi_cq_tagged_entry entry;
                CHECK_EQUAL(take(s.end, s.end->received, &entry, NULL), 0);
                CHECK((entry.flags & FI_RECV) && (entry.flags & (tagged ? FI_TAGGED : FI_MSG)));
                if (tagged) CHECK_EQUAL(entry.tag, ((char *)entry.op_context)[0] % 2);
                CHECK_EQUAL(entry.len, length_of(((char *)entry.op_context)[0]));
            }
            for (int i = 0; i < MESSAGES; i++) { /* in the order posted */
                int which = bytes[i][0], kind = tagged ? which % 2 : 0;
                CHECK(which >= 0 && which < MESSAGES);
                if (which < 0 || which >= MESSAGES) break;
                seen[which]++;
                CHECK(which > last[kind][which % GUESTS]);
                last[kind][which % GUESTS] = which;
                size_t wrong = 0;
                for (size_t k = 0; k < length_of(which); k++) wrong += bytes[i][k] != which;
                CHECK_EQUAL(wrong, 0);
            }
            for (int i = 0; i < MESSAGES; i++) CHECK_EQUAL(seen[i], 1);
        }
        meet(s.end);
    }
    for (int i = 0; i < MESSAGES; i++) free(bytes[i]);
    close_sharing(&s);
}

static void plain_messages(void) { messages(0); }
static void tagged_messages(void) { messages(1); }

/* A cancelled receive is given to no endpoint, and receives still posted end with the context. */
static void cancelled(void) {
    struct sharing s;
    if (!open_sharing(&s)) return;
    static int in[3], out = 7;
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    for (int i = 0; i < 3; i++) MUST(AGAIN(s.end, fi_trecv(s.receives, &in[i], sizeof(int), NULL, FI_ADDR_UNSPEC, i == 2, 0, &in[i])));
    CHECK_EQUAL(fi_cancel(&s.receives->fid, &out), -FI_ENOENT);
    CHECK_EQUAL(fi_cancel(&s.receives->fid, &in[0]), 0);
    CHECK_EQUAL(take(s.end, s.end->received, &entry, &error), FI_ECANCELED);
    CHECK(error.op_context == &in[0]);
    meet(s.end);
    MUST(AGAIN(s.end, fi_tsend(s.endpoints[1], &out, sizeof out, NULL, s.peers[2], 0, &out)));
    EXPECT(s.end, s.end->sent, &out);
    EXPECT(s.end, s.end->received, &in[1]);
    CHECK(in[0] == 0 && in[1] == 7 && in[2] == 0);
    close_sharing(&s);
}

const struct test_case shared_cases[] = {
    {"plain_messages", plain_messages},
    {"tagged_messages", tagged_messages},
    {"cancelled", cancelled},
    {NULL, NULL},
};

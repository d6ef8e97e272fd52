/* Datagram endpoints, fi_endpoint(3): messages of at most one packet, whose arrival is not reported. */
#include "conform.h"

static const struct wish DATAGRAMS = {.caps = FI_MSG, .kind = FI_EP_DGRAM};

static struct fi_info *asked(uint64_t caps, size_t longest, uint64_t flags, int *code) {
    struct fi_info *hints = hints_for(caps), *info = NULL;
    hints->ep_attr->type = FI_EP_DGRAM;
    hints->ep_attr->max_msg_size = longest;
    hints->tx_attr->op_flags = flags;
    *code = fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &info);
    fi_freeinfo(hints);
    return info;
}

static void offer(void) {
    int code;
    struct fi_info *info = asked(0, 0, 0, &code);
    CHECK_EQUAL(code, 0);
    if (code) return;
    size_t longest = info->ep_attr->max_msg_size;
    CHECK_EQUAL(info->ep_attr->type, FI_EP_DGRAM);
    CHECK(longest >= 512 && longest <= 65507);
    CHECK(info->tx_attr->inject_size <= longest);
    CHECK_EQUAL(info->ep_attr->msg_prefix_size, 0);
    CHECK_EQUAL(info->caps & (FI_TAGGED | FI_RMA | FI_ATOMIC), 0);
    fi_freeinfo(info);
    static const struct {
        uint64_t caps, flags;
        int more;
    } refused[] = {{FI_TAGGED, 0, 0}, {FI_MSG | FI_RMA, 0, 0}, {FI_MSG, FI_DELIVERY_COMPLETE, 0}, {FI_MSG, 0, 1}};
    for (int i = 0; i < 4; i++) {
        info = asked(refused[i].caps, refused[i].more ? longest + 1 : 0, refused[i].flags, &code);
        check(code == -FI_ENODATA, __FILE__, __LINE__, "request %d gave %d", i, code);
        fi_freeinfo(info);
    }
}

static void messages(void) {
    struct end *end = open_end(&DATAGRAMS);
    if (!end) return;
    size_t longest = end->info->ep_attr->max_msg_size;
    size_t lengths[] = {0, 1, 100, 1000, longest};
    char *out = memory(longest + 1), *in = memory(longest);
    struct fi_cq_tagged_entry entry;
    for (unsigned i = 0; i < 60; i++) {
        size_t length = lengths[i % 5];
        MUST(AGAIN(end, fi_recv(end->ep, in, longest, NULL, FI_ADDR_UNSPEC, in)));
        meet(end);
        fill(out, length, i);
        struct iovec pieces[2] = {{out, length / 3}, {out + length / 3, length - length / 3}};
        switch (i % 3) {
        case 0: MUST(AGAIN(end, fi_send(end->ep, out, length, NULL, end->peer, out))); break;
        case 1: MUST(AGAIN(end, fi_sendv(end->ep, pieces, NULL, 2, end->peer, out))); break;
        default: MUST(AGAIN(end, fi_senddata(end->ep, out, length, NULL, 70 + i, end->peer, out))); break;
        }
        EXPECT(end, end->sent, out);
        CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
        CHECK(entry.op_context == in && (entry.flags & FI_RECV) && (entry.flags & FI_MSG));
        CHECK_EQUAL(entry.len, length);
        if (i % 3 == 2) CHECK((entry.flags & FI_REMOTE_CQ_DATA) && entry.data == 70 + i);
        CHECK_BYTES(in, length, i);
    }
    CHECK_EQUAL(fi_send(end->ep, out, longest + 1, NULL, end->peer, out), -FI_EMSGSIZE);
    CHECK_EQUAL(fi_inject(end->ep, out, longest + 1, end->peer), -FI_EMSGSIZE);
    /* Injects have no completion; they arrive in the order sent. */
    if (side == 0)
        for (int i = 0; i < 500; i++) MUST(AGAIN(end, fi_inject(end->ep, &i, sizeof i, end->peer)));
    else
        for (int i = 0; i < 500; i++) {
            int got = -1;
            MUST(AGAIN(end, fi_recv(end->ep, &got, sizeof got, NULL, FI_ADDR_UNSPEC, &got)));
            EXPECT(end, end->received, &got);
            CHECK_EQUAL(got, i);
        }
    meet(end);
    CHECK(!is_there(end, end->sent));
    free(out), free(in);
    close_end(end);
}

/* A sender to a closed endpoint learns nothing, and reaches others as before. */
static void absent_peer(void) {
    struct end *end = open_end(&DATAGRAMS);
    if (!end) return;
    char bytes[1000], got[1000], name[256];
    size_t length = sizeof name;
    fi_addr_t gone;
    struct fid_ep *other;
    MUST(fi_endpoint(end->domain, end->info, &other, NULL));
    MUST(fi_ep_bind(other, &end->av->fid, 0));
    MUST(fi_ep_bind(other, &end->received->fid, FI_TRANSMIT | FI_RECV));
    MUST(fi_enable(other));
    MUST(fi_getname(&other->fid, name, &length));
    CHECK_EQUAL(fi_close(&other->fid), 0);
    MUST(fi_av_insert(end->av, name, 1, &gone, 0, NULL) == 1 ? 0 : -FI_EINVAL);
    for (unsigned i = 0; i < 50; i++) {
        fill(bytes, sizeof bytes, i);
        MUST(AGAIN(end, fi_send(end->ep, bytes, sizeof bytes, NULL, gone, bytes)));
        EXPECT(end, end->sent, bytes);
        MUST(AGAIN(end, fi_recv(end->ep, got, sizeof got, NULL, FI_ADDR_UNSPEC, got)));
        MUST(AGAIN(end, fi_send(end->ep, bytes, sizeof bytes, NULL, end->peer, bytes)));
        EXPECT(end, end->sent, bytes);
        EXPECT(end, end->received, got);
        CHECK_BYTES(got, sizeof got, i);
    }
    close_end(end);
}

const struct test_case datagram_cases[] = {
    {"offer", offer},
    {"messages", messages},
    {"absent_peer", absent_peer},
    {NULL, NULL},
};

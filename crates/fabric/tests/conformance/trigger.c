/* Operations that wait for a counter: fi_trigger(3), and aliases of endpoints, fi_endpoint(3). */
#include "trigger.h"

struct fid_cntr *counter_of(struct end *end) {
    struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    struct fid_cntr *counter = NULL;
    MUST(fi_cntr_open(end->domain, &attr, &counter, NULL));
    return counter;
}

static int open_set_as(struct set *set, enum fi_threading threading) {
    struct wish wish = {.caps = FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC | FI_TRIGGER, .counters = 1, .threading = threading};
    memset(set, 0, sizeof *set);
    if (!(set->end = open_end(&wish))) return 0;
    CHECK(set->end->info->caps & FI_TRIGGER);
    set->trigger = counter_of(set->end);
    set->done = counter_of(set->end);
    set->bytes = memory(LONG);
    memset(set->bytes, 0, LONG);
    uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE | FI_SEND | FI_RECV;
    MUST(fi_mr_reg(set->end->domain, set->bytes, LONG, access, 0, 5 + (uint64_t)side, 0, &set->region, NULL));
    int by_address = set->end->info->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC);
    uint64_t mine[2] = {by_address ? (uint64_t)(uintptr_t)set->bytes : 0, fi_mr_key(set->region)}, theirs[2];
    tell(mine, sizeof mine);
    hear(theirs, sizeof theirs);
    set->base = theirs[0], set->key = theirs[1];
    return 1;
}

int open_set(struct set *set) { return open_set_as(set, FI_THREAD_UNSPEC); }

void close_set(struct set *set) {
    meet(set->end);
    CHECK_EQUAL(fi_close(&set->region->fid), 0);
    CHECK_EQUAL(fi_close(&set->trigger->fid), 0);
    CHECK_EQUAL(fi_close(&set->done->fid), 0);
    free(set->bytes);
    close_end(set->end);
}

struct fi_triggered_context2 when(struct fid_cntr *counter, size_t threshold) {
    struct fi_triggered_context2 context = {.event_type = FI_TRIGGER_THRESHOLD};
    context.trigger.threshold.cntr = counter;
    context.trigger.threshold.threshold = threshold;
    return context;
}

ssize_t send_when(struct set *set, const void *bytes, size_t length, uint64_t tag, void *context) {
    struct iovec from = {(void *)bytes, length};
    struct fi_msg_tagged message = {.msg_iov = &from, .iov_count = 1, .addr = set->end->peer, .tag = tag, .context = context};
    ssize_t code = fi_tsendmsg(set->end->ep, &message, FI_TRIGGER | FI_COMPLETION);
    memset(&from, 0xee, sizeof from);
    memset(&message, 0xee, sizeof message);
    return code;
}

void exchange(struct end *end, uint64_t tag) {
    char out = 'x', in = 0;
    MUST(AGAIN(end, fi_trecv(end->ep, &in, 1, NULL, FI_ADDR_UNSPEC, tag, 0, &in)));
    MUST(AGAIN(end, fi_tsend(end->ep, &out, 1, NULL, end->peer, tag, &out)));
    EXPECT(end, end->received, &in);
    EXPECT(end, end->sent, &out);
}

static void later(void) {
    struct set set;
    if (!open_set(&set)) return;
    struct end *end = set.end;
    static char out[LONG], in[LONG];
    static const size_t lengths[] = {8, LONG};
    for (int i = 0; i < 2; i++) {
        fill(out, lengths[i], (unsigned)(side + i));
        MUST(AGAIN(end, fi_trecv(end->ep, in, lengths[i], NULL, FI_ADDR_UNSPEC, 1, 0, in)));
        struct fi_triggered_context2 context = when(set.trigger, 3);
        MUST(fi_cntr_set(set.trigger, 2));
        MUST(send_when(&set, out, lengths[i], 1, &context));
        exchange(end, 2);
        CHECK(!is_there(end, end->sent));
        CHECK(!is_there(end, end->received));
        meet(end);
        MUST(fi_cntr_add(set.trigger, 1));
        EXPECT(end, end->sent, &context);
        EXPECT(end, end->received, in);
        CHECK_BYTES(in, lengths[i], (unsigned)(1 - side + i));
    }
    close_set(&set);
}

static void at_once(void) {
    struct set set;
    if (!open_set(&set)) return;
    struct end *end = set.end;
    char out[LENGTH], in[LENGTH];
    fill(out, LENGTH, (unsigned)side);
    MUST(AGAIN(end, fi_trecv(end->ep, in, LENGTH, NULL, FI_ADDR_UNSPEC, 1, 0, in)));
    MUST(fi_cntr_set(set.trigger, 9));
    struct fi_triggered_context2 context = when(set.trigger, 3);
    MUST(AGAIN(end, send_when(&set, out, LENGTH, 1, &context)));
    EXPECT(end, end->sent, &context);
    EXPECT(end, end->received, in);
    CHECK_BYTES(in, LENGTH, (unsigned)(1 - side));
    close_set(&set);
}

/* A receive triggers the send that passes its message on: side 0 sends, both pass it on twice, without reading any queue. */
static void by_what_was_received(void) {
    struct set set;
    if (!open_set(&set)) return;
    struct end *end = set.end;
    enum { TURNS = 3 };
    uint64_t in[TURNS] = {0};
    struct fi_triggered_context2 contexts[TURNS];
    uint64_t before = fi_cntr_read(end->receives);
    for (int i = 0; i < TURNS; i++) {
        MUST(AGAIN(end, fi_trecv(end->ep, &in[i], sizeof in[i], NULL, FI_ADDR_UNSPEC, (uint64_t)i, 0, &in[i])));
        contexts[i] = when(end->receives, before + (size_t)i + 1);
        /* Side 0 gets its own message back, and sends it on with the next tag. */
        uint64_t tag = (uint64_t)i + (side == 0);
        if (tag < TURNS) MUST(send_when(&set, &in[i], sizeof in[i], tag, &contexts[i]));
    }
    meet(end);
    uint64_t first = 4711;
    if (side == 0) MUST(AGAIN(end, fi_tsend(end->ep, &first, sizeof first, NULL, end->peer, 0, &first)));
    CHECK_EQUAL(fi_cntr_wait(end->receives, before + TURNS, 20000), 0);
    CHECK_EQUAL(in[TURNS - 1], 4711);
    for (int i = 0; i < TURNS; i++) EXPECT(end, end->received, &in[i]);
    close_set(&set);
}

/* Operations go by threshold, those with the same one in the order posted, also if the counter passes several at once. */
static void order_as(enum fi_threading threading) {
    struct set set;
    if (!open_set_as(&set, threading)) return;
    struct end *end = set.end;
    enum { COUNT = 40 };
    static struct fi_triggered_context2 contexts[COUNT];
    static int out[COUNT], in[COUNT];
    for (int i = 0; i < COUNT; i++) MUST(AGAIN(end, fi_trecv(end->ep, &in[i], sizeof(int), NULL, FI_ADDR_UNSPEC, 1, 0, &in[i])));
    meet(end);
    for (int i = 0; i < COUNT; i++) {
        out[i] = i;
        contexts[i] = when(set.trigger, (size_t)(4 - i % 4)); /* of each four the last is due first */
        MUST(send_when(&set, &out[i], sizeof(int), 1, &contexts[i]));
    }
    MUST(fi_cntr_add(set.trigger, 2));
    MUST(fi_cntr_add(set.trigger, 100));
    for (int i = 0; i < COUNT; i++) EXPECT(end, end->received, &in[i]);
    for (int i = 0; i < COUNT; i++) {
        struct fi_cq_tagged_entry entry;
        CHECK_EQUAL(take(end, end->sent, &entry, NULL), 0);
        CHECK_EQUAL(in[i], i % (COUNT / 4) * 4 + 3 - i / (COUNT / 4));
    }
    close_set(&set);
}

static void order(void) { order_as(FI_THREAD_SAFE); }

/* With an application that serializes its calls. */
static void order_of_one_thread(void) { order_as(FI_THREAD_DOMAIN); }

/* Each kind of operation by its flag. */
static void every_kind(void) {
    struct set set;
    if (!open_set(&set)) return;
    struct end *end = set.end;
    struct fid_ep *ep = end->ep;
    const uint64_t flags = FI_TRIGGER | FI_COMPLETION;
    uint64_t out[4] = {10 + (uint64_t)side, 20, 30, 40}, in[4] = {0}, got[2] = {0}, fetched = 0, compared = 0, swapped = 0;
    struct fi_triggered_context2 contexts[8];
    for (int i = 0; i < 8; i++) contexts[i] = when(set.trigger, (size_t)i + 1);

    struct iovec into[2] = {{&in[0], 8}, {&in[1], 8}}, from = {&out[1], 8};
    struct fi_msg message = {.msg_iov = into, .iov_count = 2, .addr = FI_ADDR_UNSPEC, .context = &contexts[0]};
    MUST(fi_recvmsg(ep, &message, flags));
    struct iovec two[2] = {{&out[0], 8}, {&out[1], 8}};
    message = (struct fi_msg){.msg_iov = two, .iov_count = 2, .addr = end->peer, .context = &contexts[1], .data = 77};
    MUST(fi_sendmsg(ep, &message, flags | FI_REMOTE_CQ_DATA));
    struct iovec place = {&in[2], 8};
    struct fi_msg_tagged tagged = {.msg_iov = &place, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 3, .ignore = 8, .context = &contexts[2]};
    MUST(fi_trecvmsg(ep, &tagged, flags));

    struct fi_rma_iov there = {set.base, 8, set.key};
    struct fi_msg_rma rma = {.msg_iov = &from, .iov_count = 1, .addr = end->peer, .rma_iov = &there, .rma_iov_count = 1, .context = &contexts[3]};
    MUST(fi_writemsg(ep, &rma, flags | FI_DELIVERY_COMPLETE));
    struct iovec back = {&got[0], 8};
    rma.msg_iov = &back, rma.context = &contexts[4];
    MUST(fi_readmsg(ep, &rma, flags));

    struct fi_ioc operand = {&out[2], 1}, result = {&fetched, 1}, comparand = {&compared, 1};
    struct fi_rma_ioc at = {set.base, 1, set.key};
    struct fi_msg_atomic atomic = {.msg_iov = &operand, .iov_count = 1, .addr = end->peer, .rma_iov = &at, .rma_iov_count = 1,
                                   .datatype = FI_UINT64, .op = FI_SUM, .context = &contexts[5]};
    MUST(fi_atomicmsg(ep, &atomic, flags));
    atomic.context = &contexts[6];
    MUST(fi_fetch_atomicmsg(ep, &atomic, &result, NULL, 1, flags));
    struct fi_ioc new = {&out[3], 1}, old = {&swapped, 1};
    compared = 80, atomic.context = &contexts[7], atomic.msg_iov = &new, atomic.op = FI_CSWAP;
    MUST(fi_compare_atomicmsg(ep, &atomic, &comparand, NULL, 1, &old, NULL, 1, flags));
    memset(into, 0xee, sizeof into), memset(two, 0xee, sizeof two), memset(&there, 0xee, sizeof there);
    memset(&operand, 0xee, sizeof operand), memset(&at, 0xee, sizeof at), memset(&old, 0xee, sizeof old);
    memset(&comparand, 0xee, sizeof comparand), memset(&back, 0xee, sizeof back), memset(&new, 0xee, sizeof new);

    static const uint64_t kinds[] = {FI_MSG | FI_RECV, FI_MSG | FI_SEND, FI_TAGGED | FI_RECV, FI_RMA | FI_WRITE, FI_RMA | FI_READ,
                                     FI_ATOMIC | FI_WRITE, FI_ATOMIC | FI_READ, FI_ATOMIC | FI_READ};
    struct fi_cq_tagged_entry entry;
    for (int i = 0; i < 8; i++) {
        meet(end);
        CHECK(!is_there(end, end->sent));
        CHECK(!is_there(end, end->received));
        meet(end);
        MUST(fi_cntr_add(set.trigger, 1));
        if (i == 0) continue; /* its message comes with the next */
        if (i == 2) MUST(AGAIN(end, fi_tinject(ep, &out[3], 8, end->peer, 11)));
        CHECK_EQUAL(take(end, i == 2 ? end->received : end->sent, &entry, NULL), 0);
        CHECK(entry.op_context == &contexts[i]);
        CHECK_EQUAL(entry.flags & kinds[i], kinds[i]);
        if (i != 1) continue;
        CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
        CHECK(entry.op_context == &contexts[0]);
        CHECK_EQUAL(entry.data, 77);
    }
    CHECK(in[0] == 11 - (uint64_t)side && in[1] == 20 && in[2] == 40);
    CHECK_EQUAL(got[0], 20);
    CHECK_EQUAL(fetched, 50);
    CHECK_EQUAL(swapped, 80);
    meet(end);
    CHECK_EQUAL(set.bytes[0], 40);
    close_set(&set);
}

/* An alias has flags of its own and shares the rest. */
static void alias(void) {
    struct set set;
    if (!open_set(&set)) return;
    struct end *end = set.end;
    struct fid_ep *waits = NULL, *tells = NULL, *wrong = NULL;
    CHECK_EQUAL(fi_ep_alias(end->ep, &wrong, FI_TRIGGER), -FI_EINVAL);
    CHECK_EQUAL(fi_ep_alias(end->ep, &wrong, FI_TRANSMIT | FI_RECV), -FI_EINVAL);
    MUST(fi_ep_alias(end->ep, &waits, FI_TRANSMIT | FI_TRIGGER));
    MUST(fi_ep_alias(end->ep, &tells, FI_RECV | FI_COMPLETION));
    CHECK_EQUAL(fi_enable(waits), 0);
    char name[2][256] = {"", ""};
    size_t length[2] = {256, 256};
    MUST(fi_getname(&end->ep->fid, name[0], &length[0]));
    MUST(fi_getname(&waits->fid, name[1], &length[1]));
    CHECK(length[0] == length[1] && memcmp(name[0], name[1], length[0]) == 0);

    static char in[6][LENGTH], out[LENGTH];
    fill(out, LENGTH, (unsigned)side);
    struct fi_triggered_context2 contexts[4];
    struct iovec into = {in[1], LENGTH};
    MUST(AGAIN(end, fi_trecv(tells, in[0], LENGTH, NULL, FI_ADDR_UNSPEC, 1, 0, in[0])));
    MUST(AGAIN(end, fi_trecvv(tells, &into, NULL, 1, FI_ADDR_UNSPEC, 2, 0, in[1])));
    MUST(AGAIN(end, fi_recv(tells, in[2], LENGTH, NULL, FI_ADDR_UNSPEC, in[2])));
    /* Calls of the endpoint itself do not wait. */
    MUST(AGAIN(end, fi_trecv(end->ep, in[3], LENGTH, NULL, FI_ADDR_UNSPEC, 3, 0, in[3])));
    meet(end);
    for (int i = 0; i < 4; i++) contexts[i] = when(set.trigger, (size_t)i + 1);
    MUST(fi_tsend(waits, out, LENGTH, NULL, end->peer, 1, &contexts[0]));
    MUST(fi_tsenddata(waits, out, LENGTH, NULL, 99, end->peer, 2, &contexts[1]));
    MUST(fi_send(waits, out, LENGTH, NULL, end->peer, &contexts[2]));
    MUST(fi_write(waits, out, LENGTH, NULL, end->peer, set.base, set.key, &contexts[3]));
    MUST(AGAIN(end, fi_tsend(end->ep, out, LENGTH, NULL, end->peer, 3, out)));
    EXPECT(end, end->sent, out);
    EXPECT(end, end->received, in[3]);
    meet(end);
    CHECK(!is_there(end, end->sent));
    CHECK(!is_there(end, end->received));
    meet(end);
    struct fi_cq_tagged_entry entry;
    for (int i = 0; i < 4; i++) {
        MUST(fi_cntr_add(set.trigger, 1));
        EXPECT(end, end->sent, &contexts[i]);
        if (i == 3) continue;
        CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
        CHECK(entry.op_context == in[i]);
        CHECK_BYTES(in[i], LENGTH, (unsigned)(1 - side));
        CHECK(i != 1 || ((entry.flags & FI_REMOTE_CQ_DATA) && entry.data == 99));
    }
    meet(end);
    CHECK_BYTES(set.bytes, LENGTH, (unsigned)(1 - side));

    /* Injects have no context; other flags may be set later. */
    MUST(AGAIN(end, fi_trecv(end->ep, in[4], LENGTH, NULL, FI_ADDR_UNSPEC, 4, 0, in[4])));
    MUST(AGAIN(end, fi_tinject(waits, out, LENGTH, end->peer, 4)));
    EXPECT(end, end->received, in[4]);
    uint64_t flags = FI_TRANSMIT;
    MUST(fi_control(&waits->fid, FI_GETOPSFLAG, &flags));
    CHECK(flags & FI_TRIGGER);
    flags = FI_TRANSMIT;
    MUST(fi_control(&waits->fid, FI_SETOPSFLAG, &flags));
    MUST(AGAIN(end, fi_trecv(end->ep, in[5], LENGTH, NULL, FI_ADDR_UNSPEC, 5, 0, in[5])));
    MUST(AGAIN(end, fi_tsend(waits, out, LENGTH, NULL, end->peer, 5, out)));
    EXPECT(end, end->sent, out);
    EXPECT(end, end->received, in[5]);
    uint64_t operand = 5, fetched = 1;
    meet(end);
    MUST(AGAIN(end, fi_fetch_atomic(waits, &operand, 1, NULL, &fetched, NULL, end->peer, set.base + 1024, set.key, FI_UINT64, FI_SUM, &operand)));
    EXPECT(end, end->sent, &operand);
    CHECK_EQUAL(fetched, 0);
    meet(end);
    CHECK_EQUAL(set.bytes[128], 5);

    /* A receiving alias peeks if its flags say so, and an alias inherits the flags of its parent. */
    struct fid_ep *looks = NULL, *again = NULL;
    struct fi_context2 here;
    struct fi_cq_err_entry error = {0};
    MUST(fi_ep_alias(tells, &looks, FI_RECV | FI_PEEK));
    ssize_t looked = AGAIN(end, fi_trecv(looks, NULL, 0, NULL, FI_ADDR_UNSPEC, 77, 0, &here));
    CHECK(looked == -FI_ENOMSG || (looked == 0 && take(end, end->received, &entry, &error) == FI_ENOMSG));
    CHECK_EQUAL(fi_recv(looks, in[0], LENGTH, NULL, FI_ADDR_UNSPEC, in[0]), -FI_EBADFLAGS);
    MUST(fi_ep_alias(looks, &again, FI_TRANSMIT | FI_FENCE));
    flags = FI_RECV;
    MUST(fi_control(&again->fid, FI_GETOPSFLAG, &flags));
    CHECK_EQUAL(flags, FI_PEEK);
    CHECK_EQUAL(fi_tsend(again, out, LENGTH, NULL, end->peer, 6, out), -FI_EBADFLAGS);
    CHECK_EQUAL(fi_write(again, out, LENGTH, NULL, end->peer, set.base, set.key, out), -FI_EBADFLAGS);
    CHECK_EQUAL(fi_atomic(again, &operand, 1, NULL, end->peer, set.base, set.key, FI_UINT64, FI_SUM, out), -FI_EBADFLAGS);
    MUST(fi_close(&again->fid));
    MUST(fi_close(&looks->fid));
    /* Reads are not copied, whatever the flags say. */
    flags = FI_TRANSMIT | FI_INJECT | FI_COMPLETION;
    MUST(fi_control(&waits->fid, FI_SETOPSFLAG, &flags));
    static char fetched_bytes[LENGTH];
    MUST(AGAIN(end, fi_read(waits, fetched_bytes, LENGTH / 2, NULL, end->peer, set.base + 512, set.key, fetched_bytes)));
    EXPECT(end, end->sent, fetched_bytes);
    meet(end);

    /* The endpoint stays until its last alias is closed. */
    CHECK_EQUAL(fi_close(&end->ep->fid), -FI_EBUSY);
    CHECK_EQUAL(fi_close(&waits->fid), 0);
    CHECK_EQUAL(fi_close(&end->ep->fid), -FI_EBUSY);
    CHECK_EQUAL(fi_close(&tells->fid), 0);
    close_set(&set);
}

const struct test_case trigger_cases[] = {
    {"later", later},
    {"at_once", at_once},
    {"by_what_was_received", by_what_was_received},
    {"order", order},
    {"order_of_one_thread", order_of_one_thread},
    {"every_kind", every_kind},
    {"alias", alias},
    {NULL, NULL},
};

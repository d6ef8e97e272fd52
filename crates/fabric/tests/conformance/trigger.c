/* Operations that wait for a counter: fi_trigger(3), and aliases of endpoints, fi_endpoint(3). */
#include "conform.h"

#include <rdma/fi_trigger.h>
#include <stdio.h>

enum { LENGTH = 64, LONG = 200000 };

/* The endpoint, the counters of the case, and memory of this side that the other may reach. */
struct set {
    struct end *end;
    struct fid_cntr *trigger, *done;
    struct fid_mr *region;
    uint64_t *bytes, base, key; /* base and key are the other side's */
};

static struct fid_cntr *counter_of(struct end *end) {
    struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    struct fid_cntr *counter;
    MUST(fi_cntr_open(end->domain, &attr, &counter, NULL));
    return counter;
}

static int open_set(struct set *set) {
    struct wish wish = {.caps = FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC | FI_TRIGGER, .counters = 1};
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

static void close_set(struct set *set) {
    meet(set->end);
    CHECK_EQUAL(fi_close(&set->region->fid), 0);
    CHECK_EQUAL(fi_close(&set->trigger->fid), 0);
    CHECK_EQUAL(fi_close(&set->done->fid), 0);
    free(set->bytes);
    close_end(set->end);
}

static struct fi_triggered_context2 when(struct fid_cntr *counter, size_t threshold) {
    struct fi_triggered_context2 context = {.event_type = FI_TRIGGER_THRESHOLD};
    context.trigger.threshold.cntr = counter;
    context.trigger.threshold.threshold = threshold;
    return context;
}

static ssize_t send_when(struct set *set, const void *bytes, size_t length, uint64_t tag, void *context) {
    /* Neither the list nor the message outlives the call. */
    struct iovec from = {(void *)bytes, length};
    struct fi_msg_tagged message = {.msg_iov = &from, .iov_count = 1, .addr = set->end->peer, .tag = tag, .context = context};
    ssize_t code = fi_tsendmsg(set->end->ep, &message, FI_TRIGGER | FI_COMPLETION);
    memset(&from, 0xee, sizeof from);
    memset(&message, 0xee, sizeof message);
    return code;
}

/* Sends a word past the fabric's other messages and waits for the peer's: what was triggered before has had its time. */
static void exchange(struct end *end, uint64_t tag) {
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

/* A receive that ends lets what it brought go on: side 0 sends, both pass it on twice, without a look at any queue. */
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
        /* Side 0 gets what it sent, and sends it on with the next tag. */
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

/* By threshold, and with the same one as they were posted, also where the counter passes several at once. */
static void order(void) {
    struct set set;
    if (!open_set(&set)) return;
    struct end *end = set.end;
    enum { COUNT = 40 };
    static struct fi_triggered_context2 contexts[COUNT];
    static int out[COUNT], in[COUNT];
    for (int i = 0; i < COUNT; i++) MUST(AGAIN(end, fi_trecv(end->ep, &in[i], sizeof(int), NULL, FI_ADDR_UNSPEC, 1, 0, &in[i])));
    meet(end);
    for (int i = 0; i < COUNT; i++) {
        out[i] = i;
        contexts[i] = when(set.trigger, (size_t)(4 - i % 4)); /* of each four the last comes first */
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

static ssize_t queue(struct set *set, struct fi_deferred_work *work) { return fi_control(&set->end->domain->fid, FI_QUEUE_WORK, work); }

/* One structure for all work, which its queueing leaves to the application. Nothing of it is told at the endpoint. */
static void work(void) {
    struct set set;
    if (!open_set(&set)) return;
    struct end *end = set.end;
    uint64_t sends = fi_cntr_read(end->sends), receives = fi_cntr_read(end->receives);
    static uint64_t out[2][LONG / 8], in[2][LONG / 8];
    fill(out[0], LONG, (unsigned)side);
    fill(out[1], LONG, (unsigned)side + 2);
    struct fi_deferred_work work = {.threshold = 2, .triggering_cntr = set.trigger, .completion_cntr = set.done};
    for (int i = 0; i < 2; i++) {
        size_t length = i ? LONG : 8;
        struct iovec iov = {in[i], length};
        struct fi_op_tagged tagged = {.ep = end->ep, .msg = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 5, .context = &work.context}};
        work.op.tagged = &tagged;
        work.op_type = FI_OP_TRECV;
        MUST(queue(&set, &work));
        iov.iov_base = out[i], tagged.msg.addr = end->peer, work.op_type = FI_OP_TSEND;
        MUST(queue(&set, &work));
        memset(&iov, 0xee, sizeof iov), memset(&tagged, 0xee, sizeof tagged);
    }
    exchange(end, 6);
    CHECK_EQUAL(fi_cntr_read(set.done), 0);
    meet(end);
    MUST(fi_cntr_set(set.trigger, 2));
    CHECK_EQUAL(fi_cntr_wait(set.done, 4, 20000), 0);
    CHECK_BYTES(in[0], 8, (unsigned)(1 - side));
    CHECK_BYTES(in[1], LONG, (unsigned)(1 - side) + 2);
    meet(end);
    CHECK(!is_there(end, end->sent));
    CHECK(!is_there(end, end->received));
    CHECK_EQUAL(fi_cntr_read(set.done), 4);
    /* Only what was exchanged is counted at the endpoint. */
    CHECK_EQUAL(fi_cntr_read(end->sends), sends + 1);
    CHECK_EQUAL(fi_cntr_read(end->receives), receives + 1);

    /* With FI_COMPLETION the queue tells of it too. */
    struct iovec iov = {in[0], 8};
    struct fi_op_msg op = {.ep = end->ep, .msg = {.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &work.context}, .flags = FI_COMPLETION};
    struct fi_deferred_work another = {.threshold = 3, .triggering_cntr = set.trigger, .op_type = FI_OP_SEND};
    work.threshold = 3, work.op_type = FI_OP_RECV, work.op.msg = &op;
    MUST(queue(&set, &work));
    struct iovec from = {out[0], 8};
    op = (struct fi_op_msg){.ep = end->ep, .msg = {.msg_iov = &from, .iov_count = 1, .addr = end->peer, .context = &another.context}, .flags = FI_COMPLETION};
    another.op.msg = &op;
    MUST(queue(&set, &another));
    MUST(fi_cntr_add(set.trigger, 1));
    EXPECT(end, end->received, &work.context);
    EXPECT(end, end->sent, &another.context);
    CHECK_EQUAL(fi_cntr_read(set.done), 5);
    close_set(&set);
}

static void work_on_memory(void) {
    struct set set;
    if (!open_set(&set)) return;
    struct end *end = set.end;
    uint64_t operand[2] = {40, 2}, got = 0, old[2] = {0}, comparand = 42;
    struct fi_deferred_work work[5];
    struct fi_rma_iov there = {set.base, 8, set.key};
    struct fi_rma_ioc at = {set.base, 1, set.key};
    /* Each waits for the one before: a write, a read, a sum, a sum that fetches, a swap. */
    for (int i = 0; i < 5; i++) {
        struct fi_op_rma rma = {.ep = end->ep};
        struct fi_op_compare_atomic compare = {.ep = end->ep};
        struct fi_op_fetch_atomic fetch = {.ep = end->ep};
        struct fi_op_atomic atomic = {.ep = end->ep};
        struct iovec iov = {i == 0 ? &operand[0] : &got, 8};
        struct fi_ioc ioc = {&operand[i < 4], 1}, result = {&old[i == 4], 1}, compared = {&comparand, 1};
        work[i] = (struct fi_deferred_work){.threshold = (uint64_t)(i ? i : 1), .triggering_cntr = i ? set.done : set.trigger, .completion_cntr = set.done};
        rma.msg = (struct fi_msg_rma){.msg_iov = &iov, .iov_count = 1, .addr = end->peer, .rma_iov = &there, .rma_iov_count = 1, .context = &work[i].context};
        atomic.msg = (struct fi_msg_atomic){.msg_iov = &ioc, .iov_count = 1, .addr = end->peer, .rma_iov = &at, .rma_iov_count = 1,
                                            .datatype = FI_UINT64, .op = i == 4 ? FI_CSWAP : FI_SUM, .context = &work[i].context};
        fetch.msg = compare.msg = atomic.msg;
        fetch.fetch = compare.fetch = (struct fi_msg_fetch){.msg_iov = &result, .iov_count = 1};
        compare.compare = (struct fi_msg_compare){.msg_iov = &compared, .iov_count = 1};
        static const enum fi_op_type types[] = {FI_OP_WRITE, FI_OP_READ, FI_OP_ATOMIC, FI_OP_FETCH_ATOMIC, FI_OP_COMPARE_ATOMIC};
        work[i].op_type = types[i];
        if (i < 2) work[i].op.rma = &rma;
        else if (i == 2) work[i].op.atomic = &atomic;
        else if (i == 3) work[i].op.fetch_atomic = &fetch;
        else work[i].op.compare_atomic = &compare;
        if (i == 0) rma.flags = FI_DELIVERY_COMPLETE;
        if (i == 4) comparand = 44;
        MUST(queue(&set, &work[i]));
    }
    meet(end);
    CHECK_EQUAL(set.bytes[0], 0);
    meet(end);
    MUST(fi_cntr_add(set.trigger, 1));
    CHECK_EQUAL(fi_cntr_wait(set.done, 5, 20000), 0);
    CHECK_EQUAL(got, 40);
    CHECK_EQUAL(old[0], 42);
    CHECK_EQUAL(old[1], 44);
    meet(end);
    CHECK_EQUAL(set.bytes[0], 40);
    CHECK(!is_there(end, end->sent));
    close_set(&set);
}

/* Counters that set one another off. */
static void counters(void) {
    struct set set;
    if (!open_set(&set)) return;
    enum { CHAIN = 20 };
    struct fid_cntr *all[CHAIN];
    struct fi_deferred_work work[CHAIN];
    struct fi_op_cntr ops[CHAIN];
    for (int i = 0; i < CHAIN; i++) all[i] = counter_of(set.end);
    for (int i = CHAIN - 1; i > 0; i--) {
        ops[i] = (struct fi_op_cntr){.cntr = all[i], .value = (uint64_t)i * 10};
        work[i] = (struct fi_deferred_work){.threshold = i == 1 ? 7 : (uint64_t)(i - 1) * 10, .triggering_cntr = all[i - 1],
                                            .op_type = i % 2 ? FI_OP_CNTR_SET : FI_OP_CNTR_ADD, .op.cntr = &ops[i]};
        MUST(queue(&set, &work[i]));
    }
    MUST(fi_cntr_add(all[0], 6));
    for (int i = 1; i < CHAIN; i++) CHECK_EQUAL(fi_cntr_read(all[i]), 0);
    MUST(fi_cntr_add(all[0], 1));
    for (int i = 1; i < CHAIN; i++) CHECK_EQUAL(fi_cntr_read(all[i]), i * 10);
    /* What has come to its threshold is done at once. */
    ops[0] = (struct fi_op_cntr){.cntr = all[1], .value = 5};
    work[0] = (struct fi_deferred_work){.threshold = 7, .triggering_cntr = all[0], .op_type = FI_OP_CNTR_ADD, .op.cntr = &ops[0]};
    MUST(queue(&set, &work[0]));
    CHECK_EQUAL(fi_cntr_read(all[1]), 15);
    for (int i = 0; i < CHAIN; i++) CHECK_EQUAL(fi_close(&all[i]->fid), 0);
    close_set(&set);
}

/* Errors of the counter count for deferred work, and not for a triggered operation. */
static void errors_count(void) {
    struct set set;
    if (!open_set(&set)) return;
    struct end *end = set.end;
    struct fi_op_cntr op = {.cntr = set.done, .value = 1};
    struct fi_deferred_work work = {.threshold = 2, .triggering_cntr = set.trigger, .op_type = FI_OP_CNTR_ADD, .op.cntr = &op};
    struct fi_triggered_context2 context = when(set.trigger, 2);
    char out = 'o', in;
    MUST(AGAIN(end, fi_trecv(end->ep, &in, 1, NULL, FI_ADDR_UNSPEC, 1, 0, &in)));
    MUST(queue(&set, &work));
    MUST(send_when(&set, &out, 1, 1, &context));
    MUST(fi_cntr_add(set.trigger, 1));
    MUST(fi_cntr_adderr(set.trigger, 1));
    CHECK_EQUAL(fi_cntr_read(set.done), 1);
    CHECK(!is_there(end, end->sent));
    MUST(fi_cntr_add(set.trigger, 1));
    EXPECT(end, end->sent, &context);
    EXPECT(end, end->received, &in);
    close_set(&set);
}

static void cancelled(void) {
    struct set set;
    if (!open_set(&set)) return;
    struct end *end = set.end;
    char bytes[8] = "";
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error;
    struct fi_triggered_context2 context = when(set.trigger, 1), other = when(set.trigger, 1);
    uint64_t errors = fi_cntr_readerr(end->sends);
    MUST(send_when(&set, bytes, 8, 1, &context));
    MUST(send_when(&set, bytes, 8, 2, &other));
    CHECK_EQUAL(fi_cancel(&end->ep->fid, &context), 0);
    CHECK_EQUAL(take(end, end->sent, &entry, &error), FI_ECANCELED);
    CHECK(error.op_context == &context && (error.flags & FI_SEND) && (error.flags & FI_TAGGED));
    CHECK_EQUAL(fi_cntr_readerr(end->sends), errors + 1);
    CHECK(fi_cancel(&end->ep->fid, &context) != 0 || !is_there(end, end->sent));

    /* Work is cancelled by its structure, and leaves no trace. */
    struct fi_op_cntr op = {.cntr = set.done, .value = 1};
    struct fi_deferred_work work = {.threshold = 1, .triggering_cntr = set.trigger, .op_type = FI_OP_CNTR_ADD, .op.cntr = &op};
    struct fi_deferred_work kept = work;
    struct fid *domain = &end->domain->fid;
    MUST(queue(&set, &work));
    MUST(queue(&set, &kept));
    CHECK_EQUAL(fi_control(domain, FI_CANCEL_WORK, &work), 0);
    CHECK_EQUAL(fi_control(domain, FI_CANCEL_WORK, &work), -FI_ENOENT);
    MUST(AGAIN(end, fi_trecv(end->ep, bytes, 8, NULL, FI_ADDR_UNSPEC, 2, 0, bytes)));
    MUST(fi_cntr_add(set.trigger, 1));
    CHECK_EQUAL(fi_cntr_read(set.done), 1);
    EXPECT(end, end->sent, &other);
    EXPECT(end, end->received, bytes);
    CHECK_EQUAL(fi_control(domain, FI_CANCEL_WORK, &kept), -FI_ENOENT);

    /* All work, which leaves triggered operations. */
    context = when(set.trigger, 2);
    work.threshold = kept.threshold = 2;
    MUST(queue(&set, &work));
    MUST(queue(&set, &kept));
    MUST(send_when(&set, bytes, 8, 3, &context));
    MUST(AGAIN(end, fi_trecv(end->ep, bytes, 8, NULL, FI_ADDR_UNSPEC, 3, 0, bytes)));
    CHECK_EQUAL(fi_control(domain, FI_FLUSH_WORK, NULL), 0);
    MUST(fi_cntr_add(set.trigger, 1));
    CHECK_EQUAL(fi_cntr_read(set.done), 1);
    EXPECT(end, end->sent, &context);
    EXPECT(end, end->received, bytes);
    close_set(&set);
}

/* What is wrong is told at once. */
static void refused(void) {
    struct set set;
    if (!open_set(&set)) return;
    struct end *end = set.end;
    char byte = 0;
    struct fi_triggered_context2 context = when(NULL, 1);
    CHECK_EQUAL(send_when(&set, &byte, 1, 1, NULL), -FI_EINVAL);
    CHECK_EQUAL(send_when(&set, &byte, 1, 1, &context), -FI_EINVAL);
    context = when(set.trigger, 1);
    context.event_type = FI_TRIGGER_XPU;
    CHECK_EQUAL(send_when(&set, &byte, 1, 1, &context), -FI_ENOSYS);
    context.event_type = 77;
    CHECK_EQUAL(send_when(&set, &byte, 1, 1, &context), -FI_EINVAL);
    context.event_type = FI_TRIGGER_THRESHOLD;
    struct iovec iov = {&byte, 1};
    struct fi_msg_tagged message = {.msg_iov = &iov, .iov_count = 1, .addr = end->peer, .context = &context};
    CHECK_EQUAL(fi_tsendmsg(end->ep, &message, FI_TRIGGER | FI_INJECT), -FI_EINVAL);
    message.iov_count = 1000;
    CHECK_EQUAL(fi_tsendmsg(end->ep, &message, FI_TRIGGER), -FI_EINVAL);
    message.iov_count = 1, message.addr = 12345;
    CHECK_EQUAL(fi_tsendmsg(end->ep, &message, FI_TRIGGER), -FI_EINVAL);
    CHECK_EQUAL(fi_trecvmsg(end->ep, &message, FI_TRIGGER | FI_PEEK), -FI_EBADFLAGS);
    message.addr = end->peer;

    /* A counter of another domain, and an endpoint that was not opened for it. */
    struct fid_domain *elsewhere;
    MUST(fi_domain(end->fabric, end->info, &elsewhere, NULL));
    struct end other = {.domain = elsewhere};
    struct fid_cntr *foreign = counter_of(&other);
    context = when(foreign, 1);
    CHECK_EQUAL(send_when(&set, &byte, 1, 1, &context), -FI_EINVAL);
    struct end *plain = open_end(NULL);
    struct set without = {.end = plain};
    struct fid_cntr *own = counter_of(plain);
    context = when(own, 1);
    CHECK_EQUAL(send_when(&without, &byte, 1, 1, &context), -FI_EINVAL);
    CHECK_EQUAL(fi_close(&own->fid), 0);

    struct fi_op_cntr op = {.cntr = set.done, .value = 1};
    struct fi_deferred_work work = {.threshold = 1, .triggering_cntr = set.trigger, .op_type = FI_OP_CNTR_ADD, .op.cntr = &op};
    struct fid *domain = &end->domain->fid;
    CHECK_EQUAL(fi_control(domain, FI_QUEUE_WORK, NULL), -FI_EINVAL);
    CHECK_EQUAL(fi_control(domain, FI_CANCEL_WORK, NULL), -FI_EINVAL);
    work.completion_cntr = set.done;
    CHECK_EQUAL(queue(&set, &work), -FI_EINVAL);
    work.completion_cntr = NULL, work.triggering_cntr = NULL;
    CHECK_EQUAL(queue(&set, &work), -FI_EINVAL);
    work.triggering_cntr = foreign;
    CHECK_EQUAL(queue(&set, &work), -FI_EINVAL);
    work.triggering_cntr = set.trigger, op.cntr = foreign;
    CHECK_EQUAL(queue(&set, &work), -FI_EINVAL);
    op.cntr = NULL;
    CHECK_EQUAL(queue(&set, &work), -FI_EINVAL);
    work.op.cntr = NULL;
    CHECK_EQUAL(queue(&set, &work), -FI_EINVAL);
    work.op.cntr = &op, work.op_type = 99;
    CHECK_EQUAL(queue(&set, &work), -FI_ENOSYS);
    struct fi_op_tagged tagged = {.ep = plain->ep, .msg = message};
    work.op_type = FI_OP_TSEND, work.op.tagged = &tagged;
    CHECK_EQUAL(queue(&set, &work), -FI_EINVAL);
    tagged.ep = (struct fid_ep *)set.done;
    CHECK_EQUAL(queue(&set, &work), -FI_EINVAL);
    tagged.ep = NULL;
    CHECK_EQUAL(queue(&set, &work), -FI_EINVAL);
    tagged.ep = end->ep, work.completion_cntr = foreign;
    CHECK_EQUAL(queue(&set, &work), -FI_EINVAL);
    close_end(plain);
    CHECK_EQUAL(fi_close(&foreign->fid), 0);
    CHECK_EQUAL(fi_close(&elsewhere->fid), 0);
    close_set(&set);
}

/* A counter that is waited for cannot be closed; an endpoint takes along what waits to be posted there. */
static void closed(void) {
    struct set set;
    if (!open_set(&set)) return;
    struct end *end = set.end;
    struct fid_cntr *waited = counter_of(end), *counted = counter_of(end);
    char byte = 0;
    struct fi_triggered_context2 context = when(waited, 1);
    MUST(send_when(&set, &byte, 1, 1, &context));
    CHECK_EQUAL(fi_close(&waited->fid), -FI_EBUSY);
    struct iovec iov = {&byte, 1};
    struct fi_op_tagged op = {.ep = end->ep, .msg = {.msg_iov = &iov, .iov_count = 1, .addr = end->peer, .tag = 1}};
    struct fi_deferred_work work = {.threshold = 1, .triggering_cntr = waited, .completion_cntr = counted, .op_type = FI_OP_TSEND, .op.tagged = &op};
    MUST(queue(&set, &work));
    CHECK_EQUAL(fi_close(&counted->fid), -FI_EBUSY);
    meet(end);
    CHECK_EQUAL(fi_close(&end->ep->fid), 0);
    CHECK(!is_there(end, end->sent));
    CHECK_EQUAL(fi_close(&waited->fid), 0);
    CHECK_EQUAL(fi_close(&counted->fid), 0);
    CHECK_EQUAL(fi_close(&set.region->fid), 0);
    CHECK_EQUAL(fi_close(&set.trigger->fid), 0);
    CHECK_EQUAL(fi_close(&set.done->fid), 0);
    CHECK_EQUAL(fi_close(&end->sends->fid), 0);
    CHECK_EQUAL(fi_close(&end->receives->fid), 0);
    CHECK_EQUAL(fi_close(&end->sent->fid), 0);
    CHECK_EQUAL(fi_close(&end->received->fid), 0);
    CHECK_EQUAL(fi_close(&end->av->fid), 0);
    CHECK_EQUAL(fi_close(&end->domain->fid), 0);
    CHECK_EQUAL(fi_close(&end->fabric->fid), 0);
}

/* More at once than may be in progress: those that do not fit follow. */
static void too_many(void) {
    struct set set;
    if (!open_set(&set)) return;
    struct end *end = set.end;
    enum { COUNT = 66000 };
    static uint64_t one = 1;
    struct fi_ioc operand = {&one, 1};
    struct fi_rma_ioc at = {set.base, 1, set.key};
    struct fi_deferred_work work = {.threshold = 1, .triggering_cntr = set.trigger, .completion_cntr = set.done, .op_type = FI_OP_ATOMIC};
    struct fi_op_atomic op = {.ep = end->ep, .msg = {.msg_iov = &operand, .iov_count = 1, .addr = end->peer, .rma_iov = &at, .rma_iov_count = 1,
                                                     .datatype = FI_UINT64, .op = FI_SUM, .context = &work.context}};
    work.op.atomic = &op;
    if (side == 0)
        for (int i = 0; i < COUNT; i++) MUST(queue(&set, &work));
    MUST(fi_cntr_add(set.trigger, 1));
    if (side == 0) CHECK_EQUAL(fi_cntr_wait(set.done, COUNT, 60000), 0);
    meet(end);
    CHECK_EQUAL(set.bytes[0], side == 0 ? 0 : COUNT);
    close_set(&set);
}

/* An alias has flags of its own and shares the rest. */
static void alias(void) {
    struct set set;
    if (!open_set(&set)) return;
    struct end *end = set.end;
    struct fid_ep *waits, *tells, *wrong = NULL;
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
    {"every_kind", every_kind},
    {"work", work},
    {"work_on_memory", work_on_memory},
    {"counters", counters},
    {"errors_count", errors_count},
    {"cancelled", cancelled},
    {"refused", refused},
    {"closed", closed},
    {"too_many", too_many},
    {"alias", alias},
    {NULL, NULL},
};

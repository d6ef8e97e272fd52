/* Deferred work in the domain (FI_QUEUE_WORK), and the end of waiting operations: fi_trigger(3). */
#include "trigger.h"

#include <pthread.h>

static ssize_t queue(struct set *set, struct fi_deferred_work *work) { return fi_control(&set->end->domain->fid, FI_QUEUE_WORK, work); }

/* One structure for all work, which is free after queueing. The endpoint reports nothing of it. */
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
    /* Only the exchanged message is counted at the endpoint. */
    CHECK_EQUAL(fi_cntr_read(end->sends), sends + 1);
    CHECK_EQUAL(fi_cntr_read(end->receives), receives + 1);

    /* With FI_COMPLETION the queue reports it too. */
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
    /* Each operation waits for the one before: a write, a read, a sum, a sum that fetches, a swap. */
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

/* Counters that trigger one another. */
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
    /* Work whose threshold is reached already is done at once. */
    ops[0] = (struct fi_op_cntr){.cntr = all[1], .value = 5};
    work[0] = (struct fi_deferred_work){.threshold = 7, .triggering_cntr = all[0], .op_type = FI_OP_CNTR_ADD, .op.cntr = &ops[0]};
    MUST(queue(&set, &work[0]));
    CHECK_EQUAL(fi_cntr_read(all[1]), 15);
    for (int i = 0; i < CHAIN; i++) CHECK_EQUAL(fi_close(&all[i]->fid), 0);
    close_set(&set);
}

enum { THREADS = 4, EACH = 250 };

static void *add_often(void *counter) {
    for (int i = 0; i < EACH; i++) MUST(fi_cntr_add(counter, 1));
    return NULL;
}

/* Several threads change the counter, while one waits and another queues. */
static void threads(void) {
    struct set set;
    if (!open_set(&set)) return;
    static struct fi_deferred_work work[THREADS * EACH];
    struct fi_op_cntr op = {.cntr = set.done, .value = 1};
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) MUST(-pthread_create(&thread[i], NULL, add_often, set.trigger));
    for (int i = 0; i < THREADS * EACH; i++) {
        work[i] = (struct fi_deferred_work){.threshold = (uint64_t)i + 1, .triggering_cntr = set.trigger, .op_type = FI_OP_CNTR_ADD, .op.cntr = &op};
        MUST(queue(&set, &work[i]));
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    CHECK_EQUAL(fi_cntr_read(set.done), THREADS * EACH);
    close_set(&set);
}

/* Errors of the counter count for deferred work, but not for a triggered operation. */
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

    /* Cancels all work, but not triggered operations. */
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

/* Mistakes are reported at once. */
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
    struct fid_domain *elsewhere = NULL;
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

/* A counter with waiting operations cannot be closed; closing an endpoint drops its own. */
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

/* More operations at once than may be in progress: the rest follows. */
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

const struct test_case work_cases[] = {
    {"work", work},
    {"work_on_memory", work_on_memory},
    {"counters", counters},
    {"threads", threads},
    {"errors_count", errors_count},
    {"cancelled", cancelled},
    {"refused", refused},
    {"closed", closed},
    {"too_many", too_many},
    {NULL, NULL},
};

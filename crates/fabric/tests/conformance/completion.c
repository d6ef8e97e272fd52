/* Reports of finished operations, and their means: fi_cq(3), fi_cntr(3). */
#include "conform.h"
#include <poll.h>

static void selective(void) {
    struct wish wish = {.transmit_bind = FI_SELECTIVE_COMPLETION, .receive_bind = FI_SELECTIVE_COMPLETION};
    struct end *end = open_end(&wish);
    if (!end) return;
    enum { COUNT = 40 };
    static int out[COUNT], in[COUNT];
    /* Only every fourth asks for a completion. */
    for (int i = 0; i < COUNT; i++) {
        struct iovec into = {&in[i], sizeof(int)};
        struct fi_msg_tagged message = {.msg_iov = &into, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .tag = 1, .context = &in[i]};
        in[i] = -1;
        MUST(AGAIN(end, fi_trecvmsg(end->ep, &message, i % 4 == 3 ? FI_COMPLETION : 0)));
    }
    meet(end);
    for (int i = 0; i < COUNT; i++) {
        struct iovec from = {&out[i], sizeof(int)};
        struct fi_msg_tagged message = {.msg_iov = &from, .iov_count = 1, .addr = end->peer, .tag = 1, .context = &out[i]};
        out[i] = i + side;
        if (i % 2) MUST(AGAIN(end, fi_tsendmsg(end->ep, &message, i % 4 == 3 ? FI_COMPLETION : 0)));
        else MUST(AGAIN(end, fi_tsend(end->ep, &out[i], sizeof(int), NULL, end->peer, 1, &out[i])));
    }
    /* With FI_SELECTIVE_COMPLETION even fi_tsend has no completion, unless the endpoint's op_flags hold FI_COMPLETION. */
    for (int i = 3; i < COUNT; i += 4) {
        EXPECT(end, end->sent, &out[i]);
        EXPECT(end, end->received, &in[i]);
    }
    meet(end);
    CHECK(!is_there(end, end->sent));
    CHECK(!is_there(end, end->received));
    for (int i = 0; i < COUNT; i++) CHECK_EQUAL(in[i], i + 1 - side);
    /* Errors are always reported. */
    char small;
    MUST(AGAIN(end, fi_trecv(end->ep, &small, 1, NULL, FI_ADDR_UNSPEC, 2, 0, &small)));
    MUST(AGAIN(end, fi_tsend(end->ep, out, sizeof out, NULL, end->peer, 2, out)));
    struct fi_cq_tagged_entry entry;
    CHECK_EQUAL(take(end, end->received, &entry, NULL), FI_ETRUNC);
    meet(end);
    close_end(end);
}

static void formats(void) {
    static const struct {
        enum fi_cq_format format;
        size_t size;
    } all[] = {{FI_CQ_FORMAT_CONTEXT, sizeof(struct fi_cq_entry)},
               {FI_CQ_FORMAT_MSG, sizeof(struct fi_cq_msg_entry)},
               {FI_CQ_FORMAT_DATA, sizeof(struct fi_cq_data_entry)},
               {FI_CQ_FORMAT_TAGGED, sizeof(struct fi_cq_tagged_entry)}};
    /* A second endpoint of this process, whose queue has another format, sends to itself. */
    struct end *end = open_end(NULL);
    if (!end) return;
    for (int f = 0; f < 4; f++) {
        struct fi_cq_attr attr = {.format = all[f].format};
        struct fid_cq *cq;
        struct fid_ep *ep;
        char name[256];
        size_t length = sizeof name;
        fi_addr_t self;
        MUST(fi_cq_open(end->domain, &attr, &cq, NULL));
        MUST(fi_endpoint(end->domain, end->info, &ep, NULL));
        MUST(fi_ep_bind(ep, &end->av->fid, 0));
        MUST(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
        MUST(fi_enable(ep));
        MUST(fi_getname(&ep->fid, name, &length));
        MUST(fi_av_insert(end->av, name, 1, &self, 0, NULL) == 1 ? 0 : -FI_EINVAL);
        enum { COUNT = 10 };
        static char in[COUNT][32];
        char out[20] = "nineteen characters";
        for (int i = 0; i < COUNT; i++) {
            ssize_t code;
            while ((code = fi_trecv(ep, in[i], sizeof in[i], NULL, FI_ADDR_UNSPEC, 3, 0, in[i])) == -FI_EAGAIN) fi_cq_read(cq, NULL, 0);
            MUST(code);
            while ((code = fi_tinjectdata(ep, out, sizeof out, 17, self, 3)) == -FI_EAGAIN) fi_cq_read(cq, NULL, 0);
            MUST(code);
        }
        /* Several at once, in an array of this format's entries. */
        char entries[COUNT * sizeof(struct fi_cq_tagged_entry)];
        ssize_t have = 0;
        while (have < COUNT) {
            ssize_t count = fi_cq_read(cq, entries + (size_t)have * all[f].size, (size_t)(COUNT - have));
            if (count != -FI_EAGAIN) {
                MUST(count);
                have += count;
            }
        }
        for (int i = 0; i < COUNT; i++) {
            struct fi_cq_tagged_entry *entry = (void *)(entries + (size_t)i * all[f].size);
            CHECK(entry->op_context == in[i]);
            if (f >= 1) CHECK((entry->flags & FI_RECV) && entry->len == sizeof out);
            if (f >= 2) CHECK(entry->data == 17 && (entry->flags & FI_REMOTE_CQ_DATA));
            if (f >= 3) CHECK_EQUAL(entry->tag, 3);
        }
        CHECK_EQUAL(fi_close(&ep->fid), 0);
        CHECK_EQUAL(fi_close(&cq->fid), 0);
    }
    close_end(end);
}

/* Polls until both were named, perhaps in different calls where an engine of its own goes on meanwhile; returns how often the counter was. */
static int until_both(struct fid_poll *set, void *queue, void *counter) {
    int queues = 0, counters = 0;
    while (!queues || !counters) {
        void *contexts[4];
        int told = fi_poll(set, contexts, 4);
        CHECK(told >= 0 && told <= 2);
        for (int k = 0; k < told; k++) {
            CHECK(contexts[k] == queue || contexts[k] == counter);
            queues += contexts[k] == queue, counters += contexts[k] == counter;
        }
    }
    return counters;
}

/* fi_poll(3): a queue is named while it is not empty, a counter when it has changed since the last poll. */
static void poll_set(void) {
    struct wish wish = {.counters = 1};
    struct end *end = open_end(&wish);
    if (!end) return;
    struct fi_poll_attr attr = {0};
    struct fid_poll *set;
    struct fi_cq_tagged_entry entry;
    void *contexts[4], *queue = &end->received, *counter = &end->receives;
    int out = 5, in = 0;
    end->received->fid.context = queue;
    end->receives->fid.context = counter;
    MUST(fi_poll_open(end->domain, &attr, &set));
    CHECK(fi_poll_add(set, &end->av->fid, 0) < 0);
    CHECK(fi_poll_del(set, &end->received->fid, 0) < 0);
    CHECK_EQUAL(fi_poll_add(set, &end->received->fid, 0), 0);
    CHECK_EQUAL(fi_poll_add(set, &end->receives->fid, 0), 0);
    for (int i = 0; i < 10; i++) CHECK_EQUAL(fi_poll(set, contexts, 4), 0);
    for (int i = 0; i < 3; i++) {
        MUST(AGAIN(end, fi_trecv(end->ep, &in, sizeof in, NULL, FI_ADDR_UNSPEC, 1, 0, &in)));
        meet(end); /* the message makes progress in calls of fi_poll alone */
        MUST(AGAIN(end, fi_tsend(end->ep, &out, sizeof out, NULL, end->peer, 1, &out)));
        CHECK_EQUAL(until_both(set, queue, counter), 1);
        CHECK_EQUAL(in, 5);
        CHECK_EQUAL(fi_poll(set, contexts, 4), 1); /* not read yet */
        CHECK(contexts[0] == queue);
        CHECK_EQUAL(fi_poll(set, contexts, 0), 0);
        CHECK_EQUAL(fi_cq_read(end->received, &entry, 1), 1);
        CHECK(entry.op_context == &in);
        CHECK_EQUAL(fi_poll(set, contexts, 4), 0);
        EXPECT(end, end->sent, &out);
        meet(end);
    }
    /* An error is news too. */
    MUST(AGAIN(end, fi_trecv(end->ep, &in, sizeof in, NULL, FI_ADDR_UNSPEC, 99, 0, &in)));
    CHECK_EQUAL(fi_cancel(&end->ep->fid, &in), 0);
    CHECK_EQUAL(until_both(set, queue, counter), 1);
    CHECK_EQUAL(fi_cntr_readerr(end->receives), 1);
    CHECK_EQUAL(take(end, end->received, &entry, NULL), FI_ECANCELED);
    CHECK_EQUAL(fi_poll_del(set, &end->received->fid, 0), 0);
    CHECK_EQUAL(fi_poll_del(set, &end->receives->fid, 0), 0);
    CHECK_EQUAL(fi_poll(set, contexts, 4), 0);
    CHECK_EQUAL(fi_close(&set->fid), 0);
    close_end(end);
}

static void counters(void) {
    struct wish wish = {.counters = 1};
    struct end *end = open_end(&wish);
    if (!end) return;
    enum { COUNT = 25 };
    static int out[COUNT], in[COUNT];
    struct fi_cq_tagged_entry entry;
    CHECK_EQUAL(fi_cntr_read(end->sends), 0);
    for (int i = 0; i < COUNT; i++) MUST(AGAIN(end, fi_trecv(end->ep, &in[i], sizeof(int), NULL, FI_ADDR_UNSPEC, 1, 0, &in[i])));
    CHECK_EQUAL(fi_cntr_read(end->receives), 0);
    meet(end);
    for (int i = 0; i < COUNT; i++) MUST(AGAIN(end, fi_tsend(end->ep, &out[i], sizeof(int), NULL, end->peer, 1, &out[i])));
    int waited = fi_cntr_wait(end->receives, COUNT, 10000);
    if (waited == -FI_ENOSYS)
        while (fi_cntr_read(end->receives) < COUNT) turn(end);
    else CHECK_EQUAL(waited, 0);
    while (fi_cntr_read(end->sends) < COUNT) turn(end);
    CHECK_EQUAL(fi_cntr_read(end->receives), COUNT);
    CHECK_EQUAL(fi_cntr_read(end->sends), COUNT);
    CHECK_EQUAL(fi_cntr_readerr(end->receives), 0);
    for (int i = 0; i < COUNT; i++) CHECK_EQUAL(take(end, end->sent, &entry, NULL), 0);
    for (int i = 0; i < COUNT; i++) CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
    /* Injects count too, though they have no completion. */
    MUST(AGAIN(end, fi_trecv(end->ep, &in[0], sizeof(int), NULL, FI_ADDR_UNSPEC, 1, 0, &in[0])));
    MUST(AGAIN(end, fi_tinject(end->ep, &out[0], sizeof(int), end->peer, 1)));
    while (fi_cntr_read(end->sends) < COUNT + 1) turn(end);
    EXPECT(end, end->received, &in[0]);
    /* Errors are counted separately. */
    MUST(AGAIN(end, fi_trecv(end->ep, &in[0], sizeof(int), NULL, FI_ADDR_UNSPEC, 99, 0, &in[0])));
    CHECK_EQUAL(fi_cancel(&end->ep->fid, &in[0]), 0);
    CHECK_EQUAL(take(end, end->received, &entry, NULL), FI_ECANCELED);
    CHECK_EQUAL(fi_cntr_readerr(end->receives), 1);
    CHECK_EQUAL(fi_cntr_read(end->receives), COUNT + 1);
    if (waited != -FI_ENOSYS) CHECK_EQUAL(fi_cntr_wait(end->sends, 1000, 5), -FI_ETIMEDOUT);
    CHECK_EQUAL(fi_cntr_add(end->sends, 5), 0);
    CHECK_EQUAL(fi_cntr_set(end->receives, 3), 0);
    CHECK_EQUAL(fi_cntr_read(end->sends), COUNT + 6);
    CHECK_EQUAL(fi_cntr_read(end->receives), 3);
    meet(end);
    close_end(end);
}

/* fi_cq_sread waits for a completion, and no longer than its timeout. */
static void waiting_read(void) {
    struct wish wish = {.wait_object = FI_WAIT_UNSPEC};
    struct end *end = open_end(&wish);
    if (!end) return;
    struct fi_cq_tagged_entry entry;
    int out = 4, in = 0;
    CHECK_EQUAL(fi_cq_sread(end->received, &entry, 1, NULL, 5), -FI_EAGAIN);
    if (side == 0) {
        meet(end);
        rest(30);
        MUST(AGAIN(end, fi_tsend(end->ep, &out, sizeof out, NULL, end->peer, 1, &out)));
        EXPECT(end, end->sent, &out);
        meet(end);
    } else {
        MUST(AGAIN(end, fi_trecv(end->ep, &in, sizeof in, NULL, FI_ADDR_UNSPEC, 1, 0, &in)));
        meet(end);
        ssize_t count = -FI_EAGAIN;
        while (count == -FI_EAGAIN) count = fi_cq_sread(end->received, &entry, 1, NULL, 5000);
        CHECK_EQUAL(count, 1);
        CHECK(entry.op_context == &in);
        CHECK_EQUAL(in, 4);
        CHECK_EQUAL(fi_cq_signal(end->received), 0);
        /* A waiting read that was signalled comes back without a completion. */
        count = fi_cq_sread(end->received, &entry, 1, NULL, 20000);
        check(count == -FI_EAGAIN || count == -FI_EINTR || count == -FI_ECANCELED, __FILE__, __LINE__, "a signalled read gave %zd", count);
        meet(end);
    }
    close_end(end);
}

/* FI_DELIVERY_COMPLETE: the send completes once the message is with the receiver. */
static void delivery_complete(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    static const size_t lengths[] = {0, 10, 5000, 400000};
    char *bytes = memory(400000);
    for (int i = 0; i < 4; i++) {
        if (side == 0) {
            struct iovec piece = {bytes, lengths[i]};
            struct fi_msg_tagged message = {.msg_iov = &piece, .iov_count = 1, .addr = end->peer, .tag = 1, .context = bytes};
            fill(bytes, lengths[i], (unsigned)i);
            meet(end);
            MUST(AGAIN(end, fi_tsendmsg(end->ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION)));
            EXPECT(end, end->sent, bytes);
        } else {
            MUST(AGAIN(end, fi_trecv(end->ep, bytes, lengths[i], NULL, FI_ADDR_UNSPEC, 1, 0, bytes)));
            meet(end);
            EXPECT(end, end->received, bytes);
            CHECK_BYTES(bytes, lengths[i], (unsigned)i);
        }
        meet(end);
    }
    free(bytes);
    close_end(end);
}

/* A queue with an error at its head refuses to read on until the error is read. */
static void error_comes_first(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    int value;
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    MUST(AGAIN(end, fi_trecv(end->ep, &value, sizeof value, NULL, FI_ADDR_UNSPEC, 1, 0, &value)));
    CHECK_EQUAL(fi_cq_readerr(end->received, &error, 0), -FI_EAGAIN);
    CHECK_EQUAL(fi_cancel(&end->ep->fid, &value), 0);
    ssize_t count;
    while ((count = fi_cq_read(end->received, &entry, 1)) == -FI_EAGAIN) turn(end);
    CHECK_EQUAL(count, -FI_EAVAIL);
    CHECK_EQUAL(fi_cq_read(end->received, &entry, 1), -FI_EAVAIL);
    CHECK_EQUAL(fi_cq_readerr(end->received, &error, 0), 1);
    CHECK_EQUAL(error.err, FI_ECANCELED);
    char text[80] = "";
    const char *said = fi_cq_strerror(end->received, error.prov_errno, error.err_data, text, sizeof text);
    CHECK(said != NULL);
    CHECK_EQUAL(fi_cq_read(end->received, &entry, 1), -FI_EAGAIN);
    close_end(end);
}

/* Sleeps until one of the objects may have something, fi_poll(3); returns the number of sleeps. */
static int sleep_on(struct end *end, struct fid **objects, int count) {
    int slept = 0, result;
    while ((result = fi_trywait(end->fabric, objects, count)) == 0) {
        struct pollfd ready[3];
        for (int i = 0; i < count; i++) {
            ready[i] = (struct pollfd){-1, POLLIN, 0};
            MUST(fi_control(objects[i], FI_GETWAIT, &ready[i].fd));
        }
        MUST(poll(ready, (nfds_t)count, -1) > 0 ? 0 : -FI_EOTHER);
        slept++;
    }
    CHECK_EQUAL(result, -FI_EAGAIN);
    return slept;
}

/* A process sleeps on descriptors of a queue, a counter and an event queue until each has something. */
static void sleeping_on_descriptors(void) {
    struct wish wish = {.wait_object = FI_WAIT_FD};
    struct end *end = open_end(&wish);
    if (!end) return;
    enum { COUNT = 20 };
    static int values[COUNT];
    if (side == 0) {
        for (int i = 0; i < COUNT; i++) {
            rest(i < 3 ? 50 : 0);
            values[i] = i;
            MUST(AGAIN(end, fi_tinject(end->ep, &values[i], sizeof values[i], end->peer, 1)));
            turn(end);
        }
    } else {
        struct fid *queue = &end->received->fid;
        int slept = 0;
        for (int i = 0; i < COUNT; i++) {
            MUST(AGAIN(end, fi_trecv(end->ep, &values[i], sizeof values[i], NULL, FI_ADDR_UNSPEC, 1, 0, &values[i])));
            slept += sleep_on(end, &queue, 1);
            struct fi_cq_tagged_entry entry;
            CHECK_EQUAL(fi_cq_read(end->received, &entry, 1), 1);
            CHECK(entry.op_context == &values[i] && values[i] == i);
        }
        CHECK(slept > 0);
        /* An object that offers no descriptor has none, and nobody sleeps on it. */
        struct fi_cntr_attr plain = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC}, attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_FD};
        struct fid_cntr *counter;
        struct fid *object;
        int fd;
        MUST(fi_cntr_open(end->domain, &plain, &counter, NULL));
        object = &counter->fid;
        CHECK_EQUAL(fi_control(object, FI_GETWAIT, &fd), -FI_ENODATA);
        CHECK_EQUAL(fi_trywait(end->fabric, &object, 1), -FI_EINVAL);
        MUST(fi_close(object));
        struct fi_eq_attr events = {.wait_obj = FI_WAIT_FD, .flags = FI_WRITE};
        struct fid_eq *told;
        MUST(fi_cntr_open(end->domain, &attr, &counter, NULL));
        MUST(fi_eq_open(end->fabric, &events, &told, NULL));
        struct fid *all[] = {queue, &counter->fid, &told->fid};
        CHECK_EQUAL(fi_trywait(end->fabric, all, 3), 0);
        MUST(fi_cntr_add(counter, 1));
        CHECK_EQUAL(sleep_on(end, all, 3), 0);
        CHECK_EQUAL(fi_trywait(end->fabric, all, 3), 0);
        uint32_t event = 7;
        CHECK_EQUAL(fi_eq_write(told, event, &event, sizeof event, 0), sizeof event);
        CHECK_EQUAL(sleep_on(end, all, 3), 0);
        CHECK_EQUAL(fi_eq_read(told, &event, &event, sizeof event, 0), sizeof event);
        CHECK_EQUAL(fi_trywait(end->fabric, all, 3), 0);
        /* A signal wakes who sleeps on the queue. */
        MUST(fi_cq_signal(end->received));
        struct pollfd ready = {-1, POLLIN, 0};
        MUST(fi_control(queue, FI_GETWAIT, &ready.fd));
        CHECK_EQUAL(poll(&ready, 1, -1), 1);
        MUST(fi_close(&told->fid));
        MUST(fi_close(&counter->fid));
    }
    meet(end);
    close_end(end);
}

const struct test_case completion_cases[] = {
    {"selective", selective},
    {"formats", formats},
    {"counters", counters},
    {"poll_set", poll_set},
    {"waiting_read", waiting_read},
    {"sleeping_on_descriptors", sleeping_on_descriptors},
    {"delivery_complete", delivery_complete},
    {"error_comes_first", error_comes_first},
    {NULL, NULL},
};

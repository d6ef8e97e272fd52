/* Loads beyond the provider's buffers: unexpected messages, endpoints, threads, operations at once. */
#include "conform.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

/* Twenty thousand unexpected messages, received beginning with the last. */
static void unexpected_flood(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    enum { COUNT = 20000, LENGTH = 64 };
    char bytes[LENGTH];
    struct fi_cq_tagged_entry entry;
    if (side == 0) {
        char *all = memory((size_t)COUNT * LENGTH);
        int told = 0;
        for (int i = 0; i < COUNT; i++) {
            fill(all + (size_t)i * LENGTH, LENGTH, (unsigned)i);
            ssize_t code;
            while ((code = fi_tsend(end->ep, all + (size_t)i * LENGTH, LENGTH, NULL, end->peer, (uint64_t)i, NULL)) == -FI_EAGAIN)
                if (fi_cq_read(end->sent, &entry, 1) == 1) told++;
            MUST(code);
            if (i % 64 == 0)
                while (fi_cq_read(end->sent, &entry, 1) == 1) told++;
        }
        for (; told < COUNT; told++) CHECK_EQUAL(take(end, end->sent, &entry, NULL), 0);
        free(all);
    } else {
        rest(100);
        for (int i = 0; i < COUNT; i++) {
            int tag = i == 0 ? COUNT - 1 : i - 1;
            MUST(AGAIN(end, fi_trecv(end->ep, bytes, LENGTH, NULL, FI_ADDR_UNSPEC, (uint64_t)tag, 0, bytes)));
            EXPECT(end, end->received, bytes);
            CHECK_BYTES(bytes, LENGTH, (unsigned)tag);
        }
    }
    meet(end);
    close_end(end);
}

static void unexpected_long(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    enum { COUNT = 24 };
    size_t length = 2 << 20;
    char *bytes = memory(length * COUNT);
    struct fi_cq_tagged_entry entry;
    if (side == 0) {
        for (int i = 0; i < COUNT; i++) {
            fill(bytes + (size_t)i * length, length, (unsigned)i);
            MUST(AGAIN(end, fi_tsend(end->ep, bytes + (size_t)i * length, length, NULL, end->peer, (uint64_t)i, NULL)));
        }
        for (int i = 0; i < COUNT; i++) CHECK_EQUAL(take(end, end->sent, &entry, NULL), 0);
    } else {
        rest(50);
        for (int i = COUNT - 1; i >= 0; i--) {
            MUST(AGAIN(end, fi_trecv(end->ep, bytes, length, NULL, FI_ADDR_UNSPEC, (uint64_t)i, 0, bytes)));
            EXPECT(end, end->received, bytes);
            CHECK_BYTES(bytes, length, (unsigned)i);
        }
    }
    meet(end);
    free(bytes);
    close_end(end);
}

static void many_under_way(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    enum { COUNT = 3000 };
    static const size_t lengths[] = {0, 20, 500, 5000, 60000};
    char **in = memory(sizeof *in * COUNT), **out = memory(sizeof *out * COUNT);
    struct fi_cq_tagged_entry entry;
    int sent = 0, received = 0;
    for (int i = 0; i < COUNT; i++) {
        size_t length = lengths[i % 5];
        in[i] = memory(length);
        out[i] = memory(length);
        fill(out[i], length, (unsigned)(i + side));
        ssize_t code;
        for (int way = 0; way < 2; way++)
            for (;;) {
                code = way ? fi_tsend(end->ep, out[i], length, NULL, end->peer, (uint64_t)i, NULL)
                           : fi_trecv(end->ep, in[i], length, NULL, FI_ADDR_UNSPEC, (uint64_t)i, 0, NULL);
                if (code != -FI_EAGAIN) break;
                if (fi_cq_read(end->sent, &entry, 1) == 1) sent++;
                if (fi_cq_read(end->received, &entry, 1) == 1) received++;
            }
        MUST(code);
    }
    for (; sent < COUNT; sent++) CHECK_EQUAL(take(end, end->sent, &entry, NULL), 0);
    for (; received < COUNT; received++) CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
    for (int i = 0; i < COUNT; i++) {
        CHECK_BYTES(in[i], lengths[i % 5], (unsigned)(i + 1 - side));
        free(in[i]);
        free(out[i]);
    }
    free(in);
    free(out);
    close_end(end);
}

/* Endpoints of one domain, each of which exchanges messages with all of the other process. */
static void many_endpoints(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    enum { ENDPOINTS = 24 };
    struct fid_ep *ep[ENDPOINTS];
    struct fid_cq *cq[ENDPOINTS];
    fi_addr_t theirs[ENDPOINTS];
    static int in[ENDPOINTS][ENDPOINTS], out[ENDPOINTS][ENDPOINTS];
    char name[256];
    for (int i = 0; i < ENDPOINTS; i++) {
        struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_TAGGED};
        MUST(fi_cq_open(end->domain, &attr, &cq[i], NULL));
        MUST(fi_endpoint(end->domain, end->info, &ep[i], NULL));
        MUST(fi_ep_bind(ep[i], &end->av->fid, 0));
        MUST(fi_ep_bind(ep[i], &cq[i]->fid, FI_TRANSMIT | FI_RECV));
        MUST(fi_enable(ep[i]));
        size_t length = sizeof name;
        memset(name, 0, sizeof name);
        MUST(fi_getname(&ep[i]->fid, name, &length));
        tell(name, sizeof name);
    }
    for (int i = 0; i < ENDPOINTS; i++) {
        hear(name, sizeof name);
        MUST(fi_av_insert(end->av, name, 1, &theirs[i], 0, NULL) == 1 ? 0 : -FI_EINVAL);
    }
    int finished[ENDPOINTS] = {0}, all = 0;
    struct fi_cq_tagged_entry entry;
    for (int i = 0; i < ENDPOINTS; i++)
        for (int k = 0; k < ENDPOINTS; k++) {
            ssize_t code;
            out[i][k] = side * 10000 + i * 100 + k;
            while ((code = fi_trecv(ep[i], &in[i][k], sizeof(int), NULL, FI_ADDR_UNSPEC, (uint64_t)k, 0, NULL)) == -FI_EAGAIN)
                if (fi_cq_read(cq[i], &entry, 1) == 1) finished[i]++;
            MUST(code);
            while ((code = fi_tsend(ep[i], &out[i][k], sizeof(int), NULL, theirs[k], (uint64_t)i, NULL)) == -FI_EAGAIN)
                if (fi_cq_read(cq[i], &entry, 1) == 1) finished[i]++;
            MUST(code);
        }
    while (all < ENDPOINTS) {
        all = 0;
        for (int i = 0; i < ENDPOINTS; i++) {
            ssize_t count = fi_cq_read(cq[i], &entry, 1);
            if (count == 1) finished[i]++;
            else if (count != -FI_EAGAIN) MUST(count);
            all += finished[i] == 2 * ENDPOINTS;
        }
        turn(end);
    }
    for (int i = 0; i < ENDPOINTS; i++)
        for (int k = 0; k < ENDPOINTS; k++) CHECK_EQUAL(in[i][k], (1 - side) * 10000 + k * 100 + i);
    /* The other side may still need these endpoints to be polled. */
    char byte = 'd';
    tell(&byte, 1);
    hear(&byte, 1);
    for (int i = 0; i < ENDPOINTS; i++) {
        CHECK_EQUAL(fi_close(&ep[i]->fid), 0);
        CHECK_EQUAL(fi_close(&cq[i]->fid), 0);
    }
    close_end(end);
}

/* FI_THREAD_SAFE: threads share an endpoint and its queues; a reader of another thread's completion hands it on. */
enum { THREADS = 4, EACH = 400 };
static struct end *shared;
static int done[THREADS][2];

static void drive(void) {
    struct fid_cq *queues[2] = {shared->sent, shared->received};
    ssize_t taken = 0;
    for (int q = 0; q < 2; q++) {
        struct fi_cq_tagged_entry entries[8];
        ssize_t count = fi_cq_read(queues[q], entries, 8);
        if (count < 0 && count != -FI_EAGAIN) MUST(count);
        for (ssize_t i = 0; i < count; i++) {
            int *counter = entries[i].op_context;
            __atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL);
        }
        if (count > 0) taken += count;
    }
    if (taken == 0) sched_yield();
}

static void await_count(int *counter, int value) {
    while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < value) drive();
}

static void *talk(void *argument) {
    int me = (int)(intptr_t)argument;
    static const size_t lengths[] = {8, 1000, 0, 20000, 100, 150000};
    char *bytes = memory(150000);
    for (int i = 0; i < EACH; i++) {
        size_t length = lengths[(i + me) % 6];
        for (int step = 0; step < 2; step++) {
            ssize_t code;
            if (step == side) {
                fill(bytes, length, (unsigned)(me * EACH + i));
                while ((code = fi_tsend(shared->ep, bytes, length, NULL, shared->peer, (uint64_t)me, &done[me][0])) == -FI_EAGAIN) drive();
                MUST(code);
                await_count(&done[me][0], i + 1);
            } else {
                memset(bytes, 0, length);
                while ((code = fi_trecv(shared->ep, bytes, length, NULL, FI_ADDR_UNSPEC, (uint64_t)me, 0, &done[me][1])) == -FI_EAGAIN) drive();
                MUST(code);
                await_count(&done[me][1], i + 1);
                CHECK_BYTES(bytes, length, (unsigned)(me * EACH + i));
            }
        }
    }
    free(bytes);
    return NULL;
}

static void threads(void) {
    struct wish wish = {.threading = FI_THREAD_SAFE};
    pthread_t thread[THREADS];
    shared = open_end(&wish);
    if (!shared) return;
    for (int i = 0; i < THREADS; i++) MUST(-pthread_create(&thread[i], NULL, talk, (void *)(intptr_t)i));
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    close_end(shared);
}

/* Each thread has an endpoint of its own in one domain. */
static void *own_endpoint(void *argument) {
    struct end *end = argument;
    struct fi_cq_tagged_entry entry;
    int value = 0;
    for (int i = 0; i < 2000; i++) {
        value = i;
        for (int step = 0; step < 2; step++) {
            if (step == side) {
                MUST(AGAIN(end, fi_tsend(end->ep, &value, sizeof value, NULL, end->peer, 1, NULL)));
                CHECK_EQUAL(take(end, end->sent, &entry, NULL), 0);
            } else {
                int got = -1;
                MUST(AGAIN(end, fi_trecv(end->ep, &got, sizeof got, NULL, FI_ADDR_UNSPEC, 1, 0, NULL)));
                CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
                CHECK_EQUAL(got, i);
            }
        }
    }
    return NULL;
}

static void threads_apart(void) {
    struct wish wish = {.threading = FI_THREAD_SAFE};
    pthread_t thread[THREADS];
    struct end *ends[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (!(ends[i] = open_end(&wish))) return;
    for (int i = 0; i < THREADS; i++) MUST(-pthread_create(&thread[i], NULL, own_endpoint, ends[i]));
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < THREADS; i++) close_end(ends[i]);
}

const struct test_case load_cases[] = {
    {"unexpected_flood", unexpected_flood}, {"unexpected_long", unexpected_long}, {"many_under_way", many_under_way},
    {"many_endpoints", many_endpoints},     {"threads", threads},                 {"threads_apart", threads_apart},
    {NULL, NULL},
};

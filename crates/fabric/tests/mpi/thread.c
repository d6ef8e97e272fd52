/* MPI_THREAD_MULTIPLE: threads of both ranks send, receive, probe and compute collectively at once. */
#include "conform.h"

#include <pthread.h>

enum { THREADS = 4 };

struct worker {
    pthread_t thread;
    int number;
    MPI_Comm comm;
};

static void all_threads(void *(*work)(void *), MPI_Comm *comms) {
    struct worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = i;
        workers[i].comm = comms ? comms[i] : test.comm;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) MPI_Abort(MPI_COMM_WORLD, 6);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
}

static void *ping(void *argument) {
    struct worker *me = argument;
    static const int lengths[] = {4, 100, 3000, 40000, 0, 64, 200000, 8192};
    char *bytes = memory(200000);
    for (int i = 0; i < 150; i++) {
        int length = lengths[(i + me->number) % 8];
        unsigned salt = (unsigned)(me->number * 1000 + i);
        for (int turn = 0; turn < 2; turn++) {
            if (turn == test.rank) {
                fill(bytes, (size_t)length, salt);
                MPI_Send(bytes, length, MPI_BYTE, other(), me->number, me->comm);
            } else {
                MPI_Status status;
                int count;
                memset(bytes, 0, (size_t)length);
                MPI_Recv(bytes, length, MPI_BYTE, other(), me->number, me->comm, &status);
                MPI_Get_count(&status, MPI_BYTE, &count);
                CHECK_EQUAL(count, length);
                CHECK_BYTES(bytes, (size_t)length, salt);
            }
        }
    }
    free(bytes);
    return NULL;
}

static void each_a_tag(void) {
    if (!apart()) all_threads(ping, NULL);
}

static void each_a_communicator(void) {
    MPI_Comm comms[THREADS];
    for (int i = 0; i < THREADS; i++) MPI_Comm_dup(test.comm, &comms[i]);
    if (!apart()) all_threads(ping, comms);
    for (int i = 0; i < THREADS; i++) MPI_Comm_free(&comms[i]);
}

/* Even threads send, odd ones receive, on both ranks; each keeps a window under way. */
static void *stream(void *argument) {
    struct worker *me = argument;
    enum { WINDOW = 32, ROUNDS = 25 };
    static const int lengths[] = {8, 1000, 9000, 70000};
    MPI_Request requests[WINDOW];
    char *bytes[WINDOW];
    int lane = me->number / 2, sends = me->number % 2 == 0;
    for (int i = 0; i < WINDOW; i++) bytes[i] = memory(70000);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < WINDOW; i++) {
            int length = lengths[(i + round) % 4];
            unsigned salt = (unsigned)(lane * 100000 + round * WINDOW + i);
            if (sends) {
                fill(bytes[i], (size_t)length, salt);
                MPI_Isend(bytes[i], length, MPI_BYTE, other(), lane, me->comm, &requests[i]);
            } else {
                MPI_Irecv(bytes[i], length, MPI_BYTE, other(), lane, me->comm, &requests[i]);
            }
        }
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; !sends && i < WINDOW; i++)
            CHECK_BYTES(bytes[i], (size_t)lengths[(i + round) % 4], (unsigned)(lane * 100000 + round * WINDOW + i));
    }
    for (int i = 0; i < WINDOW; i++) free(bytes[i]);
    return NULL;
}

static void senders_and_receivers(void) {
    if (!apart()) all_threads(stream, NULL);
}

/* Threads that receive from any source: together they get every message once. */
enum { EACH = 500 };
static char seen[THREADS * EACH];

static void *take(void *argument) {
    struct worker *me = argument;
    for (int i = 0; i < EACH; i++) {
        if (test.rank == 0) {
            int value = me->number * EACH + i;
            MPI_Send(&value, 1, MPI_INT, 1, me->number, me->comm);
        } else {
            int value = -1;
            if (me->number % 2) {
                MPI_Message message;
                MPI_Status status;
                MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, me->comm, &message, &status);
                MPI_Mrecv(&value, 1, MPI_INT, &message, &status);
                CHECK_EQUAL(value / EACH, status.MPI_TAG);
            } else {
                MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, me->comm, MPI_STATUS_IGNORE);
            }
            CHECK(value >= 0 && value < THREADS * EACH);
            if (value >= 0 && value < THREADS * EACH) __atomic_fetch_add(&seen[value], 1, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

static void whoever_comes(void) {
    if (apart()) return;
    memset(seen, 0, sizeof seen);
    all_threads(take, NULL);
    for (int i = 0; test.rank == 1 && i < THREADS * EACH; i++) CHECK_EQUAL(seen[i], 1);
}

static void *reduce(void *argument) {
    struct worker *me = argument;
    for (int i = 0; i < 60; i++) {
        int mine = test.rank + me->number * i, sum = 0, root = i % test.size, told = root == test.rank ? i * 3 + me->number : -1;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, me->comm);
        CHECK_EQUAL(sum, test.size * (test.size - 1) / 2 + test.size * me->number * i);
        MPI_Bcast(&told, 1, MPI_INT, root, me->comm);
        CHECK_EQUAL(told, i * 3 + me->number);
    }
    return NULL;
}

static void collectives(void) {
    MPI_Comm comms[THREADS];
    for (int i = 0; i < THREADS; i++) MPI_Comm_dup(test.comm, &comms[i]);
    all_threads(reduce, comms);
    for (int i = 0; i < THREADS; i++) MPI_Comm_free(&comms[i]);
}

/* One thread waits in a receive while others work: it must not block the library. */
static void *wait_or_work(void *argument) {
    struct worker *me = argument;
    if (me->number == 0) {
        int value = -1;
        MPI_Recv(&value, 1, MPI_INT, other(), 100, me->comm, MPI_STATUS_IGNORE);
        CHECK_EQUAL(value, 1234);
    } else {
        ping(argument);
        if (me->number == 1) {
            int value = 1234;
            rest(10);
            MPI_Send(&value, 1, MPI_INT, other(), 100, me->comm);
        }
    }
    return NULL;
}

static void one_waits_others_work(void) {
    if (!apart()) all_threads(wait_or_work, NULL);
}

/* Threads of one rank exchange messages. */
static void *within(void *argument) {
    struct worker *me = argument;
    int pair = me->number ^ 1;
    for (int i = 0; i < 200; i++) {
        int out = me->number * 1000 + i, in = -1;
        MPI_Sendrecv(&out, 1, MPI_INT, test.rank, pair, &in, 1, MPI_INT, test.rank, me->number, me->comm, MPI_STATUS_IGNORE);
        CHECK_EQUAL(in, pair * 1000 + i);
    }
    return NULL;
}

static void threads_of_one_rank(void) { all_threads(within, NULL); }

const struct test_case thread_cases[] = {
    {"each_a_tag", each_a_tag, 1},
    {"each_a_communicator", each_a_communicator, 1},
    {"senders_and_receivers", senders_and_receivers, 1},
    {"whoever_comes", whoever_comes, 1},
    {"collectives", collectives, 1},
    {"one_waits_others_work", one_waits_others_work, 1},
    {"threads_of_one_rank", threads_of_one_rank, 1},
    {NULL, NULL, 0},
};

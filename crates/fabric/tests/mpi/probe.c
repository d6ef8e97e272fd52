/* Probes of messages before their receives, and matched probes. */
#include "conform.h"

static const int SOME[] = {0, 1, 60, 1000, 5000, 70000, 2000000};
enum { SOME_COUNT = sizeof SOME / sizeof *SOME };

static void probe_tells(void) {
    if (apart()) return;
    char *bytes = memory(2000000);
    for (int i = 0; i < SOME_COUNT; i++) {
        if (test.rank == 0) {
            fill(bytes, (size_t)SOME[i], (unsigned)i);
            MPI_Send(bytes, SOME[i], MPI_BYTE, 1, 40 + i, test.comm);
        } else {
            for (int again = 0; again < 2; again++) { /* a probe takes nothing away */
                MPI_Status status;
                int count;
                MPI_Probe(again ? 0 : MPI_ANY_SOURCE, again ? 40 + i : MPI_ANY_TAG, test.comm, &status);
                MPI_Get_count(&status, MPI_BYTE, &count);
                CHECK_EQUAL(status.MPI_SOURCE, 0);
                CHECK_EQUAL(status.MPI_TAG, 40 + i);
                CHECK_EQUAL(count, SOME[i]);
            }
            MPI_Recv(bytes, SOME[i], MPI_BYTE, 0, 40 + i, test.comm, MPI_STATUS_IGNORE);
            CHECK_BYTES(bytes, (size_t)SOME[i], (unsigned)i);
        }
    }
    free(bytes);
}

static void iprobe_finds_and_misses(void) {
    if (apart()) return;
    int flag = 1;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, test.comm, &flag, MPI_STATUS_IGNORE);
    CHECK_EQUAL(flag, 0);
    meet(other());
    if (test.rank == 0) {
        int value = 5;
        MPI_Send(&value, 1, MPI_INT, 1, 10, test.comm);
        meet(1);
        return;
    }
    MPI_Status status;
    do MPI_Iprobe(0, 10, test.comm, &flag, &status);
    while (!flag);
    CHECK_EQUAL(status.MPI_TAG, 10);
    for (int i = 0; i < 50; i++) { /* the message that is there has another tag */
        MPI_Iprobe(0, 11, test.comm, &flag, MPI_STATUS_IGNORE);
        CHECK_EQUAL(flag, 0);
    }
    int value = 0;
    MPI_Recv(&value, 1, MPI_INT, 0, 10, test.comm, MPI_STATUS_IGNORE);
    CHECK_EQUAL(value, 5);
    MPI_Iprobe(0, 10, test.comm, &flag, MPI_STATUS_IGNORE);
    CHECK_EQUAL(flag, 0);
    meet(0);
}

/* A message for which a receive is posted belongs to that receive. */
static void probe_does_not_see_matched(void) {
    if (apart()) return;
    if (test.rank == 0) {
        int first = 1, second = 2;
        meet(1);
        MPI_Send(&first, 1, MPI_INT, 1, 7, test.comm);
        MPI_Send(&second, 1, MPI_INT, 1, 7, test.comm);
        return;
    }
    int first = 0, second = 0;
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(&first, 1, MPI_INT, 0, 7, test.comm, &request);
    meet(0);
    MPI_Probe(0, 7, test.comm, &status);
    MPI_Recv(&second, 1, MPI_INT, 0, 7, test.comm, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK_EQUAL(first, 1);
    CHECK_EQUAL(second, 2);
}

static void mprobe_takes(void) {
    if (apart()) return;
    char *bytes = memory(2000000);
    for (int i = 0; i < SOME_COUNT; i++) {
        if (test.rank == 0) {
            fill(bytes, (size_t)SOME[i], (unsigned)i);
            MPI_Send(bytes, SOME[i], MPI_BYTE, 1, 3, test.comm);
            continue;
        }
        MPI_Message message;
        MPI_Status status;
        int count, flag;
        if (i % 2) {
            MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, test.comm, &message, &status);
        } else {
            do MPI_Improbe(0, 3, test.comm, &flag, &message, &status);
            while (!flag);
        }
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK_EQUAL(count, SOME[i]);
        CHECK(message != MPI_MESSAGE_NULL && message != MPI_MESSAGE_NO_PROC);
        if (i % 3) {
            MPI_Mrecv(bytes, SOME[i], MPI_BYTE, &message, &status);
        } else {
            MPI_Request request;
            MPI_Imrecv(bytes, SOME[i], MPI_BYTE, &message, &request);
            MPI_Wait(&request, &status);
        }
        CHECK(message == MPI_MESSAGE_NULL);
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK_EQUAL(count, SOME[i]);
        CHECK_EQUAL(status.MPI_TAG, 3);
        CHECK_BYTES(bytes, (size_t)SOME[i], (unsigned)i);
    }
    free(bytes);
}

/* Messages of matched probes match no other receive or probe, and may be received in any order. */
static void taken_stay_taken(void) {
    if (apart()) return;
    enum { COUNT = 12 };
    static char bytes[200000];
    static const int lengths[COUNT] = {8, 100000, 0, 3000, 200000, 16, 70000, 1, 40000, 9000, 64, 150000};
    if (test.rank == 0) {
        static char out[COUNT][200000];
        MPI_Request requests[COUNT + 1];
        int last = 99;
        for (int i = 0; i < COUNT; i++) {
            fill(out[i], (size_t)lengths[i], (unsigned)i);
            MPI_Isend(out[i], lengths[i], MPI_BYTE, 1, 5, test.comm, &requests[i]);
        }
        MPI_Isend(&last, 1, MPI_INT, 1, 5, test.comm, &requests[COUNT]);
        MPI_Waitall(COUNT + 1, requests, MPI_STATUSES_IGNORE);
        return;
    }
    MPI_Message messages[COUNT];
    for (int i = 0; i < COUNT; i++) {
        MPI_Status status;
        int count;
        MPI_Mprobe(0, 5, test.comm, &messages[i], &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK_EQUAL(count, lengths[i]);
    }
    int last = 0, flag;
    MPI_Recv(&last, 1, MPI_INT, 0, 5, test.comm, MPI_STATUS_IGNORE);
    CHECK_EQUAL(last, 99);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, test.comm, &flag, MPI_STATUS_IGNORE);
    CHECK_EQUAL(flag, 0);
    for (int i = COUNT - 1; i >= 0; i--) {
        MPI_Mrecv(bytes, lengths[i], MPI_BYTE, &messages[i], MPI_STATUS_IGNORE);
        CHECK_BYTES(bytes, (size_t)lengths[i], (unsigned)i);
    }
}

static void improbe_misses(void) {
    if (apart()) return;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    int flag = 1, count;
    for (int i = 0; i < 20; i++) {
        MPI_Improbe(other(), 123, test.comm, &flag, &message, MPI_STATUS_IGNORE);
        CHECK_EQUAL(flag, 0);
    }
    MPI_Mprobe(MPI_PROC_NULL, 0, test.comm, &message, &status);
    CHECK(message == MPI_MESSAGE_NO_PROC);
    MPI_Mrecv(NULL, 0, MPI_BYTE, &message, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    CHECK_EQUAL(count, 0);
    CHECK_EQUAL(status.MPI_SOURCE, MPI_PROC_NULL);
}

/* Messages of unknown length from unknown senders, as many programs have. */
static void serve_whoever_comes(void) {
    enum { EACH = 60 };
    static char bytes[70000];
    uint64_t state = test.seed + (uint64_t)test.rank;
    if (test.rank != 0) {
        for (int i = 0; i < EACH; i++) {
            int length = 4 + (int)below(&state, i % 10 == 9 ? 65000 : 3000);
            fill(bytes, (size_t)length, (unsigned)(test.rank * EACH + i));
            MPI_Send(bytes, length, MPI_BYTE, 0, i, test.comm);
        }
        return;
    }
    int *next = memory(sizeof *next * (size_t)test.size);
    uint64_t *states = memory(sizeof *states * (size_t)test.size);
    for (int i = 0; i < test.size; i++) next[i] = 0, states[i] = test.seed + (uint64_t)i;
    for (int i = 0; i < EACH * (test.size - 1); i++) {
        MPI_Status status;
        int count;
        MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, test.comm, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        int from = status.MPI_SOURCE, tag = status.MPI_TAG;
        CHECK_EQUAL(tag, next[from]);
        CHECK_EQUAL(count, 4 + (int)below(&states[from], tag % 10 == 9 ? 65000 : 3000));
        next[from]++;
        MPI_Recv(bytes, count, MPI_BYTE, from, tag, test.comm, MPI_STATUS_IGNORE);
        CHECK_BYTES(bytes, (size_t)count, (unsigned)(from * EACH + tag));
    }
    free(next);
    free(states);
}

const struct test_case probe_cases[] = {
    {"probe_tells", probe_tells, 0},
    {"iprobe_finds_and_misses", iprobe_finds_and_misses, 0},
    {"probe_does_not_see_matched", probe_does_not_see_matched, 0},
    {"mprobe_takes", mprobe_takes, 0},
    {"taken_stay_taken", taken_stay_taken, 0},
    {"improbe_misses", improbe_misses, 0},
    {"serve_whoever_comes", serve_whoever_comes, 0},
    {NULL, NULL, 0},
};

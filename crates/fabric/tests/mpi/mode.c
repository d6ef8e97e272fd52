/* Synchronous, buffered and ready sends. */
#include "conform.h"

static const int SOME[] = {0, 1, 64, 2000, 20000, 300000};
enum { SOME_COUNT = sizeof SOME / sizeof *SOME };

/* A synchronous send does not end before its receive has begun. */
static void synchronous_waits(void) {
    if (apart()) return;
    char *bytes = memory(300000);
    for (int i = 0; i < SOME_COUNT; i++) {
        if (test.rank == 0) {
            MPI_Request request;
            int flag = 0, early = 0;
            fill(bytes, (size_t)SOME[i], (unsigned)i);
            MPI_Issend(bytes, SOME[i], MPI_BYTE, 1, 1, test.comm, &request);
            for (int turn = 0; turn < 200 && !early; turn++) {
                MPI_Test(&request, &early, MPI_STATUS_IGNORE);
                if (turn % 50 == 0) rest(1);
            }
            CHECK_EQUAL(early, 0);
            MPI_Send(NULL, 0, MPI_BYTE, 1, 2, test.comm); /* now receive it */
            while (!flag && !early) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(NULL, 0, MPI_BYTE, 0, 2, test.comm, MPI_STATUS_IGNORE);
            MPI_Recv(bytes, SOME[i], MPI_BYTE, 0, 1, test.comm, MPI_STATUS_IGNORE);
            CHECK_BYTES(bytes, (size_t)SOME[i], (unsigned)i);
        }
    }
    free(bytes);
}

static void synchronous_into_posted(void) {
    if (apart()) return;
    char *bytes = memory(300000);
    for (int i = 0; i < 200; i++) {
        int length = SOME[i % SOME_COUNT];
        if (test.rank == 0) {
            meet(1);
            fill(bytes, (size_t)length, (unsigned)i);
            MPI_Ssend(bytes, length, MPI_BYTE, 1, i, test.comm);
        } else {
            MPI_Request request;
            MPI_Irecv(bytes, length, MPI_BYTE, 0, i, test.comm, &request);
            meet(0);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            CHECK_BYTES(bytes, (size_t)length, (unsigned)i);
        }
    }
    free(bytes);
}

/* All modes share one order. */
static void modes_do_not_overtake(void) {
    if (apart()) return;
    enum { COUNT = 120 };
    if (test.rank == 0) {
        size_t room = COUNT * (sizeof(int) + MPI_BSEND_OVERHEAD);
        void *buffer = memory(room), *back;
        int values[COUNT], size;
        MPI_Request requests[COUNT];
        MPI_Buffer_attach(buffer, (int)room);
        for (int i = 0; i < COUNT; i++) {
            values[i] = i;
            switch (i % 3) {
            case 0: MPI_Issend(&values[i], 1, MPI_INT, 1, 4, test.comm, &requests[i]); break;
            case 1: MPI_Isend(&values[i], 1, MPI_INT, 1, 4, test.comm, &requests[i]); break;
            default: MPI_Ibsend(&values[i], 1, MPI_INT, 1, 4, test.comm, &requests[i]); break;
            }
        }
        MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
        MPI_Buffer_detach(&back, &size);
        free(buffer);
    } else {
        for (int i = 0; i < COUNT; i++) {
            int value = -1;
            MPI_Recv(&value, 1, MPI_INT, 0, i % 2 ? 4 : MPI_ANY_TAG, test.comm, MPI_STATUS_IGNORE);
            CHECK_EQUAL(value, i);
        }
    }
}

/* A buffered send ends at once, whenever it is received; detaching waits until the bytes are sent. */
static void buffered_is_over_at_once(void) {
    if (apart()) return;
    enum { COUNT = 10, LENGTH = 100000 };
    char *bytes = memory(LENGTH);
    if (test.rank == 0) {
        size_t room = COUNT * (LENGTH + MPI_BSEND_OVERHEAD);
        void *buffer = memory(room), *back = NULL;
        int size = 0;
        MPI_Buffer_attach(buffer, (int)room);
        for (int i = 0; i < COUNT; i++) {
            fill(bytes, LENGTH, (unsigned)i);
            MPI_Bsend(bytes, LENGTH, MPI_BYTE, 1, i, test.comm);
            memset(bytes, 0, LENGTH);
        }
        MPI_Send(NULL, 0, MPI_BYTE, 1, COUNT, test.comm);
        MPI_Buffer_detach(&back, &size);
        CHECK(back == buffer);
        CHECK_EQUAL(size, room);
        free(buffer);
    } else {
        MPI_Recv(NULL, 0, MPI_BYTE, 0, COUNT, test.comm, MPI_STATUS_IGNORE);
        for (int i = COUNT - 1; i >= 0; i--) {
            MPI_Recv(bytes, LENGTH, MPI_BYTE, 0, i, test.comm, MPI_STATUS_IGNORE);
            CHECK_BYTES(bytes, LENGTH, (unsigned)i);
        }
    }
    free(bytes);
}

static void ready(void) {
    if (apart()) return;
    char *bytes = memory(300000);
    for (int i = 0; i < SOME_COUNT; i++) {
        if (test.rank == 0) {
            fill(bytes, (size_t)SOME[i], (unsigned)i);
            meet(1);
            MPI_Rsend(bytes, SOME[i], MPI_BYTE, 1, i, test.comm);
        } else {
            MPI_Request request;
            MPI_Irecv(bytes, SOME[i], MPI_BYTE, 0, i, test.comm, &request);
            meet(0);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            CHECK_BYTES(bytes, (size_t)SOME[i], (unsigned)i);
        }
    }
    free(bytes);
}

static void synchronous_to_oneself(void) {
    int out = 77, in = 0;
    MPI_Request request;
    MPI_Irecv(&in, 1, MPI_INT, test.rank, 0, test.comm, &request);
    MPI_Ssend(&out, 1, MPI_INT, test.rank, 0, test.comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK_EQUAL(in, 77);
}

static void synchronous_crossing(void) {
    if (apart()) return;
    enum { COUNT = 300 };
    static int out[COUNT], in[COUNT];
    MPI_Request requests[2 * COUNT];
    for (int i = 0; i < COUNT; i++) {
        out[i] = test.rank * 1000 + i;
        MPI_Issend(&out[i], 1, MPI_INT, other(), i, test.comm, &requests[i]);
    }
    for (int i = 0; i < COUNT; i++) MPI_Irecv(&in[i], 1, MPI_INT, other(), COUNT - 1 - i, test.comm, &requests[COUNT + i]);
    MPI_Waitall(2 * COUNT, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < COUNT; i++) CHECK_EQUAL(in[i], other() * 1000 + COUNT - 1 - i);
}

const struct test_case mode_cases[] = {
    {"synchronous_waits", synchronous_waits, 0},
    {"synchronous_into_posted", synchronous_into_posted, 0},
    {"synchronous_to_oneself", synchronous_to_oneself, 0},
    {"synchronous_crossing", synchronous_crossing, 0},
    {"modes_do_not_overtake", modes_do_not_overtake, 0},
    {"buffered_is_over_at_once", buffered_is_over_at_once, 0},
    {"ready", ready, 0},
    {NULL, NULL, 0},
};

/* Persistent requests, started again and again. */
#include "conform.h"

static void rounds(void) {
    if (apart()) return;
    enum { KINDS = 12, ROUNDS = 30 };
    static const int lengths[KINDS] = {0, 1, 100, 4096, 20000, 150000, 8, 64, 5000, 70000, 256, 300001};
    char *out[KINDS], *in[KINDS];
    MPI_Request requests[2 * KINDS];
    for (int i = 0; i < KINDS; i++) {
        out[i] = memory((size_t)lengths[i]);
        in[i] = memory((size_t)lengths[i]);
        MPI_Recv_init(in[i], lengths[i], MPI_BYTE, i % 2 ? other() : MPI_ANY_SOURCE, i, test.comm, &requests[i]);
        if (i % 3 == 2)
            MPI_Ssend_init(out[i], lengths[i], MPI_BYTE, other(), i, test.comm, &requests[KINDS + i]);
        else
            MPI_Send_init(out[i], lengths[i], MPI_BYTE, other(), i, test.comm, &requests[KINDS + i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < KINDS; i++) {
            fill(out[i], (size_t)lengths[i], (unsigned)(round * KINDS + i + test.rank));
            memset(in[i], 0, (size_t)lengths[i]);
        }
        if (round % 2) {
            MPI_Startall(2 * KINDS, requests);
        } else {
            for (int i = 2 * KINDS - 1; i >= 0; i--) MPI_Start(&requests[i]);
        }
        MPI_Waitall(2 * KINDS, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < KINDS; i++) {
            CHECK(requests[i] != MPI_REQUEST_NULL);
            CHECK_BYTES(in[i], (size_t)lengths[i], (unsigned)(round * KINDS + i + other()));
        }
    }
    for (int i = 0; i < 2 * KINDS; i++) MPI_Request_free(&requests[i]);
    for (int i = 0; i < KINDS; i++) free(out[i]), free(in[i]);
}

static void cancelled_and_started_again(void) {
    if (apart()) return;
    int value = -1, cancelled;
    MPI_Request request;
    MPI_Status status;
    MPI_Recv_init(&value, 1, MPI_INT, other(), 4, test.comm, &request);
    for (int round = 0; round < 10; round++) {
        MPI_Start(&request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &cancelled);
        CHECK_EQUAL(cancelled, 1);
        meet(other());
        MPI_Start(&request);
        MPI_Send(&round, 1, MPI_INT, other(), 4, test.comm);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &cancelled);
        CHECK_EQUAL(cancelled, 0);
        CHECK_EQUAL(value, round);
        meet(other());
    }
    MPI_Request_free(&request);
}

static void buffered_and_ready(void) {
    if (apart()) return;
    enum { ROUNDS = 25, LENGTH = 3000 };
    static char out[2][LENGTH], in[2][LENGTH];
    size_t room = 2 * (LENGTH + MPI_BSEND_OVERHEAD) * ROUNDS;
    void *buffer = memory(room), *back;
    int size;
    MPI_Request requests[4];
    MPI_Buffer_attach(buffer, (int)room);
    MPI_Recv_init(in[0], LENGTH, MPI_BYTE, other(), 0, test.comm, &requests[0]);
    MPI_Recv_init(in[1], LENGTH, MPI_BYTE, other(), 1, test.comm, &requests[1]);
    MPI_Bsend_init(out[0], LENGTH, MPI_BYTE, other(), 0, test.comm, &requests[2]);
    MPI_Rsend_init(out[1], LENGTH, MPI_BYTE, other(), 1, test.comm, &requests[3]);
    for (int round = 0; round < ROUNDS; round++) {
        fill(out[0], LENGTH, (unsigned)(round + test.rank));
        fill(out[1], LENGTH, (unsigned)(round + test.rank + 50));
        MPI_Startall(2, requests);
        meet(other());
        MPI_Startall(2, requests + 2);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        CHECK_BYTES(in[0], LENGTH, (unsigned)(round + other()));
        CHECK_BYTES(in[1], LENGTH, (unsigned)(round + other() + 50));
    }
    for (int i = 0; i < 4; i++) MPI_Request_free(&requests[i]);
    MPI_Buffer_detach(&back, &size);
    free(buffer);
}

const struct test_case persistent_cases[] = {
    {"rounds", rounds, 0},
    {"cancelled_and_started_again", cancelled_and_started_again, 0},
    {"buffered_and_ready", buffered_and_ready, 0},
    {NULL, NULL, 0},
};

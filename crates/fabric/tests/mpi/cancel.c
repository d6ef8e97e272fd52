/* Cancelled receives, and requests that nobody waits for. */
#include "conform.h"

static void unmatched_receive(void) {
    if (apart()) return;
    int value = -1, cancelled = 0;
    MPI_Status status;
    MPI_Request request;
    for (int i = 0; i < 20; i++) {
        MPI_Irecv(&value, 1, MPI_INT, i % 2 ? other() : MPI_ANY_SOURCE, i % 3 ? 6 : MPI_ANY_TAG, test.comm, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &cancelled);
        CHECK_EQUAL(cancelled, 1);
    }
    meet(other());
    /* This message is for the receive that is posted now. */
    if (test.rank == 0) {
        int sent = 8;
        MPI_Send(&sent, 1, MPI_INT, 1, 6, test.comm);
    } else {
        int found = 0;
        MPI_Recv(&found, 1, MPI_INT, 0, 6, test.comm, MPI_STATUS_IGNORE);
        CHECK_EQUAL(found, 8);
        CHECK_EQUAL(value, -1);
    }
}

static void one_of_many(void) {
    if (apart()) return;
    enum { COUNT = 40 };
    if (test.rank == 0) {
        meet(1);
        for (int i = 0; i < COUNT; i++)
            if (i % 4 != 1) MPI_Send(&i, 1, MPI_INT, 1, i, test.comm);
        return;
    }
    int values[COUNT];
    MPI_Request requests[COUNT];
    MPI_Status status;
    for (int i = 0; i < COUNT; i++) {
        values[i] = -1;
        MPI_Irecv(&values[i], 1, MPI_INT, 0, i, test.comm, &requests[i]);
    }
    for (int i = 1; i < COUNT; i += 4) MPI_Cancel(&requests[i]);
    meet(0);
    for (int i = 0; i < COUNT; i++) {
        int cancelled;
        MPI_Wait(&requests[i], &status);
        MPI_Test_cancelled(&status, &cancelled);
        CHECK_EQUAL(cancelled, i % 4 == 1);
        CHECK_EQUAL(values[i], i % 4 == 1 ? -1 : i);
    }
}

/* Either the cancel or the message wins, and the status says which; the message is never lost. */
static void against_a_message(void) {
    if (apart()) return;
    enum { ROUNDS = 200 };
    for (int i = 0; i < ROUNDS; i++) {
        if (test.rank == 0) {
            MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, test.comm, MPI_STATUS_IGNORE);
            MPI_Send(&i, 1, MPI_INT, 1, 2, test.comm);
            MPI_Recv(NULL, 0, MPI_BYTE, 1, 3, test.comm, MPI_STATUS_IGNORE);
        } else {
            int value = -1, cancelled;
            MPI_Request request;
            MPI_Status status;
            MPI_Irecv(&value, 1, MPI_INT, 0, 2, test.comm, &request);
            MPI_Send(NULL, 0, MPI_BYTE, 0, 1, test.comm);
            for (int turn = 0; turn < i; turn++) {
                int flag;
                MPI_Iprobe(0, 999, test.comm, &flag, MPI_STATUS_IGNORE);
            }
            MPI_Cancel(&request);
            MPI_Wait(&request, &status);
            MPI_Test_cancelled(&status, &cancelled);
            if (cancelled) MPI_Recv(&value, 1, MPI_INT, 0, 2, test.comm, MPI_STATUS_IGNORE);
            CHECK_EQUAL(value, i);
            MPI_Send(NULL, 0, MPI_BYTE, 0, 3, test.comm);
        }
    }
}

/* Cancelling a send is deprecated, and most transports never do it; whatever the status says must then be true. */
static void send(void) {
    if (apart()) return;
    static char bytes[200000];
    for (int i = 0; i < 6; i++) {
        int length = i % 2 ? (int)sizeof bytes : 100, cancelled;
        if (test.rank == 0) {
            MPI_Request request;
            MPI_Status status;
            fill(bytes, (size_t)length, (unsigned)i);
            MPI_Issend(bytes, length, MPI_BYTE, 1, 1, test.comm, &request);
            MPI_Cancel(&request);
            meet(1); /* the receiver receives messages that were not cancelled */
            MPI_Wait(&request, &status);
            MPI_Test_cancelled(&status, &cancelled);
            MPI_Send(&cancelled, 1, MPI_INT, 1, 3, test.comm);
        } else {
            MPI_Request request;
            int arrived = 0, flag = 0;
            meet(0);
            MPI_Irecv(bytes, length, MPI_BYTE, 0, 1, test.comm, &request);
            MPI_Request told;
            MPI_Irecv(&cancelled, 1, MPI_INT, 0, 3, test.comm, &told);
            MPI_Wait(&told, MPI_STATUS_IGNORE);
            if (cancelled) {
                MPI_Status status;
                MPI_Cancel(&request);
                MPI_Wait(&request, &status);
                MPI_Test_cancelled(&status, &flag);
                CHECK_EQUAL(flag, 1);
            } else {
                MPI_Wait(&request, MPI_STATUS_IGNORE);
                arrived = 1;
            }
            if (arrived) CHECK_BYTES(bytes, (size_t)length, (unsigned)i);
        }
    }
}

/* A freed request goes on; its end shows in its effect. */
static void freed_request(void) {
    if (apart()) return;
    static char out[16][30000], in[30000];
    if (test.rank == 0) {
        for (int i = 0; i < 16; i++) {
            MPI_Request request;
            fill(out[i], sizeof out[i], (unsigned)i);
            MPI_Isend(out[i], i % 2 ? (int)sizeof out[i] : 10, MPI_BYTE, 1, 0, test.comm, &request);
            MPI_Request_free(&request);
            CHECK(request == MPI_REQUEST_NULL);
        }
        MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, test.comm, MPI_STATUS_IGNORE);
    } else {
        for (int i = 0; i < 16; i++) {
            int length = i % 2 ? (int)sizeof in : 10;
            MPI_Recv(in, length, MPI_BYTE, 0, 0, test.comm, MPI_STATUS_IGNORE);
            CHECK_BYTES(in, (size_t)length, (unsigned)i);
        }
        MPI_Send(NULL, 0, MPI_BYTE, 0, 1, test.comm);
    }
}

const struct test_case cancel_cases[] = {
    {"unmatched_receive", unmatched_receive, 0}, {"one_of_many", one_of_many, 0}, {"against_a_message", against_a_message, 0},
    {"send", send, 0},                           {"freed_request", freed_request, 0}, {NULL, NULL, 0},
};

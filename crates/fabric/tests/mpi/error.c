/* Messages longer than their receive, and invalid arguments. */
#include "conform.h"

static int class_of(int code) {
    int class = MPI_SUCCESS;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
    return class;
}

/* Some MPIs report the error of a request on the communicator, some on MPI_COMM_WORLD or MPI_COMM_SELF. */
static void return_errors(int yes) {
    MPI_Comm comms[3] = {test.comm, MPI_COMM_WORLD, MPI_COMM_SELF};
    for (int i = 0; i < 3; i++) MPI_Comm_set_errhandler(comms[i], yes ? MPI_ERRORS_RETURN : MPI_ERRORS_ARE_FATAL);
}

/* Lengths of the message and of the buffer. */
static const int PAIRS[][2] = {{10, 5}, {1, 0}, {100, 99}, {5000, 100}, {100000, 10}, {100000, 99999}, {3000000, 1000}, {3000000, 2999999}, {4096, 0}};
enum { PAIRS_COUNT = sizeof PAIRS / sizeof *PAIRS };

static void truncated(int how) {
    return_errors(1);
    if (apart()) return return_errors(0);
    char *bytes = memory(3000000 + 64);
    for (int i = 0; i < PAIRS_COUNT; i++) {
        int sent = PAIRS[i][0], room = PAIRS[i][1];
        if (test.rank == 0) {
            if (how == 0) meet(1);
            fill(bytes, (size_t)sent, (unsigned)i);
            CHECK_EQUAL(class_of(MPI_Send(bytes, sent, MPI_BYTE, 1, 1, test.comm)), MPI_SUCCESS);
            fill(bytes, 500, 200u + (unsigned)i); /* later messages are not disturbed */
            MPI_Send(bytes, 500, MPI_BYTE, 1, 1, test.comm);
            meet(1);
            continue;
        }
        MPI_Request request;
        MPI_Status status;
        MPI_Message message;
        int code = -1;
        memset(bytes, 0x33, (size_t)room + 64);
        status.MPI_ERROR = MPI_SUCCESS;
        switch (how) {
        case 0: /* posted before the message comes */
            MPI_Irecv(bytes, room, MPI_BYTE, 0, 1, test.comm, &request);
            meet(0);
            code = MPI_Wait(&request, &status);
            break;
        case 1: /* unexpected */
            rest(1);
            code = MPI_Recv(bytes, room, MPI_BYTE, 0, 1, test.comm, &status);
            break;
        case 2: /* taken by a matched probe */
            MPI_Mprobe(0, 1, test.comm, &message, &status);
            code = MPI_Mrecv(bytes, room, MPI_BYTE, &message, &status);
            break;
        default: /* truncation told in the status */
            MPI_Irecv(bytes, room, MPI_BYTE, 0, 1, test.comm, &request);
            code = MPI_Waitall(1, &request, &status);
            CHECK_EQUAL(class_of(code), MPI_ERR_IN_STATUS);
            code = status.MPI_ERROR;
            break;
        }
        check(class_of(code) == MPI_ERR_TRUNCATE, __FILE__, __LINE__, "%d bytes into %d: error class %d, not MPI_ERR_TRUNCATE", sent, room,
              class_of(code));
        int written = 0;
        for (int behind = room; behind < room + 64; behind++) written += bytes[behind] != 0x33;
        check(written == 0, __FILE__, __LINE__, "%d bytes into %d: what lies behind was overwritten", sent, room);
        MPI_Recv(bytes, 500, MPI_BYTE, 0, 1, test.comm, MPI_STATUS_IGNORE);
        CHECK_BYTES(bytes, 500, 200u + (unsigned)i);
        meet(0);
    }
    free(bytes);
    return_errors(0);
}

static void truncated_posted(void) { truncated(0); }
static void truncated_unexpected(void) { truncated(1); }
static void truncated_taken(void) { truncated(2); }
static void truncated_in_status(void) { truncated(3); }

/*
 * Open MPI 4.1 offers threads, and then its MPI_Waitall never returns where a request is in error before the call, also over
 * its own transports: it waits there for the signal of a completion that is over.
 */
static int wait_all(int count, MPI_Request *requests, MPI_Status *statuses) {
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
    int worst = MPI_SUCCESS;
    for (int i = 0; i < count; i++) {
        statuses[i].MPI_ERROR = MPI_Wait(&requests[i], &statuses[i]);
        if (statuses[i].MPI_ERROR != MPI_SUCCESS) worst = MPI_ERR_IN_STATUS;
    }
    return worst;
#else
    return MPI_Waitall(count, requests, statuses);
#endif
}

/* One of many is truncated; the others are whole. */
static void truncated_among_whole(void) {
    return_errors(1);
    if (apart()) return return_errors(0);
    enum { COUNT = 30, LENGTH = 700 };
    static char bytes[COUNT][LENGTH];
    MPI_Request requests[COUNT];
    MPI_Status statuses[COUNT];
    if (test.rank == 0) {
        meet(1);
        for (int i = 0; i < COUNT; i++) {
            fill(bytes[i], LENGTH, (unsigned)i);
            MPI_Isend(bytes[i], LENGTH, MPI_BYTE, 1, i, test.comm, &requests[i]);
        }
        CHECK_EQUAL(class_of(MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE)), MPI_SUCCESS);
        return return_errors(0);
    }
    for (int i = 0; i < COUNT; i++)
        MPI_Irecv(bytes[i], i == 17 ? LENGTH - 1 : LENGTH, MPI_BYTE, 0, i, test.comm, &requests[i]);
    meet(0);
    int code;
    for (int turn = 0; (code = wait_all(COUNT, requests, statuses)) != MPI_SUCCESS && turn < 10; turn++) {
        /* MPI may leave the others pending when one is in error. */
        CHECK_EQUAL(class_of(code), MPI_ERR_IN_STATUS);
        for (int i = 0; i < COUNT; i++)
            if (i == 17 && turn == 0) CHECK_EQUAL(class_of(statuses[i].MPI_ERROR), MPI_ERR_TRUNCATE);
    }
    for (int i = 0; i < COUNT; i++)
        if (i != 17) CHECK_BYTES(bytes[i], LENGTH, (unsigned)i);
    return_errors(0);
}

static void impossible_arguments(void) {
    int value = 0;
    MPI_Comm_set_errhandler(test.comm, MPI_ERRORS_RETURN);
    CHECK_EQUAL(class_of(MPI_Send(&value, 1, MPI_INT, test.size, 0, test.comm)), MPI_ERR_RANK);
    CHECK_EQUAL(class_of(MPI_Send(&value, -1, MPI_INT, 0, 0, test.comm)), MPI_ERR_COUNT);
    CHECK_EQUAL(class_of(MPI_Send(&value, 1, MPI_INT, 0, -7, test.comm)), MPI_ERR_TAG);
}

/* The greatest tag that the MPI offers, and the one below. */
static void greatest_tag(void) {
    if (apart()) return;
    int *bound = NULL, found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
    CHECK(found && bound && *bound >= 32767);
    if (!found || !bound) return;
    int tags[] = {*bound, *bound - 1, 0, *bound / 2 + 1};
    for (int i = 0; i < 4; i++) {
        if (test.rank == 0) {
            MPI_Send(&i, 1, MPI_INT, 1, tags[i], test.comm);
        } else {
            MPI_Status status;
            int value = -1;
            MPI_Recv(&value, 1, MPI_INT, 0, i % 2 ? MPI_ANY_TAG : tags[i], test.comm, &status);
            CHECK_EQUAL(value, i);
            CHECK_EQUAL(status.MPI_TAG, tags[i]);
        }
    }
}

const struct test_case error_cases[] = {
    {"truncated_posted", truncated_posted, 0},
    {"truncated_unexpected", truncated_unexpected, 0},
    {"truncated_taken", truncated_taken, 0},
    {"truncated_in_status", truncated_in_status, 0},
    {"truncated_among_whole", truncated_among_whole, 0},
    {"impossible_arguments", impossible_arguments, 0},
    {"greatest_tag", greatest_tag, 0},
    {NULL, NULL, 0},
};

/* Communicators made, split, joined and freed, with messages under way in several at once. */
#include "conform.h"

/* Many duplicates carry messages of the same tag; each message must come out of its own. */
static void duplicates(void) {
    enum { COUNT = 24 };
    MPI_Comm comms[COUNT];
    for (int i = 0; i < COUNT; i++) MPI_Comm_dup(i % 3 ? test.comm : i ? comms[i - 1] : test.comm, &comms[i]);
    int next = (test.rank + 1) % test.size, previous = (test.rank + test.size - 1) % test.size;
    MPI_Request requests[2 * COUNT];
    int in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++) {
        out[i] = test.rank * 100 + i;
        MPI_Isend(&out[i], 1, MPI_INT, next, 5, comms[i], &requests[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        int which = (i * 7) % COUNT; /* 7 and 24 have no common factor */
        MPI_Irecv(&in[which], 1, MPI_INT, i % 2 ? MPI_ANY_SOURCE : previous, MPI_ANY_TAG, comms[which], &requests[COUNT + i]);
    }
    MPI_Waitall(2 * COUNT, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < COUNT; i++) CHECK_EQUAL(in[i], previous * 100 + i);
    for (int i = 0; i < COUNT; i++) MPI_Comm_free(&comms[i]);
}

static void made_and_freed(void) {
    for (int i = 0; i < 300; i++) {
        MPI_Comm comm;
        int rank, sum = 0, one = 1, size;
        if (i % 2) MPI_Comm_dup(test.comm, &comm);
        else MPI_Comm_split(test.comm, test.rank % 2, -test.rank, &comm);
        MPI_Comm_rank(comm, &rank);
        MPI_Comm_size(comm, &size);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
        CHECK_EQUAL(sum, size);
        if (i % 2 == 0) CHECK_EQUAL(rank, size - 1 - test.rank / 2);
        MPI_Comm_free(&comm);
    }
}

/* Rotated ranks: a process has other ranks in other communicators. */
static void turned_round(void) {
    MPI_Comm reversed;
    int rank;
    MPI_Comm_split(test.comm, 0, test.size - test.rank, &reversed);
    MPI_Comm_rank(reversed, &rank);
    CHECK_EQUAL(rank, test.size - 1 - test.rank);
    for (int round = 0; round < 50; round++) {
        int to = (rank + 1) % test.size, from = (rank + test.size - 1) % test.size, out = test.rank * 100 + round, in = -1;
        MPI_Status status;
        MPI_Sendrecv(&out, 1, MPI_INT, to, 0, &in, 1, MPI_INT, MPI_ANY_SOURCE, 0, reversed, &status);
        CHECK_EQUAL(status.MPI_SOURCE, from);
        CHECK_EQUAL(in, (test.size - 1 - from) * 100 + round);
    }
    MPI_Comm_free(&reversed);
}

static void left_out_of_a_split(void) {
    MPI_Comm part;
    MPI_Comm_split(test.comm, test.rank == 0 ? MPI_UNDEFINED : 1, test.rank, &part);
    CHECK((part == MPI_COMM_NULL) == (test.rank == 0));
    if (part == MPI_COMM_NULL) return;
    int size, sum, one = 1;
    MPI_Comm_size(part, &size);
    CHECK_EQUAL(size, test.size - 1);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, part);
    CHECK_EQUAL(sum, test.size - 1);
    MPI_Comm_free(&part);
}

static void between_two_groups(void) {
    int side = test.rank % 2, leader = 1 - side, size, remote, local;
    MPI_Comm half, between, together;
    MPI_Comm_split(test.comm, side, test.rank, &half);
    MPI_Intercomm_create(half, 0, test.comm, leader, 12, &between);
    MPI_Comm_size(between, &local);
    MPI_Comm_remote_size(between, &remote);
    CHECK_EQUAL(local, (test.size + 1 - side) / 2);
    CHECK_EQUAL(remote, (test.size + side) / 2);
    int rank, in = -1;
    MPI_Comm_rank(between, &rank);
    /* The first ranks of both sides exchange messages; a wildcard there gets the other side's. */
    if (rank == 0) {
        MPI_Status status;
        MPI_Sendrecv(&test.rank, 1, MPI_INT, 0, 1, &in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, between, &status);
        CHECK_EQUAL(in, leader);
        CHECK_EQUAL(status.MPI_SOURCE, 0);
    }
    MPI_Intercomm_merge(between, side, &together);
    MPI_Comm_size(together, &size);
    CHECK_EQUAL(size, test.size);
    int sum = 0;
    MPI_Allreduce(&test.rank, &sum, 1, MPI_INT, MPI_SUM, together);
    CHECK_EQUAL(sum, test.size * (test.size - 1) / 2);
    MPI_Comm_free(&together);
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
}

static void duplicated_while_busy(void) {
    if (test.size < 2) return;
    enum { COUNT = 200 };
    MPI_Comm comm;
    MPI_Request requests[2 * COUNT + 1];
    int in[COUNT], out[COUNT], next = (test.rank + 1) % test.size, previous = (test.rank + test.size - 1) % test.size;
    for (int i = 0; i < COUNT; i++) MPI_Irecv(&in[i], 1, MPI_INT, previous, i, test.comm, &requests[i]);
    MPI_Comm_idup(test.comm, &comm, &requests[2 * COUNT]);
    for (int i = 0; i < COUNT; i++) {
        out[i] = i * 3 + test.rank;
        MPI_Isend(&out[i], 1, MPI_INT, next, i, test.comm, &requests[COUNT + i]);
    }
    MPI_Waitall(2 * COUNT + 1, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < COUNT; i++) CHECK_EQUAL(in[i], i * 3 + previous);
    MPI_Barrier(comm);
    MPI_Comm_free(&comm);
}

const struct test_case communicator_cases[] = {
    {"duplicates", duplicates, 0},
    {"made_and_freed", made_and_freed, 0},
    {"turned_round", turned_round, 0},
    {"left_out_of_a_split", left_out_of_a_split, 0},
    {"between_two_groups", between_two_groups, 0},
    {"duplicated_while_busy", duplicated_while_busy, 0},
    {NULL, NULL, 0},
};

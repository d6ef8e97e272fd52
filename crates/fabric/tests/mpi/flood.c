/* Far more unexpected messages than any transport has credits for. */
#include "conform.h"

static void flood(int from, int count, int length, int reverse) {
    if (test.rank == from) {
        char *bytes = memory((size_t)length * (size_t)count);
        MPI_Request *requests = memory(sizeof *requests * (size_t)count);
        for (int i = 0; i < count; i++) {
            fill(bytes + (size_t)i * (size_t)length, (size_t)length, (unsigned)i);
            MPI_Isend(bytes + (size_t)i * (size_t)length, length, MPI_BYTE, other(), i, test.comm, &requests[i]);
        }
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        free(bytes);
        free(requests);
    } else {
        char *bytes = memory((size_t)length);
        rest(100); /* nobody makes progress here */
        for (int i = 0; i < count; i++) {
            int tag = reverse ? count - 1 - i : i;
            MPI_Recv(bytes, length, MPI_BYTE, from, tag, test.comm, MPI_STATUS_IGNORE);
            CHECK_BYTES(bytes, (size_t)length, (unsigned)tag);
        }
        free(bytes);
    }
}

static void small_in_order(void) {
    if (!apart()) flood(0, 20000, 48, 0);
}
static void small_in_reverse(void) {
    if (!apart()) flood(1, 6000, 100, 1);
}
static void middling_in_reverse(void) {
    if (!apart()) flood(0, 400, 15000, 1);
}
static void long_in_reverse(void) {
    if (!apart()) flood(1, 32, 3 << 20, 1);
}

static void both_ways(void) {
    if (apart()) return;
    enum { COUNT = 10000 };
    MPI_Request *requests = memory(sizeof *requests * 2 * COUNT);
    int *out = memory(sizeof *out * COUNT), *in = memory(sizeof *in * COUNT);
    for (int i = 0; i < COUNT; i++) {
        out[i] = test.rank * COUNT + i;
        MPI_Isend(&out[i], 1, MPI_INT, other(), i % 1000, test.comm, &requests[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        in[i] = -1;
        MPI_Irecv(&in[i], 1, MPI_INT, other(), i % 1000, test.comm, &requests[COUNT + i]);
    }
    MPI_Waitall(2 * COUNT, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < COUNT; i++) CHECK_EQUAL(in[i], other() * COUNT + i);
    free(requests);
    free(out);
    free(in);
}

/* Blocking sends of all ranks to one that first does something else. */
static void all_to_one(void) {
    enum { EACH = 4000 };
    if (test.rank != 0) {
        int payload[8];
        for (int i = 0; i < EACH; i++) {
            for (int k = 0; k < 8; k++) payload[k] = test.rank * EACH + i;
            MPI_Send(payload, 8, MPI_INT, 0, test.rank, test.comm);
        }
        MPI_Send(NULL, 0, MPI_BYTE, 0, 0, test.comm);
        return;
    }
    for (int peer = test.size - 1; peer > 0; peer--) {
        for (int i = 0; i < EACH; i++) {
            int payload[8] = {0};
            MPI_Recv(payload, 8, MPI_INT, peer, peer, test.comm, MPI_STATUS_IGNORE);
            CHECK(payload[0] == peer * EACH + i && payload[7] == peer * EACH + i);
        }
        MPI_Recv(NULL, 0, MPI_BYTE, peer, 0, test.comm, MPI_STATUS_IGNORE);
    }
}

/* One message is waited for while thousands of unexpected ones come before it. */
static void needle_behind_the_flood(void) {
    if (apart()) return;
    enum { COUNT = 12000 };
    int value = -1;
    if (test.rank == 0) {
        MPI_Request *requests = memory(sizeof *requests * (COUNT + 1));
        int *values = memory(sizeof *values * (COUNT + 1));
        for (int i = 0; i <= COUNT; i++) {
            values[i] = i;
            MPI_Isend(&values[i], 1, MPI_INT, 1, i == COUNT ? 2 : 1, test.comm, &requests[i]);
        }
        MPI_Waitall(COUNT + 1, requests, MPI_STATUSES_IGNORE);
        free(requests);
        free(values);
        return;
    }
    MPI_Recv(&value, 1, MPI_INT, 0, 2, test.comm, MPI_STATUS_IGNORE);
    CHECK_EQUAL(value, COUNT);
    for (int i = 0; i < COUNT; i++) {
        MPI_Recv(&value, 1, MPI_INT, 0, 1, test.comm, MPI_STATUS_IGNORE);
        CHECK_EQUAL(value, i);
    }
}

const struct test_case flood_cases[] = {
    {"small_in_order", small_in_order, 0},
    {"small_in_reverse", small_in_reverse, 0},
    {"middling_in_reverse", middling_in_reverse, 0},
    {"long_in_reverse", long_in_reverse, 0},
    {"both_ways", both_ways, 0},
    {"all_to_one", all_to_one, 0},
    {"needle_behind_the_flood", needle_behind_the_flood, 0},
    {NULL, NULL, 0},
};

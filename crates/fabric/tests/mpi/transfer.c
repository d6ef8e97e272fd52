/* Arrival of messages: lengths, alignment, both directions at once, many in flight, to oneself, between all. */
#include "conform.h"

static void every_length(void) {
    if (apart()) return;
    int longest = LENGTHS[LENGTHS_COUNT - 1];
    char *bytes = memory((size_t)longest + 1);
    for (int i = 0; i < LENGTHS_COUNT; i++) {
        int length = LENGTHS[i];
        for (int from = 0; from < 2; from++) {
            if (test.rank == from) {
                fill(bytes, (size_t)length, (unsigned)i);
                MPI_Send(bytes, length, MPI_BYTE, other(), i, test.comm);
            } else {
                MPI_Status status;
                int count;
                memset(bytes, 0, (size_t)longest + 1);
                bytes[length] = 0x5a;
                MPI_Recv(bytes, length, MPI_BYTE, from, i, test.comm, &status);
                MPI_Get_count(&status, MPI_BYTE, &count);
                CHECK_EQUAL(count, length);
                CHECK_EQUAL(status.MPI_SOURCE, from);
                CHECK_EQUAL(status.MPI_TAG, i);
                CHECK_BYTES(bytes, (size_t)length, (unsigned)i);
                CHECK(bytes[length] == 0x5a);
            }
        }
    }
    free(bytes);
}

/* Memory before and behind the buffer is untouched. */
static void unaligned(void) {
    if (apart()) return;
    static const int lengths[] = {1, 5, 64, 100, 1001, 4095, 9001, 70001, 300007};
    char *bytes = memory(300007 + 64);
    for (int offset = 1; offset < 16; offset += 2) {
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            int length = lengths[i];
            if (test.rank == 0) {
                fill(bytes + offset, (size_t)length, (unsigned)offset);
                MPI_Send(bytes + offset, length, MPI_BYTE, 1, offset, test.comm);
            } else {
                int at = 16 - offset;
                memset(bytes, 0x77, (size_t)length + 48);
                MPI_Recv(bytes + at, length, MPI_BYTE, 0, offset, test.comm, MPI_STATUS_IGNORE);
                CHECK_BYTES(bytes + at, (size_t)length, (unsigned)offset);
                for (int before = 0; before < at; before++) CHECK(bytes[before] == 0x77);
                for (int behind = at + length; behind < length + 48; behind++) CHECK(bytes[behind] == 0x77);
            }
        }
    }
    free(bytes);
}

static void short_into_long(void) {
    if (apart()) return;
    static const int lengths[] = {0, 1, 100, 5000, 80000, 1500000};
    int room = 2000000;
    char *bytes = memory((size_t)room);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        if (test.rank == 0) {
            fill(bytes, (size_t)lengths[i], 3);
            MPI_Send(bytes, lengths[i], MPI_BYTE, 1, 0, test.comm);
        } else {
            MPI_Status status;
            int count;
            memset(bytes, 0x11, (size_t)room);
            MPI_Recv(bytes, room, MPI_BYTE, 0, 0, test.comm, &status);
            MPI_Get_count(&status, MPI_BYTE, &count);
            CHECK_EQUAL(count, lengths[i]);
            CHECK_BYTES(bytes, (size_t)lengths[i], 3);
            CHECK(bytes[lengths[i]] == 0x11 && bytes[room - 1] == 0x11);
        }
    }
    free(bytes);
}

static void both_ways(void) {
    if (apart()) return;
    int longest = LENGTHS[LENGTHS_COUNT - 1];
    char *out = memory((size_t)longest), *in = memory((size_t)longest);
    for (int i = 0; i < LENGTHS_COUNT; i++) {
        int length = LENGTHS[i];
        fill(out, (size_t)length, (unsigned)test.rank);
        MPI_Sendrecv(out, length, MPI_BYTE, other(), 1, in, length, MPI_BYTE, other(), 1, test.comm, MPI_STATUS_IGNORE);
        CHECK_BYTES(in, (size_t)length, (unsigned)other());
        MPI_Sendrecv_replace(in, length, MPI_BYTE, other(), 2, other(), 2, test.comm, MPI_STATUS_IGNORE);
        CHECK_BYTES(in, (size_t)length, (unsigned)test.rank);
    }
    free(out);
    free(in);
}

static void to_oneself(void) {
    int longest = LENGTHS[LENGTHS_COUNT - 1];
    char *out = memory((size_t)longest), *in = memory((size_t)longest);
    for (int i = 0; i < LENGTHS_COUNT; i++) {
        size_t length = (size_t)LENGTHS[i];
        MPI_Request requests[2];
        fill(out, length, (unsigned)i);
        memset(in, 0, length);
        /* First with the receive posted before, then after arrival. */
        int receive_first = i % 2;
        if (receive_first) MPI_Irecv(in, LENGTHS[i], MPI_BYTE, test.rank, i, test.comm, &requests[0]);
        MPI_Isend(out, LENGTHS[i], MPI_BYTE, test.rank, i, test.comm, &requests[1]);
        if (!receive_first) MPI_Irecv(in, LENGTHS[i], MPI_BYTE, MPI_ANY_SOURCE, i, test.comm, &requests[0]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK_BYTES(in, length, (unsigned)i);
    }
    free(out);
    free(in);
}

static void to_nobody(void) {
    MPI_Status status;
    int count, value = 7;
    MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, 0, test.comm);
    MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, 0, test.comm, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK_EQUAL(value, 7);
    CHECK_EQUAL(count, 0);
    CHECK_EQUAL(status.MPI_SOURCE, MPI_PROC_NULL);
}

enum { UNDER_WAY = 96 };

/* Both ranks have many messages of mixed length under way each way, completed by wait and by test, one, some and all. */
static void many_under_way(void) {
    if (apart()) return;
    uint64_t state = test.seed; /* lengths are the same on both sides */
    char *out[UNDER_WAY], *in[UNDER_WAY];
    int lengths[UNDER_WAY];
    for (int round = 0; round < 5; round++) {
        MPI_Request requests[2 * UNDER_WAY];
        for (int i = 0; i < UNDER_WAY; i++) {
            lengths[i] = LENGTHS[below(&state, (unsigned)LENGTHS_COUNT - 4)];
            out[i] = memory((size_t)lengths[i]);
            in[i] = memory((size_t)lengths[i]);
            fill(out[i], (size_t)lengths[i], (unsigned)(i + 100 * test.rank));
            MPI_Irecv(in[i], lengths[i], MPI_BYTE, other(), i, test.comm, &requests[i]);
        }
        for (int i = 0; i < UNDER_WAY; i++)
            MPI_Isend(out[i], lengths[i], MPI_BYTE, other(), i, test.comm, &requests[UNDER_WAY + i]);
        int left = 2 * UNDER_WAY, finished[2 * UNDER_WAY], found, which, flag = 0;
        while (left > 0) {
            switch (round) {
            case 0: MPI_Waitany(2 * UNDER_WAY, requests, &which, MPI_STATUS_IGNORE), found = 1; break;
            case 1: MPI_Waitsome(2 * UNDER_WAY, requests, &found, finished, MPI_STATUSES_IGNORE); break;
            case 2: MPI_Testsome(2 * UNDER_WAY, requests, &found, finished, MPI_STATUSES_IGNORE); break;
            case 3: MPI_Testany(2 * UNDER_WAY, requests, &which, &found, MPI_STATUS_IGNORE); break;
            default: MPI_Testall(2 * UNDER_WAY, requests, &flag, MPI_STATUSES_IGNORE), found = flag ? left : 0; break;
            }
            CHECK(found >= 0 && found <= left);
            left -= found;
        }
        for (int i = 0; i < UNDER_WAY; i++) {
            CHECK(requests[i] == MPI_REQUEST_NULL);
            CHECK_BYTES(in[i], (size_t)lengths[i], (unsigned)(i + 100 * other()));
            free(out[i]);
            free(in[i]);
        }
    }
}

static void long_message(void) {
    if (apart()) return;
    size_t length = 64u << 20;
    char *bytes = memory(length);
    for (int from = 0; from < 2; from++) {
        if (test.rank == from) {
            fill(bytes, length, 9);
            MPI_Send(bytes, (int)length, MPI_BYTE, other(), 0, test.comm);
        } else {
            memset(bytes, 0, length);
            MPI_Recv(bytes, (int)length, MPI_BYTE, from, 0, test.comm, MPI_STATUS_IGNORE);
            CHECK_BYTES(bytes, length, 9);
        }
    }
    free(bytes);
}

static void without_bytes(void) {
    if (apart()) return;
    for (int i = 0; i < 3000; i++) {
        if (test.rank == 0) {
            MPI_Send(NULL, 0, MPI_BYTE, 1, i, test.comm);
        } else {
            MPI_Status status;
            int count;
            MPI_Recv(NULL, 0, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, test.comm, &status);
            MPI_Get_count(&status, MPI_BYTE, &count);
            CHECK_EQUAL(status.MPI_TAG, i);
            CHECK_EQUAL(count, 0);
        }
    }
}

static void between_all(void) {
    int each = 20, n = test.size, requests_count = 2 * n * each;
    MPI_Request *requests = memory(sizeof *requests * (size_t)requests_count);
    int *in = memory(sizeof *in * (size_t)(n * each)), *out = memory(sizeof *out * (size_t)(n * each)), next = 0;
    for (int peer = 0; peer < n; peer++)
        for (int i = 0; i < each; i++) {
            in[peer * each + i] = -1;
            MPI_Irecv(&in[peer * each + i], 1, MPI_INT, peer, i, test.comm, &requests[next++]);
        }
    for (int i = 0; i < each; i++)
        for (int peer = 0; peer < n; peer++) {
            out[peer * each + i] = test.rank * 1000000 + peer * 1000 + i;
            MPI_Isend(&out[peer * each + i], 1, MPI_INT, peer, i, test.comm, &requests[next++]);
        }
    MPI_Waitall(next, requests, MPI_STATUSES_IGNORE);
    for (int peer = 0; peer < n; peer++)
        for (int i = 0; i < each; i++) CHECK_EQUAL(in[peer * each + i], peer * 1000000 + test.rank * 1000 + i);
    free(requests);
    free(in);
    free(out);
}

/* A buffer may be reused as soon as its send has ended, and sends of one buffer may overlap. */
static void buffer_used_again(void) {
    if (apart()) return;
    static char bytes[20000];
    for (int i = 0; i < 400; i++) {
        int length = LENGTHS[(i * 7) % 30] % 20000;
        if (test.rank == 0) {
            fill(bytes, (size_t)length, (unsigned)i);
            MPI_Send(bytes, length, MPI_BYTE, 1, 0, test.comm);
            memset(bytes, 0, sizeof bytes);
        } else {
            MPI_Recv(bytes, length, MPI_BYTE, 0, 0, test.comm, MPI_STATUS_IGNORE);
            CHECK_BYTES(bytes, (size_t)length, (unsigned)i);
        }
    }
}

const struct test_case transfer_cases[] = {
    {"every_length", every_length, 0},   {"unaligned", unaligned, 0},           {"short_into_long", short_into_long, 0},
    {"both_ways", both_ways, 0},         {"to_oneself", to_oneself, 0},         {"to_nobody", to_nobody, 0},
    {"many_under_way", many_under_way, 0}, {"64_mib", long_message, 0},         {"without_bytes", without_bytes, 0},
    {"between_all", between_all, 0},     {"buffer_used_again", buffer_used_again, 0}, {NULL, NULL, 0},
};

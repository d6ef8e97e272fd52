/* More than 2 GiB in one message. Only with --huge: takes twice its length in memory. */
#include "conform.h"

enum { MIB = 1 << 20 };

static void message(size_t mebibytes, size_t rest_bytes) {
    if (apart()) return;
    size_t length = mebibytes * MIB + rest_bytes;
    char *bytes = memory(length);
    MPI_Datatype block, whole;
    int blocks[2] = {(int)mebibytes, (int)rest_bytes};
    MPI_Aint places[2] = {0, (MPI_Aint)(mebibytes * MIB)};
    MPI_Type_contiguous(MIB, MPI_BYTE, &block);
    MPI_Datatype types[2] = {block, MPI_BYTE};
    MPI_Type_create_struct(2, blocks, places, types, &whole);
    MPI_Type_commit(&whole);
    if (test.rank == 0) {
        fill(bytes, length, 5);
        MPI_Send(bytes, 1, whole, 1, 1, test.comm);
    } else {
        MPI_Status status;
        MPI_Count elements;
        memset(bytes, 0, length);
        MPI_Recv(bytes, 1, whole, 0, 1, test.comm, &status);
        MPI_Get_elements_x(&status, whole, &elements);
        CHECK_EQUAL(elements, length);
        CHECK_BYTES(bytes, length, 5);
    }
    MPI_Type_free(&whole);
    MPI_Type_free(&block);
    free(bytes);
}

static void two_gib(void) { message(2048, 0); }
static void beyond_two_gib(void) { message(2051, 13); }

const struct test_case huge_cases[] = {{"2_gib", two_gib, 0}, {"beyond_2_gib", beyond_two_gib, 0}, {NULL, NULL, 0}};

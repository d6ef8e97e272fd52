/* Memory with gaps, sent and received. What lies in the gaps stays as it was. */
#include "conform.h"

/* Sends `out_type` from rank 0 and receives it as `in_type`, both over `room` bytes from `origin`, and compares with what
 * packing and unpacking within one process gives. */
static void carry(MPI_Datatype out_type, int out_count, MPI_Datatype in_type, int in_count, size_t room, size_t origin) {
    char *bytes = memory(room), *expected = memory(room), *packed;
    int size, place = 0, end = 0, posted_first;
    MPI_Type_commit(&out_type);
    MPI_Type_commit(&in_type);
    for (posted_first = 0; posted_first < 2; posted_first++) {
        if (test.rank == 0) {
            fill(bytes, room, 21);
            if (posted_first) meet(1);
            MPI_Send(bytes + origin, out_count, out_type, 1, 1, test.comm);
        } else {
            MPI_Status status;
            MPI_Request request;
            int count;
            memset(bytes, 0x44, room);
            if (posted_first) {
                MPI_Irecv(bytes + origin, in_count, in_type, 0, 1, test.comm, &request);
                meet(0);
                MPI_Wait(&request, &status);
            } else {
                MPI_Recv(bytes + origin, in_count, in_type, 0, 1, test.comm, &status);
            }
            MPI_Get_count(&status, in_type, &count);
            CHECK_EQUAL(count, in_count);
            fill(expected, room, 21);
            MPI_Pack_size(out_count, out_type, test.comm, &size);
            packed = memory((size_t)size);
            place = end = 0;
            MPI_Pack(expected + origin, out_count, out_type, packed, size, &place, test.comm);
            memset(expected, 0x44, room);
            MPI_Unpack(packed, place, &end, expected + origin, in_count, in_type, test.comm);
            CHECK(memcmp(bytes, expected, room) == 0);
            free(packed);
        }
    }
    free(bytes);
    free(expected);
}

static void vectors(void) {
    if (apart()) return;
    static const int shapes[][3] = {{10, 1, 3}, {100, 7, 9}, {1000, 1, 2}, {5000, 3, 11}, {40000, 5, 8}, {1, 50, 60}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int blocks = shapes[i][0], length = shapes[i][1], stride = shapes[i][2];
        size_t room = (size_t)blocks * (size_t)stride * sizeof(int);
        MPI_Datatype vector;
        MPI_Type_vector(blocks, length, stride, MPI_INT, &vector);
        carry(vector, 1, vector, 1, room, 0);
        carry(vector, 1, MPI_INT, blocks * length, room, 0);
        carry(MPI_INT, blocks * length, vector, 1, room, 0);
        MPI_Type_free(&vector);
    }
}

static void backwards(void) {
    if (apart()) return;
    MPI_Datatype vector;
    MPI_Type_create_hvector(500, 2, -24, MPI_INT, &vector);
    carry(vector, 1, vector, 1, 500 * 24 + 8, 499 * 24);
    MPI_Type_free(&vector);
}

static void indexed(void) {
    if (apart()) return;
    enum { BLOCKS = 300 };
    int lengths[BLOCKS], places[BLOCKS], total = 0, place = 3;
    uint64_t state = test.seed;
    for (int i = 0; i < BLOCKS; i++) {
        lengths[i] = (int)below(&state, 40);
        places[i] = place;
        place += lengths[i] + (int)below(&state, 5);
        total += lengths[i];
    }
    MPI_Datatype type, swapped;
    MPI_Type_indexed(BLOCKS, lengths, places, MPI_SHORT, &type);
    /* The same blocks last first: the order within the message is the type's, not memory's. */
    for (int i = 0; i < BLOCKS / 2; i++) {
        int j = BLOCKS - 1 - i, length = lengths[i], at = places[i];
        lengths[i] = lengths[j], places[i] = places[j];
        lengths[j] = length, places[j] = at;
    }
    MPI_Type_indexed(BLOCKS, lengths, places, MPI_SHORT, &swapped);
    carry(type, 1, type, 1, (size_t)(place + 40) * sizeof(short), 0);
    carry(swapped, 1, MPI_SHORT, total, (size_t)(place + 40) * sizeof(short), 0);
    MPI_Type_free(&type);
    MPI_Type_free(&swapped);
}

struct particle {
    char kind;
    double position[3];
    short charge;
    int neighbours[5];
};

static void structures(void) {
    if (apart()) return;
    enum { COUNT = 3000 };
    int lengths[4] = {1, 3, 1, 5};
    MPI_Aint places[4] = {offsetof(struct particle, kind), offsetof(struct particle, position), offsetof(struct particle, charge),
                          offsetof(struct particle, neighbours)};
    MPI_Datatype types[4] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT, MPI_INT}, bare, particle;
    MPI_Type_create_struct(4, lengths, places, types, &bare);
    MPI_Type_create_resized(bare, 0, sizeof(struct particle), &particle);
    for (int count = 1; count <= COUNT; count += COUNT - 1)
        carry(particle, count, particle, count, sizeof(struct particle) * (size_t)count, 0);
    MPI_Type_free(&bare);
    MPI_Type_free(&particle);
}

static void parts_of_arrays(void) {
    if (apart()) return;
    int whole[3] = {40, 30, 50}, part[3] = {20, 11, 33}, start[3] = {7, 13, 5};
    MPI_Datatype type;
    MPI_Type_create_subarray(3, whole, part, start, MPI_ORDER_C, MPI_DOUBLE, &type);
    carry(type, 1, type, 1, 40 * 30 * 50 * sizeof(double), 0);
    carry(type, 1, MPI_DOUBLE, 20 * 11 * 33, 40 * 30 * 50 * sizeof(double), 0);
    MPI_Type_free(&type);
    MPI_Type_create_subarray(3, whole, part, start, MPI_ORDER_FORTRAN, MPI_FLOAT, &type);
    carry(type, 1, type, 1, 40 * 30 * 50 * sizeof(float), 0);
    MPI_Type_free(&type);
}

static void without_bytes(void) {
    if (apart()) return;
    MPI_Datatype nothing;
    MPI_Type_contiguous(0, MPI_INT, &nothing);
    MPI_Type_commit(&nothing);
    if (test.rank == 0) {
        MPI_Send(NULL, 5, nothing, 1, 1, test.comm);
    } else {
        MPI_Status status;
        int elements = -1;
        MPI_Recv(NULL, 5, nothing, 0, 1, test.comm, &status);
        MPI_Get_elements(&status, MPI_INT, &elements);
        CHECK_EQUAL(elements, 0);
    }
    MPI_Type_free(&nothing);
}

/* A message that ends within an element of its receive's type. */
static void incomplete_elements(void) {
    if (apart()) return;
    MPI_Datatype triple;
    MPI_Type_contiguous(3, MPI_INT, &triple);
    MPI_Type_commit(&triple);
    int values[12] = {0};
    if (test.rank == 0) {
        for (int i = 0; i < 7; i++) values[i] = i + 1;
        MPI_Send(values, 7, MPI_INT, 1, 1, test.comm);
    } else {
        MPI_Status status;
        int count, elements;
        MPI_Recv(values, 4, triple, 0, 1, test.comm, &status);
        MPI_Get_count(&status, triple, &count);
        MPI_Get_elements(&status, triple, &elements);
        CHECK_EQUAL(count, MPI_UNDEFINED);
        CHECK_EQUAL(elements, 7);
        CHECK(values[6] == 7 && values[7] == 0);
    }
    MPI_Type_free(&triple);
}

static void packed(void) {
    if (apart()) return;
    char buffer[200];
    int place = 0, number = 42;
    double real = 2.5;
    if (test.rank == 0) {
        MPI_Pack(&number, 1, MPI_INT, buffer, sizeof buffer, &place, test.comm);
        MPI_Pack(&real, 1, MPI_DOUBLE, buffer, sizeof buffer, &place, test.comm);
        MPI_Send(buffer, place, MPI_PACKED, 1, 1, test.comm);
    } else {
        MPI_Status status;
        int count;
        number = 0, real = 0;
        MPI_Recv(buffer, sizeof buffer, MPI_PACKED, 0, 1, test.comm, &status);
        MPI_Get_count(&status, MPI_PACKED, &count);
        MPI_Unpack(buffer, count, &place, &number, 1, MPI_INT, test.comm);
        MPI_Unpack(buffer, count, &place, &real, 1, MPI_DOUBLE, test.comm);
        CHECK_EQUAL(number, 42);
        CHECK(real == 2.5);
    }
}

const struct test_case datatype_cases[] = {
    {"vectors", vectors, 0},
    {"backwards", backwards, 0},
    {"indexed", indexed, 0},
    {"structures", structures, 0},
    {"parts_of_arrays", parts_of_arrays, 0},
    {"without_bytes", without_bytes, 0},
    {"incomplete_elements", incomplete_elements, 0},
    {"packed", packed, 0},
    {NULL, NULL, 0},
};

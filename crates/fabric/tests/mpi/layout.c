/* Puts and gets between layouts with gaps: both sides have the same elements, in pieces of their own, and no byte between the
 * pieces changes. */
#include "conform.h"

enum { ROOM = 200000 };

/* Where `count` elements of `unit` bytes lie: pieces in random order with random gaps. */
struct layout {
    MPI_Datatype type;
    int *places; /* of each element, in bytes */
};

static struct layout draw_layout(int count, int unit, MPI_Datatype element, uint64_t *state) {
    struct layout drawn = {.places = memory(sizeof(int) * (size_t)count)};
    int *lengths = memory(sizeof(int) * (size_t)count), pieces = 0, given = 0;
    MPI_Aint *starts = memory(sizeof(MPI_Aint) * (size_t)count), at = (MPI_Aint)below(state, 64);
    unsigned longest = 1 + below(state, below(state, 3) ? 4 : 2000), gap = below(state, 4) * 8;
    while (given < count) {
        int length = 1 + (int)below(state, longest);
        if (length > count - given) length = count - given;
        starts[pieces] = at, lengths[pieces++] = length;
        given += length;
        at += length * unit + (MPI_Aint)(gap ? below(state, gap) : 0);
    }
    for (int i = pieces; i-- > 1;) { /* elements are in the order of the pieces, not of their addresses */
        int other = (int)below(state, (unsigned)i + 1), length = lengths[i];
        MPI_Aint start = starts[i];
        starts[i] = starts[other], lengths[i] = lengths[other];
        starts[other] = start, lengths[other] = length;
    }
    for (int piece = 0, i = 0; piece < pieces; piece++)
        for (int k = 0; k < lengths[piece]; k++) drawn.places[i++] = (int)starts[piece] + k * unit;
    MPI_Type_create_hindexed(pieces, lengths, starts, element, &drawn.type);
    MPI_Type_commit(&drawn.type);
    free(lengths);
    free(starts);
    return drawn;
}

static void leave(struct layout *layout) {
    MPI_Type_free(&layout->type);
    free(layout->places);
}

/* Moves the elements in memory, as the transfer should have. */
static void move(char *to, const struct layout *into, const char *from, const struct layout *out, int count, int unit) {
    for (int i = 0; i < count; i++) memcpy(to + into->places[i], from + out->places[i], (size_t)unit);
}

static void drawn(int gets) {
    char *shared, *local = memory(ROOM), *expected = memory(ROOM), *other = memory(ROOM);
    int n = test.size, next = (test.rank + 1) % n, previous = (test.rank + n - 1) % n;
    static const int units[] = {1, 4, 8};
    const MPI_Datatype elements[] = {MPI_BYTE, MPI_INT, MPI_DOUBLE};
    uint64_t state = test.seed + (uint64_t)gets;
    MPI_Win window;
    MPI_Win_allocate(ROOM, 1, MPI_INFO_NULL, test.comm, (void *)&shared, &window);
    for (int round = 0; round < 80; round++) {
        unsigned which = below(&state, 3);
        int unit = units[which], count = 1 + (int)below(&state, below(&state, 3) ? 60 : 4000);
        struct layout here = draw_layout(count, unit, elements[which], &state);
        struct layout there = draw_layout(count, unit, elements[which], &state);
        unsigned salt = (unsigned)round * 10;
        fill(local, ROOM, salt + (unsigned)test.rank);
        fill(shared, ROOM, salt + 5 + (unsigned)test.rank);
        MPI_Win_fence(0, window);
        if (gets) MPI_Get(local, 1, here.type, next, 0, 1, there.type, window);
        else MPI_Put(local, 1, here.type, next, 0, 1, there.type, window);
        MPI_Win_fence(0, window);
        fill(expected, ROOM, salt + (gets ? 0 : 5) + (unsigned)test.rank);
        fill(other, ROOM, salt + (gets ? 5 + (unsigned)next : (unsigned)previous));
        if (gets) move(expected, &here, other, &there, count, unit);
        else move(expected, &there, other, &here, count, unit);
        const char *found = gets ? local : shared;
        int wrong = 0;
        while (wrong < ROOM && found[wrong] == expected[wrong]) wrong++;
        check(wrong == ROOM, __FILE__, __LINE__, "round %d, %d elements of %d B: byte %d is wrong", round, count, unit, wrong);
        leave(&here);
        leave(&there);
        MPI_Win_fence(0, window);
    }
    MPI_Win_free(&window);
    free(local);
    free(expected);
    free(other);
}

static void drawn_puts(void) { drawn(0); }
static void drawn_gets(void) { drawn(1); }

/* The face of a cube of the target's becomes a row of the origin's, and a part of the cube goes back. */
static void faces_and_boxes(void) {
    enum { SIDE = 24 };
    static double cube[SIDE][SIDE][SIDE], face[SIDE * SIDE], box[5][6][7];
    int next = (test.rank + 1) % test.size, previous = (test.rank + test.size - 1) % test.size, wrong = 0;
    int whole[] = {SIDE, SIDE, SIDE}, part[] = {5, 6, 7}, flat[] = {SIDE, SIDE, 1}, corner[] = {3, 10, 17}, at[] = {0, 0, 9};
    MPI_Datatype across, within;
    MPI_Win window;
    MPI_Type_create_subarray(3, whole, flat, at, MPI_ORDER_C, MPI_DOUBLE, &across);
    MPI_Type_create_subarray(3, whole, part, corner, MPI_ORDER_C, MPI_DOUBLE, &within);
    MPI_Type_commit(&across);
    MPI_Type_commit(&within);
    for (int i = 0; i < SIDE * SIDE * SIDE; i++) (&cube[0][0][0])[i] = test.rank * 1e6 + i;
    for (int i = 0; i < 5 * 6 * 7; i++) (&box[0][0][0])[i] = -1.0 - test.rank - i;
    MPI_Win_create(cube, sizeof cube, sizeof(double), MPI_INFO_NULL, test.comm, &window);
    MPI_Win_fence(0, window);
    MPI_Get(face, SIDE * SIDE, MPI_DOUBLE, next, 0, 1, across, window);
    MPI_Put(box, 5 * 6 * 7, MPI_DOUBLE, next, 0, 1, within, window);
    MPI_Win_fence(0, window);
    for (int x = 0; x < SIDE; x++)
        for (int y = 0; y < SIDE; y++) wrong += face[x * SIDE + y] != next * 1e6 + (x * SIDE + y) * SIDE + 9;
    for (int x = 0; x < SIDE; x++)
        for (int y = 0; y < SIDE; y++)
            for (int z = 0; z < SIDE; z++) {
                int i = x - 3, j = y - 10, k = z - 17, inside = i >= 0 && i < 5 && j >= 0 && j < 6 && k >= 0 && k < 7;
                double expected = inside ? -1.0 - previous - ((i * 6 + j) * 7 + k) : test.rank * 1e6 + (x * SIDE + y) * SIDE + z;
                wrong += cube[x][y][z] != expected;
            }
    CHECK_EQUAL(wrong, 0);
    MPI_Win_free(&window);
    MPI_Type_free(&across);
    MPI_Type_free(&within);
}

const struct test_case layout_cases[] = {
    {"drawn_puts", drawn_puts, 0},
    {"drawn_gets", drawn_gets, 0},
    {"faces_and_boxes", faces_and_boxes, 0},
    {NULL, NULL, 0},
};

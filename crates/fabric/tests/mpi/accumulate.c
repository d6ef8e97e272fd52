/* Accumulates, fetching ones, and single elements: each operation with each datatype that MPI has it for. MPI_Reduce_local of
 * the same values, which no transport sees, says what is right; all values are exact in every type. */
#include "conform.h"

#include <complex.h>
#include <stdbool.h>

enum { SUMS = 1, ORDERS = 2, LOGIC = 4, BITS = 8, PLACES = 16 };

struct pair_float { float value; int place; };
struct pair_int { int value, place; };

#define KIND(name, type)                                                                                               \
    static void set_##name(void *at, int i, int value) { ((type *)at)[i] = (type)value; }                             \
    static int same_##name(const void *a, const void *b, int i) { return ((const type *)a)[i] == ((const type *)b)[i]; }
#define PAIR(name)                                                                                                     \
    static void set_##name(void *at, int i, int value) { ((struct name *)at)[i].value = value, ((struct name *)at)[i].place = i ^ value; } \
    static int same_##name(const void *a, const void *b, int i) {                                                      \
        const struct name *x = (const struct name *)a + i, *y = (const struct name *)b + i;                            \
        return x->value == y->value && x->place == y->place;                                                           \
    }
KIND(schar, signed char) KIND(uchar, unsigned char) KIND(short, short) KIND(ushort, unsigned short) KIND(int, int)
KIND(unsigned, unsigned) KIND(long, long) KIND(ulong, unsigned long) KIND(llong, long long) KIND(ullong, unsigned long long)
KIND(int16, int16_t) KIND(uint32, uint32_t) KIND(aint, MPI_Aint) KIND(float, float) KIND(double, double)
KIND(ldouble, long double) KIND(cfloat, float complex) KIND(cdouble, double complex) KIND(bool, bool)
PAIR(pair_float) PAIR(pair_int)

#define INTEGERS (SUMS | ORDERS | LOGIC | BITS)
/* MPI_Datatype is a constant of some MPIs and an address of others: the table is made at run time. */
#define ROW(name, type, mpi, classes) {#mpi, mpi, sizeof(type), set_##name, same_##name, classes}
struct kind {
    const char *name;
    MPI_Datatype type;
    size_t size;
    void (*set)(void *at, int i, int value);
    int (*same)(const void *a, const void *b, int i);
    int classes;
};
#define KINDS                                                                                                          \
    {ROW(schar, signed char, MPI_SIGNED_CHAR, INTEGERS), ROW(uchar, unsigned char, MPI_UNSIGNED_CHAR, INTEGERS),       \
     ROW(short, short, MPI_SHORT, INTEGERS), ROW(ushort, unsigned short, MPI_UNSIGNED_SHORT, INTEGERS),                \
     ROW(int, int, MPI_INT, INTEGERS), ROW(unsigned, unsigned, MPI_UNSIGNED, INTEGERS),                                \
     ROW(long, long, MPI_LONG, INTEGERS), ROW(ulong, unsigned long, MPI_UNSIGNED_LONG, INTEGERS),                      \
     ROW(llong, long long, MPI_LONG_LONG, INTEGERS), ROW(ullong, unsigned long long, MPI_UNSIGNED_LONG_LONG, INTEGERS), \
     ROW(int16, int16_t, MPI_INT16_T, INTEGERS), ROW(uint32, uint32_t, MPI_UINT32_T, INTEGERS),                        \
     ROW(aint, MPI_Aint, MPI_AINT, SUMS | ORDERS | BITS), ROW(float, float, MPI_FLOAT, SUMS | ORDERS),                 \
     ROW(double, double, MPI_DOUBLE, SUMS | ORDERS), ROW(ldouble, long double, MPI_LONG_DOUBLE, SUMS | ORDERS),        \
     ROW(cfloat, float complex, MPI_C_FLOAT_COMPLEX, SUMS), ROW(cdouble, double complex, MPI_C_DOUBLE_COMPLEX, SUMS),  \
     ROW(bool, bool, MPI_C_BOOL, LOGIC), ROW(uchar, unsigned char, MPI_BYTE, BITS),                                    \
     ROW(pair_float, struct pair_float, MPI_FLOAT_INT, PLACES), ROW(pair_int, struct pair_int, MPI_2INT, PLACES)}

struct operation {
    const char *name;
    MPI_Op op;
    int classes;
};
#define OPERATIONS                                                                                                     \
    {{"sum", MPI_SUM, SUMS},      {"product", MPI_PROD, SUMS}, {"max", MPI_MAX, ORDERS},     {"min", MPI_MIN, ORDERS},  \
     {"and", MPI_LAND, LOGIC},    {"or", MPI_LOR, LOGIC},      {"xor", MPI_LXOR, LOGIC},     {"bits and", MPI_BAND, BITS}, \
     {"bits or", MPI_BOR, BITS},  {"bits xor", MPI_BXOR, BITS}, {"max at", MPI_MAXLOC, PLACES}, {"min at", MPI_MINLOC, PLACES}, \
     {"replace", MPI_REPLACE, ~0}, {"nothing", MPI_NO_OP, ~0}}

enum { COUNT = 41, WIDEST = 32 };

/* A power of two with either sign, or 0: products of some of them are exact in every type. */
static int value_of(int rank, int target, int i, int salt) {
    static const int values[] = {1, 2, 0, 1, -1, 2, 1, -2, 0};
    return values[(unsigned)(rank * 31 + target * 7 + i * 3 + salt) % 9];
}

static void reduce(void *onto, const void *values, const struct kind *kind, const struct operation *operation) {
    char in[COUNT * WIDEST];
    memcpy(in, values, COUNT * kind->size);
    if (operation->op == MPI_REPLACE) memcpy(onto, in, COUNT * kind->size);
    else if (operation->op != MPI_NO_OP) MPI_Reduce_local(in, onto, COUNT, kind->type, operation->op);
}

static void compare(const void *found, const void *expected, int count, const struct kind *kind, const struct operation *operation, const char *what) {
    for (int i = 0; i < count; i++) {
        if (kind->same(found, expected, i)) continue;
        check(0, __FILE__, __LINE__, "%s, %s of %s: element %d is wrong", what, operation->name, kind->name, i);
        return;
    }
}

/* `what` is called for each operation and datatype, with a window of COUNT elements a rank. */
static void each(void (*what)(const struct kind *, const struct operation *, void *shared, MPI_Win)) {
    const struct kind kinds[] = KINDS;
    const struct operation operations[] = OPERATIONS;
    void *shared;
    MPI_Win window;
    MPI_Win_allocate(COUNT * WIDEST, 1, MPI_INFO_NULL, test.comm, &shared, &window);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t o = 0; o < sizeof operations / sizeof *operations; o++)
            if (kinds[k].classes & operations[o].classes) what(&kinds[k], &operations[o], shared, window);
    MPI_Win_free(&window);
}

/* Several origins at once, whose order nobody knows: MPI_REPLACE of one of them alone. */
static void from_all(const struct kind *kind, const struct operation *operation, void *shared, MPI_Win window) {
    if (operation->op == MPI_NO_OP) return; /* of fetching calls alone */
    int n = test.size, alone = operation->op == MPI_REPLACE;
    char values[COUNT * WIDEST], expected[COUNT * WIDEST];
    for (int i = 0; i < COUNT; i++) kind->set(shared, i, value_of(90, test.rank, i, 0));
    memcpy(expected, shared, COUNT * kind->size);
    for (int target = 0; target < n; target++) {
        MPI_Win_fence(0, window);
        for (int i = 0; i < COUNT; i++) kind->set(values, i, value_of(test.rank, target, i, 0));
        if (!alone || test.rank == target / 2)
            MPI_Accumulate(values, COUNT, kind->type, target, 0, COUNT, kind->type, operation->op, window);
        MPI_Win_fence(0, window);
    }
    for (int rank = 0; rank < n; rank++) {
        for (int i = 0; i < COUNT; i++) kind->set(values, i, value_of(rank, test.rank, i, 0));
        if (!alone || rank == test.rank / 2) reduce(expected, values, kind, operation);
    }
    compare(shared, expected, COUNT, kind, operation, "accumulate");
    MPI_Win_fence(0, window);
}

/* One origin for each target: what it fetches is what was there. */
static void fetched(const struct kind *kind, const struct operation *operation, void *shared, MPI_Win window) {
    int n = test.size, next = (test.rank + 1) % n, previous = (test.rank + n - 1) % n;
    char values[COUNT * WIDEST], before[COUNT * WIDEST], expected[COUNT * WIDEST];
    for (int i = 0; i < COUNT; i++) {
        kind->set(shared, i, value_of(80, test.rank, i, 0));
        kind->set(values, i, value_of(test.rank, next, i, 5));
        kind->set(before, i, 99);
    }
    MPI_Win_fence(0, window);
    MPI_Get_accumulate(values, COUNT, kind->type, before, COUNT, kind->type, next, 0, COUNT, kind->type, operation->op, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < COUNT; i++) kind->set(expected, i, value_of(80, next, i, 0));
    compare(before, expected, COUNT, kind, operation, "fetched by get_accumulate");
    for (int i = 0; i < COUNT; i++) {
        kind->set(expected, i, value_of(80, test.rank, i, 0));
        kind->set(values, i, value_of(previous, test.rank, i, 5));
    }
    reduce(expected, values, kind, operation);
    compare(shared, expected, COUNT, kind, operation, "get_accumulate");
    /* One element in the middle, whose neighbours stay. */
    char one[WIDEST], was[WIDEST];
    memcpy(values, shared, COUNT * kind->size);
    kind->set(one, 0, 2);
    MPI_Win_fence(0, window);
    MPI_Fetch_and_op(one, was, kind->type, next, (MPI_Aint)(7 * kind->size), operation->op, window);
    MPI_Win_fence(0, window);
    char mine[COUNT * WIDEST];
    memset(mine, 0, sizeof mine);
    memcpy(mine, values + 7 * kind->size, kind->size);
    memcpy(expected, one, kind->size);
    if (operation->op == MPI_NO_OP) memcpy(expected, mine, kind->size);
    else if (operation->op != MPI_REPLACE) MPI_Reduce_local(mine, expected, 1, kind->type, operation->op);
    memcpy(values + 7 * kind->size, expected, kind->size);
    compare(shared, values, COUNT, kind, operation, "fetch_and_op");
    char theirs[WIDEST] = {0};
    MPI_Sendrecv(mine, (int)kind->size, MPI_BYTE, previous, 1, theirs, (int)kind->size, MPI_BYTE, next, 1, test.side, MPI_STATUS_IGNORE);
    compare(was, theirs, 1, kind, operation, "fetched by fetch_and_op");
    MPI_Win_fence(0, window);
}

static void every_operation(void) { each(from_all); }
static void every_fetch(void) { each(fetched); }

/* A swap where the comparand is right, none where it is not; both fetch. */
static void swap(const struct kind *kind, const struct operation *operation, void *shared, MPI_Win window) {
    if (operation->op != MPI_NO_OP || !(kind->classes & (BITS | LOGIC))) return;
    int next = (test.rank + 1) % test.size;
    char right[WIDEST], wrong[WIDEST], new[WIDEST], was[2][WIDEST], expected[COUNT * WIDEST];
    for (int i = 0; i < COUNT; i++) kind->set(shared, i, 1), kind->set(expected, i, i != 11);
    kind->set(right, 0, 1), kind->set(wrong, 0, 0), kind->set(new, 0, 0);
    MPI_Barrier(test.comm);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window);
    MPI_Compare_and_swap(new, right, was[0], kind->type, next, (MPI_Aint)(11 * kind->size), window);
    MPI_Compare_and_swap(right, new, was[1], kind->type, next, (MPI_Aint)(12 * kind->size), window);
    MPI_Win_unlock(next, window);
    MPI_Barrier(test.comm);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, test.rank, 0, window);
    compare(shared, expected, COUNT, kind, operation, "compare_and_swap");
    MPI_Win_unlock(test.rank, window);
    compare(was[0], right, 1, kind, operation, "fetched by a swap");
    compare(was[1], right, 1, kind, operation, "fetched by no swap");
    MPI_Barrier(test.comm);
}

static void every_swap(void) { each(swap); }

/* Accumulates of one origin at one place are in order, without a flush between them. */
static void in_order(void) {
    enum { EACH = 300 };
    long *shared, values[EACH], seen[EACH];
    int next = (test.rank + 1) % test.size;
    MPI_Win window;
    MPI_Win_allocate(4 * sizeof(long), sizeof(long), MPI_INFO_NULL, test.comm, &shared, &window);
    shared[2] = -1;
    MPI_Barrier(test.comm);
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < EACH; i++) {
        values[i] = i, seen[i] = -7;
        if (i % 3 == 0) MPI_Fetch_and_op(&values[i], &seen[i], MPI_LONG, next, 2, MPI_REPLACE, window);
        else if (i % 3 == 1) MPI_Accumulate(&values[i], 1, MPI_LONG, next, 2, 1, MPI_LONG, MPI_REPLACE, window);
        else MPI_Get_accumulate(NULL, 0, MPI_LONG, &seen[i], 1, MPI_LONG, next, 2, 1, MPI_LONG, MPI_NO_OP, window);
    }
    MPI_Win_unlock_all(window);
    int wrong = 0;
    for (int i = 0; i < EACH; i++) wrong += i % 3 != 1 && seen[i] != (i % 3 == 0 ? (i ? i - 2 : -1) : i - 1);
    CHECK_EQUAL(wrong, 0);
    MPI_Win_free(&window);
}

#ifndef IN_MESSAGES
/* Every third element of one side, blocks of the other. */
static void with_gaps(void) {
    enum { ELEMENTS = 600, ROOM = 3 * ELEMENTS };
    int next = (test.rank + 1) % test.size, previous = (test.rank + test.size - 1) % test.size, wrong = 0;
    int blocks[] = {100, 300, 200}, places[] = {900, 50, 400};
    static int shared[ROOM], values[ROOM], before[ROOM];
    MPI_Datatype thirds, pieces;
    MPI_Win window;
    MPI_Type_vector(ELEMENTS, 1, 3, MPI_INT, &thirds);
    MPI_Type_indexed(3, blocks, places, MPI_INT, &pieces);
    MPI_Type_commit(&thirds);
    MPI_Type_commit(&pieces);
    for (int i = 0; i < ROOM; i++) shared[i] = test.rank * 10000 + i, values[i] = i * 2 + test.rank, before[i] = -4;
    MPI_Win_create(shared, sizeof shared, sizeof(int), MPI_INFO_NULL, test.comm, &window);
    MPI_Win_fence(0, window);
    MPI_Get_accumulate(values, 1, thirds, before, 1, thirds, next, 0, 1, pieces, MPI_SUM, window);
    MPI_Win_fence(0, window);
    for (int block = 0, at = 0; block < 3; block++) /* the n-th element of one is the n-th of the other */
        for (int i = 0; i < blocks[block]; i++, at++) {
            wrong += before[3 * at] != next * 10000 + places[block] + i;
            wrong += shared[places[block] + i] != test.rank * 10000 + places[block] + i + 6 * at + previous;
            shared[places[block] + i] = test.rank * 10000 + places[block] + i;
        }
    for (int i = 0; i < ROOM; i++) wrong += shared[i] != test.rank * 10000 + i, wrong += i % 3 && before[i] != -4;
    CHECK_EQUAL(wrong, 0);
    MPI_Win_fence(0, window);
    MPI_Accumulate(values, 1, pieces, next, 0, 1, thirds, MPI_REPLACE, window);
    MPI_Win_fence(0, window);
    for (int block = 0, at = 0; block < 3; block++)
        for (int i = 0; i < blocks[block]; i++, at++) wrong += shared[3 * at] != (places[block] + i) * 2 + previous;
    for (int i = 0; i < ROOM; i++) wrong += i % 3 && shared[i] != test.rank * 10000 + i;
    CHECK_EQUAL(wrong, 0);
    MPI_Win_free(&window);
    MPI_Type_free(&thirds);
    MPI_Type_free(&pieces);
}
#endif

/* Longer than any packet, from all to all at once. */
static void long_sums(void) {
    enum { LENGTH = 150001 };
    int n = test.size, wrong = 0;
    double *sums, *mine = memory(sizeof(double) * LENGTH), *before = memory(sizeof(double) * LENGTH);
    MPI_Win window;
    MPI_Win_allocate(sizeof(double) * LENGTH, sizeof(double), MPI_INFO_NULL, test.comm, &sums, &window);
    for (int i = 0; i < LENGTH; i++) sums[i] = i, mine[i] = (test.rank + 1) * (i % 1000);
    MPI_Win_fence(0, window);
    for (int target = 0; target < n; target++) MPI_Accumulate(mine, LENGTH, MPI_DOUBLE, target, 0, LENGTH, MPI_DOUBLE, MPI_SUM, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < LENGTH; i++) wrong += sums[i] != i + (double)(n * (n + 1) / 2) * (i % 1000);
    CHECK_EQUAL(wrong, 0);
    MPI_Win_fence(0, window);
    int next = (test.rank + 1) % n;
    MPI_Get_accumulate(mine, LENGTH, MPI_DOUBLE, before, LENGTH, MPI_DOUBLE, next, 0, LENGTH, MPI_DOUBLE, MPI_MAX, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < LENGTH; i++) wrong += before[i] != i + (double)(n * (n + 1) / 2) * (i % 1000);
    CHECK_EQUAL(wrong, 0);
    MPI_Win_free(&window);
    free(mine);
    free(before);
}

/* Many at one place without a flush, with and without the promises that let an MPI drop its order. */
static void contended(void) {
    enum { EACH = 2000 };
    for (int promises = 0; promises < 2; promises++) {
        long *sum, one = 1;
        MPI_Win window;
        MPI_Info info;
        MPI_Info_create(&info);
        if (promises) {
            MPI_Info_set(info, "accumulate_ordering", "none");
            MPI_Info_set(info, "accumulate_ops", "same_op");
        }
        MPI_Win_allocate(2 * sizeof(long), sizeof(long), info, test.comm, &sum, &window);
        sum[0] = sum[1] = 0;
        MPI_Barrier(test.comm);
        MPI_Win_lock_all(0, window);
        for (int i = 0; i < EACH; i++) MPI_Accumulate(&one, 1, MPI_LONG, i % test.size, 1, 1, MPI_LONG, MPI_SUM, window);
        MPI_Win_flush_all(window);
        MPI_Barrier(test.comm);
        long mine[2] = {-1, -1}, all = 0;
        MPI_Get_accumulate(NULL, 0, MPI_LONG, mine, 2, MPI_LONG, test.rank, 0, 2, MPI_LONG, MPI_NO_OP, window);
        MPI_Win_unlock_all(window);
        MPI_Allreduce(&mine[1], &all, 1, MPI_LONG, MPI_SUM, test.comm);
        CHECK_EQUAL(mine[0], 0);
        CHECK_EQUAL(all, (long)EACH * test.size);
        MPI_Win_free(&window);
        MPI_Info_free(&info);
    }
}

/* Each with a request of its own, waited for in another order. */
static void by_request(void) {
    enum { EACH = 64 };
    long *shared, out[EACH], before[EACH];
    int n = test.size, next = (test.rank + 1) % n, previous = (test.rank + n - 1) % n, wrong = 0;
    MPI_Request requests[2 * EACH];
    MPI_Win window;
    MPI_Win_allocate(EACH * sizeof(long), sizeof(long), MPI_INFO_NULL, test.comm, &shared, &window);
    for (int i = 0; i < EACH; i++) shared[i] = 500 + i, out[i] = test.rank + i;
    MPI_Barrier(test.comm);
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < EACH; i++) {
        MPI_Raccumulate(&out[i], 1, MPI_LONG, next, i, 1, MPI_LONG, MPI_SUM, window, &requests[i]);
        MPI_Rget_accumulate(&out[i], 1, MPI_LONG, &before[i], 1, MPI_LONG, next, i, 1, MPI_LONG, MPI_SUM, window, &requests[EACH + i]);
    }
    for (int i = 2 * EACH; i-- > 0;) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    for (int i = 0; i < EACH; i++) wrong += before[i] != 500 + i + test.rank + i; /* after the first, before the second */
    CHECK_EQUAL(wrong, 0);
    MPI_Win_unlock_all(window);
    MPI_Barrier(test.comm);
    MPI_Win_lock(MPI_LOCK_SHARED, test.rank, 0, window);
    for (int i = 0; i < EACH; i++) wrong += shared[i] != 500 + i + 2 * (previous + i);
    MPI_Win_unlock(test.rank, window);
    CHECK_EQUAL(wrong, 0);
    MPI_Win_free(&window);
}

const struct test_case accumulate_cases[] = {
    {"every_operation", every_operation, 0},
    {"every_fetch", every_fetch, 0},
    {"every_swap", every_swap, 0},
    {"in_order", in_order, 0},
#ifndef IN_MESSAGES
    {"with_gaps", with_gaps, 0},
#endif
    {"long_sums", long_sums, 0},
    {"contended", contended, 0},
    {"by_request", by_request, 0},
    {NULL, NULL, 0},
};

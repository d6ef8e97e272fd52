/* Collectives against results computed here. */
#include "conform.h"

static const int COUNTS[] = {0, 1, 3, 100, 2000, 40000, 300000};
enum { COUNTS_COUNT = sizeof COUNTS / sizeof *COUNTS, MOST = 300000 };

static void broadcast(void) {
    int *values = memory(sizeof *values * MOST);
    for (int root = 0; root < test.size; root++)
        for (int k = 0; k < COUNTS_COUNT; k++) {
            for (int i = 0; i < COUNTS[k]; i++) values[i] = test.rank == root ? i * 7 + root : -1;
            MPI_Bcast(values, COUNTS[k], MPI_INT, root, test.comm);
            for (int i = 0; i < COUNTS[k]; i++)
                if (values[i] != i * 7 + root) {
                    CHECK_EQUAL(values[i], i * 7 + root);
                    break;
                }
        }
    free(values);
}

static void reductions(void) {
    double *in = memory(sizeof *in * MOST), *out = memory(sizeof *out * MOST);
    int n = test.size;
    for (int k = 0; k < COUNTS_COUNT; k++) {
        int root = k % n;
        for (int i = 0; i < COUNTS[k]; i++) in[i] = i + test.rank, out[i] = -1;
        MPI_Reduce(in, out, COUNTS[k], MPI_DOUBLE, MPI_SUM, root, test.comm);
        for (int i = 0; test.rank == root && i < COUNTS[k]; i++)
            if (out[i] != (double)i * n + n * (n - 1) / 2) {
                CHECK_EQUAL(out[i], (double)i * n + n * (n - 1) / 2);
                break;
            }
        MPI_Allreduce(in, out, COUNTS[k], MPI_DOUBLE, MPI_MAX, test.comm);
        for (int i = 0; i < COUNTS[k]; i++)
            if (out[i] != i + n - 1) {
                CHECK_EQUAL(out[i], i + n - 1);
                break;
            }
        MPI_Allreduce(MPI_IN_PLACE, in, COUNTS[k], MPI_DOUBLE, MPI_MIN, test.comm);
        for (int i = 0; i < COUNTS[k]; i++)
            if (in[i] != i) {
                CHECK_EQUAL(in[i], i);
                break;
            }
    }
    free(in);
    free(out);
}

static void operations(void) {
    int n = test.size, r = test.rank, found;
    unsigned bits = 1u << (r % 30), together;
    long product = r % 3 + 1, expected = 1;
    struct {
        double value;
        int place;
    } mine = {r == n / 2 ? -5.0 : r, r}, least;
    MPI_Allreduce(&bits, &together, 1, MPI_UNSIGNED, MPI_BOR, test.comm);
    CHECK_EQUAL(together, n >= 30 ? (1u << 30) - 1 : (1u << n) - 1);
    MPI_Allreduce(&bits, &together, 1, MPI_UNSIGNED, MPI_BXOR, test.comm);
    if (n < 30) CHECK_EQUAL(together, (1u << n) - 1);
    MPI_Allreduce(MPI_IN_PLACE, &product, 1, MPI_LONG, MPI_PROD, test.comm);
    for (int i = 0; i < n; i++) expected *= i % 3 + 1;
    CHECK_EQUAL(product, expected);
    int truth = r != 0;
    MPI_Allreduce(&truth, &found, 1, MPI_INT, MPI_LAND, test.comm);
    CHECK_EQUAL(found, 0);
    MPI_Allreduce(&truth, &found, 1, MPI_INT, MPI_LOR, test.comm);
    CHECK_EQUAL(found, 1);
    MPI_Allreduce(&mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, test.comm);
    CHECK_EQUAL(least.place, n / 2);
}

/* 2 x 2 matrices: associative, not commutative. */
static void multiply(void *left, void *right, int *count, MPI_Datatype *type) {
    (void)type;
    unsigned *a = left, *b = right;
    for (int i = 0; i < *count / 4; i++, a += 4, b += 4) {
        unsigned product[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
        memcpy(b, product, sizeof product);
    }
}

static void matrix_of(unsigned rank, unsigned *matrix) {
    unsigned values[4] = {rank + 1, 2, rank, rank * rank + 3};
    memcpy(matrix, values, sizeof values);
}

static void order_of_operation(void) {
    MPI_Op op;
    MPI_Datatype matrix;
    unsigned mine[4], all[4] = {0}, upto[4] = {0}, expected[4], next[4];
    MPI_Type_contiguous(4, MPI_UNSIGNED, &matrix);
    MPI_Type_commit(&matrix);
    MPI_Op_create((MPI_User_function *)multiply, 0, &op);
    (void)matrix;
    matrix_of((unsigned)test.rank, mine);
    /* One matrix of four values, so that the operation may not be cut in pieces: the count handed over is 4. */
    MPI_Scan(mine, upto, 4, MPI_UNSIGNED, op, test.comm);
    MPI_Reduce(mine, all, 4, MPI_UNSIGNED, op, 0, test.comm);
    for (int last = 0; last < 2; last++) {
        int end = last ? test.size - 1 : test.rank, four = 4;
        matrix_of(0, expected);
        for (int i = 1; i <= end; i++) {
            matrix_of((unsigned)i, next);
            multiply(expected, next, &four, NULL);
            memcpy(expected, next, sizeof next);
        }
        if (!last) CHECK(memcmp(upto, expected, sizeof expected) == 0);
        if (last && test.rank == 0) CHECK(memcmp(all, expected, sizeof expected) == 0);
    }
    MPI_Op_free(&op);
    MPI_Type_free(&matrix);
}

static void gather_and_scatter(void) {
    int n = test.size;
    for (int k = 0; k < COUNTS_COUNT - 1; k++) {
        int count = COUNTS[k], root = (k + 1) % n;
        int *one = memory(sizeof(int) * (size_t)count), *all = memory(sizeof(int) * (size_t)(count * n));
        for (int i = 0; i < count; i++) one[i] = test.rank * 1000003 + i;
        memset(all, 0, sizeof(int) * (size_t)(count * n));
        MPI_Gather(one, count, MPI_INT, all, count, MPI_INT, root, test.comm);
        int bad = 0;
        for (int p = 0; test.rank == root && p < n; p++)
            for (int i = 0; i < count; i++) bad += all[p * count + i] != p * 1000003 + i;
        CHECK_EQUAL(bad, 0);
        memset(one, 0, sizeof(int) * (size_t)count);
        MPI_Scatter(all, count, MPI_INT, one, count, MPI_INT, root, test.comm);
        for (int i = 0; i < count; i++) bad += one[i] != test.rank * 1000003 + i;
        CHECK_EQUAL(bad, 0);
        memset(all, 0, sizeof(int) * (size_t)(count * n));
        MPI_Allgather(one, count, MPI_INT, all, count, MPI_INT, test.comm);
        for (int p = 0; p < n; p++)
            for (int i = 0; i < count; i++) bad += all[p * count + i] != p * 1000003 + i;
        CHECK_EQUAL(bad, 0);
        free(one);
        free(all);
    }
}

/* Rank r has r * 100 + 1 values for each rank; those for p begin with r * 100 + p. */
static void of_differing_length(void) {
    int n = test.size, r = test.rank;
    int *counts = memory(sizeof(int) * (size_t)n), *places = memory(sizeof(int) * (size_t)n), total = 0;
    for (int p = 0; p < n; p++) counts[p] = p * 100 + 1, places[p] = total, total += counts[p] + 2;
    int *mine = memory(sizeof(int) * (size_t)counts[r]), *all = memory(sizeof(int) * (size_t)total), bad = 0;
    for (int i = 0; i < counts[r]; i++) mine[i] = r * 10000 + i;
    for (int i = 0; i < total; i++) all[i] = -1;
    MPI_Allgatherv(mine, counts[r], MPI_INT, all, counts, places, MPI_INT, test.comm);
    for (int p = 0; p < n; p++) {
        for (int i = 0; i < counts[p]; i++) bad += all[places[p] + i] != p * 10000 + i;
        bad += all[places[p] + counts[p]] != -1; /* the gap */
    }
    CHECK_EQUAL(bad, 0);
    memset(mine, 0, sizeof(int) * (size_t)counts[r]);
    MPI_Scatterv(all, counts, places, MPI_INT, mine, counts[r], MPI_INT, n - 1, test.comm);
    for (int i = 0; i < counts[r]; i++) bad += mine[i] != r * 10000 + i;
    CHECK_EQUAL(bad, 0);
    MPI_Gatherv(mine, counts[r], MPI_INT, all, counts, places, MPI_INT, 0, test.comm);
    free(mine);
    free(all);

    int *to = memory(sizeof(int) * (size_t)n), *at = memory(sizeof(int) * (size_t)n), *from = memory(sizeof(int) * (size_t)n),
        *back = memory(sizeof(int) * (size_t)n), out_total = 0, in_total = 0;
    for (int p = 0; p < n; p++) {
        to[p] = (r * 7 + p * 3) % 50, at[p] = out_total, out_total += to[p];
        from[p] = (p * 7 + r * 3) % 50, back[p] = in_total, in_total += from[p];
    }
    int *out = memory(sizeof(int) * (size_t)out_total), *in = memory(sizeof(int) * (size_t)in_total);
    for (int p = 0; p < n; p++)
        for (int i = 0; i < to[p]; i++) out[at[p] + i] = r * 10000 + p * 100 + i;
    MPI_Alltoallv(out, to, at, MPI_INT, in, from, back, MPI_INT, test.comm);
    for (int p = 0; p < n; p++)
        for (int i = 0; i < from[p]; i++) bad += in[back[p] + i] != p * 10000 + r * 100 + i;
    CHECK_EQUAL(bad, 0);
    free(to), free(at), free(from), free(back), free(out), free(in), free(counts), free(places);
}

static void all_to_all(void) {
    int n = test.size;
    static const int counts[] = {1, 50, 2000, 100000};
    for (int k = 0; k < 4; k++) {
        int count = counts[k], bad = 0;
        int *out = memory(sizeof(int) * (size_t)(count * n)), *in = memory(sizeof(int) * (size_t)(count * n));
        for (int p = 0; p < n; p++)
            for (int i = 0; i < count; i++) out[p * count + i] = test.rank * 100 + p + i;
        MPI_Alltoall(out, count, MPI_INT, in, count, MPI_INT, test.comm);
        for (int p = 0; p < n; p++)
            for (int i = 0; i < count; i++) bad += in[p * count + i] != p * 100 + test.rank + i;
        CHECK_EQUAL(bad, 0);
        free(out);
        free(in);
    }
}

static void scans(void) {
    int n = test.size, r = test.rank, bad = 0;
    enum { COUNT = 1000 };
    static long in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++) in[i] = (r + 1) * (i + 1);
    MPI_Scan(in, out, COUNT, MPI_LONG, MPI_SUM, test.comm);
    for (int i = 0; i < COUNT; i++) bad += out[i] != (long)(i + 1) * (r + 1) * (r + 2) / 2;
    MPI_Exscan(in, out, COUNT, MPI_LONG, MPI_SUM, test.comm);
    for (int i = 0; r > 0 && i < COUNT; i++) bad += out[i] != (long)(i + 1) * r * (r + 1) / 2;
    CHECK_EQUAL(bad, 0);
    long *wide = memory(sizeof(long) * (size_t)n * 10), mine[10];
    for (int i = 0; i < 10 * n; i++) wide[i] = i + r;
    MPI_Reduce_scatter_block(wide, mine, 10, MPI_LONG, MPI_SUM, test.comm);
    for (int i = 0; i < 10; i++) bad += mine[i] != (long)n * (r * 10 + i) + n * (n - 1) / 2;
    int *counts = memory(sizeof(int) * (size_t)n);
    for (int p = 0; p < n; p++) counts[p] = p == 0 ? 10 + n - 1 : 9; /* together 10 n */
    int first = r == 0 ? 0 : 10 + n - 1 + 9 * (r - 1);
    long *part = memory(sizeof(long) * (size_t)counts[r]);
    MPI_Reduce_scatter(wide, part, counts, MPI_LONG, MPI_SUM, test.comm);
    for (int i = 0; i < counts[r]; i++) bad += part[i] != (long)n * (first + i) + n * (n - 1) / 2;
    CHECK_EQUAL(bad, 0);
    free(wide), free(counts), free(part);
}

/* Nonblocking collectives in progress together, with messages between them, finished in another order. */
static void nonblocking(void) {
    enum { COUNT = 6, LENGTH = 5000 };
    static int in[COUNT][LENGTH], out[COUNT][LENGTH];
    for (int round = 0; round < 10; round++) {
        MPI_Request requests[2 * COUNT + 3];
        int next = (test.rank + 1) % test.size, previous = (test.rank + test.size - 1) % test.size, token = -1, mine = test.rank * 10 + round;
        int bad = 0, n = test.size;
        for (int k = 0; k < COUNT; k++) {
            for (int i = 0; i < LENGTH; i++) in[k][i] = test.rank + i + k;
            if (k % 2) {
                for (int i = 0; i < LENGTH; i++) out[k][i] = test.rank == k % n ? i + k + round : -1;
                MPI_Ibcast(out[k], LENGTH, MPI_INT, k % n, test.comm, &requests[k]);
            } else {
                MPI_Iallreduce(in[k], out[k], LENGTH, MPI_INT, MPI_SUM, test.comm, &requests[k]);
            }
        }
        MPI_Irecv(&token, 1, MPI_INT, previous, 3, test.comm, &requests[COUNT]);
        MPI_Isend(&mine, 1, MPI_INT, next, 3, test.comm, &requests[COUNT + 1]);
        MPI_Ibarrier(test.comm, &requests[COUNT + 2]);
        for (int k = COUNT + 2; k >= 0; k--) MPI_Wait(&requests[k], MPI_STATUS_IGNORE);
        CHECK_EQUAL(token, previous * 10 + round);
        for (int k = 0; k < COUNT; k++)
            for (int i = 0; i < LENGTH; i++) bad += out[k][i] != (k % 2 ? i + k + round : n * (i + k) + n * (n - 1) / 2);
        CHECK_EQUAL(bad, 0);
    }
}

/* No rank leaves before the last has come. */
static void barrier(void) {
    for (int last = 0; last < test.size; last++) {
        double came, left, latest, earliest;
        if (test.rank == last) rest(20);
        came = MPI_Wtime();
        MPI_Barrier(test.comm);
        left = MPI_Wtime();
        MPI_Allreduce(&came, &latest, 1, MPI_DOUBLE, MPI_MAX, test.comm);
        MPI_Allreduce(&left, &earliest, 1, MPI_DOUBLE, MPI_MIN, test.comm);
        /* One clock on one host: the order of events, not a duration. */
        int shared;
        MPI_Comm node;
        MPI_Comm_split_type(test.comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
        MPI_Comm_size(node, &shared);
        MPI_Comm_free(&node);
        int *global = NULL, flag = 0;
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL, &global, &flag);
        if (shared == test.size && flag && global && *global) CHECK(earliest >= latest);
    }
    for (int i = 0; i < 200; i++) MPI_Barrier(test.comm);
}

static void neighbours(void) {
    int dims[2] = {0, 0}, periods[2] = {1, 1};
    MPI_Comm grid;
    MPI_Dims_create(test.size, 2, dims);
    MPI_Cart_create(test.comm, 2, dims, periods, 0, &grid);
    int rank, near[4], in[4] = {-1, -1, -1, -1}, out[4];
    MPI_Comm_rank(grid, &rank);
    MPI_Cart_shift(grid, 0, 1, &near[0], &near[1]);
    MPI_Cart_shift(grid, 1, 1, &near[2], &near[3]);
    for (int i = 0; i < 4; i++) out[i] = rank;
    MPI_Neighbor_allgather(out, 1, MPI_INT, in, 1, MPI_INT, grid);
    for (int i = 0; i < 4; i++) CHECK_EQUAL(in[i], near[i]);
    MPI_Comm_free(&grid);
}

const struct test_case collective_cases[] = {
    {"barrier", barrier, 0},
    {"broadcast", broadcast, 0},
    {"reductions", reductions, 0},
    {"operations", operations, 0},
    {"order_of_operation", order_of_operation, 0},
    {"gather_and_scatter", gather_and_scatter, 0},
    {"of_differing_length", of_differing_length, 0},
    {"all_to_all", all_to_all, 0},
    {"scans", scans, 0},
    {"nonblocking", nonblocking, 0},
    {"neighbours", neighbours, 0},
    {NULL, NULL, 0},
};

/* Epochs in which targets take part: fences with assertions, and groups of ranks that post and start. */
#include "conform.h"

static void fences_with_assertions(void) {
    enum { LENGTH = 64 };
    int n = test.size, next = (test.rank + 1) % n, previous = (test.rank + n - 1) % n, wrong = 0;
    long *shared, values[LENGTH], back[LENGTH];
    MPI_Win window;
    MPI_Win_allocate(2 * LENGTH * sizeof(long), sizeof(long), MPI_INFO_NULL, test.comm, &shared, &window);
    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < LENGTH; i++) shared[i] = -1, shared[LENGTH + i] = test.rank * 77 + i, values[i] = round * 1000 + test.rank * 100 + i;
        MPI_Win_fence(MPI_MODE_NOPRECEDE, window);
        MPI_Put(values, LENGTH, MPI_LONG, next, 0, LENGTH, MPI_LONG, window);
        MPI_Win_fence(MPI_MODE_NOSTORE, window);
        MPI_Get(back, LENGTH, MPI_LONG, next, LENGTH, LENGTH, MPI_LONG, window);
        MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOSUCCEED, window);
        for (int i = 0; i < LENGTH; i++) {
            wrong += shared[i] != round * 1000 + previous * 100 + i;
            wrong += back[i] != next * 77 + i;
        }
    }
    CHECK_EQUAL(wrong, 0);
    MPI_Win_free(&window);
}

/* Every rank is origin and target of all others; then only the even ones are origins. */
static void groups(void) {
    int n = test.size, wrong = 0, ranks[n], evens = 0;
    long *shared, sum = 0;
    MPI_Win window;
    MPI_Group all, others, even, none = MPI_GROUP_EMPTY;
    MPI_Win_allocate((MPI_Aint)(sizeof(long) * (size_t)(n + 1)), sizeof(long), MPI_INFO_NULL, test.comm, &shared, &window);
    MPI_Comm_group(test.comm, &all);
    MPI_Group_excl(all, 1, &test.rank, &others);
    for (int i = 0; i < n; i += 2) ranks[evens++] = i;
    MPI_Group_incl(all, evens, ranks, &even);
    for (int round = 0; round < 25; round++) {
        long values[n], back[n], one = 1;
        for (int i = 0; i <= n; i++) shared[i] = -1;
        shared[n] = 0;
        MPI_Win_post(others, 0, window);
        MPI_Win_start(others, 0, window);
        for (int i = 0; i < n; i++) {
            if (i == test.rank) continue;
            values[i] = round * 100 + test.rank * 10 + i;
            MPI_Put(&values[i], 1, MPI_LONG, i, test.rank, 1, MPI_LONG, window);
            MPI_Accumulate(&one, 1, MPI_LONG, i, n, 1, MPI_LONG, MPI_SUM, window);
        }
        MPI_Win_complete(window);
        int done = 0;
        while (!done) MPI_Win_test(window, &done);
        for (int i = 0; i < n; i++) wrong += shared[i] != (i == test.rank ? -1 : round * 100 + i * 10 + test.rank);
        wrong += shared[n] != n - 1;
        /* Reads by the even ranks, of every rank's first cell but their own. */
        shared[0] = 5000 + test.rank * 3 + round;
        MPI_Win_post(even, MPI_MODE_NOPUT, window);
        MPI_Win_start(test.rank % 2 ? none : all, 0, window);
        for (int i = 0; test.rank % 2 == 0 && i < n; i++) MPI_Get(&back[i], 1, MPI_LONG, i, 0, 1, MPI_LONG, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        for (int i = 0; test.rank % 2 == 0 && i < n; i++) wrong += back[i] != 5000 + i * 3 + round, sum += back[i];
    }
    CHECK_EQUAL(wrong, 0);
    MPI_Group_free(&even);
    MPI_Group_free(&others);
    MPI_Group_free(&all);
    MPI_Win_free(&window);
}

/* One window passes from fences to locks, to groups, and back. */
static void epochs_in_turn(void) {
    int n = test.size, next = (test.rank + 1) % n, previous = (test.rank + n - 1) % n;
    long *shared, value, expected = 0;
    MPI_Win window;
    MPI_Group all, to, from;
    MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, test.comm, &shared, &window);
    MPI_Comm_group(test.comm, &all);
    MPI_Group_incl(all, 1, &next, &to);
    MPI_Group_incl(all, 1, &previous, &from);
    *shared = 0;
    for (int round = 0; round < 12; round++) {
        value = 1 + round;
        expected += value;
        switch (round % 3) {
        case 0:
            MPI_Win_fence(MPI_MODE_NOPRECEDE, window);
            MPI_Accumulate(&value, 1, MPI_LONG, next, 0, 1, MPI_LONG, MPI_SUM, window);
            MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
            break;
        case 1:
            MPI_Barrier(test.comm);
            MPI_Win_lock(round % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, next, 0, window);
            MPI_Accumulate(&value, 1, MPI_LONG, next, 0, 1, MPI_LONG, MPI_SUM, window);
            MPI_Win_unlock(next, window);
            MPI_Barrier(test.comm);
            break;
        default:
            MPI_Win_post(from, 0, window);
            MPI_Win_start(to, 0, window);
            MPI_Accumulate(&value, 1, MPI_LONG, next, 0, 1, MPI_LONG, MPI_SUM, window);
            MPI_Win_complete(window);
            MPI_Win_wait(window);
        }
        MPI_Win_lock(MPI_LOCK_SHARED, test.rank, 0, window);
        CHECK_EQUAL(*shared, expected);
        MPI_Win_unlock(test.rank, window);
        MPI_Barrier(test.comm);
    }
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    MPI_Group_free(&all);
    MPI_Win_free(&window);
}

const struct test_case epoch_cases[] = {
    {"fences_with_assertions", fences_with_assertions, 0},
    {"groups", groups, 0},
    {"epochs_in_turn", epochs_in_turn, 0},
    {NULL, NULL, 0},
};

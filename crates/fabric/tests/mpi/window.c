/* One-sided communication with each of its three ways of synchronizing. */
#include "conform.h"

static void put_and_get_between_fences(void) {
    enum { LENGTH = 500000 };
    int n = test.size, next = (test.rank + 1) % n, previous = (test.rank + n - 1) % n;
    static const int counts[] = {1, 100, 5000, LENGTH};
    int *shared = memory(sizeof(int) * LENGTH), *local = memory(sizeof(int) * LENGTH);
    MPI_Win window;
    MPI_Win_create(shared, sizeof(int) * LENGTH, sizeof(int), MPI_INFO_NULL, test.comm, &window);
    for (int k = 0; k < 4; k++) {
        int count = counts[k], bad = 0;
        for (int i = 0; i < LENGTH; i++) shared[i] = -1;
        for (int i = 0; i < count; i++) local[i] = test.rank * 7 + i;
        MPI_Win_fence(0, window);
        MPI_Put(local, count, MPI_INT, next, LENGTH - count, count, MPI_INT, window);
        MPI_Win_fence(0, window);
        for (int i = 0; i < count; i++) bad += shared[LENGTH - count + i] != previous * 7 + i;
        if (count < LENGTH) bad += shared[LENGTH - count - 1] != -1;
        CHECK_EQUAL(bad, 0);
        MPI_Win_fence(0, window);
        memset(local, 0, sizeof(int) * (size_t)count);
        MPI_Get(local, count, MPI_INT, previous, LENGTH - count, count, MPI_INT, window);
        MPI_Win_fence(0, window);
        int before = (previous + n - 1) % n;
        for (int i = 0; i < count; i++) bad += local[i] != before * 7 + i;
        CHECK_EQUAL(bad, 0);
    }
    MPI_Win_free(&window);
    free(shared);
    free(local);
}

static void accumulate(void) {
    enum { LENGTH = 3000 };
    long *sums;
    static long mine[LENGTH];
    int n = test.size, bad = 0;
    MPI_Win window;
    MPI_Win_allocate(sizeof(long) * LENGTH, sizeof(long), MPI_INFO_NULL, test.comm, &sums, &window);
    for (int i = 0; i < LENGTH; i++) sums[i] = 1000, mine[i] = test.rank + i;
    MPI_Win_fence(0, window);
    for (int target = 0; target < n; target++)
        for (int again = 0; again < 3; again++) MPI_Accumulate(mine, LENGTH, MPI_LONG, target, 0, LENGTH, MPI_LONG, MPI_SUM, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < LENGTH; i++) bad += sums[i] != 1000 + 3 * ((long)n * i + n * (n - 1) / 2);
    CHECK_EQUAL(bad, 0);
    MPI_Win_fence(0, window);
    if (test.rank == 0) {
        static long before[LENGTH];
        MPI_Get_accumulate(mine, LENGTH, MPI_LONG, before, LENGTH, MPI_LONG, n - 1, 0, LENGTH, MPI_LONG, MPI_REPLACE, window);
        MPI_Win_fence(0, window);
        for (int i = 0; i < LENGTH; i++) bad += before[i] != 1000 + 3 * ((long)n * i + n * (n - 1) / 2);
        CHECK_EQUAL(bad, 0);
    } else {
        MPI_Win_fence(0, window);
        if (test.rank == n - 1)
            for (int i = 0; i < LENGTH; i++) bad += sums[i] != i;
        CHECK_EQUAL(bad, 0);
    }
    MPI_Win_free(&window);
}

/* A counter from which all take tickets: each ticket is taken once. */
static void fetch_and_op(void) {
    enum { EACH = 200 };
    long *counter, tickets[EACH], one = 1;
    MPI_Win window;
    MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, test.comm, &counter, &window);
    *counter = 0;
    MPI_Barrier(test.comm);
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < EACH; i++) {
        MPI_Fetch_and_op(&one, &tickets[i], MPI_LONG, 0, 0, MPI_SUM, window);
        MPI_Win_flush(0, window);
        if (i) CHECK(tickets[i] > tickets[i - 1]);
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(test.comm);
    int total = EACH * test.size;
    char *given = calloc((size_t)total, 1), *all = calloc((size_t)total, 1);
    for (int i = 0; i < EACH; i++) {
        CHECK(tickets[i] >= 0 && tickets[i] < total);
        if (tickets[i] >= 0 && tickets[i] < total) given[tickets[i]] = 1;
    }
    MPI_Allreduce(given, all, total, MPI_SIGNED_CHAR, MPI_SUM, test.comm);
    for (int i = 0; i < total; i++) CHECK_EQUAL(all[i], 1);
    free(given);
    free(all);
    MPI_Win_free(&window);
}

static void compare_and_swap(void) {
    enum { EACH = 50 };
    int *owner;
    long *guarded;
    MPI_Win lock, data;
    MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, test.comm, &owner, &lock);
    MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, test.comm, &guarded, &data);
    *owner = -1;
    *guarded = 0;
    MPI_Barrier(test.comm);
    MPI_Win_lock_all(0, lock);
    MPI_Win_lock_all(0, data);
    for (int i = 0; i < EACH; i++) {
        int free_value = -1, found;
        do {
            MPI_Compare_and_swap(&test.rank, &free_value, &found, MPI_INT, 0, 0, lock);
            MPI_Win_flush(0, lock);
        } while (found != -1);
        long value = -1;
        MPI_Get(&value, 1, MPI_LONG, 0, 0, 1, MPI_LONG, data);
        MPI_Win_flush(0, data);
        value++;
        MPI_Put(&value, 1, MPI_LONG, 0, 0, 1, MPI_LONG, data);
        MPI_Win_flush(0, data);
        MPI_Accumulate(&free_value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_REPLACE, lock);
        MPI_Win_flush(0, lock);
    }
    MPI_Win_unlock_all(data);
    MPI_Win_unlock_all(lock);
    MPI_Barrier(test.comm);
    if (test.rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, data);
        CHECK_EQUAL(*guarded, EACH * test.size);
        MPI_Win_unlock(0, data);
    }
    MPI_Win_free(&data);
    MPI_Win_free(&lock);
}

/* Read, change, write under an exclusive lock: no update is lost. */
static void exclusive_lock(void) {
    enum { EACH = 60 };
    long *value;
    MPI_Win window;
    MPI_Win_allocate(2 * sizeof(long), sizeof(long), MPI_INFO_NULL, test.comm, &value, &window);
    value[0] = value[1] = 0;
    MPI_Barrier(test.comm);
    for (int i = 0; i < EACH; i++) {
        long found[2] = {-1, -1};
        int target = i % test.size;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window);
        MPI_Get(found, 2, MPI_LONG, target, 0, 2, MPI_LONG, window);
        MPI_Win_flush(target, window);
        CHECK_EQUAL(found[1], found[0] * 3);
        found[0]++;
        found[1] += 3;
        MPI_Put(found, 2, MPI_LONG, target, 0, 2, MPI_LONG, window);
        MPI_Win_unlock(target, window);
    }
    MPI_Barrier(test.comm);
    long mine, sum;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, test.rank, 0, window);
    mine = value[0];
    MPI_Win_unlock(test.rank, window);
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, test.comm);
    CHECK_EQUAL(sum, EACH * test.size);
    MPI_Win_free(&window);
}

/* The target computes without calls while others write into its memory; after synchronizing it sees all of it. */
static void requests_and_flush(void) {
    enum { LENGTH = 20000 };
    int *shared, n = test.size, bad = 0;
    MPI_Win window;
    MPI_Win_allocate((MPI_Aint)sizeof(int) * LENGTH * n, sizeof(int), MPI_INFO_NULL, test.comm, &shared, &window);
    int *local = memory(sizeof(int) * LENGTH), *back = memory(sizeof(int) * LENGTH);
    for (int i = 0; i < LENGTH; i++) local[i] = test.rank * LENGTH + i;
    MPI_Barrier(test.comm);
    MPI_Win_lock_all(0, window);
    for (int target = 0; target < n; target++) {
        MPI_Request request;
        MPI_Rput(local, LENGTH, MPI_INT, target, test.rank * LENGTH, LENGTH, MPI_INT, window, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Win_flush_all(window);
    for (int target = 0; target < n; target++) {
        MPI_Request request;
        MPI_Rget(back, LENGTH, MPI_INT, target, test.rank * LENGTH, LENGTH, MPI_INT, window, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        bad += memcmp(local, back, sizeof(int) * LENGTH) != 0;
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(test.comm);
    MPI_Win_lock(MPI_LOCK_SHARED, test.rank, 0, window);
    for (int i = 0; i < LENGTH * n; i++) bad += shared[i] != i;
    MPI_Win_unlock(test.rank, window);
    CHECK_EQUAL(bad, 0);
    free(local);
    free(back);
    MPI_Win_free(&window);
}

static void post_start_complete_wait(void) {
    int n = test.size, next = (test.rank + 1) % n, previous = (test.rank + n - 1) % n, *shared;
    MPI_Win window;
    MPI_Group all, to, from;
    MPI_Win_allocate(100 * sizeof(int), sizeof(int), MPI_INFO_NULL, test.comm, &shared, &window);
    MPI_Comm_group(test.comm, &all);
    MPI_Group_incl(all, 1, &next, &to);
    MPI_Group_incl(all, 1, &previous, &from);
    for (int round = 0; round < 20; round++) {
        int out[100], bad = 0;
        for (int i = 0; i < 100; i++) out[i] = test.rank * 1000 + round + i;
        MPI_Win_post(from, 0, window);
        MPI_Win_start(to, 0, window);
        MPI_Put(out, 100, MPI_INT, next, 0, 100, MPI_INT, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        for (int i = 0; i < 100; i++) bad += shared[i] != previous * 1000 + round + i;
        CHECK_EQUAL(bad, 0);
    }
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    MPI_Group_free(&all);
    MPI_Win_free(&window);
}

/* Memory that is attached after the window was made, addressed absolutely. */
static void attached_later(void) {
    enum { LENGTH = 1000 };
    int n = test.size, next = (test.rank + 1) % n, previous = (test.rank + n - 1) % n, bad = 0;
    int *region = memory(sizeof(int) * LENGTH), *local = memory(sizeof(int) * LENGTH);
    MPI_Aint mine, *places = memory(sizeof(MPI_Aint) * (size_t)n);
    MPI_Win window;
    MPI_Win_create_dynamic(MPI_INFO_NULL, test.comm, &window);
    MPI_Win_attach(window, region, sizeof(int) * LENGTH);
    MPI_Get_address(region, &mine);
    MPI_Allgather(&mine, 1, MPI_AINT, places, 1, MPI_AINT, test.comm);
    for (int i = 0; i < LENGTH; i++) local[i] = test.rank * 31 + i, region[i] = 0;
    MPI_Barrier(test.comm);
    MPI_Win_lock_all(0, window);
    MPI_Put(local, LENGTH, MPI_INT, next, places[next], LENGTH, MPI_INT, window);
    MPI_Win_flush_all(window);
    MPI_Win_unlock_all(window);
    MPI_Barrier(test.comm);
    MPI_Win_lock(MPI_LOCK_SHARED, test.rank, 0, window);
    for (int i = 0; i < LENGTH; i++) bad += region[i] != previous * 31 + i;
    MPI_Win_unlock(test.rank, window);
    CHECK_EQUAL(bad, 0);
    MPI_Barrier(test.comm);
    MPI_Win_detach(window, region);
    MPI_Win_free(&window);
    free(places);
    free(region);
    free(local);
}

const struct test_case window_cases[] = {
    {"put_and_get_between_fences", put_and_get_between_fences, 0},
    {"accumulate", accumulate, 0},
    {"fetch_and_op", fetch_and_op, 0},
    {"compare_and_swap", compare_and_swap, 0},
    {"exclusive_lock", exclusive_lock, 0},
    {"requests_and_flush", requests_and_flush, 0},
    {"post_start_complete_wait", post_start_complete_wait, 0},
    {"attached_later", attached_later, 0},
    {NULL, NULL, 0},
};

/* Passive targets: locks, flushes, windows of all shapes, and many operations in progress. */
#include "conform.h"

#include <pthread.h>

static int next(void) { return (test.rank + 1) % test.size; }
static int previous(void) { return (test.rank + test.size - 1) % test.size; }

/* More operations than any queue of a transport has places, completed by one flush. */
static void many_in_progress(void) {
    enum { EACH = 70000, BACK = 8000 };
    int *shared, *values = memory(EACH * sizeof(int)), wrong = 0;
    MPI_Win window;
    MPI_Win_allocate(EACH * sizeof(int), sizeof(int), MPI_INFO_NULL, test.comm, &shared, &window);
    for (int i = 0; i < EACH; i++) shared[i] = -1, values[i] = test.rank * EACH + i;
    MPI_Barrier(test.comm);
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < EACH; i++) MPI_Put(&values[i], 1, MPI_INT, next(), EACH - 1 - i, 1, MPI_INT, window);
    MPI_Win_flush_all(window);
    for (int i = 0; i < BACK; i++) values[i] = -2;
    for (int i = 0; i < BACK; i++) MPI_Get(&values[i], 1, MPI_INT, next(), i, 1, MPI_INT, window);
    MPI_Win_unlock_all(window);
    for (int i = 0; i < BACK; i++) wrong += values[i] != test.rank * EACH + EACH - 1 - i;
    MPI_Barrier(test.comm);
    MPI_Win_lock(MPI_LOCK_SHARED, test.rank, 0, window);
    for (int i = 0; i < EACH; i++) wrong += shared[i] != previous() * EACH + EACH - 1 - i;
    MPI_Win_unlock(test.rank, window);
    CHECK_EQUAL(wrong, 0);
    MPI_Win_free(&window);
    free(values);
}

/* Lengths at which transports change how they carry bytes, put and read back by each kind of flush. */
static void lengths_and_flushes(void) {
    enum { ROOM = 6 << 20 };
    char *shared, *out = memory(ROOM), *back = memory(ROOM);
    MPI_Win window;
    MPI_Win_allocate(ROOM, 1, MPI_INFO_NULL, test.comm, (void *)&shared, &window);
    memset(shared, 0, ROOM);
    MPI_Barrier(test.comm);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    for (int k = 0; k <= LENGTHS_COUNT; k++) {
        int length = k < LENGTHS_COUNT ? LENGTHS[k] : ROOM - 5, at = k % 5;
        unsigned salt = (unsigned)(test.rank * 1000 + k);
        fill(out, (size_t)length, salt);
        MPI_Put(out, length, MPI_BYTE, next(), at, length, MPI_BYTE, window);
        if (k % 2) { /* the buffer is free again before the bytes have come */
            MPI_Win_flush_local(next(), window);
            fill(out, (size_t)length, salt + 1);
            MPI_Win_flush(next(), window);
        } else if (k % 4) {
            MPI_Win_flush_all(window);
        } else {
            MPI_Win_flush_local_all(window);
            MPI_Win_flush(next(), window);
        }
        memset(back, 0, (size_t)length);
        MPI_Get(back, length, MPI_BYTE, next(), at, length, MPI_BYTE, window);
        MPI_Win_flush_local(next(), window);
        CHECK_BYTES(back, (size_t)length, salt);
    }
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    free(out);
    free(back);
}

/* The ranks' windows differ in size and unit; one has no memory. Some operations go to the rank itself, some to nobody. */
static void unequal_windows(void) {
    int unit = 1 << test.rank % 4, bytes = test.rank == 1 ? 0 : 4096, wrong = 0;
    char *shared = memory(4096);
    MPI_Win window;
    memset(shared, 9, 4096);
    MPI_Win_create(bytes ? shared : NULL, bytes, unit, MPI_INFO_NULL, test.comm, &window);
    long here = 1000 + test.rank, there = -1, nothing = 77;
    MPI_Win_lock_all(0, window);
    if (bytes) MPI_Put(&here, 1, MPI_LONG, test.rank, 64 / unit, 1, MPI_LONG, window);
    MPI_Put(&here, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, window);
    MPI_Get(&nothing, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, window);
    MPI_Put(&here, 0, MPI_LONG, 1, 0, 0, MPI_LONG, window);
    MPI_Put(&here, 1, MPI_LONG, 0, 128 + 8 * test.rank, 1, MPI_LONG, window);
    MPI_Win_flush_all(window);
    MPI_Barrier(test.comm);
    int beyond = test.size > 2 ? 2 : 0; /* of unit 4 or 1 */
    MPI_Get(&there, 1, MPI_LONG, beyond, 64 >> beyond, 1, MPI_LONG, window);
    MPI_Win_unlock_all(window);
    CHECK_EQUAL(there, 1000 + beyond);
    CHECK_EQUAL(nothing, 77);
    MPI_Barrier(test.comm);
    MPI_Win_free(&window);
    if (test.rank == 0)
        for (int i = 0; i < test.size; i++) wrong += memcmp(shared + 128 + 8 * i, &(long){1000 + i}, 8) != 0;
    CHECK_EQUAL(wrong, 0);
    CHECK_EQUAL(shared[4095], 9);
    free(shared);
}

/* Windows over the same memory, more than one at a time, and many in a row. */
static void many_windows(void) {
    enum { OPEN = 12, ROUNDS = 15 };
    static long memory_of_all[OPEN + 1];
    int wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Win windows[OPEN];
        for (int i = 0; i < OPEN; i++) MPI_Win_create(&memory_of_all[i], 2 * sizeof(long), sizeof(long), MPI_INFO_NULL, test.comm, &windows[i]);
        for (int i = 0; i < OPEN; i++) MPI_Win_fence(MPI_MODE_NOPRECEDE, windows[i]);
        long values[OPEN];
        for (int i = 0; i < OPEN; i++) {
            values[i] = round * 100 + i + test.rank;
            MPI_Put(&values[i], 1, MPI_LONG, next(), 0, 1, MPI_LONG, windows[i]);
        }
        for (int i = 0; i < OPEN; i++) MPI_Win_fence(MPI_MODE_NOSUCCEED, windows[i]);
        for (int i = 0; i < OPEN; i++) wrong += memory_of_all[i] != round * 100 + i + previous();
        for (int i = OPEN; i-- > 0;) MPI_Win_free(&windows[i]);
    }
    CHECK_EQUAL(wrong, 0);
}

/* Every rank prepends elements to a list that begins at rank 0 and leads through the memory of all, attached piece by piece. */
struct element {
    long value;
    MPI_Aint next;
    int next_rank, pad;
};

static void list_in_pieces(void) {
    enum { EACH = 20 };
    struct { MPI_Aint place; long rank; } head, mine, *first = NULL;
    struct element *elements[EACH];
    MPI_Win window, heads;
    MPI_Win_create_dynamic(MPI_INFO_NULL, test.comm, &window);
    MPI_Win_allocate(sizeof head, 1, MPI_INFO_NULL, test.comm, &first, &heads);
    first->place = 0, first->rank = -1;
    MPI_Barrier(test.comm);
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < EACH; i++) {
        elements[i] = memory(sizeof *elements[i]);
        elements[i]->value = test.rank * EACH + i;
        MPI_Win_attach(window, elements[i], sizeof *elements[i]);
        MPI_Get_address(elements[i], &mine.place);
        mine.rank = test.rank;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, heads);
        MPI_Get(&head, sizeof head, MPI_BYTE, 0, 0, sizeof head, MPI_BYTE, heads);
        MPI_Win_flush(0, heads);
        elements[i]->next = head.place, elements[i]->next_rank = (int)head.rank;
        MPI_Win_sync(window);
        MPI_Put(&mine, sizeof mine, MPI_BYTE, 0, 0, sizeof mine, MPI_BYTE, heads);
        MPI_Win_unlock(0, heads);
    }
    MPI_Barrier(test.comm);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, heads);
    MPI_Get(&head, sizeof head, MPI_BYTE, 0, 0, sizeof head, MPI_BYTE, heads);
    MPI_Win_unlock(0, heads);
    int seen = 0;
    long sum = 0, n = EACH * test.size;
    while (head.rank >= 0 && seen <= n) {
        struct element found;
        MPI_Get(&found, sizeof found, MPI_BYTE, (int)head.rank, head.place, sizeof found, MPI_BYTE, window);
        MPI_Win_flush((int)head.rank, window);
        sum += found.value, seen++;
        head.place = found.next, head.rank = found.next_rank;
    }
    CHECK_EQUAL(seen, n);
    CHECK_EQUAL(sum, n * (n - 1) / 2);
    MPI_Win_unlock_all(window);
    MPI_Barrier(test.comm);
    for (int i = 0; i < EACH; i++) MPI_Win_detach(window, elements[i]), free(elements[i]);
    MPI_Win_free(&window);
    MPI_Win_free(&heads);
}

/* Memory that was detached is attached again, with more beside it: accumulates and swaps by absolute addresses. */
static void attached_again(void) {
    long cells[4] = {0}, add = 5, zero = 0, was = -1;
    MPI_Aint mine, theirs;
    MPI_Win window;
    MPI_Win_create_dynamic(MPI_INFO_NULL, test.comm, &window);
    MPI_Get_address(cells, &mine);
    MPI_Sendrecv(&mine, 1, MPI_AINT, previous(), 0, &theirs, 1, MPI_AINT, next(), 0, test.side, MPI_STATUS_IGNORE);
    for (int round = 1; round <= 3; round++) {
        MPI_Win_attach(window, cells, (round > 1 ? 4 : 2) * sizeof(long));
        MPI_Barrier(test.comm);
        MPI_Win_lock(MPI_LOCK_SHARED, next(), 0, window);
        MPI_Accumulate(&add, 1, MPI_LONG, next(), MPI_Aint_add(theirs, sizeof(long)), 1, MPI_LONG, MPI_SUM, window);
        MPI_Win_flush(next(), window);
        if (round > 1) MPI_Compare_and_swap(&add, &zero, &was, MPI_LONG, next(), MPI_Aint_add(theirs, 3 * sizeof(long)), window);
        MPI_Win_unlock(next(), window);
        MPI_Barrier(test.comm);
        MPI_Win_lock(MPI_LOCK_SHARED, test.rank, 0, window);
        CHECK_EQUAL(cells[1], 5 * round);
        CHECK_EQUAL(cells[3], round > 1 ? 5 : 0);
        MPI_Win_unlock(test.rank, window);
        if (round > 1) CHECK_EQUAL(was, round == 2 ? 0 : 5);
        MPI_Barrier(test.comm);
        MPI_Win_detach(window, cells);
    }
    MPI_Win_free(&window);
}

/* Threads of each rank put, add and read back at once, each at places of its own and one for all. */
enum { THREADS = 3, LOOPS = 150 };
struct thread {
    pthread_t id;
    int number;
    MPI_Win window;
};

static void *access_all(void *argument) {
    struct thread *me = argument;
    long one = 1, value, back;
    for (int i = 0; i < LOOPS; i++) {
        int target = (test.rank + i) % test.size;
        MPI_Aint place = 1 + test.rank * THREADS + me->number;
        value = i * 10 + me->number;
        back = -1;
        MPI_Accumulate(&one, 1, MPI_LONG, target, 0, 1, MPI_LONG, MPI_SUM, me->window);
        MPI_Put(&value, 1, MPI_LONG, target, place, 1, MPI_LONG, me->window);
        MPI_Win_flush(target, me->window);
        MPI_Get(&back, 1, MPI_LONG, target, place, 1, MPI_LONG, me->window);
        MPI_Win_flush(target, me->window);
        CHECK_EQUAL(back, value);
    }
    return NULL;
}

static void from_threads(void) {
    long *shared, sum;
    struct thread threads[THREADS];
    MPI_Win window;
    int failed = MPI_Win_allocate((MPI_Aint)sizeof(long) * (1 + THREADS * test.size), sizeof(long), MPI_INFO_NULL, test.comm, &shared, &window);
    CHECK_EQUAL(failed, MPI_SUCCESS);
    shared[0] = 0;
    MPI_Barrier(test.comm);
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < THREADS; i++) {
        threads[i].number = i, threads[i].window = window;
        if (pthread_create(&threads[i].id, NULL, access_all, &threads[i]) != 0) MPI_Abort(MPI_COMM_WORLD, 6);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i].id, NULL);
    MPI_Win_unlock_all(window);
    MPI_Barrier(test.comm);
    MPI_Win_lock(MPI_LOCK_SHARED, test.rank, 0, window);
    long mine = shared[0];
    MPI_Win_unlock(test.rank, window);
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, test.comm);
    CHECK_EQUAL(sum, THREADS * LOOPS * test.size);
    MPI_Win_free(&window);
}

const struct test_case passive_cases[] = {
    {"many_in_progress", many_in_progress, 0},
    {"lengths_and_flushes", lengths_and_flushes, 0},
    {"unequal_windows", unequal_windows, 0},
    {"many_windows", many_windows, 0},
    {"list_in_pieces", list_in_pieces, 0},
    {"attached_again", attached_again, 0},
    {"from_threads", from_threads, 1},
    {NULL, NULL, 0},
};

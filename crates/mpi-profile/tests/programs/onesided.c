// One-sided operations under every kind of synchronization.
#include "expect.h"

enum { TIMES = 3 };

static long long mine[1024], theirs[1024], compare;

int main(void) {
    MPI_Win win, other;
    MPI_Group world, to, from;
    MPI_Request requests[4];
    begin();
    MPI_Win_allocate(sizeof mine, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &(long long *){NULL}, &win);
    calls("Win_allocate", 0, 1, 0);

    for (int i = 0; i < TIMES; i++) {
        MPI_Win_fence(0, win);
        MPI_Put(mine, 10, MPI_LONG_LONG, right, 0, 10, MPI_LONG_LONG, win);
        MPI_Get(theirs, 20, MPI_LONG_LONG, right, 100, 20, MPI_LONG_LONG, win);
        MPI_Win_fence(0, win);
        MPI_Accumulate(mine, 30, MPI_LONG_LONG, left, 200, 30, MPI_LONG_LONG, MPI_SUM, win);
        MPI_Put(mine, 10, MPI_LONG_LONG, MPI_PROC_NULL, 0, 10, MPI_LONG_LONG, win);
        MPI_Win_fence(0, win);
    }
    calls("Win_fence", 0, 3 * TIMES, 0);
    calls("Put", 0, TIMES, 80);
    calls("Put", 0, TIMES, 0);
    calls("Get", 0, TIMES, 160);
    calls("Accumulate", 0, TIMES, 240);
    operations(right, TIMES, 80);
    operations(right, TIMES, 160);
    operations(left, TIMES, 240);

    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &right, &to);
    MPI_Group_incl(world, 1, &left, &from);
    for (int i = 0; i < TIMES; i++) {
        MPI_Win_post(from, 0, win);
        MPI_Win_start(to, 0, win);
        MPI_Put(mine, 5, MPI_LONG_LONG, right, 0, 5, MPI_LONG_LONG, win);
        MPI_Win_complete(win);
        MPI_Win_wait(win);
    }
    calls("Win_post", 0, TIMES, 0);
    calls("Win_start", 0, TIMES, 0);
    calls("Win_complete", 0, TIMES, 0);
    calls("Win_wait", 0, TIMES, 0);
    calls("Put", 0, TIMES, 40);
    operations(right, TIMES, 40);
    long tested = 0;
    for (int i = 0; i < TIMES; i++) {
        int done = 0;
        MPI_Win_post(from, 0, win);
        MPI_Win_start(to, 0, win);
        MPI_Win_complete(win);
        while (!done) {
            MPI_Win_test(win, &done);
            tested++;
            if (!done) usleep(50);
        }
    }
    calls("Win_post", 0, TIMES, 0);
    calls("Win_start", 0, TIMES, 0);
    calls("Win_complete", 0, TIMES, 0);
    calls("Win_test", 0, tested, 0);
    MPI_Group_free(&world);
    MPI_Group_free(&to);
    MPI_Group_free(&from);

    long long one = 1, was;
    for (int i = 0; i < TIMES; i++) {
        MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win);
        MPI_Put(mine, 1, MPI_LONG_LONG, right, 300 + rank, 1, MPI_LONG_LONG, win);
        MPI_Win_flush(right, win);
        MPI_Win_flush_local(right, win);
        MPI_Fetch_and_op(&one, &was, MPI_LONG_LONG, right, 400, MPI_SUM, win);
        MPI_Compare_and_swap(&one, &compare, &was, MPI_LONG_LONG, right, 401, win);
        MPI_Get_accumulate(mine, 7, MPI_LONG_LONG, theirs, 7, MPI_LONG_LONG, right, 500, 7, MPI_LONG_LONG, MPI_SUM, win);
        MPI_Win_unlock(right, win);
        MPI_Win_lock_all(0, win);
        MPI_Rput(mine, 3, MPI_LONG_LONG, right, 600 + 8 * rank, 3, MPI_LONG_LONG, win, &requests[0]);
        MPI_Rget(theirs, 4, MPI_LONG_LONG, left, 0, 4, MPI_LONG_LONG, win, &requests[1]);
        MPI_Raccumulate(mine, 5, MPI_LONG_LONG, left, 800, 5, MPI_LONG_LONG, MPI_SUM, win, &requests[2]);
        MPI_Rget_accumulate(mine + 100, 6, MPI_LONG_LONG, theirs + 100, 6, MPI_LONG_LONG, left, 900, 6, MPI_LONG_LONG,
                            MPI_SUM, win, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        // A read alone (MPI_NO_OP): the origin's buffer does not count.
        MPI_Get_accumulate(NULL, 0, MPI_LONG_LONG, theirs, 8, MPI_LONG_LONG, right, 500, 8, MPI_LONG_LONG, MPI_NO_OP, win);
        MPI_Win_flush_all(win);
        MPI_Win_flush_local_all(win);
        MPI_Win_sync(win);
        MPI_Win_unlock_all(win);
    }
    calls("Win_lock", 0, TIMES, 0);
    calls("Win_unlock", 0, TIMES, 0);
    calls("Win_lock_all", 0, TIMES, 0);
    calls("Win_unlock_all", 0, TIMES, 0);
    calls("Win_flush", 0, TIMES, 0);
    calls("Win_flush_local", 0, TIMES, 0);
    calls("Win_flush_all", 0, TIMES, 0);
    calls("Win_flush_local_all", 0, TIMES, 0);
    calls("Win_sync", 0, TIMES, 0);
    calls("Put", 0, TIMES, 8);
    calls("Fetch_and_op", 0, TIMES, 8);
    calls("Compare_and_swap", 0, TIMES, 8);
    calls("Get_accumulate", 0, TIMES, 56);
    calls("Get_accumulate", 0, TIMES, 64);
    calls("Rput", 0, TIMES, 24);
    calls("Rget", 0, TIMES, 32);
    calls("Raccumulate", 0, TIMES, 40);
    calls("Rget_accumulate", 0, TIMES, 48);
    calls("Waitall", 0, TIMES, 24 + 32 + 40 + 48);
    operations(right, 3 * TIMES, 8);
    operations(right, TIMES, 56);
    operations(right, TIMES, 64);
    operations(right, TIMES, 24);
    operations(left, TIMES, 32);
    operations(left, TIMES, 40);
    operations(left, TIMES, 48);
    MPI_Win_free(&win);
    calls("Win_free", 0, 1, 0);

    // A window of a communicator with reversed ranks, which is freed before the window is used.
    MPI_Comm turned;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned);
    MPI_Win_create(mine, sizeof mine, 8, MPI_INFO_NULL, turned, &other);
    MPI_Comm_free(&turned);
    MPI_Win_fence(0, other);
    MPI_Put(theirs, 2, MPI_LONG_LONG, 0, 0, 2, MPI_LONG_LONG, other);
    MPI_Win_fence(0, other);
    MPI_Win_free(&other);
    calls("Comm_split", 0, 1, 0);
    calls("Win_create", 0, 1, 0);
    calls("Comm_free", 0, 1, 0);
    calls("Win_fence", 0, 2, 0);
    calls("Put", 0, 1, 16);
    operations(size - 1, 1, 16);
    calls("Win_free", 0, 1, 0);

    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &other);
    MPI_Win_attach(other, mine, sizeof mine);
    MPI_Win_detach(other, mine);
    MPI_Win_free(&other);
    calls("Win_create_dynamic", 0, 1, 0);
    calls("Win_attach", 0, 1, 0);
    calls("Win_detach", 0, 1, 0);
    calls("Win_free", 0, 1, 0);
    end();
    return 0;
}

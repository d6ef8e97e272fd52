/* Times MPI_Send to MPI_PROC_NULL, which no MPI does more with than to look at its arguments.
   usage: calls BLOCKS CALLS. Prints a line a block: nanoseconds a call; last, those of two reads of the clock that
   profiles use, in a line beginning with "clock". */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e9 + at.tv_nsec;
}

static uint64_t ticks(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t value;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#else
    return (uint64_t)now();
#endif
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc != 3) {
        fprintf(stderr, "usage: calls BLOCKS CALLS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    long blocks = atol(argv[1]), calls = atol(argv[2]);
    char message[8] = {0};
    /* One block more, not printed, fills caches and tables. */
    for (long block = 0; block <= blocks; block++) {
        double from = now();
        for (long call = 0; call < calls; call++)
            MPI_Send(message, 8, MPI_CHAR, MPI_PROC_NULL, 7, MPI_COMM_WORLD);
        double to = now();
        if (block > 0) printf("%.3f\n", (to - from) / calls);
    }
    volatile uint64_t sum = 0;
    double from = now();
    for (long call = 0; call < calls; call++) sum += ticks() - ticks();
    printf("clock %.3f\n", (now() - from) / calls);
    MPI_Finalize();
    return 0;
}

/* Times MPI_Send to MPI_PROC_NULL, which no MPI does more with than to look at its arguments, in turns with PMPI_Send,
   which no profiler sees: short blocks of each, so that what the machine does besides meets both alike.
   usage: calls BLOCKS CALLS. Prints medians in nanoseconds a call: "bare N", "recorded N", and of two reads of the clock
   that profiles use "clock N". */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e9 + at.tv_nsec;
}

/* Whether profiles use the processor's counter, as they do where the kernel trusts it. */
static int counted;

static int counter_is_kept(void) {
    char names[200] = "";
    FILE *source = fopen("/sys/devices/system/clocksource/clocksource0/available_clocksource", "r");
    int is_read = source != NULL && fgets(names, sizeof names, source) != NULL;
    if (source != NULL) fclose(source);
    return is_read && (strstr(names, "tsc") != NULL || strstr(names, "arch_sys_counter") != NULL);
}

static uint64_t ticks(void) {
    if (__builtin_expect(counted, 1)) {
#if defined(__x86_64__)
        return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
        uint64_t value;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
        return value;
#endif
    }
    return (uint64_t)now();
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, long count) {
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc != 3) {
        fprintf(stderr, "usage: calls BLOCKS CALLS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    counted = counter_is_kept();
    long blocks = atol(argv[1]), calls = atol(argv[2]);
    double *bare = calloc(blocks, sizeof *bare), *recorded = calloc(blocks, sizeof *recorded);
    double *clocks = calloc(blocks, sizeof *clocks);
    char message[8] = {0};
    volatile uint64_t sum = 0;
    for (long block = 0; block < blocks; block++) {
        double at[4];
        at[0] = now();
        for (long call = 0; call < calls; call++)
            PMPI_Send(message, 8, MPI_CHAR, MPI_PROC_NULL, 7, MPI_COMM_WORLD);
        at[1] = now();
        for (long call = 0; call < calls; call++)
            MPI_Send(message, 8, MPI_CHAR, MPI_PROC_NULL, 7, MPI_COMM_WORLD);
        at[2] = now();
        for (long call = 0; call < calls; call++) sum += ticks() - ticks();
        at[3] = now();
        bare[block] = (at[1] - at[0]) / calls;
        recorded[block] = (at[2] - at[1]) / calls;
        clocks[block] = (at[3] - at[2]) / calls;
    }
    printf("bare %.3f\n", median(bare, blocks));
    printf("recorded %.3f\n", median(recorded, blocks));
    printf("clock %.3f\n", median(clocks, blocks));
    MPI_Finalize();
    return 0;
}

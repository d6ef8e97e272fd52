/* Two ranks of unequal work that exchange in each step, or a process that takes a part of a core:
 *   slack STATE US0 US1        STATE: four words, shared with the bench: steps, stop, the process of rank 0 and of rank 1
 *   slack hog CORE BUSY PERIOD of every PERIOD us BUSY us, until it is killed
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static double now(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static void work(clockid_t clock, double seconds)
{
    double until = now(clock) + seconds;
    /* A thread's own clock takes a call of the kernel. */
    while (now(clock) < until)
        for (volatile int spin = 0; spin < 2000; spin++)
            ;
}

static int hog(char **argv)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(atoi(argv[2]), &cores);
    if (sched_setaffinity(0, sizeof cores, &cores))
        return 1;
    double busy = atof(argv[3]) * 1e-6, period = atof(argv[4]) * 1e-6;
    for (;;) {
        double end = now(CLOCK_MONOTONIC) + period;
        work(CLOCK_MONOTONIC, busy);
        double left = end - now(CLOCK_MONOTONIC);
        if (left > 0)
            usleep(left * 1e6);
    }
}

int main(int argc, char **argv)
{
    int rank, size, out = 0, in = 0;
    if (argc == 5 && !strcmp(argv[1], "hog"))
        return hog(argv);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int file = argc == 4 && size == 2 ? open(argv[1], O_RDWR) : -1;
    volatile uint64_t *state = mmap(NULL, 4 * sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (state == MAP_FAILED)
        MPI_Abort(MPI_COMM_WORLD, 1);
    double computing = atof(argv[2 + rank]) * 1e-6;
    state[2 + rank] = getpid();
    while (!out && !in) {
        work(CLOCK_THREAD_CPUTIME_ID, computing);
        out = state[1] != 0;
        MPI_Sendrecv(&out, 1, MPI_INT, 1 - rank, 0, &in, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 0)
            state[0]++;
    }
    MPI_Finalize();
    return 0;
}

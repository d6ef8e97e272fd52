#define _GNU_SOURCE
#include <mpi.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double used(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    int rank, steps = argc > 1 ? atoi(argv[1]) : 0, out = 0, in = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double end = MPI_Wtime() + 600;
    for (int step = 1; !out && !in; step++) {
        double until = used() + (rank ? 1e-3 : 1e-2);
        while (used() < until)
            ;
        out = steps ? step == steps : !access("stop", F_OK) || MPI_Wtime() > end;
        MPI_Sendrecv(&out, 1, MPI_INT, 1 - rank, 0, &in, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}

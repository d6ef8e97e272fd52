/* Programs of which it is known what they would gain; the name of the file says which one this is. A word, where there is one, says
 * how its last rank ends in the middle. */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char buffer[1 << 20];
static int rank, ranks;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* For tables all time outside MPI is work; asleep for most of it, it leaves cores to other jobs. */
static void work(double seconds)
{
    double until = now() + seconds / 8;
    volatile double x = 1;
    while (now() < until)
        for (int i = 0; i < 1000; i++) x = x * 1.0000001;
    usleep(1e6 * seconds * 7 / 8);
}

static void exchange(int with, int bytes, int times)
{
    for (int i = 0; i < times && with < ranks; i++)
        if (rank < with) {
            MPI_Send(buffer, bytes, MPI_CHAR, with, 0, MPI_COMM_WORLD);
            MPI_Recv(buffer, bytes, MPI_CHAR, with, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(buffer, bytes, MPI_CHAR, with, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, bytes, MPI_CHAR, with, 0, MPI_COMM_WORLD);
        }
}

static void step(const char *name)
{
    int is_last = rank == ranks - 1;
    double sum = 1, all;
    if (strcmp(name, "messenger") == 0 || strcmp(name, "neighbour") == 0)
        exchange(rank ^ 1, 256, 200);
    else if (strcmp(name, "courier") == 0 || strcmp(name, "misplaced") == 0)
        exchange(rank ^ 1, sizeof buffer, 5);
    else if (strcmp(name, "calm") == 0) {
        work(0.02);
        MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    } else if (strcmp(name, "late") == 0) {
        if (is_last) work(0.02);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(name, "tardy") == 0) {
        if (is_last) work(0.02);
        if (is_last) MPI_Send(buffer, 8, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        if (rank == 0) MPI_Recv(buffer, 8, MPI_CHAR, ranks - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else
        usleep(20000);
}

int main(int count, char **words)
{
    const char *name = strrchr(words[0], '/'), *end = count > 1 ? words[1] : "";
    name = name ? name + 1 : words[0];
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double from = now(), seconds = strcmp(end, "brief") == 0 ? 0.2 : 1.1;
    for (int go = 1; go;) {
        step(name);
        go = now() < from + seconds;
        if (strcmp(end, "killed") == 0 && rank == ranks - 1 && now() > from + seconds / 2) raise(SIGKILL);
        if (strcmp(name, "asleep") != 0) MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (strcmp(end, "leaves") == 0) _exit(0);
    if (strcmp(end, "waits") == 0) pause();
    return MPI_Finalize();
}

/* Programs of which it is known what they would gain; the name of the file says which one this is. A word, where there is one, says
 * how it ends. */
#include <mpi.h>
#include <signal.h>
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

/* Asleep for most of it, which leaves the cores to other jobs. */
static void work(void)
{
    double until = now() + 0.0025;
    volatile double x = 1;
    while (now() < until)
        for (int i = 0; i < 1000; i++) x = x * 1.0000001;
    usleep(17500);
}

static void send(int to, int bytes, int times)
{
    for (int i = 0; i < times; i++) MPI_Send(buffer, bytes, MPI_CHAR, to, 0, MPI_COMM_WORLD);
}

static void receive(int from, int bytes, int times)
{
    for (int i = 0; i < times; i++) MPI_Recv(buffer, bytes, MPI_CHAR, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void step(const char *name)
{
    int is_last = rank == ranks - 1, with = rank ^ 1;
    double one = 1, sum;
    if (strcmp(name, "messenger") == 0 || strcmp(name, "neighbour") == 0) {
        send(with, 1024, 200);
        receive(with, 1024, 200);
    } else if (strcmp(name, "courier") == 0 || strcmp(name, "misplaced") == 0) {
        if (rank < with) send(with, sizeof buffer, 5);
        receive(with, sizeof buffer, 5);
        if (rank > with) send(with, sizeof buffer, 5);
    } else if (strcmp(name, "late") == 0) {
        if (is_last) work();
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(name, "tardy") == 0) {
        for (int i = 0; i < 5 && is_last; i++) work();
        if (is_last) send(0, 8, 1);
        if (rank == 0) receive(ranks - 1, 8, 1);
    } else {
        work();
        if (strcmp(name, "calm") == 0) MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
}

int main(int count, char **words)
{
    const char *name = strrchr(words[0], '/'), *end = count > 1 ? words[1] : "";
    name = name ? name + 1 : words[0];
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double until = now() + (strcmp(end, "brief") == 0 ? 0 : 1.1);
    for (int go = 1; go;) {
        step(name);
        go = now() < until;
        if (strcmp(name, "asleep") != 0) MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (strcmp(end, "killed") == 0 && rank == ranks - 1) raise(SIGKILL);
    if (strcmp(end, "leaves") == 0) _exit(0);
    if (strcmp(end, "stays") == 0) pause();
    return MPI_Finalize();
}

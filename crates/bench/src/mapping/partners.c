/* Two ranks, each on the core that it is told.
   usage: partners CORE,CORE MILLISECONDS COMPUTE_NS EXCHANGED SIZE[,SIZE..] IMBALANCE[,IMBALANCE..]
   Rank 0 prints
     stream reads|works SIZE MB/s        rank 0 sends one message after the other, rank 1 answers the last
     ping-pong reads|works SIZE ns       half a round trip
     exchange IMBALANCE RANK COMPUTE SEND WAIT
   the last in ns a step: each rank computes, rank 0 by IMBALANCE longer, posts a receive, calls MPI_Send and MPI_Wait with
   EXCHANGED bytes. A receiver that reads looks at every byte, one that works computes on its data. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DATA = 1, ANSWER, PASSES = 4, FEWEST = 4 };

static int rank;
static char *out, *in;
static volatile uint64_t sink;

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e9 + at.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "partners: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static void receive(int size, int works)
{
    MPI_Recv(in, size, MPI_CHAR, 1 - rank, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    uint64_t sum = 1;
    for (int pass = 0; pass < (works ? PASSES : 1); pass++)
        for (int at = 0; at < size; at++)
            sum = works ? sum * 31 + (unsigned char)in[at] : sum + (unsigned char)in[at];
    sink += sum;
}

static void send(int size)
{
    MPI_Send(out, size, MPI_CHAR, 1 - rank, DATA, MPI_COMM_WORLD);
}

static double stream(int size, int works, long messages)
{
    char answer = 0;
    double begun = now();
    for (long message = 0; message < messages; message++) {
        if (rank == 0)
            send(size);
        else
            receive(size, works);
    }
    if (rank == 0)
        MPI_Recv(&answer, 1, MPI_CHAR, 1, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(&answer, 1, MPI_CHAR, 0, ANSWER, MPI_COMM_WORLD);
    return now() - begun;
}

static double ping_pong(int size, int works, long messages)
{
    double begun = now();
    for (long message = 0; message < messages; message++) {
        if (rank == 0)
            send(size);
        receive(size, works);
        if (rank == 1)
            send(size);
    }
    return now() - begun;
}

/* A fixed amount of work, which takes longer where others use part of the core. */
static void compute(double rounds)
{
    uint64_t value = sink + 1;
    for (uint64_t left = (uint64_t)rounds; left > 0; left--)
        value = value * 6364136223846793005u + left;
    sink += value;
}

/* Rounds of work per nanosecond without rivals for the core: the most of several. */
static double speed(void)
{
    double most = 0;
    for (int trial = 0; trial < 20; trial++) {
        double begun = now();
        compute(200000);
        double found = 200000 / (now() - begun);
        most = found > most ? found : most;
    }
    return most;
}

static void exchange(double imbalance, double rounds, int size, double budget, double times[3])
{
    MPI_Request request;
    long steps = FEWEST;
    double mine = rounds * (rank == 0 ? 1 + imbalance : 1);
    for (int timed = 0; timed < 2; timed++) {
        memset(times, 0, 3 * sizeof *times);
        MPI_Barrier(MPI_COMM_WORLD);
        for (long step = 0; step < steps; step++) {
            double begun = now();
            compute(mine);
            double computed = now();
            MPI_Irecv(in, size, MPI_CHAR, 1 - rank, DATA, MPI_COMM_WORLD, &request);
            send(size);
            double sent = now();
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            times[0] += computed - begun;
            times[1] += sent - computed;
            times[2] += now() - sent;
        }
        for (int part = 0; part < 3; part++)
            times[part] /= steps;
        steps = (long)(budget / (times[0] + times[1] + times[2])) + FEWEST;
        MPI_Bcast(&steps, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    int ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 7 || ranks != 2)
        die("two ranks, and CORE,CORE MILLISECONDS COMPUTE_NS EXCHANGED SIZES IMBALANCES");
    int cores[2];
    cpu_set_t set;
    if (sscanf(argv[1], "%d,%d", &cores[0], &cores[1]) != 2)
        die("no two cores");
    CPU_ZERO(&set);
    CPU_SET(cores[rank], &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        die("it may not run on its core");
    double budget = atof(argv[2]) * 1e6, rounds = atof(argv[3]) * speed();
    int exchanged = atoi(argv[4]), most = exchanged;
    char *rest, *sizes = strdup(argv[5]);
    for (char *word = strtok_r(sizes, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
        most = atoi(word) > most ? atoi(word) : most;
    out = calloc(1, most), in = calloc(1, most);
    if (!out || !in)
        die("no memory");
    double (*patterns[2])(int, int, long) = {stream, ping_pong};
    const char *names[2] = {"stream", "ping-pong"};
    for (int pattern = 0; pattern < 2; pattern++)
        for (int works = 0; works < 2; works++) {
            strcpy(sizes, argv[5]);
            for (char *word = strtok_r(sizes, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
                int size = atoi(word);
                long messages = FEWEST;
                double took = patterns[pattern](size, works, messages);
                messages = (long)(budget * messages / took) + FEWEST;
                MPI_Bcast(&messages, 1, MPI_LONG, 0, MPI_COMM_WORLD);
                took = patterns[pattern](size, works, messages);
                double value = pattern == 0 ? size * 1e3 * messages / took : took / messages / 2;
                if (rank == 0)
                    printf("%s %s %d %.9g\n", names[pattern], works ? "works" : "reads", size, value);
            }
        }
    for (char *word = strtok_r(argv[6], ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        double times[3], both[6];
        exchange(atof(word), rounds, exchanged, budget, times);
        MPI_Gather(times, 3, MPI_DOUBLE, both, 3, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        for (int of = 0; rank == 0 && of < 2; of++)
            printf("exchange %s %d %.1f %.1f %.1f\n", word, of, both[3 * of], both[3 * of + 1], both[3 * of + 2]);
    }
    MPI_Finalize();
    return 0;
}

// Rank 0 computes and then sleeps, and its thread and its child compute too. Each rank prints its CPU times as
// `cpu RANK THREAD_LEAST THREAD_MOST ALL_LEAST ALL_MOST`, in ns, read inside the run and around it.
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static long long all(void)
{
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    long long seconds = children.ru_utime.tv_sec + children.ru_stime.tv_sec;
    long long micros = children.ru_utime.tv_usec + children.ru_stime.tv_usec;
    return now(CLOCK_PROCESS_CPUTIME_ID) + seconds * 1000000000LL + micros * 1000LL;
}

static void *compute(void *unused)
{
    long long end = now(CLOCK_THREAD_CPUTIME_ID) + 100000000;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end)
        ;
    return unused;
}

int main(int argc, char **argv)
{
    long long thread_before = now(CLOCK_THREAD_CPUTIME_ID), all_before = all();
    MPI_Init(&argc, &argv);
    long long thread_from = now(CLOCK_THREAD_CPUTIME_ID), all_from = all();
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        pthread_t other;
        if (pthread_create(&other, NULL, compute, NULL) != 0)
            return 1;
        pthread_join(other, NULL);
        pid_t child = fork();
        if (child == 0) {
            compute(NULL);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        compute(NULL);
        usleep(700000);
    }
    long long thread_to = now(CLOCK_THREAD_CPUTIME_ID), all_to = all();
    MPI_Finalize();
    printf("cpu %d %lld %lld %lld %lld\n", rank, thread_to - thread_from, now(CLOCK_THREAD_CPUTIME_ID) - thread_before,
           all_to - all_from, all() - all_before);
    return 0;
}

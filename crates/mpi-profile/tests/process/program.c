/* Behaviour of a process that a recording library must survive; the first argument names it. */
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 300

static double data[4];
static jmp_buf back;
static pthread_barrier_t all;

static void send(int times)
{
    while (times-- > 0)
        if (MPI_Send(data, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD) != MPI_SUCCESS)
            abort();
}

static int leap(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    longjmp(back, 1);
}

static int send_inside(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    send(3);
    *flag = 0;
    return MPI_SUCCESS;
}

static void duplicate(MPI_Comm_copy_attr_function *copy)
{
    int key;
    MPI_Comm own, other;
    MPI_Comm_dup(MPI_COMM_SELF, &own);
    MPI_Comm_create_keyval(copy, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(own, key, data);
    if (setjmp(back) == 0)
        MPI_Comm_dup(own, &other);
}

static void *together(void *unused)
{
    pthread_barrier_wait(&all);
    send(10);
    /* No thread ends before all have called. */
    pthread_barrier_wait(&all);
    return NULL;
}

static void *alone(void *unused)
{
    send(1);
    return NULL;
}

static void threads(void)
{
    static pthread_t thread[THREADS];
    pthread_barrier_init(&all, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, together, NULL))
            abort();
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&thread[0], NULL, alone, NULL);
        pthread_join(thread[0], NULL);
    }
}

/* Calls of each size and kind in turn, as fast as possible, for `seconds`. */
static void *hurry(void *seconds)
{
    time_t end = time(NULL) + (time_t)(size_t)seconds;
    char in[300], out[300] = {0};
    int flag;
    do {
        for (int i = 0; i < 300; i++) {
            MPI_Request request;
            MPI_Send(out, i, MPI_CHAR, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
            MPI_Iprobe(MPI_ANY_SOURCE, 7, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
            MPI_Irecv(in, i, MPI_CHAR, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        pthread_t thread;
        if (seconds && pthread_create(&thread, NULL, alone, NULL) == 0)
            pthread_join(thread, NULL);
    } while (time(NULL) < end);
    return NULL;
}

static void busy(void)
{
    pthread_t thread[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&thread[i], NULL, hurry, (void *)3);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
}

extern int MPI_Psend_init() __attribute__((weak));

int run(int argc, char **argv)
{
    const char *what = argv[1];
    int provided;
    if (!strcmp(what, "threads")) {
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
        if (provided != MPI_THREAD_MULTIPLE)
            abort();
        threads();
    } else if (!strcmp(what, "busy")) {
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
        busy();
    } else {
        MPI_Init(&argc, &argv);
    }
    if (!strcmp(what, "fork")) {
        send(3);
        pid_t child = fork();
        if (child == 0) {
            send(5);
            exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status != 0)
            abort();
    } else if (!strcmp(what, "leap")) {
        duplicate(leap);
        send(4);
    } else if (!strcmp(what, "nested")) {
        duplicate(send_inside);
        send(1);
    } else if (!strcmp(what, "phases")) {
        MPI_Pcontrol(0);
        send(5);
        MPI_Pcontrol(1);
        send(2);
        MPI_Pcontrol(7, data);
    } else if (!strcmp(what, "absent")) {
        MPI_Request request;
        if (!MPI_Psend_init)
            abort();
        printf("%d\n", MPI_Psend_init(data, 1, (MPI_Count)1, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
    } else if (!strcmp(what, "types")) {
        /* Successive types may have the same handle. */
        for (int i = 1; i <= 100; i++) {
            MPI_Datatype type;
            MPI_Request request;
            char in[100], out[100] = {0};
            MPI_Type_contiguous(i, MPI_CHAR, &type);
            MPI_Type_commit(&type);
            MPI_Irecv(in, 1, type, 0, 0, MPI_COMM_SELF, &request);
            MPI_Send(out, 1, type, 0, 0, MPI_COMM_SELF);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Type_free(&type);
        }
    } else if (!strcmp(what, "killed")) {
        send(1);
        raise(SIGKILL);
    } else if (strcmp(what, "threads")) {
        send(1);
    }
    MPI_Finalize();
    return 0;
}

#ifndef LIBRARY
int main(int argc, char **argv)
{
    return run(argc, argv);
}
#endif

/* Program that calls the MPI of standin.c; the first argument names the calls. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *Handle;
extern char ompi_mpi_comm_world[];
#define WORLD ((Handle)ompi_mpi_comm_world)
/* A datatype's handle is its size, in the stand-in. */
#define INT ((Handle)4)

int MPI_Init(int *, char ***);
int MPI_Init_thread(int *, char ***, int, int *);
int MPI_Finalize(void);
int MPI_Session_init(Handle, Handle, Handle *);
int MPI_Session_finalize(Handle *);
int MPI_Group_from_session_pset(Handle, const char *, Handle *);
int MPI_Group_free(Handle *);
int MPI_Comm_create_from_group(Handle, const char *, Handle, Handle, Handle *);
int MPI_Comm_free(Handle *);
int MPI_Comm_dup(Handle, Handle *);
int MPI_Send(const void *, int, Handle, int, int, Handle);
int MPI_Neighbor_alltoallv_c(const void *, const long *, const long *, Handle, void *, const long *, const long *, Handle, Handle)
    __attribute__((weak));

enum { THREADS = 4, ROUNDS = 100, SENDS = 5 };

static int word;

static void send(Handle comm, int times)
{
    while (times-- > 0)
        if (MPI_Send(&word, 1, INT, 0, 0, comm))
            abort();
}

/* Sessions as in a library that has its own. */
static void *session(void *unused)
{
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        Handle session, group, comm;
        MPI_Session_init(NULL, NULL, &session);
        MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
        MPI_Comm_create_from_group(group, "t", NULL, NULL, &comm);
        MPI_Group_free(&group);
        send(comm, SENDS);
        MPI_Comm_free(&comm);
        MPI_Session_finalize(&session);
    }
    return NULL;
}

static void sessions(int with_world)
{
    pthread_t threads[THREADS];
    for (int k = 0; k < THREADS; k++)
        pthread_create(&threads[k], NULL, session, NULL);
    if (with_world) {
        int provided;
        MPI_Init_thread(NULL, NULL, 3, &provided);
        for (int round = 0; round < ROUNDS; round++) {
            Handle comm;
            MPI_Comm_dup(WORLD, &comm);
            send(comm, SENDS);
            MPI_Comm_free(&comm);
        }
        MPI_Finalize();
    }
    for (int k = 0; k < THREADS; k++)
        pthread_join(threads[k], NULL);
}

static pthread_barrier_t both;

static void *other(void *unused)
{
    (void)unused;
    send(WORLD, 3);
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    send(WORLD, 3);
    return NULL;
}

/* The stand-in's communicators have more neighbours than an int can count. */
static void topology(void)
{
    pthread_t thread;
    Handle comm;
    long none[1] = {0};
    MPI_Init(NULL, NULL);
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&thread, NULL, other, NULL);
    send(WORLD, 2);
    pthread_barrier_wait(&both);
    MPI_Comm_dup(WORLD, &comm);
    send(comm, 7);
    pthread_barrier_wait(&both);
    pthread_join(thread, NULL);
    if (MPI_Neighbor_alltoallv_c)
        printf("%d\n", MPI_Neighbor_alltoallv_c(NULL, none, none, INT, NULL, none, none, INT, comm));
    MPI_Comm_free(&comm);
    send(WORLD, 2);
    MPI_Finalize();
    puts("ended well");
}

/* Between the two sends the test changes the tables. */
static void many(void)
{
    MPI_Init(NULL, NULL);
    send(WORLD, 3);
    fclose(fopen("waits", "w"));
    while (access("goes-on", F_OK))
        usleep(1000);
    send(WORLD, SENDS);
    MPI_Finalize();
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "sessions"))
        sessions(0);
    else if (!strcmp(what, "beside"))
        sessions(1);
    else if (!strcmp(what, "many"))
        many();
    else
        topology();
    return 0;
}

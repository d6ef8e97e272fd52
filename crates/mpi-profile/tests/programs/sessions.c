// Sessions of MPI: two without MPI_Init ("alone"), and one during which another thread calls MPI_Init and MPI_Finalize
// ("beside").
#include "expect.h"

#if MPI_VERSION < 4
int main(void) {
    begin();
    printf("LEFT OUT: this MPI has no sessions\n");
    end();
    return 0;
}
#else
#include <pthread.h>

enum { ROUNDS = 300 };

static MPI_Session open_session(void) {
    MPI_Session session;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE");
    MPI_Session_init(info, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Info_free(&info);
    calls("Session_init", 0, 1, 0);
    return session;
}

static void close_session(MPI_Session session) {
    MPI_Session_finalize(&session);
    calls("Session_finalize", 0, 1, 0);
}

static MPI_Comm communicator(MPI_Session session, const char *tag) {
    MPI_Group group;
    MPI_Comm comm;
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Group_rank(group, &rank);
    MPI_Group_size(group, &size);
    right = (rank + 1) % size;
    left = (rank + size - 1) % size;
    MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    calls("Comm_create_from_group", 0, 1, 0);
    MPI_Group_free(&group);
    return comm;
}

static void talk(MPI_Comm comm) {
    for (int i = 0; i < ROUNDS; i++) {
        int out = rank, in, sum;
        MPI_Sendrecv(&out, 1, MPI_INT, right, 1, &in, 1, MPI_INT, left, 1, comm, MPI_STATUS_IGNORE);
        check(in == left, "what the neighbour sent");
        MPI_Allreduce(&out, &sum, 1, MPI_INT, MPI_SUM, comm);
    }
}

static void talked(void) {
    calls("Sendrecv", 0, ROUNDS, 4);
    messages(right, ROUNDS, 4);
    calls("Allreduce", size, ROUNDS, 4);
}

static void let_go(MPI_Comm comm) {
    MPI_Comm_free(&comm);
    calls("Comm_free", 0, 1, 0);
}

static void *talk_on(void *comm) {
    talk(*(MPI_Comm *)comm);
    return NULL;
}

int main(int argc, char **argv) {
    expect_open();
    MPI_Session session = open_session();
    MPI_Comm comm = communicator(session, "first");
    if (argc > 1 && !strcmp(argv[1], "alone")) {
        MPI_Session other = open_session();
        MPI_Comm second = communicator(other, "second");
        talk(comm), talked();
        talk(second), talked();
        let_go(comm);
        close_session(session);
        talk(second), talked();
        let_go(second);
        close_session(other);
    } else {
        pthread_t thread;
        int provided;
        pthread_create(&thread, NULL, talk_on, &comm);
        MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
        calls("Init_thread", 0, 1, 0);
        MPI_Barrier(MPI_COMM_WORLD);
        calls("Barrier", size, 1, 0);
        MPI_Finalize();
        calls("Finalize", 0, 1, 0);
        pthread_join(thread, NULL);
        talked();
        talk(comm), talked();
        let_go(comm);
        close_session(session);
    }
    fclose(expected_file);
    return 0;
}
#endif

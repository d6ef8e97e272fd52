// MPI from many threads: at once, one after another, and more threads than have tables.
#include "expect.h"

#include <pthread.h>

enum { AT_ONCE = 8, EACH = 50, ONE_BY_ONE = 10000 };

static void *talk(void *argument) {
    int tag = (int)(size_t)argument, in;
    for (int i = 0; i < EACH; i++) {
        MPI_Sendrecv(&tag, 1, MPI_INT, right, tag, &in, 1, MPI_INT, left, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return NULL;
}

static void *once(void *argument) {
    (void)argument;
    int none = 0;
    MPI_Send(&none, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    return NULL;
}

int main(void) {
    pthread_t threads[AT_ONCE];
    begin_threaded(MPI_THREAD_MULTIPLE);
    for (size_t k = 0; k < AT_ONCE; k++) pthread_create(&threads[k], NULL, talk, (void *)k);
    for (size_t k = 0; k < AT_ONCE; k++) pthread_join(threads[k], NULL);
    calls("Sendrecv", 0, AT_ONCE * EACH, 4);
    messages(right, AT_ONCE * EACH, 4);
    for (int k = 0; k < ONE_BY_ONE; k++) {
        check(pthread_create(&threads[0], NULL, once, NULL) == 0, "pthread_create");
        pthread_join(threads[0], NULL);
    }
    calls("Send", 0, ONE_BY_ONE, 0);
    end();
    return 0;
}

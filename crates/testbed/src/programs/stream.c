/* Windows of MPI_Isend and streams of MPI_Send by turns, from rank 0 to rank 1: stream STEPS BYTES */
#include <mpi.h>
#include <stdlib.h>
enum { WINDOW = 64 };
int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, steps = atoi(words[1]), bytes = atoi(words[2]), answer = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *all = calloc(WINDOW, bytes + 1);
    MPI_Request of[WINDOW];
    for (int step = 0; step < steps; step++) {
        int stream = step % 2;
        for (int k = 0; k < WINDOW; k++) {
            char *at = all + (long)k * bytes;
            if (stream && rank == 0) MPI_Send(at, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
            else if (stream) MPI_Recv(at, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            else if (rank == 0) MPI_Isend(at, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD, of + k);
            else MPI_Irecv(at, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, of + k);
        }
        if (stream) continue;
        MPI_Waitall(WINDOW, of, MPI_STATUSES_IGNORE);
        if (rank == 0) MPI_Recv(&answer, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else MPI_Send(&answer, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
    }
    MPI_Finalize();
}

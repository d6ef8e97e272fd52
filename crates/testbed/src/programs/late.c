/* Two ranks that take turns in being late: late STEPS BYTES WORK */
#include <mpi.h>
#include <stdlib.h>
int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, steps = atoi(words[1]), bytes = atoi(words[2]), work = atoi(words[3]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *buffer = calloc(bytes + 1, 1);
    volatile double x = 1;
    for (int step = 0; step < steps; step++) {
        for (int k = 0; k < work * (step % 2 == rank ? 3 : 1); k++) x = x * 1.0000001 + 1e-9;
        if (rank == 0) MPI_Send(buffer, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
        else MPI_Recv(buffer, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
}

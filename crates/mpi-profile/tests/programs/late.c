// Rank 0 waits for half a second.
#include "expect.h"

int main(void) {
    int number = 0;
    begin();
    MPI_Barrier(MPI_COMM_WORLD);
    calls("Barrier", size, 1, 0);
    if (rank == 0) {
        double start = MPI_Wtime();
        MPI_Recv(&number, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("measured %f\n", MPI_Wtime() - start);
        calls("Recv", 0, 1, 4);
    } else {
        usleep(500000);
        MPI_Send(&number, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
        calls("Send", 0, 1, 4);
        messages(0, 1, 4);
    }
    end();
    return 0;
}

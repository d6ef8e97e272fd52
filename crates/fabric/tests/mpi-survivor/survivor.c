/* Two ranks talk until one is killed from outside; with MPI_ERRORS_RETURN the other gets an error and says so. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **arguments) {
    int rank, code = MPI_SUCCESS;
    static char bytes[1 << 20];
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (long turn = 0; code == MPI_SUCCESS; turn++) {
        int length = turn % 2 ? (int)sizeof bytes : 100;
        if (rank == 0) {
            code = MPI_Send(bytes, length, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            if (code == MPI_SUCCESS) code = MPI_Recv(bytes, length, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            code = MPI_Recv(bytes, length, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (code == MPI_SUCCESS) code = MPI_Send(bytes, length, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
        if (turn == 100) {
            printf("rank %d is process %d\n", rank, (int)getpid());
            fflush(stdout);
        }
    }
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    printf("rank %d got: %s\n", rank, text);
    fflush(stdout);
    _exit(7);
}

/* Two ranks talk until the file named by the first argument exists. Where one is killed before, the other gets an error
   (MPI_ERRORS_RETURN) and says so. */
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
    for (long turn = 0; code == MPI_SUCCESS && !bytes[0]; turn++) {
        int length = turn % 2 ? (int)sizeof bytes : 100;
        if (rank == 0) {
            bytes[0] = count > 1 && turn % 100 == 0 && access(arguments[1], F_OK) == 0; // the other rank ends with it
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
    if (code == MPI_SUCCESS) return MPI_Finalize();
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    printf("rank %d got: %s\n", rank, text);
    fflush(stdout);
    _exit(7);
}

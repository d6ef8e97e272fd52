/* Two coupled parts, of one rank and of two, that communicate over an intercommunicator. */
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, word = 7;
    MPI_Comm own, between;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank > 0, rank, &own);
    MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, rank > 0 ? 0 : 1, 3, &between);
    if (rank == 0) {
        MPI_Send(&word, 1, MPI_INT, 0, 5, between);
        MPI_Send(&word, 1, MPI_INT, 1, 5, between);
    } else {
        MPI_Recv(&word, 1, MPI_INT, 0, 5, between, MPI_STATUS_IGNORE);
    }
    MPI_Bcast(&word, 1, MPI_INT, rank > 0 ? 0 : MPI_ROOT, between);
    MPI_Comm_free(&between);
    MPI_Comm_free(&own);
    MPI_Finalize();
    return 0;
}

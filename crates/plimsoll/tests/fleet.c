/* Programs of which it is known what they would gain; the name of the file says which one this is. */
#include <mpi.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
static char buffer[8192];
int main(int count, char **words)
{
    const char *name = strrchr(words[0], '/');
    name = name ? name + 1 : words[0];
    MPI_Init(&count, &words);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    double until = MPI_Wtime() + 2;
    volatile double x = 1;
    if (strcmp(name, "chatty") == 0)
        for (int go = 1; go;) {
            for (int i = 0; i < 100 && rank < 2 && ranks > 1; i++) {
                if (rank == 0) MPI_Send(buffer, 1024, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
                else MPI_Recv(buffer, 1024, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
            go = MPI_Wtime() < until;
            MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
    while (MPI_Wtime() < until)
        for (int i = 0; i < 1000; i++) x = x * 1.0000001;
    if (strcmp(name, "crashing") == 0 && rank == ranks - 1) raise(SIGKILL);
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Finalize();
}

/* A ring of halos, every other rank a tenth slower: halo STEPS BYTES WORK */
#include <mpi.h>
#include <stdlib.h>
int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, ranks, steps = atoi(words[1]), bytes = atoi(words[2]), work = atoi(words[3]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char *all = calloc(4 * bytes + 4, 1);
    int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
    volatile double x = 1;
    double one = 1, sum;
    for (int step = 0; step < steps; step++) {
        MPI_Request of[4];
        for (int k = 0; k < work * (rank % 2 ? 11 : 10) / 10; k++) x = x * 1.0000001 + 1e-9;
        MPI_Irecv(all, bytes, MPI_CHAR, left, 1, MPI_COMM_WORLD, of);
        MPI_Irecv(all + bytes, bytes, MPI_CHAR, right, 2, MPI_COMM_WORLD, of + 1);
        MPI_Isend(all + 2 * bytes, bytes, MPI_CHAR, right, 1, MPI_COMM_WORLD, of + 2);
        MPI_Isend(all + 3 * bytes, bytes, MPI_CHAR, left, 2, MPI_COMM_WORLD, of + 3);
        MPI_Waitall(4, of, MPI_STATUSES_IGNORE);
        if (step % 10 == 0) MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
}

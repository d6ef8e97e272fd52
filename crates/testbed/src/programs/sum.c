/* Computing and two sums over all ranks a step, like a solver by conjugate gradients: sum STEPS WORK */
#include <mpi.h>
#include <stdlib.h>
int main(int count, char **words) {
    MPI_Init(&count, &words);
    int steps = atoi(words[1]), work = atoi(words[2]);
    volatile double x = 1;
    double one = 1, sum;
    for (int step = 0; step < steps; step++)
        for (int of = 0; of < 2; of++) {
            for (int k = 0; k < work; k++) x = x * 1.0000001 + 1e-9;
            MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        }
    MPI_Finalize();
}

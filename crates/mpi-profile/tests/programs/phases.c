// MPI_Pcontrol marks phases; level 0 pauses recording and level 1 resumes it.
#include "expect.h"

int main(void) {
    int value = 1, sum;
    begin();
    for (int level = 1; level <= 5; level++) {
        MPI_Pcontrol(level);
        for (int i = 0; i < level; i++) MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    // Paused calls are in no count and no matrix.
    MPI_Pcontrol(0);
    for (int i = 0; i < 100; i++) MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Sendrecv(&value, 1, MPI_INT, right, 0, &sum, 1, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Pcontrol(1);
    MPI_Sendrecv(&value, 1, MPI_INT, right, 0, &sum, 1, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    calls("Sendrecv", 0, 1, 4);
    messages(right, 1, 4);
    calls("Allreduce", size, 15, 4);
    end();
    return 0;
}

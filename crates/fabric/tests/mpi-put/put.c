/* Each rank puts 100 times 64 KiB into a window of the next, and checks what it got. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { LENGTH = 1 << 16, TIMES = 100 };

int main(int count, char **arguments) {
    static char target[LENGTH], source[LENGTH];
    int rank, ranks, bad = 0;
    MPI_Win window;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Win_create(target, LENGTH, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < TIMES; i++) {
        memset(source, rank + i, LENGTH);
        MPI_Put(source, LENGTH, MPI_BYTE, (rank + 1) % ranks, 0, LENGTH, MPI_BYTE, window);
        MPI_Win_fence(0, window);
        bad += target[0] != (char)((rank + ranks - 1) % ranks + i) || target[LENGTH - 1] != target[0];
        MPI_Win_fence(0, window);
    }
    MPI_Win_free(&window);
    if (rank == 0 && !bad) printf("put %d B\n", LENGTH * TIMES);
    MPI_Finalize();
    return bad != 0;
}

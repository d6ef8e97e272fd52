/* A stencil of 27 points on a ring of cubes: a message for each direction, and a least value over all ranks a step, as in
   LULESH: halo3 STEPS SIDE */
#include <mpi.h>
#include <stdlib.h>
enum { DIRECTIONS = 27 };
int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, ranks, steps = atoi(words[1]), side = atoi(words[2]), wide = side + 2;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    size_t cells = (size_t)wide * wide * wide;
    double *now = calloc(cells, sizeof(double)), *next = calloc(cells, sizeof(double)), *swap;
    double *halo[2][DIRECTIONS], least, mine = 1;
    int size[DIRECTIONS];
    for (int way = 0; way < DIRECTIONS; way++) {
        /* A face, an edge or a corner. */
        size[way] = (way % 3 == 1 ? side : 1) * (way / 3 % 3 == 1 ? side : 1) * (way / 9 == 1 ? side : 1);
        for (int of = 0; of < 2; of++) halo[of][way] = calloc(size[way], sizeof(double));
    }
    for (int step = 0; step < steps; step++) {
        MPI_Request of[2 * DIRECTIONS];
        int open = 0;
        for (int way = 0; way < DIRECTIONS; way++) {
            int to = (rank + way % 3 - 1 + ranks) % ranks, from = (rank - way % 3 + 1 + ranks) % ranks;
            if (to == rank) continue;
            MPI_Irecv(halo[0][way], size[way], MPI_DOUBLE, from, way, MPI_COMM_WORLD, of + open++);
            MPI_Isend(halo[1][way], size[way], MPI_DOUBLE, to, way, MPI_COMM_WORLD, of + open++);
        }
        MPI_Waitall(open, of, MPI_STATUSES_IGNORE);
        for (int z = 1; z <= side; z++)
            for (int y = 1; y <= side; y++)
                for (int x = 1; x <= side; x++) {
                    double sum = 0;
                    for (int way = 0; way < DIRECTIONS; way++)
                        sum += now[((z + way / 9 - 1) * wide + y + way / 3 % 3 - 1) * wide + x + way % 3 - 1];
                    next[(z * wide + y) * wide + x] = sum / DIRECTIONS;
                }
        swap = now, now = next, next = swap;
        MPI_Allreduce(&mine, &least, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    }
    MPI_Finalize();
}

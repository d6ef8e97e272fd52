/* All kinds of calls that a replay follows: blocking and nonblocking, eager and rendezvous, from any source, persistent,
   unsuccessful tests, collective operations with and without a root, a nonblocking one: kinds [ROUNDS] */
#include <mpi.h>
#include <stdlib.h>
enum { BYTES = 1 << 17 };
static char out[BYTES], in[2][BYTES];
int main(int argc, char **argv)
{
    int rank, ranks, done, rounds = argc > 1 ? atoi(argv[1]) : 200;
    MPI_Init(&argc, &argv);
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &ranks);
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    MPI_Request request[2], again[2];
    MPI_Send_init(out, 8, MPI_CHAR, right, 3, world, &again[0]);
    MPI_Recv_init(in[0], 8, MPI_CHAR, left, 3, world, &again[1]);
    for (int i = 0; i < rounds; i++) {
        int bytes = i % 2 ? BYTES : 64;
        MPI_Irecv(in[0], bytes, MPI_CHAR, left, 1, world, &request[0]);
        MPI_Isend(out, bytes, MPI_CHAR, right, 1, world, &request[1]);
        for (volatile int k = 0; k < 20000 * (rank + 1); k++) { }
        MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
        MPI_Startall(2, again);
        MPI_Waitall(2, again, MPI_STATUSES_IGNORE);
        MPI_Sendrecv(out, 16, MPI_CHAR, left, 4, in[1], 16, MPI_CHAR, MPI_ANY_SOURCE, 4, world, MPI_STATUS_IGNORE);
        if (rank == 0)
            MPI_Send(out, 32, MPI_CHAR, 1, 5, world);
        if (rank == 1) {
            MPI_Irecv(in[1], 32, MPI_CHAR, 0, 5, world, request);
            do
                MPI_Test(request, &done, MPI_STATUS_IGNORE);
            while (!done);
        }
        MPI_Bcast(out, 1024, MPI_CHAR, i % ranks, world);
        MPI_Ibarrier(world, request);
        MPI_Wait(request, MPI_STATUS_IGNORE);
        MPI_Reduce(out, in[0], 64, MPI_CHAR, MPI_MAX, 0, world);
        MPI_Allreduce(out, in[0], 8, MPI_CHAR, MPI_MAX, world);
    }
    MPI_Request_free(&again[0]);
    MPI_Request_free(&again[1]);
    MPI_Finalize();
    return 0;
}

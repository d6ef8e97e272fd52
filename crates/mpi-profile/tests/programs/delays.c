/* Each round every rank sends four messages to its right neighbour and receives four from its left one, each in another way;
   sends to MPI_PROC_NULL and Tests without a completion are no messages. Rank 1 may kill itself in the middle.
   With "alone" each rank is its own neighbour and no barrier ends a round. With "work" a round is a millisecond of work and two
   barriers. */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 8 };

int main(int argc, char **argv)
{
    int rank, ranks, rounds = atoi(argv[1]);
    char out[BYTES] = {0}, in[BYTES];
    MPI_Request both[2], kept[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int alone = argc > 2 && strcmp(argv[2], "alone") == 0;
    int right = alone ? rank : (rank + 1) % ranks, left = alone ? rank : (rank + ranks - 1) % ranks;
    MPI_Send_init(out, BYTES, MPI_CHAR, right, 3, MPI_COMM_WORLD, &kept[0]);
    MPI_Recv_init(in, BYTES, MPI_CHAR, left, 3, MPI_COMM_WORLD, &kept[1]);
    int work = argc > 2 && strcmp(argv[2], "work") == 0;
    for (int i = 0; i < rounds && work; i++) {
        for (double until = MPI_Wtime() + 1e-3; MPI_Wtime() < until;)
            ;
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int i = 0; i < rounds && !work; i++) {
        if (argc > 2 && strcmp(argv[2], "kill") == 0 && rank == 1 && i == rounds / 2)
            raise(SIGKILL);
        MPI_Sendrecv(out, BYTES, MPI_CHAR, right, 1, in, BYTES, MPI_CHAR, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Irecv(in, BYTES, MPI_CHAR, left, 2, MPI_COMM_WORLD, &both[0]);
        MPI_Isend(out, BYTES, MPI_CHAR, right, 2, MPI_COMM_WORLD, &both[1]);
        MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
        MPI_Send(out, BYTES, MPI_CHAR, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
        MPI_Recv(in, BYTES, MPI_CHAR, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Startall(2, kept);
        MPI_Waitall(2, kept, MPI_STATUSES_IGNORE);
        int done = 0;
        MPI_Irecv(in, BYTES, MPI_CHAR, left, 4, MPI_COMM_WORLD, &both[0]);
        MPI_Test(&both[0], &done, MPI_STATUS_IGNORE);
        MPI_Send(out, BYTES, MPI_CHAR, right, 4, MPI_COMM_WORLD);
        while (!done)
            MPI_Test(&both[0], &done, MPI_STATUS_IGNORE);
        if (!alone)
            MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Request_free(&kept[0]);
    MPI_Request_free(&kept[1]);
    MPI_Finalize();
    return 0;
}

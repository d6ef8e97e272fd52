/* Known calls of each of three ranks: mod.rs has the same list. */
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, size, flag, buffer[1000], other[1000];
    MPI_Request requests[4];
    MPI_Status status;
    MPI_Message message;
    MPI_Comm same, reversed;
    MPI_Win win;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int peer = right;

    MPI_Send(buffer, 3, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
    MPI_Sendrecv(buffer, 5, MPI_INT, right, 2, other, 6, MPI_INT, left, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Irecv(buffer, 10, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(other, 20, MPI_INT, left, 4, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(other + 100, 4, MPI_INT, right, 4, MPI_COMM_WORLD, &requests[2]);
    MPI_Send(buffer + 100, 7, MPI_INT, right, 3, MPI_COMM_WORLD);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);

    MPI_Comm_dup(MPI_COMM_WORLD, &same);
    MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &reversed);
    /* Each rank uses the communicators in another order, and with other peers. */
    peer = size - 1 - right;
    if (rank == 0) {
        MPI_Send(buffer, 1, MPI_INT, peer, 5, reversed);
        MPI_Recv(buffer, 8, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, same, MPI_STATUS_IGNORE);
    } else {
        MPI_Send(buffer, rank, MPI_INT, right, 6, same);
        if (rank == 1)
            MPI_Recv(buffer, 8, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, reversed, MPI_STATUS_IGNORE);
        else
            MPI_Recv(buffer, 8, MPI_INT, left, 6, same, &status);
    }

    MPI_Send_init(buffer, 2, MPI_INT, right, 7, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(other, 2, MPI_INT, left, 7, MPI_COMM_WORLD, &requests[1]);
    for (int i = 0; i < 3; i++) {
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Start(&requests[1]);
    MPI_Start(&requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);

    MPI_Isend(buffer, 9, MPI_INT, right, 8, MPI_COMM_WORLD, &requests[0]);
    MPI_Mprobe(MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(other, 9, MPI_INT, &message, MPI_STATUS_IGNORE);
    MPI_Wait(&requests[0], &status);

    MPI_Irecv(buffer, 1, MPI_INT, left, 10, MPI_COMM_WORLD, &requests[0]);
    MPI_Cancel(&requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Isend(buffer, 11, MPI_INT, right, 9, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv(other, 11, MPI_INT, left, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    do
        MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
    while (!flag);

    MPI_Allreduce(buffer, other, 10, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Bcast(buffer, 10, MPI_INT, 0, reversed);
    MPI_Ibarrier(same, &requests[0]);
    MPI_Reduce(buffer, other, 4, MPI_INT, MPI_SUM, 1, MPI_COMM_WORLD);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);

    MPI_Win_create(buffer, sizeof buffer, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    MPI_Put(other, 3, MPI_INT, right, 0, 3, MPI_INT, win);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);

    MPI_Comm_free(&same);
    MPI_Comm_free(&reversed);
    MPI_Finalize();
    return 0;
}

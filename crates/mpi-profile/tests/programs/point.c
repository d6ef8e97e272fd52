// Point-to-point in all modes, around a ring.
#include "expect.h"

enum { TIMES = 4 };

static int out[4096], in[4096];

// Rank 0 sends first, so that no mode needs a buffer.
#define RING(NAME, SEND, RECV, COUNT, BYTES)                                                                           \
    do {                                                                                                               \
        for (int i = 0; i < TIMES; i++) {                                                                              \
            if (rank == 0) {                                                                                           \
                SEND(out, COUNT, MPI_INT, right, 7, MPI_COMM_WORLD);                                                   \
                RECV(in, COUNT, MPI_INT, left, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);                                  \
            } else {                                                                                                   \
                RECV(in, COUNT, MPI_INT, left, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);                                  \
                SEND(out, COUNT, MPI_INT, right, 7, MPI_COMM_WORLD);                                                   \
            }                                                                                                          \
        }                                                                                                              \
        calls(NAME, 0, TIMES, BYTES);                                                                                  \
        calls("Recv", 0, TIMES, BYTES);                                                                                \
        messages(right, TIMES, BYTES);                                                                                 \
    } while (0)

static void blocking(void) {
    static const int counts[] = {0, 1, 3, 1000};
    for (int k = 0; k < 4; k++) {
        int count = counts[k];
        RING("Send", MPI_Send, MPI_Recv, count, 4LL * count);
        RING("Ssend", MPI_Ssend, MPI_Recv, count, 4LL * count);
    }
    static char buffer[TIMES * (4000 + MPI_BSEND_OVERHEAD)];
    MPI_Buffer_attach(buffer, sizeof buffer);
    calls("Buffer_attach", 0, 1, 0);
    RING("Bsend", MPI_Bsend, MPI_Recv, 1000, 4000);
    void *detached;
    int bytes;
    MPI_Buffer_detach(&detached, &bytes);
    calls("Buffer_detach", 0, 1, 0);

    for (int i = 0; i < TIMES; i++) {
        MPI_Request request;
        MPI_Irecv(in, 20, MPI_INT, left, 1, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Rsend(out, 20, MPI_INT, right, 1, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    calls("Irecv", 0, TIMES, 80);
    calls("Barrier", size, TIMES, 0);
    calls("Rsend", 0, TIMES, 80);
    calls("Wait", 0, TIMES, 80);
    messages(right, TIMES, 80);
}

static void longer_than_sent(void) {
    // The bytes of a receive are those of its buffer.
    if (rank == 0) MPI_Send(out, 5, MPI_INT, right, 2, MPI_COMM_WORLD);
    MPI_Recv(in, 100, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank != 0) MPI_Send(out, 5, MPI_INT, right, 2, MPI_COMM_WORLD);
    calls("Send", 0, 1, 20);
    calls("Recv", 0, 1, 400);
    messages(right, 1, 20);
}

static void exchanges(void) {
    for (int i = 0; i < TIMES; i++) {
        MPI_Sendrecv(out, 10, MPI_INT, right, 3, in, 50, MPI_INT, left, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv_replace(out, 30, MPI_DOUBLE, left, 4, right, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    calls("Sendrecv", 0, TIMES, 40);
    calls("Sendrecv_replace", 0, TIMES, 240);
    messages(right, TIMES, 40);
    messages(left, TIMES, 240);
}

static void to_nobody(void) {
    MPI_Request requests[2];
    MPI_Send(out, 9, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    MPI_Recv(in, 9, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(out, 9, MPI_INT, MPI_PROC_NULL, 0, in, 9, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Isend(out, 9, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(in, 9, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    // A send to MPI_PROC_NULL has no bytes.
    calls("Send", 0, 1, 0);
    calls("Recv", 0, 1, 0);
    calls("Sendrecv", 0, 1, 0);
    calls("Isend", 0, 1, 0);
    calls("Irecv", 0, 1, 0);
    calls("Waitall", 0, 1, 0);
    // The requests are complete already.
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    calls("Waitall", 0, 1, 0);
}

static void to_myself(void) {
    MPI_Request request;
    MPI_Irecv(in, 2, MPI_INT, rank, 0, MPI_COMM_WORLD, &request);
    MPI_Send(out, 2, MPI_INT, rank, 0, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    calls("Irecv", 0, 1, 8);
    calls("Send", 0, 1, 8);
    calls("Wait", 0, 1, 8);
    messages(rank, 1, 8);
}

static void nonblocking(void) {
    static char buffer[4000 + MPI_BSEND_OVERHEAD];
    MPI_Buffer_attach(buffer, sizeof buffer);
    calls("Buffer_attach", 0, 1, 0);
    for (int i = 0; i < TIMES; i++) {
        MPI_Request requests[8];
        for (int k = 0; k < 4; k++) MPI_Irecv(in + 100 * k, 100, MPI_INT, left, k, MPI_COMM_WORLD, &requests[k]);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Isend(out, 25, MPI_INT, right, 0, MPI_COMM_WORLD, &requests[4]);
        MPI_Ibsend(out, 25, MPI_INT, right, 1, MPI_COMM_WORLD, &requests[5]);
        MPI_Issend(out, 25, MPI_INT, right, 2, MPI_COMM_WORLD, &requests[6]);
        MPI_Irsend(out, 25, MPI_INT, right, 3, MPI_COMM_WORLD, &requests[7]);
        // Receives have 400 bytes, sends 100.
        MPI_Wait(&requests[4], MPI_STATUS_IGNORE);
        MPI_Waitall(2, &requests[5], MPI_STATUSES_IGNORE);
        int index, flag = 0;
        MPI_Waitany(1, &requests[7], &index, MPI_STATUS_IGNORE);
        int some = 0, indices[2];
        MPI_Waitsome(1, &requests[0], &some, indices, MPI_STATUSES_IGNORE);
        check(some == 1, "Waitsome");
        // Some of the requests are MPI_REQUEST_NULL.
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
        check(flag, "Test of nothing");
    }
    calls("Irecv", 0, 4 * TIMES, 400);
    calls("Barrier", size, TIMES, 0);
    calls("Isend", 0, TIMES, 100);
    calls("Ibsend", 0, TIMES, 100);
    calls("Issend", 0, TIMES, 100);
    calls("Irsend", 0, TIMES, 100);
    calls("Wait", 0, TIMES, 100);
    calls("Waitall", 0, TIMES, 200);
    calls("Waitany", 0, TIMES, 100);
    calls("Waitsome", 0, TIMES, 400);
    calls("Waitall", 0, TIMES, 1200);
    calls("Test", 0, TIMES, 0);
    messages(right, 4 * TIMES, 100);
    void *detached;
    int bytes;
    MPI_Buffer_detach(&detached, &bytes);
    calls("Buffer_detach", 0, 1, 0);
}

static void tests(void) {
    long in_vain[4] = {0};
    for (int i = 0; i < TIMES; i++) {
        MPI_Request requests[2];
        int done, index;
#define POST()                                                                                                         \
    MPI_Irecv(in, 6, MPI_INT, left, 0, MPI_COMM_WORLD, &requests[0]);                                                  \
    MPI_Isend(out, 6, MPI_INT, right, 0, MPI_COMM_WORLD, &requests[1])
        POST();
        for (int k = 0; k < 2; k++) {
            for (;;) {
                MPI_Test(&requests[k], &done, MPI_STATUS_IGNORE);
                if (done) break;
                in_vain[0]++;
                usleep(50);
            }
        }
        POST();
        for (;;) {
            MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
            if (done) break;
            in_vain[1]++;
            usleep(50);
        }
        POST();
        for (int k = 0; k < 2;) {
            MPI_Testany(2, requests, &index, &done, MPI_STATUS_IGNORE);
            if (done) k++;
            else {
                in_vain[2]++;
                usleep(50);
            }
        }
        POST();
        // One request is tested at a time, so that each call completes one request or none.
        for (int k = 0; k < 2;) {
            int count, which[1];
            MPI_Testsome(1, &requests[k], &count, which, MPI_STATUSES_IGNORE);
            if (count == 1) k++;
            else {
                in_vain[3]++;
                usleep(50);
            }
        }
    }
    calls("Irecv", 0, 4 * TIMES, 24);
    calls("Isend", 0, 4 * TIMES, 24);
    messages(right, 4 * TIMES, 24);
    calls("Test", 0, 2 * TIMES, 24);
    calls("Test", 0, in_vain[0], 0);
    calls("Testall", 0, TIMES, 48);
    calls("Testall", 0, in_vain[1], 0);
    calls("Testany", 0, 2 * TIMES, 24);
    calls("Testany", 0, in_vain[2], 0);
    calls("Testsome", 0, 2 * TIMES, 24);
    calls("Testsome", 0, in_vain[3], 0);
}

static void probes(void) {
    long iprobes = 0, improbes = 0;
    for (int i = 0; i < TIMES; i++) {
        MPI_Request sends[4];
        MPI_Status status;
        MPI_Message message;
        MPI_Request request;
        int flag = 0;
        for (int k = 0; k < 4; k++) MPI_Isend(out, 11, MPI_INT, right, k, MPI_COMM_WORLD, &sends[k]);
        MPI_Probe(left, 0, MPI_COMM_WORLD, &status);
        MPI_Recv(in, 11, MPI_INT, left, 0, MPI_COMM_WORLD, &status);
        while (!flag) {
            MPI_Iprobe(left, 1, MPI_COMM_WORLD, &flag, &status);
            iprobes++;
            if (!flag) usleep(50);
        }
        MPI_Recv(in, 11, MPI_INT, left, 1, MPI_COMM_WORLD, &status);
        MPI_Mprobe(left, 2, MPI_COMM_WORLD, &message, &status);
        MPI_Mrecv(in, 11, MPI_INT, &message, &status);
        for (flag = 0; !flag;) {
            MPI_Improbe(left, 3, MPI_COMM_WORLD, &flag, &message, &status);
            improbes++;
            if (!flag) usleep(50);
        }
        MPI_Imrecv(in, 11, MPI_INT, &message, &request);
        MPI_Wait(&request, &status);
        MPI_Waitall(4, sends, MPI_STATUSES_IGNORE);
    }
    calls("Isend", 0, 4 * TIMES, 44);
    messages(right, 4 * TIMES, 44);
    calls("Probe", 0, TIMES, 0);
    calls("Iprobe", 0, iprobes, 0);
    calls("Mprobe", 0, TIMES, 0);
    calls("Improbe", 0, improbes, 0);
    calls("Recv", 0, 2 * TIMES, 44);
    calls("Mrecv", 0, TIMES, 44);
    calls("Imrecv", 0, TIMES, 44);
    calls("Wait", 0, TIMES, 44);
    calls("Waitall", 0, TIMES, 176);
}

static void persistent(void) {
    MPI_Request requests[8];
    static char buffer[1000 + MPI_BSEND_OVERHEAD];
    MPI_Buffer_attach(buffer, sizeof buffer);
    calls("Buffer_attach", 0, 1, 0);
    for (int k = 0; k < 4; k++) MPI_Recv_init(in + 10 * k, 10, MPI_INT, left, k, MPI_COMM_WORLD, &requests[k]);
    MPI_Send_init(out, 10, MPI_INT, right, 0, MPI_COMM_WORLD, &requests[4]);
    MPI_Bsend_init(out, 10, MPI_INT, right, 1, MPI_COMM_WORLD, &requests[5]);
    MPI_Ssend_init(out, 10, MPI_INT, right, 2, MPI_COMM_WORLD, &requests[6]);
    MPI_Rsend_init(out, 10, MPI_INT, right, 3, MPI_COMM_WORLD, &requests[7]);
    calls("Recv_init", 0, 4, 40);
    calls("Send_init", 0, 1, 40);
    calls("Bsend_init", 0, 1, 40);
    calls("Ssend_init", 0, 1, 40);
    calls("Rsend_init", 0, 1, 40);
    for (int i = 0; i < TIMES; i++) {
        MPI_Startall(4, requests);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int k = 4; k < 8; k++) MPI_Start(&requests[k]);
        MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
    }
    calls("Startall", 0, TIMES, 160);
    calls("Start", 0, 4 * TIMES, 40);
    calls("Barrier", size, TIMES, 0);
    calls("Waitall", 0, TIMES, 320);
    messages(right, 4 * TIMES, 40);
    for (int k = 0; k < 8; k++) MPI_Request_free(&requests[k]);
    calls("Request_free", 0, 8, 0);
    void *detached;
    int bytes;
    MPI_Buffer_detach(&detached, &bytes);
    calls("Buffer_detach", 0, 1, 0);
}

static void cancelled(void) {
    MPI_Request request;
    MPI_Irecv(in, 1, MPI_INT, left, 999, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    calls("Irecv", 0, 1, 4);
    calls("Cancel", 0, 1, 0);
    calls("Wait", 0, 1, 4);
}

static void derived(void) {
    MPI_Datatype vector, wide, pair;
    MPI_Type_vector(5, 2, 4, MPI_INT, &vector);
    MPI_Type_commit(&vector);
    // Bytes are those of the data, not of the extent.
    MPI_Type_create_resized(vector, 0, 4096, &wide);
    MPI_Type_commit(&wide);
    MPI_Type_contiguous(3, MPI_DOUBLE_INT, &pair);
    MPI_Type_commit(&pair);
    for (int i = 0; i < TIMES; i++) {
        MPI_Sendrecv(out, 3, vector, right, 0, in, 3, vector, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(out, 2, wide, right, 0, in, 2, wide, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(out, 1, pair, right, 0, in, 1, pair, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    calls("Sendrecv", 0, TIMES, 3 * 40);
    calls("Sendrecv", 0, TIMES, 2 * 40);
    calls("Sendrecv", 0, TIMES, 3 * 12);
    messages(right, TIMES, 120);
    messages(right, TIMES, 80);
    messages(right, TIMES, 36);
    MPI_Type_free(&vector);
    MPI_Type_free(&wide);
    MPI_Type_free(&pair);
    // The handle may be reused for a type of another size.
    for (int k = 1; k <= 20; k++) {
        MPI_Datatype type;
        MPI_Type_contiguous(k, MPI_INT, &type);
        MPI_Type_commit(&type);
        MPI_Sendrecv(out, 1, type, right, 0, in, 1, type, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        calls("Sendrecv", 0, 1, 4 * k);
        messages(right, 1, 4 * k);
        MPI_Type_free(&type);
    }
}

#if MPI_VERSION >= 4
static void large(void) {
    MPI_Request request;
    for (int i = 0; i < TIMES; i++) {
        if (rank == 0) MPI_Send_c(out, (MPI_Count)12, MPI_INT, right, 0, MPI_COMM_WORLD);
        MPI_Recv_c(in, (MPI_Count)12, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank != 0) MPI_Send_c(out, (MPI_Count)12, MPI_INT, right, 0, MPI_COMM_WORLD);
        MPI_Irecv_c(in, (MPI_Count)13, MPI_INT, left, 0, MPI_COMM_WORLD, &request);
        MPI_Sendrecv_c(out, (MPI_Count)13, MPI_INT, right, 0, in, (MPI_Count)0, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD,
                       MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    calls("Send", 0, TIMES, 48);
    calls("Recv", 0, TIMES, 48);
    calls("Irecv", 0, TIMES, 52);
    calls("Sendrecv", 0, TIMES, 52);
    calls("Wait", 0, TIMES, 52);
    messages(right, TIMES, 48);
    messages(right, TIMES, 52);
    // The count has more than 32 bits.
    MPI_Send_init_c(out, (MPI_Count)5000000000, MPI_DOUBLE, right, 0, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    calls("Send_init", 0, 1, 40000000000);
    calls("Request_free", 0, 1, 0);
    MPI_Bcast_c(out, (MPI_Count)100, MPI_INT, 0, MPI_COMM_WORLD);
    calls("Bcast", size, 1, 400);
}

static void exchanges_in_the_background(void) {
    MPI_Request requests[2];
    for (int i = 0; i < TIMES; i++) {
        MPI_Isendrecv(out, 10, MPI_INT, right, 3, in, 50, MPI_INT, left, 3, MPI_COMM_WORLD, &requests[0]);
        MPI_Isendrecv_replace(out + 500, 30, MPI_INT, left, 4, right, 4, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    calls("Isendrecv", 0, TIMES, 40);
    calls("Isendrecv_replace", 0, TIMES, 120);
    calls("Waitall", 0, TIMES, 160);
    messages(right, TIMES, 40);
    messages(left, TIMES, 120);
}

static void partitioned(void) {
    MPI_Request requests[2];
    int flag;
    MPI_Psend_init(out, 4, (MPI_Count)8, MPI_INT, right, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Precv_init(in, 4, (MPI_Count)8, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    calls("Psend_init", 0, 1, 128);
    calls("Precv_init", 0, 1, 128);
    for (int i = 0; i < TIMES; i++) {
        static int last[] = {3};
        MPI_Startall(2, requests);
        MPI_Pready(0, requests[0]);
        MPI_Pready_range(1, 2, requests[0]);
        MPI_Pready_list(1, last, requests[0]);
        MPI_Parrived(requests[1], 0, &flag);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    calls("Startall", 0, TIMES, 256);
    calls("Pready", 0, TIMES, 32);
    calls("Pready_range", 0, TIMES, 64);
    calls("Pready_list", 0, TIMES, 32);
    calls("Parrived", 0, TIMES, 0);
    calls("Waitall", 0, TIMES, 256);
    messages(right, TIMES, 128);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    calls("Request_free", 0, 2, 0);
}
#endif

// An argument leaves out persistent requests, which Open MPI's own count lacks.
int main(int argc, char **argv) {
    (void)argv;
    begin();
    for (int i = 0; i < 4096; i++) out[i] = rank + i;
    blocking();
    longer_than_sent();
    exchanges();
    to_nobody();
    to_myself();
    nonblocking();
    tests();
    probes();
    if (argc == 1) persistent();
    cancelled();
    derived();
#if MPI_VERSION >= 4
    large();
    exchanges_in_the_background();
    partitioned();
#endif
    end();
    return 0;
}

// Collectives: blocking and not, in place, on sub-communicators, intercommunicators and graphs.
#include "expect.h"

enum { TIMES = 3, MOST = 64 };

static int out[MOST * 256], in[MOST * 256];
static int counts[MOST], displs[MOST], bytes_displs[MOST];
static MPI_Datatype types[MOST];

// The block of rank r has r + 1 elements.
static long long blocks(int ranks) {
    return (long long)ranks * (ranks + 1) / 2;
}

static void lay(int ranks) {
    for (int r = 0, at = 0; r < ranks; r++) {
        counts[r] = r + 1;
        displs[r] = at;
        bytes_displs[r] = 4 * at;
        types[r] = MPI_INT;
        at += r + 1;
    }
}

// All collectives on one communicator: `me` is the caller's rank, `ranks` the size.
static void all(MPI_Comm comm) {
    int me, ranks;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &ranks);
    lay(ranks);
    int root = ranks - 1, is_root = me == root;
    // Counts of Alltoallv must agree between pairs: rank r sends (r + 1) elements to every rank.
    int same[MOST], at[MOST], at_bytes[MOST];
    for (int r = 0; r < ranks; r++) same[r] = me + 1, at[r] = r * (me + 1), at_bytes[r] = 4 * r * (me + 1);
    for (int i = 0; i < TIMES; i++) {
        MPI_Barrier(comm);
        MPI_Bcast(out, 100, MPI_INT, root, comm);
        MPI_Gather(out, 5, MPI_INT, in, 5, MPI_INT, root, comm);
        MPI_Gatherv(out, me + 1, MPI_INT, in, counts, displs, MPI_INT, root, comm);
        MPI_Scatter(out, 6, MPI_INT, in, 6, MPI_INT, root, comm);
        MPI_Scatterv(out, counts, displs, MPI_INT, in, me + 1, MPI_INT, root, comm);
        MPI_Allgather(out, 7, MPI_INT, in, 7, MPI_INT, comm);
        MPI_Allgatherv(out, me + 1, MPI_INT, in, counts, displs, MPI_INT, comm);
        MPI_Alltoall(out, 8, MPI_INT, in, 8, MPI_INT, comm);
        MPI_Alltoallv(out, same, at, MPI_INT, in, counts, displs, MPI_INT, comm);
        MPI_Alltoallw(out, same, at_bytes, types, in, counts, bytes_displs, types, comm);
        MPI_Reduce(out, in, 9, MPI_DOUBLE, MPI_SUM, root, comm);
        MPI_Allreduce(out, in, 10, MPI_INT, MPI_MAX, comm);
        MPI_Reduce_scatter(out, in, counts, MPI_INT, MPI_SUM, comm);
        MPI_Reduce_scatter_block(out, in, 11, MPI_INT, MPI_SUM, comm);
        MPI_Scan(out, in, 12, MPI_INT, MPI_SUM, comm);
        MPI_Exscan(out, in, 13, MPI_INT, MPI_SUM, comm);
    }
    MPI_Request requests[17];
    for (int i = 0; i < TIMES; i++) {
        int k = 0;
        MPI_Ibarrier(comm, &requests[k++]);
        MPI_Ibcast(out, 100, MPI_INT, root, comm, &requests[k++]);
        MPI_Waitall(k, requests, MPI_STATUSES_IGNORE);
        k = 0;
        MPI_Igather(out, 5, MPI_INT, in, 5, MPI_INT, root, comm, &requests[k++]);
        MPI_Igatherv(out, me + 1, MPI_INT, in + 1000, counts, displs, MPI_INT, root, comm, &requests[k++]);
        MPI_Iscatter(out, 6, MPI_INT, in + 2000, 6, MPI_INT, root, comm, &requests[k++]);
        MPI_Iscatterv(out, counts, displs, MPI_INT, in + 3000, me + 1, MPI_INT, root, comm, &requests[k++]);
        MPI_Iallgather(out, 7, MPI_INT, in + 4000, 7, MPI_INT, comm, &requests[k++]);
        MPI_Iallgatherv(out, me + 1, MPI_INT, in + 5000, counts, displs, MPI_INT, comm, &requests[k++]);
        MPI_Ialltoall(out, 8, MPI_INT, in + 6000, 8, MPI_INT, comm, &requests[k++]);
        MPI_Ialltoallv(out, same, at, MPI_INT, in + 7000, counts, displs, MPI_INT, comm, &requests[k++]);
        MPI_Ialltoallw(out, same, at_bytes, types, in + 8000, counts, bytes_displs, types, comm, &requests[k++]);
        MPI_Waitall(k, requests, MPI_STATUSES_IGNORE);
        k = 0;
        MPI_Ireduce(out, in, 9, MPI_DOUBLE, MPI_SUM, root, comm, &requests[k++]);
        MPI_Iallreduce(out, in + 1000, 10, MPI_INT, MPI_MAX, comm, &requests[k++]);
        MPI_Ireduce_scatter(out, in + 2000, counts, MPI_INT, MPI_SUM, comm, &requests[k++]);
        MPI_Ireduce_scatter_block(out, in + 3000, 11, MPI_INT, MPI_SUM, comm, &requests[k++]);
        MPI_Iscan(out, in + 4000, 12, MPI_INT, MPI_SUM, comm, &requests[k++]);
        MPI_Iexscan(out, in + 5000, 13, MPI_INT, MPI_SUM, comm, &requests[k++]);
        MPI_Waitall(k, requests, MPI_STATUSES_IGNORE);
    }
    static const char *const forms[] = {"", "I"};
    for (int form = 0; form < 2; form++) {
        char name[64];
#define EXPECT(NAME, SMALL, BYTES)                                                                                     \
    snprintf(name, sizeof name, "%s%s", forms[form], form ? SMALL : NAME);                                             \
    calls(name, ranks, TIMES, BYTES)
        EXPECT("Barrier", "barrier", 0);
        EXPECT("Bcast", "bcast", 400);
        EXPECT("Gather", "gather", 20);
        EXPECT("Gatherv", "gatherv", 4 * (me + 1));
        EXPECT("Scatter", "scatter", is_root ? 24LL * ranks : 24);
        EXPECT("Scatterv", "scatterv", is_root ? 4 * blocks(ranks) : 4 * (me + 1));
        EXPECT("Allgather", "allgather", 28);
        EXPECT("Allgatherv", "allgatherv", 4 * (me + 1));
        EXPECT("Alltoall", "alltoall", 32LL * ranks);
        EXPECT("Alltoallv", "alltoallv", 4LL * ranks * (me + 1));
        EXPECT("Alltoallw", "alltoallw", 4LL * ranks * (me + 1));
        EXPECT("Reduce", "reduce", 72);
        EXPECT("Allreduce", "allreduce", 40);
        EXPECT("Reduce_scatter", "reduce_scatter", 4 * blocks(ranks));
        EXPECT("Reduce_scatter_block", "reduce_scatter_block", 44LL * ranks);
        EXPECT("Scan", "scan", 48);
        EXPECT("Exscan", "exscan", 52);
    }
    calls("Waitall", 0, TIMES, 400);
    calls("Waitall", 0, TIMES,
          20 + 4 * (me + 1) + (is_root ? 24LL * ranks : 24) + (is_root ? 4 * blocks(ranks) : 4 * (me + 1)) + 28 +
              4 * (me + 1) + 32LL * ranks + 8LL * ranks * (me + 1));
    calls("Waitall", 0, TIMES, 72 + 40 + 4 * blocks(ranks) + 44LL * ranks + 48 + 52);
}

static void in_place(void) {
    MPI_Comm comm = MPI_COMM_WORLD;
    lay(size);
    for (int i = 0; i < TIMES; i++) {
        // The contribution of a rank is in its receive buffer.
        if (rank == 0) {
            MPI_Gather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, 5, MPI_INT, 0, comm);
            MPI_Gatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, counts, displs, MPI_INT, 0, comm);
            MPI_Scatter(out, 6, MPI_INT, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, 0, comm);
            MPI_Scatterv(out, counts, displs, MPI_INT, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, 0, comm);
            MPI_Reduce(MPI_IN_PLACE, in, 9, MPI_INT, MPI_SUM, 0, comm);
        } else {
            MPI_Gather(out, 5, MPI_INT, NULL, 0, MPI_DATATYPE_NULL, 0, comm);
            MPI_Gatherv(out, rank + 1, MPI_INT, NULL, NULL, NULL, MPI_DATATYPE_NULL, 0, comm);
            MPI_Scatter(NULL, 0, MPI_DATATYPE_NULL, in, 6, MPI_INT, 0, comm);
            MPI_Scatterv(NULL, NULL, NULL, MPI_DATATYPE_NULL, in, rank + 1, MPI_INT, 0, comm);
            MPI_Reduce(out, NULL, 9, MPI_INT, MPI_SUM, 0, comm);
        }
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, 7, MPI_INT, comm);
        MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, counts, displs, MPI_INT, comm);
        MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, 8, MPI_INT, comm);
        MPI_Allreduce(MPI_IN_PLACE, in, 10, MPI_INT, MPI_SUM, comm);
        MPI_Scan(MPI_IN_PLACE, in, 12, MPI_INT, MPI_SUM, comm);
    }
    calls("Gather", size, TIMES, 20);
    calls("Gatherv", size, TIMES, 4 * (rank + 1));
    calls("Scatter", size, TIMES, rank == 0 ? 24LL * size : 24);
    calls("Scatterv", size, TIMES, rank == 0 ? 4 * blocks(size) : 4 * (rank + 1));
    calls("Reduce", size, TIMES, 36);
    calls("Allgather", size, TIMES, 28);
    calls("Allgatherv", size, TIMES, 4 * (rank + 1));
    calls("Alltoall", size, TIMES, 32LL * size);
    calls("Allreduce", size, TIMES, 40);
    calls("Scan", size, TIMES, 48);
}

// Collectives between the even and the odd ranks: the group counted is the caller's own.
static void between_groups(void) {
    MPI_Comm half, inter, merged;
    int here, there;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_size(half, &here);
    there = size - here;
    calls("Comm_split", 0, 1, 0);
    // The leaders have the highest ranks, since keys are negative.
    int highest_odd = (size - 1) % 2 ? size - 1 : size - 2, highest_even = (size - 1) % 2 ? size - 2 : size - 1;
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 ? highest_even : highest_odd, 5, &inter);
    calls("Intercomm_create", 0, 1, 0);
    int me;
    MPI_Comm_rank(inter, &me);
    int root = rank % 2 == 0 ? MPI_ROOT : 0;
    if (rank % 2 == 0 && me != 0) root = MPI_PROC_NULL;
    for (int i = 0; i < TIMES; i++) {
        MPI_Barrier(inter);
        MPI_Allreduce(out, in, 10, MPI_INT, MPI_SUM, inter);
        MPI_Bcast(out, 20, MPI_INT, root, inter);
        MPI_Allgather(out, 3, MPI_INT, in, 3, MPI_INT, inter);
        // Peers are counted by rank in MPI_COMM_WORLD: rank 0 of the other group is its highest.
        MPI_Request request;
        if (me == 0) {
            MPI_Isend(out, 15, MPI_INT, 0, 0, inter, &request);
            MPI_Recv(in, 15, MPI_INT, 0, 0, inter, MPI_STATUS_IGNORE);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
    }
    calls("Barrier", here, TIMES, 0);
    calls("Allreduce", here, TIMES, 40);
    calls("Bcast", here, TIMES, root == MPI_PROC_NULL ? 0 : 80);
    calls("Allgather", here, TIMES, 12);
    if (me == 0) {
        calls("Isend", 0, TIMES, 60);
        calls("Recv", 0, TIMES, 60);
        calls("Wait", 0, TIMES, 60);
        messages(rank % 2 ? highest_even : highest_odd, TIMES, 60);
    }
    MPI_Intercomm_merge(inter, rank % 2, &merged);
    calls("Intercomm_merge", 0, 1, 0);
    MPI_Allreduce(out, in, 1, MPI_INT, MPI_SUM, merged);
    calls("Allreduce", here + there, 1, 4);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
    calls("Comm_free", 0, 3, 0);
}

// Communicators made and freed over and over, so that handles are reused with other members.
static void made_again(void) {
    for (int i = 0; i < 3 * TIMES; i++) {
        MPI_Comm part, twin;
        int me, ranks;
        // Ranks are rotated: rank r of `part` is rank (r + i) % size of the world.
        MPI_Comm_split(MPI_COMM_WORLD, 0, (rank + size - i % size) % size, &part);
        MPI_Comm_dup(part, &twin);
        MPI_Comm_rank(twin, &me);
        MPI_Comm_size(twin, &ranks);
        check(me == (rank + size - i % size) % size, "the turn");
        MPI_Sendrecv(out, 4, MPI_INT, 0, 0, in, 4, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        MPI_Sendrecv(out, 4, MPI_INT, (me + 1) % ranks, 0, in, 4, MPI_INT, (me + ranks - 1) % ranks, 0, twin,
                     MPI_STATUS_IGNORE);
        messages(((me + 1) % ranks + i) % size, 1, 16);
        messages(rank, 1, 16);
        MPI_Comm_free(&part);
        MPI_Comm_free(&twin);
    }
    calls("Comm_split", 0, 3 * TIMES, 0);
    calls("Comm_dup", 0, 3 * TIMES, 0);
    calls("Sendrecv", 0, 6 * TIMES, 16);
    calls("Comm_free", 0, 6 * TIMES, 0);
}

static void makers(void) {
    MPI_Comm made;
    MPI_Group group, fewer;
    MPI_Request request;
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    int none[] = {0};
    MPI_Group_excl(group, 1, none, &fewer);
    MPI_Comm_create(MPI_COMM_WORLD, fewer, &made);
    if (rank != 0) {
        MPI_Allreduce(out, in, 1, MPI_INT, MPI_SUM, made);
        calls("Allreduce", size - 1, 1, 4);
        // Rank 0 of the communicator is rank 1 of the world.
        if (rank == 1) {
            MPI_Request own;
            MPI_Isend(out, 1, MPI_INT, 0, 0, made, &own);
            MPI_Recv(in, 1, MPI_INT, 0, 0, made, MPI_STATUS_IGNORE);
            MPI_Wait(&own, MPI_STATUS_IGNORE);
            calls("Isend", 0, 1, 4);
            calls("Recv", 0, 1, 4);
            calls("Wait", 0, 1, 4);
            messages(1, 1, 4);
        }
        MPI_Comm_free(&made);
        calls("Comm_free", 0, 1, 0);
        MPI_Comm_create_group(MPI_COMM_WORLD, fewer, 3, &made);
        MPI_Barrier(made);
        MPI_Comm_free(&made);
        calls("Comm_create_group", 0, 1, 0);
        calls("Barrier", size - 1, 1, 0);
        calls("Comm_free", 0, 1, 0);
    }
    calls("Comm_create", 0, 1, 0);
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, &made);
    MPI_Barrier(made);
    MPI_Comm_free(&made);
    MPI_Comm_idup(MPI_COMM_WORLD, &made, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(made);
    MPI_Sendrecv(out, 1, MPI_INT, right, 0, in, 1, MPI_INT, left, 0, made, MPI_STATUS_IGNORE);
    MPI_Comm_free(&made);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made);
    MPI_Barrier(made);
    MPI_Comm_free(&made);
    calls("Comm_dup_with_info", 0, 1, 0);
    calls("Comm_idup", 0, 1, 0);
    calls("Comm_split_type", 0, 1, 0);
    calls("Wait", 0, 1, 0);
    calls("Barrier", size, 3, 0);
    calls("Sendrecv", 0, 1, 4);
    messages(right, 1, 4);
    calls("Comm_free", 0, 3, 0);
    MPI_Group_free(&group);
    MPI_Group_free(&fewer);
}

static void neighbours(MPI_Comm graph, int in_degree, int out_degree) {
    int sends[MOST], receives[MOST], at[MOST], ranks;
    MPI_Aint places[MOST];
    MPI_Comm_size(graph, &ranks);
    for (int k = 0; k < MOST; k++) sends[k] = receives[k] = 2, at[k] = 2 * k, places[k] = 8 * k, types[k] = MPI_INT;
    (void)in_degree;
    MPI_Request request;
    for (int i = 0; i < TIMES; i++) {
        MPI_Neighbor_allgather(out, 3, MPI_INT, in, 3, MPI_INT, graph);
        MPI_Neighbor_allgatherv(out, 2, MPI_INT, in, receives, at, MPI_INT, graph);
        MPI_Neighbor_alltoall(out, 4, MPI_INT, in, 4, MPI_INT, graph);
        MPI_Neighbor_alltoallv(out, sends, at, MPI_INT, in, receives, at, MPI_INT, graph);
        MPI_Neighbor_alltoallw(out, sends, places, types, in, receives, places, types, graph);
        MPI_Ineighbor_allgather(out, 3, MPI_INT, in, 3, MPI_INT, graph, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Ineighbor_allgatherv(out, 2, MPI_INT, in, receives, at, MPI_INT, graph, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Ineighbor_alltoall(out, 4, MPI_INT, in, 4, MPI_INT, graph, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Ineighbor_alltoallv(out, sends, at, MPI_INT, in, receives, at, MPI_INT, graph, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Ineighbor_alltoallw(out, sends, places, types, in, receives, places, types, graph, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    static const char *const forms[] = {"N", "In"};
    for (int form = 0; form < 2; form++) {
        char name[64];
#define NEIGHBOUR(NAME, BYTES)                                                                                         \
    snprintf(name, sizeof name, "%seighbor_" NAME, forms[form]);                                                       \
    calls(name, ranks, TIMES, BYTES);                                                                                  \
    if (form) calls("Wait", 0, TIMES, BYTES)
        NEIGHBOUR("allgather", 12);
        NEIGHBOUR("allgatherv", 8);
        NEIGHBOUR("alltoall", 16LL * out_degree);
        NEIGHBOUR("alltoallv", 8LL * out_degree);
        NEIGHBOUR("alltoallw", 8LL * out_degree);
    }
}

static void graphs(void) {
    MPI_Comm graph, line;
    int dims[] = {size}, periods[] = {1}, keep[] = {1};
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &graph);
    calls("Cart_create", 0, 1, 0);
    neighbours(graph, 2, 2);
    MPI_Cart_sub(graph, keep, &line);
    calls("Cart_sub", 0, 1, 0);
    MPI_Barrier(line);
    calls("Barrier", size, 1, 0);
    MPI_Comm_free(&line);
    MPI_Comm_free(&graph);
    // Edges lead from each rank to the next.
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &left, MPI_UNWEIGHTED, 1, &right, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                   &graph);
    calls("Dist_graph_create_adjacent", 0, 1, 0);
    neighbours(graph, 1, 1);
    MPI_Comm_free(&graph);
    int degrees[] = {1};
    MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, degrees, &right, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
    calls("Dist_graph_create", 0, 1, 0);
    neighbours(graph, 1, 1);
    MPI_Comm_free(&graph);
    int index[MOST], edges[2 * MOST];
    for (int r = 0; r < size; r++) {
        index[r] = 2 * (r + 1);
        edges[2 * r] = (r + size - 1) % size;
        edges[2 * r + 1] = (r + 1) % size;
    }
    MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &graph);
    calls("Graph_create", 0, 1, 0);
    neighbours(graph, 2, 2);
    MPI_Comm_free(&graph);
    calls("Comm_free", 0, 5, 0);
}

#if MPI_VERSION >= 4
static void persistent(void) {
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Request requests[4];
    MPI_Barrier_init(comm, MPI_INFO_NULL, &requests[0]);
    MPI_Bcast_init(out, 100, MPI_INT, 0, comm, MPI_INFO_NULL, &requests[1]);
    MPI_Allreduce_init(out, in, 10, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[2]);
    MPI_Alltoall_init(out, 8, MPI_INT, in + 1000, 8, MPI_INT, comm, MPI_INFO_NULL, &requests[3]);
    calls("Barrier_init", size, 1, 0);
    calls("Bcast_init", size, 1, 400);
    calls("Allreduce_init", size, 1, 40);
    calls("Alltoall_init", size, 1, 32LL * size);
    for (int i = 0; i < TIMES; i++) {
        for (int k = 0; k < 4; k++) {
            MPI_Start(&requests[k]);
            MPI_Wait(&requests[k], MPI_STATUS_IGNORE);
        }
    }
    long long bytes[] = {0, 400, 40, 32LL * size};
    for (int k = 0; k < 4; k++) {
        calls("Start", 0, TIMES, bytes[k]);
        calls("Wait", 0, TIMES, bytes[k]);
        MPI_Request_free(&requests[k]);
    }
    calls("Request_free", 0, 4, 0);
}
#endif

int main(void) {
    begin();
    all(MPI_COMM_WORLD);
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 0, -rank, &part);
    calls("Comm_split", 0, 1, 0);
    if (rank != 0) {
        all(part);
        MPI_Comm_free(&part);
        calls("Comm_free", 0, 1, 0);
    }
    all(MPI_COMM_SELF);
    in_place();
    between_groups();
    made_again();
    makers();
    graphs();
#if MPI_VERSION >= 4
    persistent();
#endif
    end();
    return 0;
}

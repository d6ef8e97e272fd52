// The calls of LULESH 2.0 on a cube of ranks: forces go to every neighbour (faces, edges, the corner), positions and
// velocities to one side only, gradients over faces. On 8 ranks that is 356 calls an iteration and 184 around them, the
// 42904 calls of paper 000's Table I at 120 iterations.
#include "expect.h"

enum { MOST = 26, SIDE = 12 };

static double out[MOST][3 * SIDE * SIDE], in[MOST][3 * SIDE * SIDE];
static int edge, place_x, place_y, place_z;

enum { EVERY, FACES };

// Sends go to the neighbours in directions of this sign (0: in all); receives come from the neighbours that send here.
static void exchange(int which, int sign) {
    MPI_Request receives[MOST], sends[MOST];
    int n = 0, m = 0;
    for (int direction = 0; direction < 27; direction++) {
        int d[3] = {direction % 3 - 1, direction / 3 % 3 - 1, direction / 9 - 1};
        int x = place_x + d[0], y = place_y + d[1], z = place_z + d[2];
        int off = !!d[0] + !!d[1] + !!d[2];
        if (off == 0 || (which == FACES && off > 1)) continue;
        if (x < 0 || y < 0 || z < 0 || x >= edge || y >= edge || z >= edge) continue;
        int peer = x + edge * (y + edge * z);
        // A direction is upward where its last non-zero coordinate is positive.
        int upward = d[2] ? d[2] : d[1] ? d[1] : d[0];
        int count = off == 1 ? 3 * SIDE * SIDE : off == 2 ? 3 * SIDE : 3;
        if (sign == 0 || upward != sign) {
            MPI_Irecv(in[n], count, MPI_DOUBLE, peer, 1024, MPI_COMM_WORLD, &receives[n]);
            calls("Irecv", 0, 1, 8LL * count);
            calls("Wait", 0, 1, 8LL * count);
            n++;
        }
        if (sign == 0 || upward == sign) {
            messages(peer, 1, 8LL * count);
            calls("Isend", 0, 1, 8LL * count);
        }
    }
    long long sent = 0;
    for (int direction = 0; direction < 27; direction++) {
        int d[3] = {direction % 3 - 1, direction / 3 % 3 - 1, direction / 9 - 1};
        int x = place_x + d[0], y = place_y + d[1], z = place_z + d[2];
        int off = !!d[0] + !!d[1] + !!d[2];
        if (off == 0 || (which == FACES && off > 1)) continue;
        if (x < 0 || y < 0 || z < 0 || x >= edge || y >= edge || z >= edge) continue;
        int upward = d[2] ? d[2] : d[1] ? d[1] : d[0];
        int count = off == 1 ? 3 * SIDE * SIDE : off == 2 ? 3 * SIDE : 3;
        if (sign == 0 || upward == sign) {
            MPI_Isend(out[m], count, MPI_DOUBLE, x + edge * (y + edge * z), 1024, MPI_COMM_WORLD, &sends[m]);
            sent += 8LL * count;
            m++;
        }
    }
    MPI_Waitall(m, sends, MPI_STATUSES_IGNORE);
    calls("Waitall", 0, 1, sent);
    for (int k = 0; k < n; k++) MPI_Wait(&receives[k], MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    int iterations = argc > 1 ? atoi(argv[1]) : 120;
    double step = 1, least, elapsed = 1, longest;
    begin();
    for (edge = 1; edge * edge * edge < size; edge++) continue;
    check(edge * edge * edge == size, "a cube of ranks");
    place_x = rank % edge, place_y = rank / edge % edge, place_z = rank / edge / edge;
    exchange(EVERY, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    calls("Barrier", size, 1, 0);
    for (int i = 0; i < iterations; i++) {
        // The length of the first step is given.
        if (i > 0) MPI_Allreduce(&step, &least, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
        exchange(EVERY, 0);
        exchange(EVERY, 1);
        exchange(FACES, 0);
    }
    calls("Allreduce", size, iterations - 1, 8);
    MPI_Reduce(&elapsed, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    calls("Reduce", size, 1, 8);
    end();
    return 0;
}

// The expectation of a program: lines of closed forms in the file expected.PID, each written beside its calls. The test sums
// the lines up and requires the profile to equal the sums.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *expected_file;
static int rank, size, left, right;

// `count` calls with `bytes` each, on communicators of `group` ranks (0 where the call is not collective).
static inline void calls(const char *function, int group, long long count, long long bytes) {
    fprintf(expected_file, "calls %s %d %lld %lld\n", function, group, count, bytes);
}

// `count` messages of `bytes` each to this rank of MPI_COMM_WORLD.
static inline void messages(int peer, long long count, long long bytes) {
    fprintf(expected_file, "messages %d %lld %lld\n", peer, count, count * bytes);
}

// `count` one-sided operations of `bytes` each on this rank of MPI_COMM_WORLD.
static inline void operations(int peer, long long count, long long bytes) {
    fprintf(expected_file, "operations %d %lld %lld\n", peer, count, count * bytes);
}

// `count` messages to processes outside this MPI_COMM_WORLD.
static inline void outside(long long count) {
    fprintf(expected_file, "outside %lld\n", count);
}

static inline void expect_open(void) {
    char name[64];
    snprintf(name, sizeof name, "expected.%d", (int)getpid());
    expected_file = fopen(name, "w");
    if (!expected_file) {
        perror(name);
        exit(1);
    }
    setvbuf(expected_file, NULL, _IOLBF, 0);
}

static inline void place(void) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    right = (rank + 1) % size;
    left = (rank + size - 1) % size;
}

static inline void begin(void) {
    expect_open();
    MPI_Init(NULL, NULL);
    calls("Init", 0, 1, 0);
    place();
}

static inline void begin_threaded(int level) {
    int provided;
    expect_open();
    MPI_Init_thread(NULL, NULL, level, &provided);
    calls("Init_thread", 0, 1, 0);
    place();
    if (provided < level) {
        printf("LEFT OUT: this MPI provides thread level %d, not %d\n", provided, level);
        MPI_Finalize();
        calls("Finalize", 0, 1, 0);
        exit(0);
    }
}

static inline void end(void) {
    MPI_Finalize();
    calls("Finalize", 0, 1, 0);
    fclose(expected_file);
}

static inline void check(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "rank %d: the program's own check failed: %s\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

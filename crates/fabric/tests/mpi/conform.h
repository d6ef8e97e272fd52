/* What every case of the conformance program uses. A case is a function that every rank runs on a communicator of its own
 * (`test.comm`). It records what is wrong by CHECK and goes on; main.c prints one line per case. */
#ifndef CONFORM_H
#define CONFORM_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct test {
    MPI_Comm comm; /* the case's own, freed after it */
    MPI_Comm side; /* for meeting without a message that a wildcard of the case could take */
    int rank, size;
    uint64_t seed; /* of the case's random numbers; the same on every rank */
};
extern struct test test;

struct test_case {
    const char *name;
    void (*run)(void);
    int threads; /* needs MPI_THREAD_MULTIPLE */
};

/* Ends with a case without a name. */
extern const struct test_case transfer_cases[], probe_cases[], mode_cases[], cancel_cases[], error_cases[], order_cases[],
    flood_cases[], persistent_cases[], collective_cases[], datatype_cases[], communicator_cases[], window_cases[],
    accumulate_cases[], passive_cases[], epoch_cases[], layout_cases[], thread_cases[], huge_cases[];

/* Without threads and without datatypes that begin elsewhere than at 0, whose files are left out, Open MPI 4.1 can carry one-sided
 * operations in messages. */
#ifdef IN_MESSAGES
#pragma weak datatype_cases
#pragma weak layout_cases
#pragma weak huge_cases
#endif

/* Safe from several threads. */
void check(int holds, const char *file, int line, const char *format, ...) __attribute__((format(printf, 4, 5)));
#define CHECK(condition) check((condition) != 0, __FILE__, __LINE__, "%s", #condition)
#define CHECK_EQUAL(found, expected)                                                                                   \
    do {                                                                                                               \
        long long found_ = (long long)(found), expected_ = (long long)(expected);                                      \
        check(found_ == expected_, __FILE__, __LINE__, "%s is %lld, not %lld (%s)", #found, found_, expected_,         \
              #expected);                                                                                              \
    } while (0)

/* Records that the case ran on this machine, but could not test its subject. */
void leave_out(const char *why);

/* Bytes of a message by its salt, so that each byte of each message can be checked. */
void fill(void *bytes, size_t length, unsigned salt);
/* Checks `length` bytes and reports the first wrong one. */
void check_bytes(const void *bytes, size_t length, unsigned salt, const char *file, int line);
#define CHECK_BYTES(bytes, length, salt) check_bytes(bytes, length, salt, __FILE__, __LINE__)

uint64_t draw(uint64_t *state);
unsigned below(uint64_t *state, unsigned bound);

/* Allocates memory, or ends the program. */
void *memory(size_t length);

/* Sleeps without calling MPI. */
void rest(unsigned milliseconds);

/* Rank 0 and rank 1 exchange messages, the others wait for the case to end. */
static inline int apart(void) { return test.rank > 1; }
static inline int other(void) { return 1 - test.rank; }

#ifdef CREATED /* MPIs carry windows of one host in shared memory where they allocate it themselves. */
static inline int allocated(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *window) {
    void *block = memory((size_t)size);
    memcpy(base, &block, sizeof block);
    return MPI_Win_create(block, size, unit, info, comm, window);
}
#define MPI_Win_allocate allocated
#endif

/* An empty message each way: both ranks have come here. */
static inline void meet(int peer) {
    MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, 0, NULL, 0, MPI_BYTE, peer, 0, test.side, MPI_STATUS_IGNORE);
}

/* Lengths around and between those at which transports change how they carry a message. */
extern const int LENGTHS[];
extern const int LENGTHS_COUNT;

#endif

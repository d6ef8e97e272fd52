/* What every case of the libfabric conformance program uses. Two processes, the sides 0 and 1, run each case with objects
 * of their own. A case records what is wrong by CHECK and goes on; main.c prints one line per case. */
#ifndef CONFORM_H
#define CONFORM_H

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A case's wishes for its objects; 0 is the usual: FI_TAGGED | FI_MSG, AV of any type, tagged completions. */
struct wish {
    uint64_t caps;
    enum fi_ep_type kind; /* FI_EP_RDM where it is FI_EP_UNSPEC */
    enum fi_av_type av_type;
    enum fi_threading threading;
    int mr_mode;
    const char *service; /* by which side 0 is found */
    enum fi_wait_obj wait_object;
    uint64_t transmit_bind, receive_bind; /* flags beside FI_TRANSMIT and FI_RECV when the queues are bound */
    int counters;                         /* bound for FI_SEND and FI_RECV */
    int remote_counters;                  /* bound for FI_REMOTE_WRITE and FI_REMOTE_READ */
};

/* One side's objects. */
struct end {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_ep *ep;
    struct fid_cq *sent, *received;
    struct fid_eq *events; /* its reads drive connections; or NULL */
    struct fid_cntr *sends, *receives, *written, *read;
    fi_addr_t peer, self;
    int side;
};

struct test_case {
    const char *name;
    void (*run)(void);
};
extern const struct test_case object_cases[], transfer_cases[], matching_cases[], peek_cases[], multi_receive_cases[],
    completion_cases[], load_cases[], remote_cases[], shared_cases[], connection_cases[], datagram_cases[], trigger_cases[], work_cases[],
    refusal_cases[];

extern int side; /* 0 or 1 */
extern const char *provider;

void check(int holds, const char *file, int line, const char *format, ...) __attribute__((format(printf, 4, 5)));
#define CHECK(condition) check((condition) != 0, __FILE__, __LINE__, "%s", #condition)
#define CHECK_EQUAL(found, expected)                                                                                   \
    do {                                                                                                               \
        long long found_ = (long long)(found), expected_ = (long long)(expected);                                      \
        check(found_ == expected_, __FILE__, __LINE__, "%s is %lld, not %lld (%s)", #found, found_, expected_,         \
              #expected);                                                                                              \
    } while (0)
/* Ends the case's process when it cannot go on. */
void must(long result, const char *file, int line, const char *what);
#define MUST(call) must((long)(call), __FILE__, __LINE__, #call)
void leave_out(const char *why);

void fill(void *bytes, size_t length, unsigned salt);
void check_bytes(const void *bytes, size_t length, unsigned salt, const char *file, int line);
#define CHECK_BYTES(bytes, length, salt) check_bytes(bytes, length, salt, __FILE__, __LINE__)
uint64_t draw(uint64_t *state);
void *memory(size_t length);
void rest(unsigned milliseconds);

/* Hints for an RDM endpoint of the provider under test with these capabilities. */
struct fi_info *hints_for(uint64_t caps);
/* All objects, enabled, and each side's name exchanged. NULL when the provider offers no such endpoint (the case is then
 * left out with that reason). */
struct end *open_end(const struct wish *wish);
void close_end(struct end *end);

/* Sends and receives bytes past the fabric. */
void tell(const void *bytes, size_t length);
void hear(void *bytes, size_t length);
/* Waits until both sides are here, and drives the fabric meanwhile. */
void meet(struct end *end);

/* Drives the fabric without taking a completion. */
void turn(struct end *end);
/* Repeats the call until it is not -FI_EAGAIN. */
#define AGAIN(end, call)                                                                                               \
    ({                                                                                                                 \
        ssize_t result_;                                                                                               \
        while ((result_ = (call)) == -FI_EAGAIN) turn(end);                                                            \
        result_;                                                                                                       \
    })
/* Waits for the next completion: 0, or the error of the completion in error, which is then in `error`. */
int take(struct end *end, struct fid_cq *queue, struct fi_cq_tagged_entry *entry, struct fi_cq_err_entry *error);
/* Takes one completion without error, with this context. */
void expect(struct end *end, struct fid_cq *queue, void *context, const char *file, int line);
#define EXPECT(end, queue, context) expect(end, queue, context, __FILE__, __LINE__)
/* Whether a completion (or one in error) is there now. */
int is_there(struct end *end, struct fid_cq *queue);

extern const size_t LENGTHS[];
extern const int LENGTHS_COUNT;

#endif

/* Shared parts of the cases of triggered operations and of deferred work. */
#ifndef TRIGGER_H
#define TRIGGER_H

#include "conform.h"

#include <rdma/fi_trigger.h>

enum { LENGTH = 64, LONG = 200000 };

/* The endpoint, the counters of the case, and memory of this side that the other may reach. */
struct set {
    struct end *end;
    struct fid_cntr *trigger, *done;
    struct fid_mr *region;
    uint64_t *bytes, base, key; /* base and key are the other side's */
};

struct fid_cntr *counter_of(struct end *end);
int open_set(struct set *set);
void close_set(struct set *set);
struct fi_triggered_context2 when(struct fid_cntr *counter, size_t threshold);
/* A tagged send that waits as its context says. Nothing but the bytes and the context outlives the call. */
ssize_t send_when(struct set *set, const void *bytes, size_t length, uint64_t tag, void *context);
/* Exchanges a message with the peer: earlier triggered operations have had their time. */
void exchange(struct end *end, uint64_t tag);

#endif

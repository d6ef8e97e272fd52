/* Connected endpoints, fi_cm(3): side 0 listens, side 1 connects. */
#include "conform.h"

#include <rdma/fi_trigger.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 64 };

/* One side's objects; a connected endpoint's own are in struct talk. */
struct line {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_eq *eq;
    struct fid_pep *pep;
    struct fid_cq *queue;
    struct fid_cntr *sends, *receives;
    char listener[256];
};

struct event {
    uint32_t kind;
    int error;
    size_t length; /* of the data */
    struct fi_eq_cm_entry entry;
    char data[512];
};

static struct fi_info *connected_hints(void) {
    struct fi_info *hints = hints_for(FI_TAGGED | FI_MSG | FI_RMA);
    hints->ep_attr->type = FI_EP_MSG;
    return hints;
}

static void listen_for(struct line *line) {
    size_t length = sizeof line->listener;
    MUST(fi_passive_ep(line->fabric, line->info, &line->pep, NULL));
    CHECK_EQUAL(fi_listen(line->pep), -FI_ENOEQ);
    MUST(fi_pep_bind(line->pep, &line->eq->fid, 0));
    MUST(fi_listen(line->pep));
    MUST(fi_getname(&line->pep->fid, line->listener, &length));
}

/* Side 0 listens and sends its name. */
static struct line *open_line_with(uint64_t caps) {
    struct fi_info *hints = connected_hints();
    hints->caps |= caps;
    struct line *line = memory(sizeof *line);
    memset(line, 0, sizeof *line);
    int code = fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &line->info);
    fi_freeinfo(hints);
    if (code == -FI_ENODATA) {
        leave_out("connected endpoints");
        free(line);
        return NULL;
    }
    MUST(code);
    CHECK_EQUAL(line->info->ep_attr->type, FI_EP_MSG);
    struct fi_eq_attr eq = {.wait_obj = FI_WAIT_UNSPEC};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED};
    struct fi_cntr_attr counter = {.events = FI_CNTR_EVENTS_COMP};
    MUST(fi_fabric(line->info->fabric_attr, &line->fabric, NULL));
    MUST(fi_eq_open(line->fabric, &eq, &line->eq, NULL));
    MUST(fi_domain(line->fabric, line->info, &line->domain, NULL));
    MUST(fi_cq_open(line->domain, &cq, &line->queue, NULL));
    MUST(fi_cntr_open(line->domain, &counter, &line->sends, NULL));
    MUST(fi_cntr_open(line->domain, &counter, &line->receives, NULL));
    if (side == 0) {
        listen_for(line);
        tell(line->listener, sizeof line->listener);
    } else hear(line->listener, sizeof line->listener);
    return line;
}

static struct line *open_line(void) { return open_line_with(0); }

static void close_line(struct line *line) {
    if (line->pep) CHECK_EQUAL(fi_close(&line->pep->fid), 0);
    CHECK_EQUAL(fi_close(&line->sends->fid), 0);
    CHECK_EQUAL(fi_close(&line->receives->fid), 0);
    CHECK_EQUAL(fi_close(&line->queue->fid), 0);
    CHECK_EQUAL(fi_close(&line->domain->fid), 0);
    CHECK_EQUAL(fi_close(&line->eq->fid), 0);
    CHECK_EQUAL(fi_close(&line->fabric->fid), 0);
    fi_freeinfo(line->info);
    free(line);
}

static struct fid_ep *open_endpoint(struct line *line, struct fi_info *info) {
    struct fid_ep *ep;
    MUST(fi_endpoint(line->domain, info, &ep, NULL));
    MUST(fi_ep_bind(ep, &line->queue->fid, FI_TRANSMIT | FI_RECV));
    MUST(fi_ep_bind(ep, &line->sends->fid, FI_SEND));
    MUST(fi_ep_bind(ep, &line->receives->fid, FI_RECV));
    CHECK_EQUAL(fi_enable(ep), -FI_ENOEQ);
    MUST(fi_ep_bind(ep, &line->eq->fid, 0));
    MUST(fi_enable(ep));
    return ep;
}

/* The next event; drives the fabric meanwhile. */
static struct event next(struct line *line) {
    struct event event = {0};
    union {
        struct fi_eq_cm_entry entry;
        char bytes[sizeof(struct fi_eq_cm_entry) + 512];
    } room;
    ssize_t got;
    while ((got = fi_eq_read(line->eq, &event.kind, &room, sizeof room, 0)) == -FI_EAGAIN) fi_cq_read(line->queue, NULL, 0);
    if (got == -FI_EAVAIL) {
        struct fi_eq_err_entry error = {0};
        CHECK_EQUAL(fi_eq_readerr(line->eq, &error, 0), sizeof error);
        event.error = error.err;
        event.entry.fid = error.fid;
        event.length = error.err_data_size;
        memcpy(event.data, error.err_data, event.length < sizeof event.data ? event.length : sizeof event.data);
        return event;
    }
    MUST(got);
    CHECK(got >= (ssize_t)sizeof room.entry);
    event.entry = room.entry;
    event.length = (size_t)got - sizeof room.entry;
    memcpy(event.data, room.bytes + sizeof room.entry, event.length);
    return event;
}

static void expect_event(struct line *line, uint32_t kind, void *fid) {
    struct event event = next(line);
    CHECK_EQUAL(event.error, 0);
    CHECK_EQUAL(event.kind, kind);
    CHECK(event.entry.fid == fid);
}

/* Meets the other side past the fabric, which is driven meanwhile. */
static void wait_for_other(struct line *line) {
    struct end turned = {.sent = line->queue, .received = line->queue, .events = line->eq};
    meet(&turned);
}

/* Accepts the next request with an endpoint whose events go to the same queue. */
static struct fid_ep *accept_next(struct line *line, const char *data, size_t length) {
    struct event event = next(line);
    CHECK_EQUAL(event.error, 0);
    CHECK_EQUAL(event.kind, FI_CONNREQ);
    CHECK(event.entry.fid == &line->pep->fid);
    struct fid_ep *ep = open_endpoint(line, event.entry.info);
    MUST(fi_accept(ep, data, length));
    fi_freeinfo(event.entry.info);
    return ep;
}

static struct fid_ep *connect_now(struct line *line) {
    struct fid_ep *ep = open_endpoint(line, line->info);
    MUST(fi_connect(ep, line->listener, NULL, 0));
    return ep;
}

/* Opens an endpoint on both sides, connected with each other. */
static struct fid_ep *meet_by_line(struct line *line) {
    struct fid_ep *ep = side == 0 ? accept_next(line, NULL, 0) : connect_now(line);
    expect_event(line, FI_CONNECTED, ep);
    wait_for_other(line);
    return ep;
}

static void take_one(struct line *line, void *context, struct fi_cq_tagged_entry *entry) {
    ssize_t got;
    while ((got = fi_cq_read(line->queue, entry, 1)) == -FI_EAGAIN) {
    }
    if (got == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        MUST(fi_cq_readerr(line->queue, &error, 0));
        check(0, __FILE__, __LINE__, "completion in error: %s", fi_strerror(error.err));
        return;
    }
    MUST(got);
    CHECK(entry->op_context == context);
}

/* Side 1 closes and side 0 sees it. */
static void part(struct line *line, struct fid_ep *ep) {
    wait_for_other(line);
    if (side == 1) MUST(fi_shutdown(ep, 0));
    else {
        expect_event(line, FI_SHUTDOWN, ep);
        CHECK_EQUAL(fi_send(ep, "x", 1, NULL, 0, NULL), -FI_ENOTCONN);
    }
    CHECK_EQUAL(fi_close(&ep->fid), 0);
    close_line(line);
}

static void data_go_both_ways(void) {
    struct line *line = open_line();
    if (!line) return;
    char sent[600];
    size_t most = 0, room = sizeof most;
    fill(sent, sizeof sent, 3);
    if (side == 0) {
        struct event event = next(line);
        CHECK_EQUAL(event.kind, FI_CONNREQ);
        struct fid_ep *ep = open_endpoint(line, event.entry.info);
        MUST(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &most, &room));
        CHECK(most >= 64 && most <= 512);
        CHECK_EQUAL(event.length, 33);
        CHECK_BYTES(event.data, 33, 3);
        /* A request has one endpoint and one answer. */
        struct fid_ep *second;
        CHECK_EQUAL(fi_endpoint(line->domain, event.entry.info, &second, NULL), -FI_EBUSY);
        MUST(fi_accept(ep, sent, most + 10));
        CHECK_EQUAL(fi_accept(ep, NULL, 0), -FI_EISCONN);
        CHECK_EQUAL(fi_reject(line->pep, event.entry.info->handle, NULL, 0), -FI_EINVAL);
        fi_freeinfo(event.entry.info);
        expect_event(line, FI_CONNECTED, ep);
        part(line, ep);
        return;
    }
    struct fid_ep *ep = open_endpoint(line, line->info);
    MUST(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &most, &room));
    CHECK_EQUAL(fi_accept(ep, NULL, 0), -FI_EINVAL);
    CHECK_EQUAL(fi_shutdown(ep, 0), -FI_ENOTCONN);
    CHECK_EQUAL(fi_send(ep, sent, 1, NULL, 0, NULL), -FI_ENOTCONN);
    MUST(fi_connect(ep, line->listener, sent, 33));
    CHECK_EQUAL(fi_connect(ep, line->listener, NULL, 0), -FI_EISCONN);
    struct event event = next(line);
    CHECK_EQUAL(event.kind, FI_CONNECTED);
    CHECK(event.entry.fid == &ep->fid);
    CHECK_EQUAL(event.length, most); /* too long a text was cut */
    CHECK_BYTES(event.data, most, 3);
    part(line, ep);
}

static void names_of_both(void) {
    struct line *line = open_line();
    if (!line) return;
    struct fid_ep *ep = meet_by_line(line);
    char mine[256] = "", peer[256] = "", theirs[256];
    size_t length = sizeof mine, little = 1;
    MUST(fi_getname(&ep->fid, mine, &length));
    CHECK_EQUAL(fi_getpeer(ep, peer, &little), -FI_ETOOSMALL);
    CHECK_EQUAL(little, length);
    MUST(fi_getpeer(ep, peer, &little));
    tell(mine, sizeof mine);
    hear(theirs, sizeof theirs);
    CHECK(memcmp(peer, theirs, length) == 0);
    part(line, ep);
}

static void rejected_with_data(void) {
    struct line *line = open_line();
    if (!line) return;
    if (side == 0) {
        char why[40];
        struct event event = next(line);
        CHECK_EQUAL(event.kind, FI_CONNREQ);
        fill(why, sizeof why, 5);
        CHECK_EQUAL(fi_reject(line->pep, event.entry.info->handle, why, sizeof why), 0);
        fi_freeinfo(event.entry.info);
        /* Closing an endpoint without an answer is an answer. */
        event = next(line);
        CHECK_EQUAL(event.kind, FI_CONNREQ);
        struct fid_ep *ep = open_endpoint(line, event.entry.info);
        fi_freeinfo(event.entry.info);
        CHECK_EQUAL(fi_close(&ep->fid), 0);
    } else
        for (int i = 0; i < 2; i++) {
            struct fid_ep *ep = connect_now(line);
            struct event event = next(line);
            CHECK_EQUAL(event.error, FI_ECONNREFUSED);
            CHECK(event.entry.fid == &ep->fid);
            CHECK_EQUAL(event.length, i == 0 ? 40 : 0);
            CHECK_BYTES(event.data, event.length, 5);
            CHECK_EQUAL(fi_close(&ep->fid), 0);
        }
    wait_for_other(line);
    close_line(line);
}

/* Neither an unknown service nor a name without an endpoint can be reached. */
static void nobody_listens(void) {
    struct line *line = open_line();
    if (!line) return;
    if (side == 0) {
        CHECK_EQUAL(fi_close(&line->pep->fid), 0);
        line->pep = NULL;
    }
    wait_for_other(line);
    if (side == 1) {
        struct fi_info *hints = connected_hints(), *info = NULL;
        MUST(fi_getinfo(FI_VERSION(1, 15), "127.0.0.1", "4", 0, hints, &info));
        fi_freeinfo(hints);
        const void *addresses[] = {info->dest_addr, line->listener};
        for (int i = 0; i < 2; i++) {
            struct fid_ep *ep = open_endpoint(line, line->info);
            MUST(fi_connect(ep, addresses[i], NULL, 0));
            struct event event = next(line);
            CHECK_EQUAL(event.error, FI_ECONNREFUSED);
            CHECK(event.entry.fid == &ep->fid);
            CHECK_EQUAL(fi_close(&ep->fid), 0);
        }
        fi_freeinfo(info);
    }
    wait_for_other(line);
    close_line(line);
}

/* A listener that closes refuses requests that were not read; those read can still be accepted. */
static void listener_closes(void) {
    struct line *line = open_line();
    if (!line) return;
    if (side == 1) {
        struct fid_ep *first = connect_now(line);
        wait_for_other(line); /* the other side's request was read */
        struct fid_ep *second = connect_now(line);
        int connected = 0, refused = 0;
        for (int i = 0; i < 2; i++) {
            struct event event = next(line);
            if (event.error) refused += event.error == FI_ECONNREFUSED && event.entry.fid == &second->fid;
            else connected += event.kind == FI_CONNECTED && event.entry.fid == &first->fid;
        }
        CHECK_EQUAL(connected, 1);
        CHECK_EQUAL(refused, 1);
        CHECK_EQUAL(fi_close(&second->fid), 0);
        part(line, first);
        return;
    }
    struct event event = next(line);
    CHECK_EQUAL(event.kind, FI_CONNREQ);
    wait_for_other(line);
    rest(50);
    CHECK_EQUAL(fi_close(&line->pep->fid), 0);
    line->pep = NULL;
    struct fid_ep *ep = open_endpoint(line, event.entry.info);
    MUST(fi_accept(ep, NULL, 0));
    fi_freeinfo(event.entry.info);
    expect_event(line, FI_CONNECTED, ep);
    part(line, ep);
}

/* Receives are posted before there is a connection; addresses are ignored. */
static void messages_both_ways(void) {
    struct line *line = open_line();
    if (!line) return;
    struct event event = {0};
    if (side == 0) event = next(line);
    struct fid_ep *ep = open_endpoint(line, side == 0 ? event.entry.info : line->info);
    const size_t longest = 300000;
    char *in[2] = {memory(longest), memory(longest)}, *out = memory(longest), cancelled[8];
    MUST(fi_trecv(ep, cancelled, sizeof cancelled, NULL, FI_ADDR_UNSPEC, 77, 0, cancelled));
    MUST(fi_recv(ep, in[0], longest, NULL, FI_ADDR_UNSPEC, in[0]));
    MUST(fi_trecv(ep, in[1], longest, NULL, 12345, 9, 0, in[1]));
    MUST(fi_cancel(&ep->fid, cancelled));
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    CHECK_EQUAL(fi_cq_read(line->queue, &entry, 1), -FI_EAVAIL);
    MUST(fi_cq_readerr(line->queue, &error, 0));
    CHECK_EQUAL(error.err, FI_ECANCELED);
    CHECK(error.op_context == cancelled);
    if (side == 0) {
        MUST(fi_accept(ep, NULL, 0));
        fi_freeinfo(event.entry.info);
    } else MUST(fi_connect(ep, line->listener, NULL, 0));
    expect_event(line, FI_CONNECTED, ep);
    const size_t lengths[] = {0, 1, 200, 9000, 300000};
    uint64_t count = 0;
    for (int i = 0; i < 5; i++) {
        fill(out, lengths[i], (unsigned)i);
        MUST(fi_send(ep, out, lengths[i], NULL, (fi_addr_t)i * 1000, out));
        MUST(fi_tsend(ep, out, lengths[i], NULL, FI_ADDR_UNSPEC, 9, out));
        for (int ended = 0; ended < 4; ended++) {
            ssize_t got;
            while ((got = fi_cq_read(line->queue, &entry, 1)) == -FI_EAGAIN) {
            }
            MUST(got);
            if (entry.op_context == out) continue;
            CHECK(entry.op_context == in[0] || entry.op_context == in[1]);
            CHECK_EQUAL(entry.len, lengths[i]);
            CHECK_BYTES(entry.op_context, lengths[i], (unsigned)i);
            CHECK_EQUAL(entry.flags & (FI_MSG | FI_TAGGED), entry.op_context == in[0] ? FI_MSG : FI_TAGGED);
        }
        count += 2;
        if (i < 4) {
            MUST(fi_recv(ep, in[0], longest, NULL, 3, in[0]));
            MUST(fi_trecv(ep, in[1], longest, NULL, 4, 9, 0, in[1]));
        }
    }
    CHECK_EQUAL(fi_cntr_read(line->sends), count);
    CHECK_EQUAL(fi_cntr_read(line->receives), count);
    CHECK_EQUAL(fi_cntr_readerr(line->receives), 1);
    part(line, ep);
    free(in[0]), free(in[1]), free(out);
}

static void remote_memory(void) {
    struct line *line = open_line();
    if (!line) return;
    struct fid_ep *ep = meet_by_line(line);
    enum { BYTES = 100000 };
    char *there = memory(BYTES), *here = memory(BYTES);
    struct fid_mr *region;
    fill(there, BYTES, (unsigned)side);
    MUST(fi_mr_reg(line->domain, there, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, &region, NULL));
    wait_for_other(line);
    struct fi_cq_tagged_entry entry;
    MUST(fi_read(ep, here, BYTES, NULL, 99, 0, 7, here));
    take_one(line, here, &entry);
    CHECK_BYTES(here, BYTES, 1u - (unsigned)side);
    wait_for_other(line);
    fill(here, BYTES, 8);
    MUST(fi_write(ep, here, BYTES, NULL, FI_ADDR_UNSPEC, 0, 7, here));
    take_one(line, here, &entry);
    wait_for_other(line);
    CHECK_BYTES(there, BYTES, 8);
    CHECK_EQUAL(fi_close(&region->fid), 0);
    part(line, ep);
    free(there), free(here);
}

static void many_at_one_listener(void) {
    struct line *line = open_line();
    if (!line) return;
    struct fid_ep *endpoints[MANY];
    uint64_t in[MANY];
    int connected = 0, made = 0;
    if (side == 1)
        for (; made < MANY; made++) endpoints[made] = connect_now(line);
    while (connected < MANY) {
        struct event event = next(line);
        CHECK_EQUAL(event.error, 0);
        if (event.error) break;
        if (event.kind == FI_CONNREQ) {
            endpoints[made] = open_endpoint(line, event.entry.info);
            MUST(fi_accept(endpoints[made++], NULL, 0));
            fi_freeinfo(event.entry.info);
        } else connected += event.kind == FI_CONNECTED;
    }
    CHECK_EQUAL(made, MANY);
    /* Each endpoint has a peer of its own: its messages come back. */
    for (int i = 0; i < MANY; i++) MUST(fi_recv(endpoints[i], &in[i], sizeof in[i], NULL, FI_ADDR_UNSPEC, &in[i]));
    for (uint64_t i = 0; side == 1 && i < MANY; i++) MUST(fi_inject(endpoints[i], &i, sizeof i, FI_ADDR_UNSPEC));
    for (int i = 0; i < MANY; i++) {
        struct fi_cq_tagged_entry entry;
        ssize_t got;
        while ((got = fi_cq_read(line->queue, &entry, 1)) == -FI_EAGAIN) {
        }
        MUST(got);
        ptrdiff_t at = (uint64_t *)entry.op_context - in;
        CHECK(at >= 0 && at < MANY);
        if (side == 0) MUST(fi_inject(endpoints[at], &in[at], sizeof in[at], FI_ADDR_UNSPEC));
        else CHECK_EQUAL(in[at], at);
    }
    wait_for_other(line);
    if (side == 1)
        for (int i = 0; i < MANY; i++) MUST(fi_shutdown(endpoints[i], 0));
    else
        for (int i = 0; i < MANY; i++) CHECK_EQUAL(next(line).kind, FI_SHUTDOWN);
    wait_for_other(line);
    for (int i = 0; i < MANY; i++) CHECK_EQUAL(fi_close(&endpoints[i]->fid), 0);
    close_line(line);
}

/* Messages sent before the shutdown can be received after it. */
static void shutdown_overtakes_nothing(void) {
    struct line *line = open_line();
    if (!line) return;
    struct fid_ep *ep = meet_by_line(line);
    uint64_t word = 42;
    if (side == 1) {
        MUST(fi_inject(ep, &word, sizeof word, FI_ADDR_UNSPEC));
        MUST(fi_shutdown(ep, 0));
        expect_event(line, FI_SHUTDOWN, ep);
    } else {
        struct fi_cq_tagged_entry entry;
        expect_event(line, FI_SHUTDOWN, ep);
        word = 0;
        MUST(fi_recv(ep, &word, sizeof word, NULL, FI_ADDR_UNSPEC, &word));
        take_one(line, &word, &entry);
        CHECK_EQUAL(word, 42);
        MUST(fi_shutdown(ep, 0));
    }
    CHECK_EQUAL(fi_close(&ep->fid), 0);
    close_line(line);
}

/* A killed peer: its end is an event, and requests that wait for it fail. */
static void killed_peer(void) {
    struct line *line = NULL;
    char byte = 0;
    if (side == 1) {
        /* A child plays this side's part, and is killed. */
        int status = 0;
        pid_t child = fork();
        MUST(child);
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            line = open_line();
            if (!line) _exit(0);
            meet_by_line(line);
            wait_for_other(line);
            hear(&byte, 1);
            raise(SIGKILL);
        }
        MUST(waitpid(child, &status, 0));
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return leave_out("connected endpoints");
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        return;
    }
    line = open_line();
    if (!line) return;
    struct fid_ep *ep = meet_by_line(line);
    uint64_t word;
    MUST(fi_recv(ep, &word, sizeof word, NULL, FI_ADDR_UNSPEC, &word));
    wait_for_other(line);
    tell(&byte, 1);
    expect_event(line, FI_SHUTDOWN, ep);
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    ssize_t got;
    while ((got = fi_cq_read(line->queue, &entry, 1)) == -FI_EAGAIN) {
    }
    CHECK_EQUAL(got, -FI_EAVAIL);
    MUST(fi_cq_readerr(line->queue, &error, 0));
    CHECK_EQUAL(error.err, FI_ECONNRESET);
    CHECK(error.op_context == &word);
    CHECK_EQUAL(fi_close(&ep->fid), 0);
    close_line(line);
}

/* Layers of libfabric find no provider to stack on, and applications that do not ask for connections get none. */
static void only_where_asked_for(void) {
    struct fi_info *hints = connected_hints(), *info = NULL;
    int code = fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &info);
    if (code == -FI_ENODATA) return leave_out("connected endpoints");
    MUST(code);
    CHECK((info->caps & (FI_SOURCE | FI_DIRECTED_RECV)) == 0);
    fi_freeinfo(info);
    hints->ep_attr->type = FI_EP_UNSPEC;
    MUST(fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &info));
    for (struct fi_info *one = info; one; one = one->next) {
        CHECK_EQUAL(one->ep_attr->type, FI_EP_RDM);
        CHECK(strcmp(one->fabric_attr->prov_name, provider) == 0);
    }
    fi_freeinfo(info);
    fi_freeinfo(hints);
}

/* Operations that wait for a counter of receives. */
static void triggered(void) {
    struct line *line = open_line_with(FI_TRIGGER);
    if (!line) return;
    struct fid_ep *ep = meet_by_line(line);
    int out[2] = {side, side + 10}, in[2] = {-1, -1};
    struct fi_triggered_context2 context = {.event_type = FI_TRIGGER_THRESHOLD};
    context.trigger.threshold.cntr = line->receives;
    context.trigger.threshold.threshold = fi_cntr_read(line->receives) + 1;
    struct iovec from = {&out[1], sizeof(int)};
    struct fi_msg message = {.msg_iov = &from, .iov_count = 1, .context = &context};
    for (int i = 0; i < 2; i++) MUST(fi_recv(ep, &in[i], sizeof(int), NULL, 0, &in[i]));
    MUST(fi_sendmsg(ep, &message, FI_TRIGGER | FI_COMPLETION));
    wait_for_other(line);
    CHECK(in[0] == -1 && in[1] == -1);
    wait_for_other(line);
    MUST(fi_send(ep, &out[0], sizeof(int), NULL, 0, &out[0]));
    CHECK_EQUAL(fi_cntr_wait(line->receives, context.trigger.threshold.threshold + 1, 20000), 0);
    /* The other side may have been triggered before it sent its own message. */
    CHECK((in[0] == 1 - side && in[1] == 11 - side) || (in[0] == 11 - side && in[1] == 1 - side));
    part(line, ep);
}

const struct test_case connection_cases[] = {
    {"data_go_both_ways", data_go_both_ways},
    {"names_of_both", names_of_both},
    {"rejected_with_data", rejected_with_data},
    {"nobody_listens", nobody_listens},
    {"listener_closes", listener_closes},
    {"messages_both_ways", messages_both_ways},
    {"remote_memory", remote_memory},
    {"many_at_one_listener", many_at_one_listener},
    {"shutdown_overtakes_nothing", shutdown_overtakes_nothing},
    {"killed_peer", killed_peer},
    {"only_where_asked_for", only_where_asked_for},
    {"triggered", triggered},
    {0},
};

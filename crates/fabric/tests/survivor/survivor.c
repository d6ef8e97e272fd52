/* One of two processes is killed in the middle of traffic; the other must learn of it.
 *
 *   survivor PROVIDER      prints `survived: WHAT after N ms` for each operation, exit code 0 when all ended with an error
 *
 * The killed one is this process's child, which has given up its own end of everything: nothing but the fabric can tell. */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct fid_ep *ep;
static struct fid_cq *cq;
static fi_addr_t peer;

static void must(long result, const char *what) {
    if (result >= 0) return;
    fprintf(stderr, "%s gave %s\n", what, fi_strerror((int)-result));
    _exit(2);
}
#define MUST(call) must((long)(call), #call)

static void start(const char *provider, int channel) {
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    hints->caps = FI_TAGGED | FI_MSG | FI_DIRECTED_RECV;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup(provider);
    MUST(fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &info));
    MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
    MUST(fi_domain(fabric, info, &domain, NULL));
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
    MUST(fi_av_open(domain, &av_attr, &av, NULL));
    MUST(fi_cq_open(domain, &cq_attr, &cq, NULL));
    MUST(fi_endpoint(domain, info, &ep, NULL));
    MUST(fi_ep_bind(ep, &av->fid, 0));
    MUST(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    MUST(fi_enable(ep));
    char mine[256] = "", theirs[256];
    size_t length = sizeof mine;
    MUST(fi_getname(&ep->fid, mine, &length));
    if (write(channel, mine, sizeof mine) < 0 || read(channel, theirs, sizeof theirs) != sizeof theirs) _exit(2);
    MUST(fi_av_insert(av, theirs, 1, &peer, 0, NULL) == 1 ? 0 : -FI_EINVAL);
}

/* Returns 0, or the error of the completion. */
static int finish(void) {
    struct fi_cq_tagged_entry entry;
    for (;;) {
        ssize_t count = fi_cq_read(cq, &entry, 1);
        if (count == 1) return 0;
        if (count == -FI_EAVAIL) {
            struct fi_cq_err_entry error = {0};
            MUST(fi_cq_readerr(cq, &error, 0));
            return error.err;
        }
        if (count != -FI_EAGAIN) MUST(count);
        sched_yield();
    }
}

static char bytes[1 << 20], back[1 << 20];

static ssize_t post(int receive, size_t length) {
    return receive ? fi_trecv(ep, back, length, NULL, peer, 1, 0, NULL) : fi_tsend(ep, bytes, length, NULL, peer, 1, NULL);
}

static int operate(int receive, size_t length) {
    ssize_t code;
    while ((code = post(receive, length)) == -FI_EAGAIN) {
        fi_cq_read(cq, NULL, 0);
        sched_yield();
    }
    return code < 0 ? (int)-code : finish();
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

int main(int count, char **arguments) {
    int pair[2], turns = 0, errors = 0;
    if (count != 2 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 2;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        start(arguments[1], pair[0]);
        for (;; turns++) { /* one length for an eager send, one for a rendezvous */
            size_t length = turns % 2 ? sizeof bytes : 64;
            if (operate(1, length) || operate(0, length)) _exit(3);
        }
    }
    start(arguments[1], pair[1]);
    double killed = 0;
    static const char *names[4] = {"a long send", "a receive from it", "many short sends", "another receive"};
    for (; turns < 200; turns++) {
        size_t length = turns % 2 ? sizeof bytes : 64;
        MUST(-operate(0, length));
        MUST(-operate(1, length));
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    killed = now();
    for (int what = 0; what < 4; what++) {
        int code = 0;
        switch (what) {
        case 0: code = operate(0, sizeof bytes); break;
        case 2: /* the first send may still count as delivered */
            for (int i = 0; i < 200000 && code == 0; i++) code = operate(0, 64);
            break;
        default: code = operate(1, 64); break;
        }
        printf("survived: %s ended with '%s' after %.0f ms\n", names[what], fi_strerror(code), now() - killed);
        fflush(stdout);
        errors += code != 0;
    }
    return errors == 4 ? 0 : 1;
}

/* Opens and closes everything, with a message each way, again and again; what is left of it must not grow.
 *
 *   cycles PROVIDER COUNT     prints `cycles: N, descriptors A to B, KiB C to D` on both sides; exit code 0 when bounded */
#include <dirent.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void must(long result, const char *what) {
    if (result >= 0) return;
    fprintf(stderr, "%s gave %s\n", what, fi_strerror((int)-result));
    _exit(2);
}
#define MUST(call) must((long)(call), #call)

static int descriptors(void) {
    int found = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) found++;
    if (folder) closedir(folder);
    return found;
}

static long kibibytes(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1) pages = -1;
    if (file) fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void cycle(const char *provider, int channel, int number) {
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    fi_addr_t peer;
    hints->caps = FI_TAGGED | FI_MSG;
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
    static int out[20000], in[20000];
    size_t bytes = number % 10 ? sizeof(int) : sizeof out;
    out[0] = number;
    ssize_t code;
    while ((code = fi_trecv(ep, in, bytes, NULL, FI_ADDR_UNSPEC, 1, 0, in)) == -FI_EAGAIN) fi_cq_read(cq, NULL, 0);
    MUST(code);
    while ((code = fi_tsend(ep, out, bytes, NULL, peer, 1, out)) == -FI_EAGAIN) fi_cq_read(cq, NULL, 0);
    MUST(code);
    struct fi_cq_tagged_entry entry;
    for (int finished = 0; finished < 2;) {
        ssize_t got = fi_cq_read(cq, &entry, 1);
        if (got == 1) finished++;
        else if (got != -FI_EAGAIN) MUST(got);
    }
    if (in[0] != number) must(-FI_EIO, "the message's bytes");
    MUST(fi_close(&ep->fid));
    MUST(fi_close(&cq->fid));
    MUST(fi_close(&av->fid));
    MUST(fi_close(&domain->fid));
    MUST(fi_close(&fabric->fid));
    fi_freeinfo(info);
    fi_freeinfo(hints);
}

int main(int count, char **arguments) {
    int pair[2], status = 0, cycles = count == 3 ? atoi(arguments[2]) : 0;
    if (cycles < 100 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 2;
    pid_t child = fork();
    if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    int first_descriptors = 0;
    long first_kibibytes = 0;
    for (int i = 0; i < cycles; i++) {
        cycle(arguments[1], pair[child == 0], i);
        if (i == cycles / 5) first_descriptors = descriptors(), first_kibibytes = kibibytes();
    }
    int last_descriptors = descriptors();
    long last_kibibytes = kibibytes();
    printf("cycles: %d, descriptors %d to %d, KiB %ld to %ld\n", cycles, first_descriptors, last_descriptors, first_kibibytes, last_kibibytes);
    int bounded = last_descriptors <= first_descriptors && last_kibibytes - first_kibibytes < 4096;
    fflush(stdout);
    if (child == 0) _exit(!bounded);
    waitpid(child, &status, 0);
    return bounded && status == 0 ? 0 : 1;
}

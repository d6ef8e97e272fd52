/* libfabric conformance of a provider: two processes, which this one forks, run the same cases against each other.
 *
 *   conformance PROVIDER [--only GROUP[/CASE]] [--except GROUP[/CASE]] [--limit SECONDS] [--list]
 *
 * SECONDS are of processor time. One line per case; exit code 0 when none failed. Each case runs in a pair of processes of its own, so that one that ends
 * or hangs (the limit ends it) does not take the others with it. */
#include "conform.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int side;
const char *provider;
static int channel;
static int failures, said;
static const char *group_name, *case_name, *left_out;
static unsigned limit = 30;

const size_t LENGTHS[] = {0,    1,    2,    7,    8,     9,     31,    63,    64,    65,     127,    128,    192,   200,  255,
                          256,  511,  1024, 2000, 4095,  4096,  4097,  8191,  8192,  8193,   16384,  32767,  65535, 65536, 65537,
                          100000, 131073, 262144, 524287, 1048575, 1048576, 1048577, 5000011};
const int LENGTHS_COUNT = sizeof LENGTHS / sizeof *LENGTHS;

static const struct group {
    const char *name;
    const struct test_case *cases;
} GROUPS[] = {
    {"object", object_cases},         {"transfer", transfer_cases},
    {"matching", matching_cases},     {"peek", peek_cases},
    {"multi_receive", multi_receive_cases}, {"completion", completion_cases},
    {"load", load_cases},             {"remote", remote_cases},
    {"shared", shared_cases},         {"connection", connection_cases},
    {"datagram", datagram_cases},     {"trigger", trigger_cases},
    {"trigger", work_cases},          {"refusal", refusal_cases},
};

void check(int holds, const char *file, int line, const char *format, ...) {
    if (holds) return;
    __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
    if (__atomic_fetch_add(&said, 1, __ATOMIC_RELAXED) >= 5) return;
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const char *base = strrchr(file, '/');
    fprintf(stderr, "side %d, %s/%s, %s:%d: %s\n", side, group_name, case_name, base ? base + 1 : file, line, text);
}

void must(long result, const char *file, int line, const char *what) {
    if (result >= 0) return;
    const char *base = strrchr(file, '/');
    fprintf(stderr, "side %d, %s/%s, %s:%d: %s gave %s\n", side, group_name, case_name, base ? base + 1 : file, line, what,
            fi_strerror((int)-result));
    _exit(4);
}

void leave_out(const char *why) { left_out = why; }

static inline uint8_t byte_at(size_t place, unsigned salt) {
    return (uint8_t)((place ^ (place >> 7) ^ (place >> 15)) + salt * 37u + 1);
}

void fill(void *bytes, size_t length, unsigned salt) {
    for (size_t i = 0; i < length; i++) ((uint8_t *)bytes)[i] = byte_at(i, salt);
}

void check_bytes(const void *bytes, size_t length, unsigned salt, const char *file, int line) {
    for (size_t i = 0; i < length; i++) {
        uint8_t found = ((const uint8_t *)bytes)[i];
        if (found == byte_at(i, salt)) continue;
        check(0, file, line, "byte %zu of %zu is 0x%02x, not 0x%02x (salt %u)", i, length, found, byte_at(i, salt), salt);
        return;
    }
}

uint64_t draw(uint64_t *state) { /* SplitMix64, Steele and others 2014 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void *memory(size_t length) {
    void *found = malloc(length ? length : 1);
    MUST(found ? 0 : -FI_ENOMEM);
    return found;
}

void rest(unsigned milliseconds) {
    struct timespec left = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0) {
    }
}

void tell(const void *bytes, size_t length) {
    if (write(channel, bytes, length) != (ssize_t)length) _exit(5); /* the other side has ended */
}

void hear(void *bytes, size_t length) {
    for (size_t have = 0; have < length;) {
        ssize_t got = read(channel, (char *)bytes + have, length - have);
        if (got <= 0) _exit(5);
        have += (size_t)got;
    }
}

void turn(struct end *end) {
    fi_cq_read(end->sent, NULL, 0);
    fi_cq_read(end->received, NULL, 0);
    if (end->events) {
        char event[512];
        uint32_t kind;
        fi_eq_read(end->events, &kind, event, sizeof event, FI_PEEK);
    }
    /* Where threads outnumber cores, a spinning thread keeps others from running. */
    sched_yield();
}

void meet(struct end *end) {
    struct pollfd ready = {channel, POLLIN, 0};
    char byte = 'm';
    tell(&byte, 1);
    while (poll(&ready, 1, 0) == 0) turn(end);
    hear(&byte, 1);
}

int take(struct end *end, struct fid_cq *queue, struct fi_cq_tagged_entry *entry, struct fi_cq_err_entry *error) {
    struct fi_cq_err_entry unwanted;
    if (!error) error = &unwanted;
    for (;;) {
        memset(entry, 0, sizeof *entry);
        ssize_t count = fi_cq_read(queue, entry, 1);
        if (count == 1) return 0;
        if (count == -FI_EAVAIL) {
            memset(error, 0, sizeof *error);
            MUST(fi_cq_readerr(queue, error, 0));
            return error->err ? error->err : FI_EOTHER;
        }
        if (count != -FI_EAGAIN) MUST(count);
        turn(end);
    }
}

void expect(struct end *end, struct fid_cq *queue, void *context, const char *file, int line) {
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    int code = take(end, queue, &entry, &error);
    check(code == 0, file, line, "completion in error: %s (provider's %d)", fi_strerror(code), error.prov_errno);
    if (code == 0) check(entry.op_context == context, file, line, "completion of another operation");
}

int is_there(struct end *end, struct fid_cq *queue) {
    /* Reads take completions, so a case asks only where none should be. */
    struct fi_cq_tagged_entry entry;
    turn(end);
    ssize_t count = fi_cq_read(queue, &entry, 1);
    return count != -FI_EAGAIN;
}

struct fi_info *hints_for(uint64_t caps) {
    struct fi_info *hints = fi_allocinfo();
    MUST(hints ? 0 : -FI_ENOMEM);
    hints->caps = caps;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup(provider);
    return hints;
}

struct end *open_end(const struct wish *wish) {
    static const struct wish usual;
    if (!wish) wish = &usual;
    struct end *end = memory(sizeof *end);
    memset(end, 0, sizeof *end);
    end->side = side;
    struct fi_info *hints = hints_for(wish->caps ? wish->caps : FI_TAGGED | FI_MSG);
    if (wish->kind) hints->ep_attr->type = wish->kind;
    hints->domain_attr->av_type = wish->av_type;
    hints->domain_attr->threading = wish->threading;
    hints->domain_attr->mr_mode = wish->mr_mode;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    const char *source = side == 0 ? wish->service : NULL;
    int found = fi_getinfo(FI_VERSION(1, 15), NULL, source, source ? FI_SOURCE : 0, hints, &end->info);
    fi_freeinfo(hints);
    if (found == -FI_ENODATA) {
        leave_out("the provider offers no such endpoint");
        free(end);
        return NULL;
    }
    MUST(found);
    MUST(fi_fabric(end->info->fabric_attr, &end->fabric, NULL));
    MUST(fi_domain(end->fabric, end->info, &end->domain, NULL));
    struct fi_av_attr av = {.type = wish->av_type ? wish->av_type : end->info->domain_attr->av_type, .count = 8};
    if (av.type == FI_AV_UNSPEC) av.type = FI_AV_TABLE;
    MUST(fi_av_open(end->domain, &av, &end->av, NULL));
    struct fi_cq_attr cq = {.size = 8192, .format = FI_CQ_FORMAT_TAGGED, .wait_obj = wish->wait_object ? wish->wait_object : FI_WAIT_NONE};
    MUST(fi_cq_open(end->domain, &cq, &end->sent, NULL));
    MUST(fi_cq_open(end->domain, &cq, &end->received, NULL));
    MUST(fi_endpoint(end->domain, end->info, &end->ep, NULL));
    MUST(fi_ep_bind(end->ep, &end->av->fid, 0));
    MUST(fi_ep_bind(end->ep, &end->sent->fid, FI_TRANSMIT | wish->transmit_bind));
    MUST(fi_ep_bind(end->ep, &end->received->fid, FI_RECV | wish->receive_bind));
    if (wish->counters) {
        struct fi_cntr_attr counter = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
        MUST(fi_cntr_open(end->domain, &counter, &end->sends, NULL));
        MUST(fi_cntr_open(end->domain, &counter, &end->receives, NULL));
        MUST(fi_ep_bind(end->ep, &end->sends->fid, FI_SEND));
        MUST(fi_ep_bind(end->ep, &end->receives->fid, FI_RECV));
    }
    if (wish->remote_counters) {
        struct fi_cntr_attr counter = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
        MUST(fi_cntr_open(end->domain, &counter, &end->written, NULL));
        MUST(fi_cntr_open(end->domain, &counter, &end->read, NULL));
        MUST(fi_ep_bind(end->ep, &end->written->fid, FI_REMOTE_WRITE));
        MUST(fi_ep_bind(end->ep, &end->read->fid, FI_REMOTE_READ));
    }
    MUST(fi_enable(end->ep));
    char mine[256], theirs[256];
    size_t length = sizeof mine;
    memset(mine, 0, sizeof mine);
    MUST(fi_getname(&end->ep->fid, mine, &length));
    tell(mine, sizeof mine);
    hear(theirs, sizeof theirs);
    MUST(fi_av_insert(end->av, theirs, 1, &end->peer, 0, NULL) == 1 ? 0 : -FI_EINVAL);
    MUST(fi_av_insert(end->av, mine, 1, &end->self, 0, NULL) == 1 ? 0 : -FI_EINVAL);
    return end;
}

void close_end(struct end *end) {
    if (!end) return;
    meet(end);
    CHECK_EQUAL(fi_close(&end->ep->fid), 0);
    if (end->sends) CHECK_EQUAL(fi_close(&end->sends->fid), 0);
    if (end->receives) CHECK_EQUAL(fi_close(&end->receives->fid), 0);
    if (end->written) CHECK_EQUAL(fi_close(&end->written->fid), 0);
    if (end->read) CHECK_EQUAL(fi_close(&end->read->fid), 0);
    CHECK_EQUAL(fi_close(&end->sent->fid), 0);
    CHECK_EQUAL(fi_close(&end->received->fid), 0);
    CHECK_EQUAL(fi_close(&end->av->fid), 0);
    CHECK_EQUAL(fi_close(&end->domain->fid), 0);
    CHECK_EQUAL(fi_close(&end->fabric->fid), 0);
    fi_freeinfo(end->info);
    free(end);
}

static int chosen(const char *selection, const char *group, const char *name) {
    size_t length = strlen(group);
    if (strncmp(selection, group, length) != 0) return 0;
    return selection[length] == 0 || (selection[length] == '/' && strcmp(selection + length + 1, name) == 0);
}

enum { PASSED = 0, FAILED = 1, SKIPPED = 77 };

/* One side of one case, in a process of its own. */
static void play(int which, int pair[2], int reason, void (*run)(void)) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    side = which;
    channel = pair[which];
    close(pair[1 - which]);
    /* Limit of processor time, of which a loaded machine gives less per second; a process that sleeps for ever uses none. */
    struct itimerval busy = {.it_value = {.tv_sec = limit}}, never = {0};
    setitimer(ITIMER_PROF, &busy, NULL);
    alarm(8 * limit);
    run();
    setitimer(ITIMER_PROF, &never, NULL);
    alarm(0);
    if (!failures && left_out) {
        if (write(reason, left_out, strlen(left_out)) < 0) _exit(FAILED);
        _exit(SKIPPED);
    }
    fflush(NULL);
    exit(failures ? FAILED : PASSED); /* the provider's end of process too */
}

static const char *outcome(int status, char *text, size_t room) {
    if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGPROF || WTERMSIG(status) == SIGALRM)) return "ran past the limit";
    if (WIFSIGNALED(status)) snprintf(text, room, "ended by signal %d", WTERMSIG(status));
    else snprintf(text, room, "exit code %d", WEXITSTATUS(status));
    return text;
}

static int run_case(const char *group, const struct test_case *which) {
    int pair[2], reason[2], status[2];
    char why[200] = "", text[2][60];
    pid_t child[2];
    group_name = group;
    case_name = which->name;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) || pipe2(reason, O_CLOEXEC)) exit(2);
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        child[i] = fork();
        if (child[i] < 0) exit(2);
        if (child[i] == 0) play(i, pair, reason[1], which->run);
    }
    close(pair[0]), close(pair[1]), close(reason[1]);
    for (int i = 0; i < 2; i++) waitpid(child[i], &status[i], 0);
    if (read(reason[0], why, sizeof why - 1) < 0) why[0] = 0;
    close(reason[0]);
    int passed = 1, skipped = 1;
    for (int i = 0; i < 2; i++) {
        passed = passed && WIFEXITED(status[i]) && WEXITSTATUS(status[i]) == PASSED;
        skipped = skipped && WIFEXITED(status[i]) && (WEXITSTATUS(status[i]) == SKIPPED);
    }
    if (passed) printf("ok      %s/%s\n", group, which->name);
    else if (skipped) printf("SKIPPED %s/%s: %s\n", group, which->name, why);
    else
        printf("FAILED  %s/%s (side 0: %s, side 1: %s)\n", group, which->name, outcome(status[0], text[0], sizeof text[0]),
               outcome(status[1], text[1], sizeof text[1]));
    fflush(stdout);
    return passed ? PASSED : skipped ? SKIPPED : FAILED;
}

/* libfabric reads /proc/kallsyms on its first call, which takes a tenth of a second: here for all processes of cases. No provider is asked. */
static void look_for_providers(void) {
    struct fi_info *found, *hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("none");
    fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &found);
    fi_freeinfo(hints);
}

int main(int count, char **arguments) {
    const char *only = NULL, *without[16];
    int withouts = 0, list = 0, passed = 0, failed = 0, skipped = 0;
    for (int i = 1; i < count; i++) {
        int more = i + 1 < count;
        if (!strcmp(arguments[i], "--only") && more) only = arguments[++i];
        else if (!strcmp(arguments[i], "--except") && more && withouts < 16) without[withouts++] = arguments[++i];
        else if (!strcmp(arguments[i], "--limit") && more) limit = (unsigned)atoi(arguments[++i]);
        else if (!strcmp(arguments[i], "--list")) list = 1;
        else if (!provider) provider = arguments[i];
        else return fprintf(stderr, "conformance: what is '%s'?\n", arguments[i]), 2;
    }
    if (!provider && !list) return fprintf(stderr, "usage: conformance PROVIDER [--only GROUP[/CASE]]\n"), 2;
    if (!list) look_for_providers();
    for (size_t g = 0; g < sizeof GROUPS / sizeof *GROUPS; g++)
        for (const struct test_case *c = GROUPS[g].cases; c->name; c++) {
            int wanted = !only || chosen(only, GROUPS[g].name, c->name);
            for (int i = 0; i < withouts; i++) wanted = wanted && !chosen(without[i], GROUPS[g].name, c->name);
            if (!wanted) continue;
            if (list) {
                printf("%s/%s\n", GROUPS[g].name, c->name);
                continue;
            }
            switch (run_case(GROUPS[g].name, c)) {
            case PASSED: passed++; break;
            case SKIPPED: skipped++; break;
            default: failed++; break;
            }
        }
    if (!list) printf("conformance of %s: %d passed, %d failed, %d skipped\n", provider, passed, failed, skipped);
    return failed ? 1 : list || passed + skipped ? 0 : 2;
}

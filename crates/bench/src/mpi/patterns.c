/* The patterns of `plimsoll bench mpi`: what OSU's micro-benchmarks measure, written anew.
 *
 * patterns CONTROL CORE,CORE MILLISECONDS ACCOUNT PROBE PATTERN:SIZE:RECEIVER ...
 *
 * Of two ranks each pins itself to its core; more share both. `barrier`, `ring`, `alltoall` and `allreduce` are of all ranks, the others of two. Before and after each timed part rank 0 writes a line to the pipe CONTROL.out and
 * waits for a byte from CONTROL.in, so that whoever counts on this machine counts that part and nothing else. Results go
 * the same way. `rate-of-threads` has two threads a rank, each with a communicator and windows of its own; a start with it asks for
 * MPI_THREAD_MULTIPLE. The second thread runs where the kernel puts it. With ACCOUNT 1 the time inside every MPI call is taken; it costs two readings of the clock a call. With PROBE 1 two ranks
 * of one machine probe before and after each timed part how near their cores are.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

enum { FIRST_TASK = 6, WINDOW = 64, ANSWER = 9, LATENCY_TAG = 1, WINDOW_TAG = 2, COMPUTE_PASSES = 4 };
/* Messages of a window lie apart while all of them fit into APART; larger ones share a buffer, as OSU's do. Those of
 * `cold-bandwidth` walk through COLD, which no cache of a core's own holds. */
static const size_t APART = 4u << 20, COLD = 64u << 20;

static const char THREADS[] = "rate-of-threads";

static int rank, ranks, account;
/* The cores of the process before its ranks pin themselves. */
static cpu_set_t *all_cores;
enum { MOST_CORES = 8192 };
static uint64_t calls, ticks_in_calls, ticks_in_all_calls, first_tick, first_nanosecond;
static int counted; /* whether ticks are the processor's */
static int control_out = -1, control_in = -1;
static volatile uint64_t kept;

/* Whether the kernel trusts the counter: only then is it listed as a clock source. */
static int counter_is_kept(void)
{
    char names[200] = "";
    FILE *source = fopen("/sys/devices/system/clocksource/clocksource0/available_clocksource", "r");
    int is_read = source != NULL && fgets(names, sizeof names, source) != NULL;
    if (source != NULL)
        fclose(source);
    return is_read && strstr(names, "tsc") != NULL;
}

static uint64_t ticks(void)
{
#if defined(__x86_64__)
    if (__builtin_expect(counted, 1))
        return __rdtsc();
#endif
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t nanoseconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* An MPI call, timed if asked for. */
#define CALL(call)                                   \
    do {                                             \
        if (account) {                               \
            uint64_t before = ticks();               \
            call;                                    \
            uint64_t inside = ticks() - before;      \
            ticks_in_calls += inside;                \
            ticks_in_all_calls += inside;            \
            calls++;                                 \
        } else {                                     \
            call;                                    \
        }                                            \
    } while (0)

static void die(const char *what)
{
    fprintf(stderr, "patterns: %s: %s\n", what, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 3);
    exit(3);
}

static void tell(const char *line)
{
    size_t length = strlen(line);
    while (length > 0) {
        ssize_t written = write(control_out, line, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            die("control pipe");
        line += written;
        length -= (size_t)written;
    }
}

static void await_answer(void)
{
    char byte;
    ssize_t count;
    while ((count = read(control_in, &byte, 1)) < 0 && errno == EINTR)
        ;
    if (count != 1)
        die("control pipe");
}

struct work {
    char pattern[16];
    size_t size;
    int works;
    char *out, *in; /* memory of `span` bytes, used by the messages of a window at steps of `stride`; the next is at `at` */
    size_t span, stride, at;
    uint64_t *field; /* numbers that are computed on between exchanges */
    size_t words;
    uint64_t passes;          /* passes of computing in a round of `overlap` */
    MPI_Comm comm;            /* of windows */
    struct work *second;      /* windows of the second thread */
    uint64_t alone[2];        /* ns of such a round without the computing, and without the transfer */
};

/* Reads all of the data, as an application does with messages that it receives. */
static void use(const char *data, size_t length)
{
    uint64_t sum = 0;
    size_t at = 0;
    for (; at + 8 <= length; at += 8) {
        uint64_t word;
        memcpy(&word, data + at, 8);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
    }
    for (; at < length; at++)
        sum += (unsigned char)data[at];
    kept += sum;
}

static void compute(struct work *work, uint64_t passes)
{
    for (uint64_t pass = 0; pass < passes; pass++)
        for (size_t i = 1; i + 1 < work->words; i++)
            work->field[i] = (work->field[i - 1] + 2 * work->field[i] + work->field[i + 1]) >> 2;
    kept += work->field[work->words / 2];
}

static void ping_pong(struct work *work, uint64_t rounds)
{
    int size = (int)work->size;
    for (uint64_t i = 0; i < rounds; i++) {
        if (rank == 0) {
            CALL(MPI_Send(work->out, size, MPI_CHAR, 1, LATENCY_TAG, MPI_COMM_WORLD));
            CALL(MPI_Recv(work->in, size, MPI_CHAR, 1, LATENCY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        } else {
            CALL(MPI_Recv(work->in, size, MPI_CHAR, 0, LATENCY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CALL(MPI_Send(work->out, size, MPI_CHAR, 0, LATENCY_TAG, MPI_COMM_WORLD));
        }
        if (work->works)
            use(work->in, work->size);
    }
}

/* Place of the next message of a window. */
static size_t next_of(struct work *work)
{
    size_t at = work->at, next = at + work->stride;
    work->at = next + work->size <= work->span ? next : 0;
    return at;
}

static void windows(struct work *work, uint64_t rounds)
{
    MPI_Request requests[WINDOW];
    size_t places[WINDOW];
    int size = (int)work->size, answer = 0, together = WINDOW;
    /* Messages in flight never overlap, unless all share one place. */
    if (work->stride > 0 && work->span / work->stride < WINDOW)
        together = (int)(work->span / work->stride);
    for (uint64_t i = 0; i < rounds; i++) {
        for (int first = 0; first < WINDOW; first += together) {
            int count = WINDOW - first < together ? WINDOW - first : together;
            for (int j = 0; j < count; j++) {
                places[j] = next_of(work);
                if (rank == 0)
                    CALL(MPI_Isend(work->out + places[j], size, MPI_CHAR, 1, WINDOW_TAG, work->comm, &requests[j]));
                else
                    CALL(MPI_Irecv(work->in + places[j], size, MPI_CHAR, 0, WINDOW_TAG, work->comm, &requests[j]));
            }
            CALL(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE));
            for (int j = 0; rank == 1 && work->works && j < count; j++)
                use(work->in + places[j], work->size);
        }
        if (rank == 0)
            CALL(MPI_Recv(&answer, 1, MPI_INT, 1, ANSWER, work->comm, MPI_STATUS_IGNORE));
        else
            CALL(MPI_Send(&answer, 1, MPI_INT, 0, ANSWER, work->comm));
    }
}

struct lane {
    struct work *work;
    uint64_t rounds;
};

static void *lane(void *argument)
{
    struct lane *lane = argument;
    if (sched_setaffinity(0, CPU_ALLOC_SIZE(MOST_CORES), all_cores) != 0)
        die("the cores of the second thread");
    windows(lane->work, lane->rounds);
    return NULL;
}

static void of_threads(struct work *work, uint64_t rounds)
{
    struct lane second = {work->second, rounds};
    pthread_t thread;
    if ((errno = pthread_create(&thread, NULL, lane, &second)) != 0)
        die("a second thread");
    windows(work, rounds);
    pthread_join(thread, NULL);
}

/* A step of a simulation: computes, then swaps a border with the other rank. */
static void exchange(struct work *work, uint64_t rounds)
{
    MPI_Request requests[2];
    int size = (int)work->size, other = 1 - rank;
    for (uint64_t i = 0; i < rounds; i++) {
        CALL(MPI_Irecv(work->in, size, MPI_CHAR, other, WINDOW_TAG, MPI_COMM_WORLD, &requests[0]));
        CALL(MPI_Isend(work->out, size, MPI_CHAR, other, WINDOW_TAG, MPI_COMM_WORLD, &requests[1]));
        compute(work, COMPUTE_PASSES);
        CALL(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        use(work->in, work->size);
    }
}

/* A transfer each way, begun before computing and waited for after it. */
static void overlap(struct work *work, uint64_t rounds)
{
    MPI_Request requests[2];
    int size = (int)work->size, other = 1 - rank;
    for (uint64_t i = 0; i < rounds; i++) {
        CALL(MPI_Irecv(work->in, size, MPI_CHAR, other, WINDOW_TAG, MPI_COMM_WORLD, &requests[0]));
        CALL(MPI_Isend(work->out, size, MPI_CHAR, other, WINDOW_TAG, MPI_COMM_WORLD, &requests[1]));
        if (rank == 0)
            compute(work, work->passes);
        CALL(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    }
}

/* Each rank passes a message on to the next. */
static void ring(struct work *work, uint64_t rounds)
{
    int size = (int)work->size, next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (uint64_t i = 0; i < rounds; i++)
        CALL(MPI_Sendrecv(work->out, size, MPI_CHAR, next, WINDOW_TAG, work->in, size, MPI_CHAR, before, WINDOW_TAG,
                          MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

static void barrier(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++)
        CALL(MPI_Barrier(MPI_COMM_WORLD));
}

/* Each rank sends a message to each other. */
static void alltoall(struct work *work, uint64_t rounds)
{
    int size = (int)work->size;
    for (uint64_t i = 0; i < rounds; i++)
        CALL(MPI_Alltoall(work->out, size, MPI_CHAR, work->in, size, MPI_CHAR, MPI_COMM_WORLD));
}

static void allreduce(struct work *work, uint64_t rounds)
{
    int count = (int)(work->size / sizeof(double));
    for (uint64_t i = 0; i < rounds; i++)
        CALL(MPI_Allreduce(work->out, work->in, count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
}

static void run(struct work *work, uint64_t rounds)
{
    if (strcmp(work->pattern, "latency") == 0)
        ping_pong(work, rounds);
    else if (strcmp(work->pattern, THREADS) == 0)
        of_threads(work, rounds);
    else if (strcmp(work->pattern, "exchange") == 0)
        exchange(work, rounds);
    else if (strcmp(work->pattern, "overlap") == 0)
        overlap(work, rounds);
    else if (strcmp(work->pattern, "ring") == 0)
        ring(work, rounds);
    else if (strcmp(work->pattern, "barrier") == 0)
        barrier(rounds);
    else if (strcmp(work->pattern, "alltoall") == 0)
        alltoall(work, rounds);
    else if (strcmp(work->pattern, "allreduce") == 0)
        allreduce(work, rounds);
    else
        windows(work, rounds);
}

/* Number of rounds that take about `target` ns; finding it is the warm-up. */
static uint64_t calibrate(struct work *work, uint64_t target)
{
    uint64_t rounds = 1, taken;
    for (;;) {
        CALL(MPI_Barrier(MPI_COMM_WORLD));
        uint64_t start = nanoseconds(CLOCK_MONOTONIC);
        run(work, rounds);
        taken = nanoseconds(CLOCK_MONOTONIC) - start;
        CALL(MPI_Bcast(&taken, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD));
        if (taken >= target / 8 || rounds > 1u << 30)
            break;
        rounds *= taken * 16 < target ? 4 : 2;
    }
    uint64_t wanted = (uint64_t)((double)rounds * (double)target / (double)(taken ? taken : 1));
    return wanted > 0 ? wanted : 1;
}

/* Computing of rank 0 in `overlap`, as long as its transfer alone. */
static void balance(struct work *work)
{
    enum { ROUNDS_ALONE = 50, PASSES = 8 };
    overlap(work, ROUNDS_ALONE / 5);
    CALL(MPI_Barrier(MPI_COMM_WORLD));
    uint64_t start = nanoseconds(CLOCK_MONOTONIC);
    overlap(work, ROUNDS_ALONE);
    work->alone[0] = (nanoseconds(CLOCK_MONOTONIC) - start) / ROUNDS_ALONE;
    CALL(MPI_Bcast(&work->alone[0], 1, MPI_UINT64_T, 0, MPI_COMM_WORLD));
    compute(work, PASSES);
    start = nanoseconds(CLOCK_MONOTONIC);
    compute(work, PASSES);
    uint64_t pass = (nanoseconds(CLOCK_MONOTONIC) - start) / PASSES;
    work->passes = work->alone[0] / (pass ? pass : 1) + 1;
    CALL(MPI_Bcast(&work->passes, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD));
    start = nanoseconds(CLOCK_MONOTONIC);
    for (int i = 0; i < ROUNDS_ALONE; i++)
        compute(work, work->passes);
    work->alone[1] = (nanoseconds(CLOCK_MONOTONIC) - start) / ROUNDS_ALONE;
}

static uint64_t microseconds(struct timeval time)
{
    return (uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_usec;
}

/* Figures in the order of a result line: see `result.rs`. */
enum { ROUNDS, ELAPSED, CPU, USER, SYSTEM, CALLS, IN_CALLS, IN_ALL_CALLS, SWITCHES, TRANSFER, COMPUTING, NEAR_BEFORE, NEAR_AFTER, FIELDS };

/* A cache line for each rank, in a file beside the control pipe; NULL without probes. */
static struct lines {
    _Alignas(128) _Atomic uint64_t ping;
    _Alignas(128) _Atomic uint64_t pong;
} *lines;

static void share_lines(const char *control)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.lines", control);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof *lines) != 0)
        die(path);
    lines = mmap(NULL, sizeof *lines, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (lines == MAP_FAILED)
        die(path);
    close(file);
}

/* Time of a cache line from one rank to the other, ps, in the fastest of some batches. Other ranks than 0 get 0. */
static uint64_t probe(void)
{
    enum { BATCH = 64, BATCHES = 16 };
    uint64_t fastest = UINT64_MAX;
    if (lines == NULL)
        return 0;
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t number = atomic_load(&lines->pong);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int batch = 0; batch < BATCHES; batch++) {
        uint64_t start = nanoseconds(CLOCK_MONOTONIC);
        for (int i = 0; i < BATCH; i++) {
            number++;
            if (rank == 0)
                atomic_store_explicit(&lines->ping, number, memory_order_release);
            while (atomic_load_explicit(rank == 0 ? &lines->pong : &lines->ping, memory_order_acquire) != number)
                ;
            if (rank == 1)
                atomic_store_explicit(&lines->pong, number, memory_order_release);
        }
        uint64_t taken = nanoseconds(CLOCK_MONOTONIC) - start;
        fastest = taken < fastest ? taken : fastest;
    }
    return rank == 0 ? fastest * 1000 / (2 * BATCH) : 0;
}

static void measure(struct work *work, uint64_t rounds, uint64_t *fields)
{
    struct rusage before, after;
    fields[NEAR_BEFORE] = probe();
    CALL(MPI_Barrier(MPI_COMM_WORLD));
    calls = ticks_in_calls = 0;
    getrusage(RUSAGE_SELF, &before);
    uint64_t cpu = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t start = nanoseconds(CLOCK_MONOTONIC);
    run(work, rounds);
    uint64_t elapsed = nanoseconds(CLOCK_MONOTONIC) - start;
    fields[CPU] = nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    getrusage(RUSAGE_SELF, &after);
    double scale = (double)(nanoseconds(CLOCK_MONOTONIC) - first_nanosecond) / (double)(ticks() - first_tick);
    fields[ROUNDS] = rounds;
    fields[ELAPSED] = elapsed;
    fields[USER] = 1000 * (microseconds(after.ru_utime) - microseconds(before.ru_utime));
    fields[SYSTEM] = 1000 * (microseconds(after.ru_stime) - microseconds(before.ru_stime));
    fields[CALLS] = calls;
    fields[IN_CALLS] = (uint64_t)((double)ticks_in_calls * scale);
    fields[IN_ALL_CALLS] = (uint64_t)((double)ticks_in_all_calls * scale);
    fields[TRANSFER] = work->alone[0];
    fields[COMPUTING] = work->alone[1];
    fields[NEAR_AFTER] = probe();
    fields[SWITCHES] = (uint64_t)(after.ru_nvcsw - before.ru_nvcsw + after.ru_nivcsw - before.ru_nivcsw);
}

static char *memory(size_t length)
{
    void *block = NULL;
    length = (length + 4095) & ~(size_t)4095;
    if ((errno = posix_memalign(&block, 4096, length ? length : 4096)) != 0)
        die("memory");
    memset(block, rank + 1, length ? length : 4096);
    return block;
}

static void pin(const char *cores)
{
    const char *comma = strchr(cores, ',');
    int first = atoi(cores), second = comma == NULL ? first : atoi(comma + 1);
    int core = rank == 0 ? first : second, most = first > second ? first : second;
    /* A cpu_set_t holds 1,024 cores. */
    cpu_set_t *set = CPU_ALLOC(most + 1);
    size_t size = CPU_ALLOC_SIZE(most + 1);
    all_cores = CPU_ALLOC(MOST_CORES);
    if (set == NULL || all_cores == NULL || sched_getaffinity(0, CPU_ALLOC_SIZE(MOST_CORES), all_cores) != 0)
        die("cores");
    CPU_ZERO_S(size, set);
    CPU_SET_S(core, size, set);
    if (ranks > 2)
        CPU_SET_S(first, size, set);
    if (sched_setaffinity(0, size, set) != 0) {
        char what[160], host[65] = "";
        int why = errno;
        gethostname(host, sizeof host - 1);
        snprintf(what, sizeof what, "rank %d cannot have core %d of %s", rank, core, host);
        errno = why;
        die(what);
    }
    CPU_FREE(set);
}

int main(int argc, char **argv)
{
    char line[512], path[4096];
    int wanted = MPI_THREAD_SINGLE, level;
    for (int nth = FIRST_TASK; nth < argc; nth++)
        if (strncmp(argv[nth], THREADS, sizeof THREADS - 1) == 0)
            wanted = MPI_THREAD_MULTIPLE;
    MPI_Init_thread(&argc, &argv, wanted, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2 || argc < FIRST_TASK) {
        fprintf(stderr, "usage: two ranks or more of patterns CONTROL CORE,CORE MILLISECONDS ACCOUNT PROBE PATTERN:SIZE:RECEIVER ...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (level < wanted) {
        fprintf(stderr, "patterns: this MPI gives no MPI_THREAD_MULTIPLE\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    pin(argv[2]);
    account = atoi(argv[4]);
    counted = counter_is_kept();
    if (atoi(argv[5]) && ranks == 2)
        share_lines(argv[1]);
    first_tick = ticks();
    first_nanosecond = nanoseconds(CLOCK_MONOTONIC);
    uint64_t target = strtoull(argv[3], NULL, 10) * 1000000u;
    if (rank == 0) {
        snprintf(path, sizeof path, "%s.out", argv[1]);
        if ((control_out = open(path, O_WRONLY)) < 0)
            die(path);
        snprintf(path, sizeof path, "%s.in", argv[1]);
        if ((control_in = open(path, O_RDONLY)) < 0)
            die(path);
    }
    for (int nth = FIRST_TASK; nth < argc; nth++) {
        struct work work = {0};
        char receiver[16];
        if (sscanf(argv[nth], "%15[a-z-]:%zu:%15[a-z]", work.pattern, &work.size, receiver) != 3) {
            errno = EINVAL;
            die(argv[nth]);
        }
        work.works = strcmp(receiver, "works") == 0;
        int cold = strcmp(work.pattern, "cold-bandwidth") == 0;
        work.stride = cold || work.size * WINDOW <= APART ? (work.size + 63) & ~(size_t)63 : 0;
        work.span = cold ? (COLD > work.stride ? COLD : work.stride) : work.stride * (WINDOW - 1) + work.size;
        size_t of_all = (size_t)ranks * work.size;
        work.out = memory(work.span > of_all ? work.span : of_all);
        work.in = memory(work.span > of_all ? work.span : of_all);
        work.comm = MPI_COMM_WORLD;
        struct work second = work;
        if (strcmp(work.pattern, THREADS) == 0) {
            second.out = memory(work.span);
            second.in = memory(work.span);
            MPI_Comm_dup(MPI_COMM_WORLD, &second.comm);
            work.second = &second;
        }
        work.words = 4096;
        work.field = (uint64_t *)memory(work.words * sizeof *work.field);
        if (strcmp(work.pattern, "overlap") == 0)
            balance(&work);
        uint64_t rounds = calibrate(&work, target);
        CALL(MPI_Bcast(&rounds, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD));
        if (rank == 0) {
            snprintf(line, sizeof line, "begin %d\n", nth - FIRST_TASK);
            tell(line);
            await_answer();
        }
        uint64_t mine[FIELDS], (*all)[FIELDS] = calloc((size_t)ranks, sizeof *all);
        if (all == NULL)
            die("memory");
        measure(&work, rounds, mine);
        if (rank == 0) {
            snprintf(line, sizeof line, "end %d\n", nth - FIRST_TASK);
            tell(line);
            await_answer();
        }
        MPI_Gather(mine, FIELDS, MPI_UINT64_T, all, FIELDS, MPI_UINT64_T, 0, MPI_COMM_WORLD);
        for (int who = 0; rank == 0 && who < 2; who++) {
            int at = snprintf(line, sizeof line, "result %d %d", nth - FIRST_TASK, who);
            for (int field = 0; field < FIELDS; field++)
                at += snprintf(line + at, sizeof line - (size_t)at, " %llu", (unsigned long long)all[who][field]);
            snprintf(line + at, sizeof line - (size_t)at, "\n");
            tell(line);
        }
        free(all);
        if (work.second != NULL) {
            free(second.out);
            free(second.in);
            MPI_Comm_free(&second.comm);
        }
        free(work.out);
        free(work.in);
        free(work.field);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}

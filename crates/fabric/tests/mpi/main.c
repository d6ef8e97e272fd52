/* MPI conformance: every rank runs the same cases; rank 0 prints a line per case. Exit code 0 when none failed.
 *
 *   conformance [--only GROUP[/CASE]] [--except GROUP[/CASE]] [--seed N] [--limit SECONDS] [--huge] [--list]
 *
 * Needs at least 2 ranks. A case that takes longer than the limit ends the program with its name. */
#include "conform.h"

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

struct test test;
static MPI_Comm control;
static const char *group_name = "start", *case_name = "MPI_Init_thread";
static atomic_int failures, said;
static const char *left_out;
static unsigned limit = 60;

const int LENGTHS[] = {0,    1,    2,     3,     7,     8,     9,     63,    64,    65,     100,    191,    192,    193,     255,    256,
                       511,  1000, 1024,  2047,  2048,  4000,  4095,  4096,  4097,  8191,   8192,   8193,   12288,  16383,   16384,  16385,
                       32767, 32769, 65535, 65536, 65537, 100000, 131072, 131073, 262143, 524289, 1048576, 1048577, 3000001};
const int LENGTHS_COUNT = sizeof LENGTHS / sizeof *LENGTHS;

static const struct group {
    const char *name;
    const struct test_case *cases;
} GROUPS[] = {
    {"transfer", transfer_cases},       {"probe", probe_cases},       {"mode", mode_cases},
    {"cancel", cancel_cases},           {"error", error_cases},       {"order", order_cases},
    {"flood", flood_cases},             {"persistent", persistent_cases}, {"collective", collective_cases},
    {"datatype", datatype_cases},       {"communicator", communicator_cases}, {"window", window_cases},
    {"accumulate", accumulate_cases},   {"passive", passive_cases},   {"epoch", epoch_cases},
    {"layout", layout_cases},           {"thread", thread_cases},
};
static const struct group HUGE = {"huge", huge_cases};

void check(int holds, const char *file, int line, const char *format, ...) {
    if (holds) return;
    atomic_fetch_add(&failures, 1);
    if (atomic_fetch_add(&said, 1) >= 5) return;
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const char *base = strrchr(file, '/');
    fprintf(stderr, "rank %d, %s/%s, %s:%d: %s\n", test.rank, group_name, case_name, base ? base + 1 : file, line, text);
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

unsigned below(uint64_t *state, unsigned bound) { return (unsigned)(draw(state) % bound); }

void *memory(size_t length) {
    void *found = malloc(length ? length : 1);
    if (!found) {
        fprintf(stderr, "rank %d: no memory for %zu bytes\n", test.rank, length);
        MPI_Abort(MPI_COMM_WORLD, 4);
    }
    return found;
}

void rest(unsigned milliseconds) {
    struct timespec left = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0) {
    }
}

/* Only what is safe in a signal handler. */
static void too_long(int number) {
    (void)number;
    char text[300];
    size_t length = 0;
    const char *parts[] = {"HANG ", group_name, "/", case_name, test.rank == 0 ? " on rank 0\n" : " on a rank above 0\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (const char *from = parts[i]; *from && length < sizeof text; from++) text[length++] = *from;
    if (write(2, text, length) < 0) _exit(5);
    _exit(3);
}

static int chosen(const char *selection, const char *group, const char *name) {
    size_t length = strlen(group);
    if (strncmp(selection, group, length) != 0) return 0;
    return selection[length] == 0 || (selection[length] == '/' && strcmp(selection + length + 1, name) == 0);
}

static int total[3]; /* passed, failed, left out */

static void run(const char *group, const struct test_case *which, uint64_t seed, int level) {
    group_name = group;
    case_name = which->name;
    failures = said = 0;
    left_out = NULL;
    test.seed = seed;
    for (const char *letter = which->name; *letter; letter++) test.seed = test.seed * 131 + (unsigned char)*letter;
    if (which->threads && level < MPI_THREAD_MULTIPLE) {
        left_out = "this MPI does not give MPI_THREAD_MULTIPLE";
    } else {
        alarm(limit);
        MPI_Comm_dup(control, &test.comm);
        MPI_Comm_dup(control, &test.side);
        which->run();
        MPI_Comm_free(&test.comm);
        MPI_Comm_free(&test.side);
    }
    int mine[2] = {failures, left_out != NULL}, all[2];
    MPI_Allreduce(mine, all, 2, MPI_INT, MPI_SUM, control);
    alarm(0);
    total[all[0] ? 1 : all[1] ? 2 : 0]++;
    if (test.rank != 0) return;
    if (all[0])
        printf("FAILED  %s/%s (%d checks)\n", group, which->name, all[0]);
    else if (all[1])
        printf("SKIPPED %s/%s: %s\n", group, which->name, left_out ? left_out : "another rank left it out");
    else
        printf("ok      %s/%s\n", group, which->name);
    fflush(stdout);
}

int main(int count, char **arguments) {
    const char *only[16], *without[16];
    int onlys = 0, withouts = 0, huge = 0, list = 0, level;
    uint64_t seed = 1;
    for (int i = 1; i < count; i++) {
        int more = i + 1 < count;
        if (!strcmp(arguments[i], "--only") && more && onlys < 16) only[onlys++] = arguments[++i];
        else if (!strcmp(arguments[i], "--except") && more && withouts < 16) without[withouts++] = arguments[++i];
        else if (!strcmp(arguments[i], "--seed") && more) seed = strtoull(arguments[++i], NULL, 0);
        else if (!strcmp(arguments[i], "--limit") && more) limit = (unsigned)atoi(arguments[++i]);
        else if (!strcmp(arguments[i], "--huge")) huge = 1;
        else if (!strcmp(arguments[i], "--list")) list = 1;
        else {
            fprintf(stderr, "conformance: what is '%s'?\n", arguments[i]);
            return 2;
        }
    }
    if (list) {
        for (size_t g = 0; g < sizeof GROUPS / sizeof *GROUPS; g++)
            for (const struct test_case *c = GROUPS[g].cases; c && c->name; c++) printf("%s/%s\n", GROUPS[g].name, c->name);
        for (const struct test_case *c = HUGE.cases; c && c->name; c++) printf("%s/%s\n", HUGE.name, c->name);
        return 0;
    }
    signal(SIGALRM, too_long);
    alarm(limit);
#ifdef IN_MESSAGES
    level = MPI_THREAD_SINGLE;
    MPI_Init(&count, &arguments);
#else
    MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &level);
#endif
    MPI_Comm_rank(MPI_COMM_WORLD, &test.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &test.size);
    if (test.size < 2) {
        fprintf(stderr, "conformance: needs at least 2 ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &control);
    alarm(0);
    if (test.rank == 0) {
        char library[MPI_MAX_LIBRARY_VERSION_STRING];
        int length;
        MPI_Get_library_version(library, &length);
        library[strcspn(library, "\n")] = 0;
        printf("conformance: %d ranks, seed %llu, thread level %d, %s\n", test.size, (unsigned long long)seed, level, library);
        fflush(stdout);
    }
    for (size_t g = 0; g <= sizeof GROUPS / sizeof *GROUPS; g++) {
        const struct group *group = g < sizeof GROUPS / sizeof *GROUPS ? &GROUPS[g] : huge ? &HUGE : NULL;
        for (const struct test_case *c = group ? group->cases : NULL; c && c->name; c++) {
            int wanted = !onlys;
            for (int i = 0; i < onlys; i++) wanted = wanted || chosen(only[i], group->name, c->name);
            for (int i = 0; i < withouts; i++) wanted = wanted && !chosen(without[i], group->name, c->name);
            if (wanted) run(group->name, c, seed, level);
        }
    }
    group_name = "end";
    case_name = "MPI_Finalize";
    alarm(limit);
    MPI_Comm_free(&control);
    MPI_Finalize();
    if (test.rank == 0)
        printf("conformance: %d passed, %d failed, %d skipped\n", total[0], total[1], total[2]);
    return total[1] ? 1 : total[0] || total[2] ? 0 : 2;
}

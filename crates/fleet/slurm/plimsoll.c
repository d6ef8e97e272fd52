/* A SPANK plugin that has every MPI program of a job leave a summary in the spool of `plimsoll fleet`.
 *
 * plugstack.conf:  optional plimsoll.so spool=DIR library=FILE command=FILE
 *
 * On each node a step's tasks get the recording library and a folder below DIR/running; when the step ends there, `plimsoll fleet
 * leave` runs as the user. Nothing here fails a step: what cannot be done is left out. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

SPANK_PLUGIN(plimsoll, 1)

/* Bytes of a rank's tables, and of a thread's timeline. */
#define TABLES "2097152"
#define TRACE "16777216"
/* Seconds that a step's end may take longer. slurmstepd then kills what it started, so that nothing can be left to run on. */
#define LIMIT 10

enum mode { OFF, TABLES_ALONE, WITH_TRACE };

static enum mode mode = TABLES_ALONE;
static char spool[PATH_MAX], library[PATH_MAX], command[PATH_MAX];
/* Of the step on this node; empty where it leaves no summary. */
static char folder[PATH_MAX], job[320], partition[128];
/* Nodes of the step, and of the job where a script's launcher may use them all. `helps`: ranks of another step's launcher. */
static uint32_t nodes, held = 1;
static int helps;
static uid_t user;
static gid_t group, groups[256];
static int groups_in_all, status;

static int chosen(int value, const char *word, int remote)
{
    static const char *const words[] = { "off", "tables", "trace" };
    (void)value;
    (void)remote;
    for (int i = 0; word && i < 3; i++)
        if (strcmp(word, words[i]) == 0) {
            mode = i;
            return 0;
        }
    slurm_error("--plimsoll=%s: none of off, tables, trace", word ? word : "");
    return -1;
}

static struct spank_option option = {
    "plimsoll", "off|tables|trace", "profile MPI programs: not at all, in tables (the default), with a timeline", 1, 0, chosen,
};

static void setting(const char *argument, const char *name, char *into)
{
    size_t length = strlen(name);
    if (strncmp(argument, name, length) == 0 && argument[length] == '=' && strlen(argument + length + 1) < PATH_MAX / 2)
        strcpy(into, argument + length + 1);
}

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
    for (int i = 0; i < count; i++) {
        setting(arguments[i], "spool", spool);
        setting(arguments[i], "library", library);
        setting(arguments[i], "command", command);
    }
    if (spank_context() != S_CTX_SLURMD)
        spank_option_register(spank, &option);
    return 0;
}

/* The value of a variable of the step, or "". */
static const char *variable(spank_t spank, const char *name, char *into, int room)
{
    if (spank_getenv(spank, name, into, room) != ESPANK_SUCCESS)
        into[0] = 0;
    return into;
}

/* Whether the step's program starts ranks of the launcher that started it, whose folder they share. */
static int is_a_launchers(spank_t spank)
{
    static const char *const names[] = { "orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy" };
    int count = 0;
    char **words = NULL;
    if (spank_get_item(spank, S_JOB_ARGV, &count, &words) != ESPANK_SUCCESS || count < 1)
        return 0;
    const char *name = strrchr(words[0], '/');
    name = name ? name + 1 : words[0];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return 1;
    return 0;
}

/* Makes a folder of the user's. */
static int own(const char *path)
{
    struct stat found;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return -1;
    return lstat(path, &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() ? 0 : -1;
}

/* Keeps the first line of /proc/stat: what the kernel's own work on this node takes meanwhile bounds that for the step's messages. */
static void note_beginning(void)
{
    char path[PATH_MAX + 80], host[64] = "", line[512];
    gethostname(host, sizeof host - 1);
    snprintf(path, sizeof path, "%s/%s.began", folder, host);
    FILE *from = fopen("/proc/stat", "re"), *into = from ? fopen(path, "we") : NULL;
    if (into && fgets(line, sizeof line, from))
        fputs(line, into);
    if (into)
        fclose(into);
    if (from)
        fclose(from);
}

/* As the user, before tasks exist. */
int slurm_spank_user_init(spank_t spank, int count, char **arguments)
{
    (void)count;
    (void)arguments;
    uint32_t id, step, array_task = NO_VAL;
    char running[PATH_MAX + 16], part[PATH_MAX], cluster[128], restart[16], before[PATH_MAX], preload[2 * PATH_MAX];
    if (mode == OFF || !spool[0] || !library[0] || !command[0] || access(library, R_OK) != 0)
        return 0;
    if (spank_get_item(spank, S_JOB_ID, &id) != ESPANK_SUCCESS || spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_UID, &user) != ESPANK_SUCCESS || spank_get_item(spank, S_JOB_GID, &group) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_NNODES, &nodes) != ESPANK_SUCCESS)
        return 0;
    if (step == SLURM_EXTERN_CONT)
        return 0;
    if (step == SLURM_BATCH_SCRIPT) {
        nodes = 1;
        held = atoi(variable(spank, "SLURM_JOB_NUM_NODES", restart, sizeof restart));
    }
    spank_get_item(spank, S_JOB_ARRAY_TASK_ID, &array_task);
    groups_in_all = getgroups(sizeof groups / sizeof *groups, groups);
    variable(spank, "SLURM_CLUSTER_NAME", cluster, sizeof cluster);
    variable(spank, "SLURM_JOB_PARTITION", partition, sizeof partition);
    variable(spank, "SLURM_RESTART_COUNT", restart, sizeof restart);
    snprintf(job, sizeof job, "%u:%d:%u:%d:%s", id, array_task == NO_VAL ? -1 : (int)array_task, step, atoi(restart), cluster);
    snprintf(running, sizeof running, "%s/running/", spool);
    if (variable(spank, "PLIMSOLL_PROFILE", before, sizeof before)[0]) {
        if (strncmp(before, running, strlen(running)) != 0)
            return 0;
        if (is_a_launchers(spank)) {
            helps = 1;
            strcpy(folder, before);
            note_beginning();
            return 0;
        }
    }
    if ((size_t)snprintf(part, sizeof part, "%s%u.%u.%d", running, id, step, atoi(restart)) > sizeof part - 16 || own(part) != 0)
        return 0;
    strcpy(folder, part);
    size_t end = strlen(part);
    strcpy(part + end, "/ranks");
    int made = own(part);
    strcpy(part + end, "/hosts");
    if (made != 0 || own(part) != 0) {
        folder[0] = 0;
        return 0;
    }
    note_beginning();
    const char *theirs = variable(spank, "LD_PRELOAD", before, sizeof before);
    snprintf(preload, sizeof preload, "%s%s%s", theirs, theirs[0] ? ":" : "", library);
    if (!strstr(theirs, library))
        spank_setenv(spank, "LD_PRELOAD", preload, 1);
    spank_setenv(spank, "PLIMSOLL_PROFILE_MEMORY", TABLES, 1);
    spank_setenv(spank, "PLIMSOLL_PROFILE_TRACE", mode == WITH_TRACE ? TRACE : "0", 1);
    spank_setenv(spank, "PLIMSOLL_PROFILE_PERTURB", "", 1);
    spank_setenv(spank, "PLIMSOLL_PROFILE_SITE", "1", 1);
    spank_setenv(spank, "PLIMSOLL_PROFILE", folder, 1);
    return 0;
}

int slurm_spank_task_exit(spank_t spank, int count, char **arguments)
{
    int ended = 0;
    (void)count;
    (void)arguments;
    if (spank_get_item(spank, S_TASK_EXIT_STATUS, &ended) == ESPANK_SUCCESS && ended != 0)
        status = ended;
    return 0;
}

/* Number of cores in a list such as 0-3,8. */
static unsigned cores_of(const char *list)
{
    unsigned cores = 0;
    while (*list) {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = first;
        if (end == list)
            break;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        cores += last - first + 1;
        list = *end == ',' ? end + 1 : end;
    }
    return cores;
}

/* Of slurmstepd, as root, when all tasks have ended. */
int slurm_spank_exit(spank_t spank, int count, char **arguments)
{
    char *list = NULL, of_nodes[32], cores[32], ended[32];
    (void)count;
    (void)arguments;
    if (spank_context() != S_CTX_REMOTE || !folder[0])
        return 0;
    if (spank_get_item(spank, S_JOB_ALLOC_CORES, &list) != ESPANK_SUCCESS)
        list = NULL;
    snprintf(of_nodes, sizeof of_nodes, "%u", helps ? 0 : nodes);
    snprintf(cores, sizeof cores, "%u", list && !helps ? cores_of(list) * (held ? held : 1) : 0);
    snprintf(ended, sizeof ended, "%d", status);
    pid_t child = fork();
    if (child == 0) {
        if (setgroups(groups_in_all > 0 ? groups_in_all : 0, groups) != 0 || setresgid(group, group, group) != 0 ||
            setresuid(user, user, user) != 0)
            _exit(1);
        int nothing = open("/dev/null", O_RDWR);
        for (int i = 0; i < 3; i++)
            dup2(nothing, i);
        for (int i = 3; i < 1024; i++)
            close(i);
        if (chdir("/") != 0)
            _exit(1);
        alarm(LIMIT);
        char *const words[] = { command, "fleet", "leave", folder, "--spool", spool, "--job", job, "--nodes", of_nodes, "--cores", cores,
                                "--status", ended, "--partition", partition, NULL };
        char *const variables[] = { "PATH=/usr/bin:/bin", "LANG=C.UTF-8", NULL };
        execve(command, words, variables);
        _exit(1);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
    return 0;
}

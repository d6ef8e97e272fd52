// All kinds of ends, named by the argument, after known calls.
#include "expect.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>

enum { TIMES = 25 };

// Waits until `wanted` ranks have left a file of this name.
static void await(const char *what, int wanted) {
    for (int waited = 0; waited < 2000; waited++) {
        int found = 0;
        DIR *here = opendir(".");
        for (struct dirent *entry; here && (entry = readdir(here));) found += !strncmp(entry->d_name, what, strlen(what));
        if (here) closedir(here);
        if (found == wanted) return;
        usleep(10000);
    }
    check(0, "the others");
}

static void leave(const char *what) {
    char name[64];
    snprintf(name, sizeof name, "%s%d", what, rank);
    fclose(fopen(name, "w"));
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    int number = 0, is_last = 0;
    begin();
    is_last = rank == size - 1;
    for (int i = 0; i < TIMES; i++) {
        int other;
        MPI_Sendrecv(&rank, 1, MPI_INT, right, 0, &other, 1, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(other == left, "the ring");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    calls("Sendrecv", 0, TIMES, 4);
    calls("Barrier", size, 1, 0);
    messages(right, TIMES, 4);
    fflush(expected_file);
    // Some launchers end all ranks with the first that ends.
    leave("expecting.");
    await("expecting.", size);

    if (!strcmp(how, "fork")) {
        // Children that run a while, that exec other programs, and that end in all ways.
        for (int k = 0; k < 4; k++) {
            pid_t child = fork();
            if (child == 0) {
                if (k == 0) exit(0);
                if (k == 1) _exit(0);
                if (k == 2) execl("/bin/true", "true", (char *)NULL);
                raise(SIGKILL);
            }
            int status;
            waitpid(child, &status, 0);
            check(k == 3 ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child");
        }
        check(system("true") == 0, "system");
        MPI_Barrier(MPI_COMM_WORLD);
        calls("Barrier", size, 1, 0);
        end();
        return 0;
    }
    // All ranks end without MPI_Finalize.
    if (!strcmp(how, "exit")) exit(0);
    if (!strcmp(how, "_exit")) _exit(0);

    if (!is_last) {
        leave("waiting.");
        // No message ever comes.
        MPI_Recv(&number, 1, MPI_INT, size - 1, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    await("waiting.", size - 1);
    usleep(300000);
    if (!strcmp(how, "abort")) {
        MPI_Abort(MPI_COMM_WORLD, 5);
        // MPICH's MPI_Abort may return before the launcher ends the process.
        pause();
    }
    if (!strcmp(how, "kill")) raise(SIGKILL);
    if (!strcmp(how, "crash")) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile int *)8 = 1;
    }
    fprintf(stderr, "no such end: %s\n", how);
    return 1;
}

// Parents start children; each side has a world of its own.
#include "expect.h"

int main(int argc, char **argv) {
    MPI_Comm parent, other;
    int number = 5;
    begin();
    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL) {
        int codes[2];
        char *arguments[] = {"child", NULL};
        (void)argc;
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        int failed = MPI_Comm_spawn(argv[0], arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, codes);
        calls("Comm_spawn", 0, 1, 0);
        if (failed) {
            printf("LEFT OUT: this MPI cannot spawn here\n");
            end();
            return 0;
        }
        // Messages to processes outside this world are in no cell of its matrix.
        if (rank == 0) {
            MPI_Send(&number, 1, MPI_INT, 1, 0, other);
            calls("Send", 0, 1, 4);
            outside(1);
        }
    } else {
        other = parent;
        if (rank == 1) {
            MPI_Recv(&number, 1, MPI_INT, 0, 0, other, MPI_STATUS_IGNORE);
            calls("Recv", 0, 1, 4);
        }
    }
    MPI_Barrier(other);
    calls("Barrier", size, 1, 0);
    MPI_Comm_disconnect(&other);
    calls("Comm_disconnect", 0, 1, 0);
    end();
    return 0;
}

/* Program and plug-in that call the MPI of standin.c past the recorder. */
#include <dlfcn.h>
#include <stdio.h>

#ifdef PLUGIN
int MPI_Send(const void *, int, void *, int, int, void *);
extern char ompi_mpi_comm_world[];
int run(void) { return MPI_Send("", 1, (void *)1, 0, 0, ompi_mpi_comm_world); }
#else
static int failed(void) { return fprintf(stderr, "%s\n", dlerror()), 2; }

#ifdef LINKED
int MPI_Init(int *, char ***);
int MPI_Finalize(void);

int main(void)
{
    MPI_Init(0, 0);
    void *plugin = dlopen("./libplugin.so", RTLD_NOW | RTLD_DEEPBIND);
    int (*run)(void) = plugin ? (int (*)(void))dlsym(plugin, "run") : 0;
    return !run ? failed() : run() | MPI_Finalize();
}
#else
int main(void)
{
    void *mpi = dlopen("./libstandin.so", RTLD_NOW | RTLD_LOCAL);
    int (*init)(int *, char ***) = mpi ? (int (*)(int *, char ***))dlsym(mpi, "MPI_Init") : 0;
    int (*finalize)(void) = mpi ? (int (*)(void))dlsym(mpi, "MPI_Finalize") : 0;
    return !init || !finalize ? failed() : init(0, 0) | finalize();
}
#endif
#endif

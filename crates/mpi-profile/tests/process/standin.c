/* Stand-in for an MPI of one process, with Open MPI's binary interface. A query of a model that is not open during the whole
   query ends the process: real MPIs do so too, some of the time. */
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *Handle;
typedef struct { atomic_int open, asked; } Model;
typedef struct { Model *of; } Object;

char ompi_mpi_comm_world[64], ompi_mpi_comm_self[64], ompi_mpi_comm_null[64], ompi_request_null[64];
static Model world;

#define ALSO(name) __attribute__((alias("PMPI_" #name)))

static void fail(const char *what)
{
    fprintf(stderr, "the MPI ends the process: %s\n", what);
    abort();
}

static void asked(Model *of, const char *what)
{
    atomic_fetch_add(&of->asked, 1);
    if (!atomic_load(&of->open))
        fail(what);
    usleep(20);
    if (!atomic_load(&of->open))
        fail(what);
    atomic_fetch_sub(&of->asked, 1);
}

static Model *model_of(Handle comm)
{
    return comm == ompi_mpi_comm_world || comm == ompi_mpi_comm_self ? &world : ((Object *)comm)->of;
}

static Handle object(Model *of)
{
    Object *made = malloc(sizeof *made);
    made->of = of;
    return made;
}

static int begun;

static int opened(Model *model)
{
    usleep(30);
    begun |= model == &world;
    atomic_store(&model->open, 1);
    return 0;
}

static int closed(Model *model, const char *what)
{
    if (atomic_load(&model->asked))
        fail(what);
    atomic_store(&model->open, 0);
    return 0;
}

int PMPI_Init(int *c, char ***v) { return (void)c, (void)v, opened(&world); }
int PMPI_Init_thread(int *c, char ***v, int level, int *provided) { return (void)c, (void)v, *provided = level, opened(&world); }
int PMPI_Initialized(int *flag) { return *flag = atomic_load(&world.open) || begun, 0; }
int PMPI_Finalize(void) { return closed(&world, "MPI_Finalize while the world was asked about"); }
int PMPI_Query_thread(int *level) { return asked(&world, "MPI_Query_thread"), *level = 0, 0; }
int PMPI_Session_init(Handle info, Handle handler, Model **session)
{
    (void)info, (void)handler;
    *session = calloc(1, sizeof **session);
    return opened(*session);
}
/* A closed session stays in memory, so that later queries of it are found. */
int PMPI_Session_finalize(Model **session)
{
    int result = closed(*session, "MPI_Session_finalize while the session was asked about");
    *session = NULL;
    return result;
}
int PMPI_Group_from_session_pset(Model *session, const char *name, Handle *group)
{
    (void)name;
    asked(session, "MPI_Group_from_session_pset");
    *group = object(session);
    return 0;
}
int PMPI_Comm_create_from_group(Object *group, const char *tag, Handle info, Handle handler, Handle *comm)
{
    (void)tag, (void)info, (void)handler;
    *comm = object(group->of);
    return 0;
}
int PMPI_Comm_group(Handle comm, Handle *group)
{
    Model *of = model_of(comm);
    asked(of, of == &world ? "MPI_Comm_group of the world" : "MPI_Comm_group");
    *group = object(of);
    return 0;
}
int PMPI_Comm_remote_group(Handle comm, Handle *group) { return PMPI_Comm_group(comm, group); }
int PMPI_Win_get_group(Handle win, Handle *group) { return PMPI_Comm_group(win, group); }
int PMPI_Group_free(Handle *group) { return *group = NULL, 0; }
int PMPI_Group_size(Handle group, int *size) { return (void)group, *size = 1, 0; }
int PMPI_Group_rank(Handle group, int *rank) { return (void)group, *rank = 0, 0; }
int PMPI_Group_translate_ranks(Object *one, int count, const int *ranks, Object *other, int *translated)
{
    asked(one->of, "MPI_Group_translate_ranks");
    asked(other->of, "MPI_Group_translate_ranks");
    memcpy(translated, ranks, count * sizeof *ranks);
    return 0;
}
int PMPI_Comm_size(Handle comm, int *size) { return asked(model_of(comm), "MPI_Comm_size"), *size = 1, 0; }
int PMPI_Comm_rank(Handle comm, int *rank) { return asked(model_of(comm), "MPI_Comm_rank"), *rank = 0, 0; }
int PMPI_Comm_test_inter(Handle comm, int *flag) { return (void)comm, *flag = 0, 0; }
int PMPI_Type_size(Handle type, int *size) { return *size = (int)(size_t)type, 0; }
/* With STANDIN_TOPOLOGY, all communicators but the world have a topology of INT_MAX dimensions. */
int PMPI_Topo_test(Handle comm, int *topology)
{
    (void)comm;
    *topology = getenv("STANDIN_TOPOLOGY") && comm != ompi_mpi_comm_world ? 1 : -32766;
    return 0;
}
int PMPI_Cartdim_get(Handle comm, int *dimensions) { return (void)comm, *dimensions = INT_MAX, 0; }
int PMPI_Graph_neighbors_count(Handle comm, int rank, int *count) { return (void)comm, (void)rank, *count = 0, 0; }
int PMPI_Dist_graph_neighbors_count(Handle comm, int *in, int *out, int *weighted)
{
    return (void)comm, *in = *out = *weighted = 0, 0;
}
int PMPI_Comm_free(Handle *comm) { return *comm = NULL, 0; }
int PMPI_Comm_dup(Handle comm, Handle *copy) { return *copy = object(model_of(comm)), 0; }
int PMPI_Send(const void *buf, int count, Handle type, int dest, int tag, Handle comm)
{
    (void)buf, (void)count, (void)type, (void)dest, (void)tag, (void)comm;
    return 0;
}

int MPI_Init(int *, char ***) ALSO(Init);
int MPI_Init_thread(int *, char ***, int, int *) ALSO(Init_thread);
int MPI_Finalize(void) ALSO(Finalize);
int MPI_Session_init(Handle, Handle, Model **) ALSO(Session_init);
int MPI_Session_finalize(Model **) ALSO(Session_finalize);
int MPI_Group_from_session_pset(Model *, const char *, Handle *) ALSO(Group_from_session_pset);
int MPI_Group_free(Handle *) ALSO(Group_free);
int MPI_Comm_create_from_group(Object *, const char *, Handle, Handle, Handle *) ALSO(Comm_create_from_group);
int MPI_Comm_free(Handle *) ALSO(Comm_free);
int MPI_Comm_dup(Handle, Handle *) ALSO(Comm_dup);
int MPI_Send(const void *, int, Handle, int, int, Handle) ALSO(Send);

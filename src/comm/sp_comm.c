/* Starting and ending MPI in a program. The folder's other files are library code: its
 * caller does both. */
#include "comm/sp_comm.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "base/sp_log.h"
#include "base/sp_machine.h"
#include "comm/sp_comm_internal.h"
#include "comm/sp_launcher.h"

/* ---- start and end ---- */

/* By default Open MPI's mpirun binds each of one or two ranks to a core, whatever the
 * number of cores; it does not bind itself. */
static void warn_if_bound(const sp_comm *comm)
{
    const bool is_bound = getenv("OMPI_MCA_orte_bound_at_launch") &&
                          !getenv("OMPI_MCA_hwloc_base_binding_policy");
    const int cores = sp_machine_cores_of_parent();

    if (comm->rank == 0 && is_bound && comm->node_cores < cores &&
        comm->node_cores < sp_machine_core_quota())
        sp_log_warn("mpirun has bound the ranks of this node to %d of its %d cores: "
                    "mpirun --bind-to none gives them all",
                    comm->node_cores, cores);
}

sp_status sp_comm_open(sp_comm *comm, int *argc, char ***argv)
{
    struct sp_comm_impl *impl;
    int provided;

    sp_comm_open_self(comm);
    SP_TRY(SP_NEW(&impl, 1, "a communicator"));
    comm->impl = impl;
    impl->node = impl->lane = MPI_COMM_NULL;
    sp_comm_on_leave = sp_comm_abort;
    impl->max = impl->min = MPI_OP_NULL;
    SP_MPI(Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided));
    impl->has_mpi = true;
    impl->world = MPI_COMM_WORLD;
    SP_MPI(Comm_set_errhandler(impl->world, MPI_ERRORS_RETURN));
    if (provided < MPI_THREAD_FUNNELED)
        return SP_FAIL(SP_EMPI,
                       "MPI: this library does not serve programs with threads "
                       "(MPI_THREAD_FUNNELED); use one that was built with threads");
    SP_MPI(Comm_rank(impl->world, &comm->rank));
    SP_MPI(Comm_size(impl->world, &comm->size));
    SP_TRY(sp_comm_begin_sums(impl));
    SP_TRY(sp_launcher_check(comm->size));
    SP_TRY(sp_comm_find_nodes(comm));
    warn_if_bound(comm);
    return SP_OK;
}

/* Replaces UCX's function of this name, which MPICH over UCX calls for every connection
 * in MPI_Finalize. It calls the library's function, unless SP_UCX_DISCONNECT=0
 * (sp_comm.h) asks to leave it out; NULL means "done". */
void *ucp_disconnect_nb(void *connection);
void *ucp_disconnect_nb(void *connection)
{
    const char *text = getenv("SP_UCX_DISCONNECT");
    void *(*of_library)(void *) = NULL;
    void *symbol = dlsym(RTLD_NEXT, "ucp_disconnect_nb");

    if (!symbol || (text && strcmp(text, "0") == 0))
        return NULL;
    memcpy(&of_library, &symbol, sizeof symbol);
    return of_library(connection);
}

void sp_comm_close(sp_comm *comm)
{
    struct sp_comm_impl *impl = comm->impl;

    if (impl) {
        sp_comm_end_sums(impl);
        if (impl->has_mpi) {
            /* A rank that leaves the second barrier knows that all messages of the
             * first have arrived. */
            if (sp_comm_barrier(comm) == SP_OK)
                sp_comm_barrier(comm);
            MPI_Finalize();
        }
        free(impl->node_of_rank);
        free(impl);
    }
    memset(comm, 0, sizeof *comm);
}

void sp_comm_abort(sp_comm *comm, sp_status code)
{
    assert(code != SP_OK);
    sp_exit_request((int)code);
    sp_log_deliver();
    if (comm && comm->impl && comm->impl->has_mpi)
        MPI_Abort(MPI_COMM_WORLD, (int)code);
    _exit((int)code);
}

const char *sp_comm_library(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;

    if (MPI_Get_library_version(text, &n) != MPI_SUCCESS)
        return "unknown MPI";
    text[strcspn(text, "\n")] = 0;
    for (char *tab; (tab = strchr(text, '\t'));) /* MPICH separates by tabs */
        *tab = ' ';
    return text;
}

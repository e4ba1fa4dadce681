/* The functions of include/sptrain.h for ranks. */
#include <stdlib.h>

#include "base/sp_list.h"
#include "comm/sp_comm_internal.h"

#include <sptrain.h>

static sp_status alloc_comm(sp_comm **comm)
{
    return comm ? SP_NEW(comm, 1, "a communicator")
                : SP_FAIL(SP_EUSAGE, "the communicator's address is NULL");
}

int sp_comm_create_self(sp_comm **comm)
{
    SP_TRY(alloc_comm(comm));
    sp_comm_open_self(*comm);
    return SP_OK;
}

/* Before MPI_Init and after MPI_Finalize other functions of MPI end the process. */
static sp_status check_mpi_is_on(void)
{
    int is_on, is_over;

    MPI_Initialized(&is_on);
    MPI_Finalized(&is_over);
    return is_on && !is_over ? SP_OK
                             : SP_FAIL(SP_EUSAGE, "MPI is %s",
                                       is_on ? "finalized" : "not initialized");
}

int sp_comm_create_mpi(sp_comm **comm, MPI_Comm of)
{
    sp_status rc;

    SP_TRY(alloc_comm(comm));
    rc = check_mpi_is_on();
    if (rc == SP_OK)
        rc = sp_comm_attach(*comm, &of);
    if (rc != SP_OK) {
        sp_comm_destroy(*comm);
        *comm = NULL;
    }
    return rc;
}

int sp_comm_create_mpi_fortran(sp_comm **comm, int of)
{
    if (comm)
        *comm = NULL;
    SP_TRY(check_mpi_is_on());
    return sp_comm_create_mpi(comm, MPI_Comm_f2c(of));
}

void sp_comm_destroy(sp_comm *comm)
{
    if (comm)
        sp_comm_detach(comm);
    free(comm);
}

int sp_comm_rank(const sp_comm *comm)
{
    return comm ? comm->rank : 0;
}

int sp_comm_size(const sp_comm *comm)
{
    return comm ? comm->size : 0;
}

int sp_comm_sum(sp_comm *comm, double *values, int64_t n)
{
    if (!comm || n < 0 || (n > 0 && !values))
        return SP_FAIL(SP_EUSAGE,
                       "sp_comm_sum: comm or values is NULL, or n is negative (%lld)",
                       (long long)n);
    return sp_comm_allreduce(comm, SP_SCOPE_WORLD, values, (size_t)n, SP_F64, SP_SUM);
}

/* The functions of comm that a network of one rank refers to, for a library without MPI.
 * A sum over one rank is the vector itself. */
#include <stdlib.h>

#include "comm/sp_comm.h"

void sp_comm_common_free(sp_common *common)
{
    free(common->data);
    *common = (sp_common){0};
}

int sp_comm_scope_size(const sp_comm *comm, sp_scope scope)
{
    (void)comm;
    (void)scope;
    return 1;
}

sp_status sp_comm_allreduce(sp_comm *comm, sp_scope scope, void *data, size_t count,
                            sp_type type, sp_reduce_op op)
{
    (void)comm;
    (void)scope;
    (void)data;
    (void)count;
    (void)type;
    (void)op;
    return SP_OK;
}

sp_status sp_comm_iallreduce(sp_comm *comm, sp_scope scope, void *data, size_t count,
                             sp_type type, sp_reduce_op op, sp_request *request)
{
    request->handle = NULL;
    return sp_comm_allreduce(comm, scope, data, count, type, op);
}

sp_status sp_comm_test(sp_comm *comm, sp_request *request, bool *is_done)
{
    (void)comm;
    (void)request;
    *is_done = true;
    return SP_OK;
}

sp_status sp_comm_agree(sp_comm *comm, sp_status mine)
{
    (void)comm;
    return mine;
}

/* There is no other work to do meanwhile. */
sp_status sp_comm_wait_for(sp_comm *comm, bool is_for_others, sp_comm_test_fn *test,
                           void *arg)
{
    bool is_done = false;

    (void)comm;
    (void)is_for_others;
    while (!is_done)
        SP_TRY(test(arg, &is_done));
    return SP_OK;
}

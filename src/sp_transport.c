#include "sp_transport.h"

#include <stdlib.h>
#include <string.h>

void sp_transport_open(sp_transport *transport, sp_comm *comm, sp_backend *backend)
{
    memset(transport, 0, sizeof *transport);
    transport->name = backend->ops->is_host ? "mpi" : "mpi-staged";
    transport->comm = comm;
    transport->backend = backend;
}

void sp_transport_close(sp_transport *transport)
{
    free(transport->host);
    memset(transport, 0, sizeof *transport);
}

static size_t bytes_of(sp_type type, size_t count)
{
    return count * (type == SP_F32 ? sizeof(float) : sizeof(double));
}

static sp_status make_room(sp_transport *t, size_t bytes)
{
    char *room;

    if (t->host_bytes >= bytes)
        return SP_OK;
    room = realloc(t->host, bytes);
    if (!room)
        return SP_FAIL(SP_EMEM, "all-reduce through the host: %zu bytes", bytes);
    t->host = room;
    t->host_bytes = bytes;
    return SP_OK;
}

sp_status sp_transport_allreduce(sp_transport *transport, sp_scope scope, void *data,
                                 size_t count, sp_type type)
{
    sp_backend *backend = transport->backend;
    const sp_backend_ops *ops = backend->ops;
    size_t bytes = bytes_of(type, count);
    sp_comm *comm = transport->comm;

    if (sp_comm_scope_size(comm, scope) == 1 || count == 0)
        return SP_OK;
    if (ops->is_host)
        return sp_comm_allreduce(comm, scope, data, count, type, SP_SUM);
    SP_TRY(make_room(transport, bytes));
    SP_TRY(ops->download(backend, transport->host, data, bytes));
    SP_TRY(sp_comm_allreduce(comm, scope, transport->host, count, type, SP_SUM));
    return ops->upload(backend, data, transport->host, bytes);
}

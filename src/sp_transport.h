/* How the ranks sum what lies in a backend's memory.
 *
 *     name        memory   moved by
 *     mpi         host     MPI, where it lies
 *     mpi-staged  device   MPI, through the host
 *
 * Sums are the same bits on all ranks, and from run to run for the same ranks on the
 * same nodes. All calls come from the training thread; collective ones come in the same
 * order on all ranks of the scope, with the same counts and types.
 */
#ifndef SP_TRANSPORT_H
#define SP_TRANSPORT_H

#include "sp_backend.h"
#include "sp_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sp_transport {
    const char *name;    /* as above */
    sp_comm *comm;       /* borrowed */
    sp_backend *backend; /* borrowed */
    char *host;          /* [host_bytes] on the way from and to a device */
    size_t host_bytes;
} sp_transport;

/* MPI for this backend's memory. Local. */
void sp_transport_open(sp_transport *transport, sp_comm *comm, sp_backend *backend);
void sp_transport_close(sp_transport *transport);

/* Collective over scope: data[count], backend memory, becomes its sum over the ranks:
 * behind the compute stream's work so far, before its work to come. For vectors that
 * the next operation needs (batch statistics): a transport of devices does not make the
 * host wait. type: SP_F32, SP_F64 or SP_I64. A scope of one rank does nothing.
 * Allocates nothing once a count has been seen. SP_EMPI, SP_EDEVICE, SP_EMEM. */
sp_status sp_transport_allreduce(sp_transport *transport, sp_scope scope, void *data,
                                 size_t count, sp_type type);

#ifdef __cplusplus
}
#endif
#endif

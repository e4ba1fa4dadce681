#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/sp_list.h"
#include "base/sp_serial.h"
#include "comm/sp_comm_internal.h"

enum { TAG = 1 };

/* Posts the receives or sends of one rank's bytes in pieces; *n counts the requests. */
static sp_status post_pieces(sp_comm *comm, bool is_receive, void *data, size_t bytes,
                             int peer, MPI_Request *requests, size_t *n)
{
    for (size_t done = 0; done < bytes; done += PIECE_BYTES) {
        int piece = (int)(bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES);
        char *at = (char *)data + done;
        MPI_Comm world = comm->impl->world;

        if (is_receive)
            SP_MPI(Irecv(at, piece, MPI_BYTE, peer, TAG, world, &requests[(*n)++]));
        else
            SP_MPI(Isend(at, piece, MPI_BYTE, peer, TAG, world, &requests[(*n)++]));
    }
    return SP_OK;
}

/* The bytes that this rank sends to each rank and receives from each. */
typedef struct exchange {
    const void *const *data; /* [size] to send; borrowed */
    const size_t *bytes;     /* [size] */
    int64_t *counts;         /* [2 size] numbers of bytes: to send, to receive */
    char *all;               /* the bytes received, in the order of the ranks */
} exchange;

static sp_status share_counts(sp_comm *comm, exchange *e)
{
    for (int r = 0; r < comm->size; r++)
        e->counts[r] = (int64_t)e->bytes[r];
    if (comm->size == 1) {
        e->counts[1] = e->counts[0];
        return SP_OK;
    }
    SP_MPI_WAIT(comm, Ialltoall(e->counts, 1, MPI_INT64_T, e->counts + comm->size, 1,
                                MPI_INT64_T, comm->impl->world, &request));
    return SP_OK;
}

/* Receives are posted before anything is sent. */
static sp_status post_exchange(sp_comm *comm, const exchange *e, MPI_Request *requests,
                               size_t *n)
{
    const int64_t *received = e->counts + comm->size;
    char *to = e->all;

    for (int r = 0; r < comm->size; to += received[r++])
        if (r == comm->rank && received[r])
            memcpy(to, e->data[r], e->bytes[r]);
        else if (r != comm->rank)
            SP_TRY(post_pieces(comm, true, to, (size_t)received[r], r, requests, n));
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank)
            SP_TRY(post_pieces(comm, false, (void *)(uintptr_t)e->data[r], e->bytes[r],
                               r, requests, n));
    return SP_OK;
}

static sp_status allocate_exchange(sp_comm *comm, exchange *e, MPI_Request **requests,
                                   size_t *received)
{
    size_t n = 1;

    *received = 0;
    for (int r = 0; r < 2 * comm->size; r++)
        n += ((size_t)e->counts[r] + PIECE_BYTES - 1) / PIECE_BYTES;
    for (int r = 0; r < comm->size; r++)
        *received += (size_t)e->counts[comm->size + r];
    *requests = malloc(n * sizeof **requests);
    e->all = malloc(*received + 1); /* one byte more, since malloc(0) may be NULL */
    if (!*requests || !e->all)
        return SP_FAIL(SP_EMEM, "no memory for %zu bytes from %d ranks", *received,
                       comm->size);
    return SP_OK;
}

static void exchange_free(exchange *e)
{
    free(e->counts);
    free(e->all);
}

sp_status sp_comm_exchange(sp_comm *comm, const void *const *data, const size_t *bytes,
                           void **all, size_t *n_all)
{
    SP_CLOSED_BY(exchange_free) exchange e = {.data = data, .bytes = bytes};
    SP_FREED MPI_Request *requests = NULL;
    size_t n = 0;

    *all = NULL;
    SP_TRY(sp_comm_agree(
        comm, SP_NEW(&e.counts, 2 * comm->size, "the sizes of an exchange")));
    SP_TRY(share_counts(comm, &e));
    SP_TRY(sp_comm_agree(comm, allocate_exchange(comm, &e, &requests, n_all)));
    SP_TRY(post_exchange(comm, &e, requests, &n));
    SP_TRY(sp_comm_wait_all(comm, (int)n, requests));
    *all = e.all;
    e.all = NULL;
    return SP_OK;
}

sp_status sp_comm_gather(sp_comm *comm, const void *data, size_t bytes, void **all,
                         size_t *n_all)
{
    SP_FREED const void **to = NULL;
    SP_FREED size_t *counts = NULL;
    size_t received = 0;
    sp_status rc = SP_NEW(&to, comm->size, "the sizes of a gather");

    assert(data || bytes == 0);
    *all = NULL;
    if (n_all)
        *n_all = 0;
    if (rc == SP_OK)
        rc = SP_NEW(&counts, comm->size, "the sizes of a gather");
    SP_TRY(sp_comm_agree(comm, rc));
    to[0] = data;
    counts[0] = bytes;
    SP_TRY(sp_comm_exchange(comm, to, counts, all, &received));
    if (comm->rank != 0) {
        free(*all);
        *all = NULL;
    }
    if (n_all)
        *n_all = received;
    return SP_OK;
}

/* ---- arrays that may be absent ---- */

sp_status sp_comm_bcast_array(sp_comm *comm, void **data, size_t bytes, int root)
{
    unsigned char is_there = *data != NULL;
    sp_status rc = SP_OK;

    assert(data && 0 <= root && root < comm->size);
    SP_TRY(sp_comm_bcast(comm, &is_there, sizeof is_there, root));
    if (comm->rank != root) {
        *data = is_there ? malloc(bytes + 1) : NULL;
        if (is_there && !*data)
            rc = SP_FAIL(SP_EMEM, "no memory for %zu bytes from rank %d", bytes, root);
    }
    SP_TRY(sp_comm_agree(comm, rc));
    return is_there ? sp_comm_bcast(comm, *data, bytes, root) : SP_OK;
}

sp_status sp_comm_bcast_serial(sp_comm *comm, sp_serial *serial)
{
    uint64_t size = serial->size;

    SP_TRY(sp_comm_agree(comm, serial->rc));
    SP_TRY(sp_comm_bcast(comm, &size, sizeof size, 0));
    serial->size = size;
    serial->is_reading = true;
    return sp_comm_bcast_array(comm, (void **)&serial->data, size, 0);
}

/* ---- one copy of a node ---- */

sp_status sp_comm_common_alloc(sp_comm *comm, size_t bytes, sp_common *common)
{
    sp_node *node = comm && comm->impl ? comm->impl->shared : NULL;
    sp_status rc = SP_OK;

    *common = (sp_common){0};
    if (node)
        SP_TRY(sp_node_map(node, bytes, &common->data, &common->mapped));
    if (!common->data) {
        common->mapped = 0;
        common->data = calloc(1, bytes + 1);
        if (!common->data)
            rc = SP_FAIL(SP_EMEM, "no memory for %zu bytes that all ranks read", bytes);
    }
    return comm ? sp_comm_agree(comm, rc) : rc;
}

/* Rank 0's node needs no message if all its ranks share one copy. On other nodes only
 * the first rank keeps what arrives; the others receive it in a piece of memory, so
 * that one broadcast serves all. */
sp_status sp_comm_common_send(sp_comm *comm, size_t bytes, sp_common *common)
{
    enum { PART = 4 << 20 };
    int64_t is_needed = comm && (comm->n_nodes > 1 || !common->mapped);
    SP_FREED char *aside = NULL;
    sp_status rc = SP_OK;

    if (!comm || comm->size == 1)
        return SP_OK;
    SP_TRY(sp_comm_allreduce(comm, SP_SCOPE_WORLD, &is_needed, 1, SP_I64, SP_MAX));
    if (is_needed && common->mapped && comm->local_rank > 0)
        rc = SP_NEW(&aside, PART, "an index");
    SP_TRY(sp_comm_agree(comm, rc)); /* rank 0 has filled its copy by then */
    for (size_t at = 0; is_needed && at < bytes; at += PART)
        SP_TRY(sp_comm_bcast(comm, aside ? aside : (char *)common->data + at,
                             bytes - at < PART ? bytes - at : PART, 0));
    return is_needed ? sp_comm_barrier(comm) : SP_OK; /* the node's copy is complete */
}

void sp_comm_common_free(sp_common *common)
{
    if (common->mapped)
        munmap(common->data, common->mapped);
    else
        free(common->data);
    *common = (sp_common){0};
}

/* Sums of a few values, such as batch statistics, through memory that the devices of a
 * node access directly (cuda_peer_sum.cuh). Each sum is one kernel of one block in the
 * compute stream, without the host. Expected: a few microseconds, while an all-reduce
 * of NCCL takes 15 to 20.
 *
 * A peer may never come. Waiting kernels look now and then at the clock and at a record
 * in pinned host memory. The watchdog writes there (sp_exit_set_flag) that this process
 * is to leave. They then give up, so that the stream ends, and the host finds in the
 * record which rank was missing. Until then the host reads in the record that its
 * device waits, so that the watchdog blames another rank. Only one block waits on each
 * device, so there is always room for the kernels that it waits for, NCCL's included.
 * Ranks that share a device by turns have no such room and keep to MPI.
 *
 * Ranks of several nodes keep to NCCL: a sum in the node, one over the nodes and the
 * way back would save little of a time that the network dominates, and would need
 * communicators of its own.
 */
#include "cuda/reduce/cuda_peer_sum.cuh"
#include "cuda/reduce/cuda_reduce.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_env.h"
#include "base/sp_liveness.h"
#include "base/sp_number.h"

enum { TRIAL_VALUES = 1025, TRIALS = 5 };
enum : size_t { BLOCK_BYTES = (size_t)2 << 20 };

#define TRIAL_S 20.0
#define LONG_S  3600.0

namespace
{

/* ---- start ---- */

struct peer {
    peer_ranks p;
    int world_rank[PEER_MOST];
    sp_scope scope;
    double limit_s;
    uint64_t looked_ns; /* looked_ns of the record when the host last read it */
};

/* The address that a rank offers to the others. Its words are summed with zeros of the
 * others, which gathers them. */
union offer {
    struct {
        char pci[16];
        cudaIpcMemHandle_t handle;
    } is;
    int64_t word[10];
};

peer *peer_of(const sp_transport *t)
{
    return (peer *)t->peer;
}

/* Returns the reason why this rank does not try, or SP_OK. */
sp_status object(const sp_transport *t, const sp_transport_options *options)
{
    const char *text = sp_env("SP_PEER_MEMORY");
    const int size = sp_comm_scope_size(t->comm, options->scope);

    if (options->objection)
        return SP_FAIL(SP_EUSAGE, "%s", options->objection);
    if (text && strcmp(text, "0") == 0)
        return SP_FAIL(SP_EUSAGE, "SP_PEER_MEMORY=0");
    if (options->scope == SP_SCOPE_WORLD && t->comm->n_nodes > 1)
        return SP_FAIL(SP_EUSAGE, "%d nodes", t->comm->n_nodes);
    if (size > PEER_MOST)
        return SP_FAIL(SP_EUSAGE, "%d ranks, more than %d", size, (int)PEER_MOST);
    return SP_OK;
}

/* Rounds up to whole blocks of the allocator, so that nothing else is exported with it.
 */
size_t memory_bytes(const peer *own)
{
    const size_t words = 2 * (size_t)own->p.size * PEER_PLACE_WORDS + TRIAL_VALUES;

    return sp_multiple(words * sizeof(uint64_t), BLOCK_BYTES);
}

sp_status peer_prepare(sp_transport *t, const sp_transport_options *options,
                       offer *mine)
{
    peer *own = (peer *)calloc(1, sizeof *own);
    void *memory = NULL;

    t->peer = own;
    if (!own)
        return SP_FAIL(SP_EMEM, "out of memory");
    own->scope = options->scope;
    for (int r = 0; r < t->comm->size; r++)
        if (options->scope == SP_SCOPE_WORLD ||
            t->comm->node_of_rank[r] == t->comm->node) {
            if (r == t->comm->rank)
                own->p.rank = own->p.size;
            own->world_rank[own->p.size++] = r;
        }
    SP_CUDA(cudaHostAlloc((void **)&own->p.rec, sizeof *own->p.rec, 0));
    memset(own->p.rec, 0, sizeof *own->p.rec);
    SP_CUDA(cudaMalloc(&memory, memory_bytes(own)));
    own->p.memory[own->p.rank] = (uint64_t *)memory;
    SP_TRY(sp_cuda_fill(t->backend, memory, 0, memory_bytes(own)));
    SP_TRY(sp_cuda_wait(t->backend));
    SP_CUDA(cudaIpcGetMemHandle(&mine->is.handle, memory));
    SP_CUDA(
        cudaDeviceGetPCIBusId(mine->is.pci, sizeof mine->is.pci, t->backend->device));
    return SP_OK;
}

/* Maps the memory of another rank. The device of that rank need not be visible here:
 * batch systems show each task its own, and the driver maps the memory of others all
 * the same if it can (as NCCL has it do since CUDA 10.1). A trial shows whether the
 * sums then work. The messages are this file's own, because the runtime's about peers
 * say little. */
sp_status reach(sp_transport *t, const offer *other, int rank, void **memory)
{
    int device = -1, can = 1;
    cudaError_t error;

    if (cudaDeviceGetByPCIBusId(&device, other->is.pci) == cudaSuccess)
        SP_CUDA(cudaDeviceCanAccessPeer(&can, t->backend->device, device));
    else
        device = -1;
    if (!can)
        return SP_FAIL(SP_EDEVICE,
                       "the device of rank %d cannot reach the device of rank %d",
                       t->comm->rank, rank);
    cudaGetLastError(); /* a device that is not visible counts as an error */
    error =
        cudaIpcOpenMemHandle(memory, other->is.handle, cudaIpcMemLazyEnablePeerAccess);
    if (error == cudaSuccess)
        return SP_OK;
    cudaGetLastError();
    return SP_FAIL(SP_EDEVICE,
                   "rank %d cannot map memory of the device of rank %d, %s%s: %s",
                   t->comm->rank, rank, other->is.pci,
                   device < 0 ? ", which it does not see (CUDA_VISIBLE_DEVICES)" : "",
                   cudaGetErrorString(error));
}

sp_status reach_all(sp_transport *t, const offer *all)
{
    peer *own = peer_of(t);

    for (int r = 0; r < own->p.size; r++) {
        void *memory = NULL;

        if (r == own->p.rank)
            continue;
        SP_TRY(reach(t, &all[own->world_rank[r]], own->world_rank[r], &memory));
        own->p.memory[r] = (uint64_t *)memory;
    }
    return SP_OK;
}

/* ---- sums ---- */

template <class T>
sp_status cuda_peer_put_sum(sp_transport *t, const T *from, T *to, int n)
{
    return peer_put_sum(&peer_of(t)->p, cuda_of(t->backend)->compute, from, to, n);
}

bool peer_takes(const sp_transport *t, const sp_small_sum *sum)
{
    const sp_type type = sum->part.type;

    return sum->scope == peer_of(t)->scope && sum->part.count <= PEER_VALUES &&
           (type == SP_F64 || type == SP_I64);
}

sp_status peer_allreduce(sp_transport *t, const sp_small_sum *sum)
{
    const sp_part *part = &sum->part;
    const int n = (int)part->count;

    return part->type == SP_F64 ? cuda_peer_put_sum(t, (const double *)sum->from,
                                                    (double *)part->data, n)
                                : cuda_peer_put_sum(t, (const int64_t *)sum->from,
                                                    (int64_t *)part->data, n);
}

/* Sums known values and checks the results: on some virtual machines the links between
 * devices exist but move nothing, or wrong data. */
sp_status try_out(sp_transport *t)
{
    peer *own = peer_of(t);
    int64_t *data = (int64_t *)own->p.memory[own->p.rank] +
                    2 * (size_t)own->p.size * PEER_PLACE_WORDS;
    int64_t host[TRIAL_VALUES], weight = 0;

    for (int r = 0; r < own->p.size; r++)
        weight += r + 1;
    for (int trial = 1; trial <= TRIALS; trial++) {
        for (int i = 0; i < TRIAL_VALUES; i++)
            host[i] = (own->p.rank + 1) * (int64_t)(trial + i);
        SP_TRY(sp_cuda_upload(t->backend, data, host, sizeof host));
        SP_TRY(cuda_peer_put_sum(t, data, data, TRIAL_VALUES));
        SP_TRY(sp_cuda_download(t->backend, host, data, sizeof host));
        for (int i = 0; i < TRIAL_VALUES; i++)
            if (host[i] != weight * (trial + i))
                return SP_FAIL(SP_EDEVICE, "rank %d: a sum of the start is wrong",
                               t->comm->rank);
    }
    return SP_OK;
}

/* ---- open and close ---- */

uint64_t peer_word_of(const uint64_t *of_record)
{
    return __atomic_load_n(of_record, __ATOMIC_ACQUIRE);
}

void peer_let_go(sp_transport *t)
{
    peer *own = peer_of(t);

    for (int r = 0; r < own->p.size; r++)
        if (r != own->p.rank && own->p.memory[r])
            cudaIpcCloseMemHandle(own->p.memory[r]);
}

/* Frees the exported memory. Called when no rank maps it any more. */
void give_back(sp_transport *t)
{
    peer *own = peer_of(t);

    cuda_of(t->backend)->wait = t->ops->look ? cuda_wait_idle : NULL;
    cuda_of(t->backend)->has_peer_sums = false;
    sp_exit_set_flag(NULL);
    if (own && own->p.size && own->p.memory[own->p.rank])
        cudaFree(own->p.memory[own->p.rank]);
    if (own && own->p.rec)
        cudaFreeHost(own->p.rec);
    free(own);
    t->peer = NULL;
    cudaGetLastError();
}

void set_limit(sp_transport *t, double s)
{
    peer_of(t)->limit_s = s;
    peer_of(t)->p.limit_ns = (uint64_t)(1e9 * s);
}

/* Each part ends with an agreement, because a rank that fails leaves the others without
 * a peer. Collective over the world. */
sp_status peer_start(sp_transport *t, const sp_transport_options *options, offer *all)
{
    const double limit_s = options->peer_limit_s > 0 ? options->peer_limit_s : LONG_S;
    const double trial_s = limit_s < TRIAL_S ? limit_s : TRIAL_S;
    offer *mine = &all[t->comm->rank];

    SP_TRY(sp_comm_agree(t->comm, object(t, options)));
    SP_TRY(sp_comm_agree(t->comm, peer_prepare(t, options, mine)));
    SP_TRY(sp_comm_allreduce(t->comm, SP_SCOPE_WORLD, all,
                             (size_t)t->comm->size * sizeof *all / sizeof(int64_t),
                             SP_I64, SP_SUM));
    SP_TRY(sp_comm_agree(t->comm, reach_all(t, all)));
    cuda_of(t->backend)->wait = cuda_wait_idle;
    cuda_of(t->backend)->wait_arg = t;
    cuda_of(t->backend)->has_peer_sums = true;
    sp_exit_set_flag(&peer_of(t)->p.rec->leave);
    set_limit(t, trial_s);
    SP_TRY(sp_comm_agree(t->comm, try_out(t)));
    set_limit(t, limit_s);
    return SP_OK;
}

void peer_say(sp_transport *t, const char *format, const char *why)
{
    const size_t used = strlen(t->words);

    snprintf(t->words + used, sizeof t->words - used, format, why);
}

sp_status peer_open(sp_transport *t, const sp_transport_options *options)
{
    offer *all;
    sp_status rc;

    if (options->scope == SP_SCOPE_RANK)
        return SP_OK;
    all = (offer *)calloc((size_t)t->comm->size, sizeof *all);
    SP_TRY(sp_comm_agree(t->comm, all ? SP_OK : SP_FAIL(SP_EMEM, "out of memory")));
    rc = peer_start(t, options, all);
    free(all);
    if (rc == SP_OK) {
        peer_say(t, "; batch statistics through the devices' memory%s", "");
        return SP_OK;
    }
    peer_say(t, "; batch statistics likewise, since devices share no memory: %.250s",
             sp_error_last()->message);
    if (t->peer)
        peer_let_go(t);
    SP_TRY(sp_comm_barrier(t->comm));
    give_back(t);
    return SP_OK;
}

/* Collective unless a rank was lost. A rank with a failed device takes part, since the
 * others do not know of it; the end of its process frees its memory. */
void cuda_peer_close(sp_transport *t)
{
    const bool is_lost = peer_word_of(&peer_of(t)->p.rec->lost) != 0;
    const bool is_well = !is_lost && sp_cuda_wait(t->backend) == SP_OK;

    cuda_of(t->backend)->wait = NULL;
    if (is_well)
        peer_let_go(t);
    if (!is_lost && sp_comm_barrier(t->comm) == SP_OK && is_well)
        give_back(t);
}

void peer_abandon(sp_transport *t)
{
    __atomic_store_n(&peer_of(t)->p.rec->leave, SP_EMPI, __ATOMIC_RELAXED);
}

sp_status peer_look(sp_transport *t, bool *is_leaving)
{
    peer *own = peer_of(t);
    const uint64_t lost = peer_word_of(&own->p.rec->lost);
    const uint64_t looked_ns = peer_word_of(&own->p.rec->looked_ns);

    if (looked_ns != own->looked_ns)
        sp_liveness_wait_poll();
    own->looked_ns = looked_ns;
    *is_leaving = peer_word_of(&own->p.rec->leave) != 0;
    return lost ? SP_FAIL(SP_EMPI,
                          "sum through the devices' memory: rank %d did not come in "
                          "%.0f s",
                          own->world_rank[lost - 1], own->limit_s)
                : SP_OK;
}

} // namespace

const sp_peer_ops sp_cuda_peer_ops = {peer_open,  cuda_peer_close, peer_abandon,
                                      peer_takes, peer_allreduce,  peer_look};

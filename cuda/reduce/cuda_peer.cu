/* Sums of a few values, such as batch statistics, through memory that the devices of a
 * node access directly. Each sum is one kernel of one block in the compute stream,
 * without the host. Expected: a few microseconds, where an all-reduce of NCCL takes 15
 * to 20.
 *
 *     rank 0's memory  | half 0: place of rank 0, 1, ... | half 1: rank 0, 1, ... |
 *                                ^                           sum n uses half n % 2
 *     rank 1's kernel  -----stores-----> its place in the memory of every rank,
 *                      then reads all places in its own, and adds them by rank
 *
 * A value of 8 bytes is stored as two words of 8, each with half of the value and the
 * number of the sum. Aligned words are stored and loaded whole, so a word that has the
 * number has arrived together with its half of the value. No store needs to be ordered
 * after another, there is no flag, no fence and no barrier, and a sum takes the time of
 * one store to a peer. (A flag behind the values would need a release at system scope
 * before it, which waits for the peers' answers, and an acquire behind it.)
 *
 * Two halves are enough, and no rank has to report that it has read. A rank overwrites
 * the words of sum n with those of sum n + 2 when its kernel of sum n + 1 has ended.
 * That kernel has seen a word of sum n + 1 from every rank, and a rank stores such
 * words only after its own kernel of sum n has ended, since both are in one stream. So
 * every rank has read all that it needs of sum n. (Early launches, sp_cuda.h, keep
 * this: a kernel stores only behind sp_grid_wait, which returns when the kernel before
 * has completed.) A place is longer than most sums; words that an earlier, longer sum
 * left there bear another number. Numbers repeat after 2^32 sums, which is tens of
 * millions of steps.
 *
 * All ranks add the same values in the same order and get the same bits.
 *
 * A peer may never come. Waiting kernels look now and then at the clock and at a record
 * in pinned host memory, in which the watchdog writes (sp_pulse_hear) that this process
 * is to leave. They then give up, so that the stream ends, and the host finds in the
 * record which rank was missing. Until then the record tells the host that its device
 * waits, so that the watchdog blames another rank. Only one block waits on each device,
 * so there is always room for the kernels that it waits for, NCCL's included. Ranks
 * that share a device by turns have no such room and keep to MPI.
 *
 * Ranks of several nodes keep to NCCL: a sum in the node, one over the nodes and the
 * way back would save little of a time that the network dominates, and would need
 * communicators of its own.
 */
#include "cuda/reduce/cuda_reduce.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "process/sp_pulse.h"

enum { MAX_PEERS = 16, MAX_VALUES = 4096, MAX_THREADS = 640, GROUP = 8 };
enum { TURNS = 512 }; /* turns of a waiting thread between looks at the record */
enum { TRIAL_VALUES = 1025, TRIALS = 5 };
enum : size_t { PLACE_WORDS = 2 * MAX_VALUES, BLOCK_BYTES = (size_t)2 << 20 };

#define TRIAL_S 20.0
#define LONG_S  3600.0

namespace
{

/* A record in pinned host memory, through which the host and a waiting kernel talk. */
struct record {
    uint64_t leave; /* written by the host: the exit status with which this process is
                     * to end; 0: none */
    uint64_t lost;  /* written by the device: 1 + the rank that did not come; 0: none */
    uint64_t looked_ns; /* written by the device while it waits for a peer */
};

/* The arguments of a kernel. Ranks are numbered within the scope. */
struct peers {
    uint64_t *memory[MAX_PEERS]; /* the memory of each rank, [2][size][PLACE_WORDS] */
    record *rec;
    uint64_t limit_ns;
    uint32_t number; /* number of the sum, from 1 */
    int rank, size;
};

/* ---- on the device ---- */

__device__ uint64_t *place_of(const peers &p, int in, int of)
{
    return p.memory[in] + ((size_t)(p.number % 2) * p.size + of) * PLACE_WORDS;
}

/* Sends to the next rank first, so that not all store to the same device at once. */
__device__ void send(const peers &p, int i, uint64_t value)
{
    for (int k = 1; k < p.size; k++) {
        const int to = p.rank + k < p.size ? p.rank + k : p.rank + k - p.size;

        sp_store_pair(place_of(p, to, p.rank) + 2 * i, value >> 32 << 32 | p.number,
                      value << 32 | p.number);
    }
}

/* Whether the thread may go on waiting for `rank`. *begin is the start of its wait, 0
 * at first. */
__device__ bool may_wait(const peers &p, int rank, uint64_t *begin)
{
    const uint64_t now = sp_clock_ns();

    if (sp_load_word(&p.rec->leave) || sp_load_word(&p.rec->lost))
        return false;
    if (threadIdx.x == 0)
        sp_store_word(&p.rec->looked_ns, now);
    if (!*begin)
        *begin = now;
    if (now - *begin < p.limit_ns)
        return true;
    sp_store_word(&p.rec->lost, 1 + (uint64_t)rank);
    return false;
}

/* Receives value[k] of rank + k, where there is such a peer. All words are loaded
 * before any is examined. Returns false where the thread gave up. */
__device__ bool receive(const peers &p, int i, int rank, uint64_t (&value)[GROUP])
{
    uint64_t begin = 0;
    int missing = 0;

    for (int turn = 1; missing >= 0; turn++) {
        uint64_t high[GROUP], low[GROUP];

        missing = -1;
#pragma unroll
        for (int k = 0; k < GROUP; k++)
            if (rank + k < p.size && rank + k != p.rank)
                sp_load_pair(place_of(p, p.rank, rank + k) + 2 * i, high[k], low[k]);
#pragma unroll
        for (int k = 0; k < GROUP; k++) {
            if (rank + k >= p.size || rank + k == p.rank)
                continue;
            if ((uint32_t)high[k] != p.number || (uint32_t)low[k] != p.number)
                missing = rank + k;
            value[k] = high[k] >> 32 << 32 | low[k] >> 32;
        }
        if (missing >= 0 && turn % TURNS == 0 && !may_wait(p, missing, &begin))
            return false;
    }
    return true;
}

__device__ uint64_t bits_of(double v)
{
    return (uint64_t)__double_as_longlong(v);
}

__device__ uint64_t bits_of(int64_t v)
{
    return (uint64_t)v;
}

__device__ void from_bits(uint64_t bits, double *v)
{
    *v = __longlong_as_double((long long)bits);
}

__device__ void from_bits(uint64_t bits, int64_t *v)
{
    *v = (int64_t)bits;
}

template <class T> __device__ bool add_up(const peers &p, int i, T own, T *to)
{
    T sum = 0;

    for (int rank = 0; rank < p.size; rank += GROUP) {
        uint64_t value[GROUP];

        if (!receive(p, i, rank, value))
            return false;
#pragma unroll
        for (int k = 0; k < GROUP; k++) {
            T of_rank = own;

            if (rank + k >= p.size)
                continue;
            if (rank + k != p.rank)
                from_bits(value[k], &of_rank);
            sum = rank + k ? sum + of_rank : of_rank;
        }
    }
    *to = sum;
    return true;
}

/* The sum of n values, by one block. Each thread sends all its values before it waits
 * for any. */
template <class T>
__global__ void __launch_bounds__(MAX_THREADS)
    peer_sum_kernel(peers p, const T *from, T *to, int n)
{
    sp_grid_wait();
    const int first = (int)threadIdx.x, step = (int)blockDim.x;

    for (int i = first; i < n; i += step)
        send(p, i, bits_of(from[i]));
    for (int i = first; i < n; i += step)
        if (!add_up(p, i, from[i], &to[i]))
            return;
}

/* ---- start ---- */

struct peer {
    peers p;
    int world_rank[MAX_PEERS];
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
    const char *text = getenv("SP_PEER_MEMORY");
    const int size = sp_comm_scope_size(t->comm, options->scope);

    if (options->objection)
        return SP_FAIL(SP_EUSAGE, "%s", options->objection);
    if (text && strcmp(text, "0") == 0)
        return SP_FAIL(SP_EUSAGE, "SP_PEER_MEMORY=0");
    if (options->scope == SP_SCOPE_WORLD && t->comm->n_nodes > 1)
        return SP_FAIL(SP_EUSAGE, "%d nodes", t->comm->n_nodes);
    if (size > MAX_PEERS)
        return SP_FAIL(SP_EUSAGE, "%d ranks, more than %d", size, (int)MAX_PEERS);
    return SP_OK;
}

/* Rounds up to whole blocks of the allocator, so that nothing else is exported with it.
 */
size_t memory_bytes(const peer *own)
{
    const size_t words = 2 * (size_t)own->p.size * PLACE_WORDS + TRIAL_VALUES;

    return (words * sizeof(uint64_t) + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

sp_status prepare(sp_transport *t, const sp_transport_options *options, offer *mine)
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

/* Maps the memory of another rank. The messages are its own, as those of the runtime
 * about peers say little. */
sp_status reach(sp_transport *t, const offer *other, int rank, void **memory)
{
    int device, can = 0;

    if (cudaDeviceGetByPCIBusId(&device, other->is.pci) != cudaSuccess) {
        cudaGetLastError();
        return SP_FAIL(SP_EDEVICE, "rank %d does not see the device of rank %d, %s",
                       t->comm->rank, rank, other->is.pci);
    }
    SP_CUDA(cudaDeviceCanAccessPeer(&can, t->backend->device, device));
    if (!can)
        return SP_FAIL(SP_EDEVICE, "the device of rank %d cannot reach that of rank %d",
                       t->comm->rank, rank);
    SP_CUDA(
        cudaIpcOpenMemHandle(memory, other->is.handle, cudaIpcMemLazyEnablePeerAccess));
    return SP_OK;
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

template <class T> sp_status put_sum(sp_transport *t, const T *from, T *to, int n)
{
    peer *own = peer_of(t);
    const int threads = n < MAX_THREADS ? (n + 31) / 32 * 32 : (int)MAX_THREADS;

    /* The halves alternate across the wrap too; fresh memory bears number 0. */
    own->p.number += own->p.number == UINT32_MAX ? 3 : 1;
    SP_LAUNCH((peer_sum_kernel<T>), 1, (unsigned)threads, cuda_of(t->backend)->compute,
              own->p, from, to, n);
    return cuda_launched("peer_sum_kernel");
}

bool peer_takes(const sp_transport *t, const sp_small_sum *sum)
{
    const sp_type type = sum->part.type;

    return sum->scope == peer_of(t)->scope && sum->part.count <= MAX_VALUES &&
           (type == SP_F64 || type == SP_I64);
}

sp_status peer_allreduce(sp_transport *t, const sp_small_sum *sum)
{
    const sp_part *part = &sum->part;
    const int n = (int)part->count;

    return part->type == SP_F64
               ? put_sum(t, (const double *)sum->from, (double *)part->data, n)
               : put_sum(t, (const int64_t *)sum->from, (int64_t *)part->data, n);
}

/* Sums known values and checks the results: virtual machines are known whose links
 * between devices exist but move nothing, or wrong data. */
sp_status try_out(sp_transport *t)
{
    peer *own = peer_of(t);
    int64_t *data =
        (int64_t *)own->p.memory[own->p.rank] + 2 * (size_t)own->p.size * PLACE_WORDS;
    int64_t host[TRIAL_VALUES], weight = 0;

    for (int r = 0; r < own->p.size; r++)
        weight += r + 1;
    for (int trial = 1; trial <= TRIALS; trial++) {
        for (int i = 0; i < TRIAL_VALUES; i++)
            host[i] = (own->p.rank + 1) * (int64_t)(trial + i);
        SP_TRY(sp_cuda_upload(t->backend, data, host, sizeof host));
        SP_TRY(put_sum(t, data, data, TRIAL_VALUES));
        SP_TRY(sp_cuda_download(t->backend, host, data, sizeof host));
        for (int i = 0; i < TRIAL_VALUES; i++)
            if (host[i] != weight * (trial + i))
                return SP_FAIL(SP_EDEVICE, "rank %d: a sum of the start is wrong",
                               t->comm->rank);
    }
    return SP_OK;
}

/* ---- open and close ---- */

uint64_t word_of(const uint64_t *of_record)
{
    return __atomic_load_n(of_record, __ATOMIC_ACQUIRE);
}

void let_go(sp_transport *t)
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
    sp_pulse_hear(NULL);
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
sp_status start(sp_transport *t, const sp_transport_options *options, offer *all)
{
    const double limit_s = options->peer_limit_s > 0 ? options->peer_limit_s : LONG_S;
    const double trial_s = limit_s < TRIAL_S ? limit_s : TRIAL_S;
    offer *mine = &all[t->comm->rank];

    SP_TRY(sp_comm_agree(t->comm, object(t, options), NULL));
    SP_TRY(sp_comm_agree(t->comm, prepare(t, options, mine), NULL));
    SP_TRY(sp_comm_allreduce(t->comm, SP_SCOPE_WORLD, all,
                             (size_t)t->comm->size * sizeof *all / sizeof(int64_t),
                             SP_I64, SP_SUM));
    SP_TRY(sp_comm_agree(t->comm, reach_all(t, all), NULL));
    cuda_of(t->backend)->wait = cuda_wait_idle;
    cuda_of(t->backend)->wait_arg = t;
    sp_pulse_hear(&peer_of(t)->p.rec->leave);
    set_limit(t, trial_s);
    SP_TRY(sp_comm_agree(t->comm, try_out(t), NULL));
    set_limit(t, limit_s);
    return SP_OK;
}

void say(sp_transport *t, const char *format, const char *why)
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
    SP_TRY(
        sp_comm_agree(t->comm, all ? SP_OK : SP_FAIL(SP_EMEM, "out of memory"), NULL));
    rc = start(t, options, all);
    free(all);
    if (rc == SP_OK) {
        say(t, "; batch statistics through the devices' memory%s", "");
        return SP_OK;
    }
    say(t, "; batch statistics likewise, since devices share no memory: %.250s",
        sp_error_last()->message);
    if (t->peer)
        let_go(t);
    SP_TRY(sp_comm_barrier(t->comm));
    give_back(t);
    return SP_OK;
}

/* Collective where nothing has failed. After a failure the end of the process frees the
 * memory. */
void peer_close(sp_transport *t)
{
    const bool is_well =
        !word_of(&peer_of(t)->p.rec->lost) && sp_cuda_wait(t->backend) == SP_OK;

    cuda_of(t->backend)->wait = NULL;
    if (!is_well)
        return;
    let_go(t);
    if (sp_comm_barrier(t->comm) == SP_OK)
        give_back(t);
}

void peer_abandon(sp_transport *t)
{
    __atomic_store_n(&peer_of(t)->p.rec->leave, SP_EMPI, __ATOMIC_RELAXED);
}

sp_status peer_look(sp_transport *t, bool *is_leaving)
{
    peer *own = peer_of(t);
    const uint64_t lost = word_of(&own->p.rec->lost);
    const uint64_t looked_ns = word_of(&own->p.rec->looked_ns);

    if (looked_ns != own->looked_ns)
        sp_pulse_wait_turn();
    own->looked_ns = looked_ns;
    *is_leaving = word_of(&own->p.rec->leave) != 0;
    return lost ? SP_FAIL(SP_EMPI,
                          "sum through the devices' memory: rank %d did not come in "
                          "%.0f s",
                          own->world_rank[lost - 1], own->limit_s)
                : SP_OK;
}

} // namespace

const sp_peer_ops sp_cuda_peer_ops = {peer_open,  peer_close,     peer_abandon,
                                      peer_takes, peer_allreduce, peer_look};

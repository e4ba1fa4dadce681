/* Device memory summed by NCCL in place.
 *
 * There are two communicators, so that a small sum in the compute stream does not wait
 * for a gradient bucket: `bulk` over the world for posted sums (reduce stream), and
 * `scope`, split off from it, for batch statistics (compute stream). One thread issues
 * everything, in the same order on all ranks. `bulk` is limited to a few blocks of the
 * device, so that kernels of both find room next to the computation.
 *
 * Communicators are non-blocking: the host polls NCCL's work in the background and its
 * errors. Wherever NCCL makes the host wait for other ranks, the host also listens to
 * the watchdog.
 */
#include "cuda/reduce/cuda_reduce.cuh"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/sp_liveness.h"
#include "base/sp_log.h"
#include "cuda/reduce/cuda_nccl.h"

enum { BULK_BLOCKS = 16, CAST_THREADS = 256 };

#define LONG_START_S 600
#define CLOSE_S      5.0
#define ROUND_S      0.02 /* time between agreements while communicators start */
#define SECONDHAND_S 2.0  /* the rank that failed reports before those that notice */
#define ABANDON_S    3.0

namespace
{

struct nccl_transport {
    const sp_nccl *lib;
    sp_nccl_comm bulk, scope; /* scope is NULL if it has one rank */
    sp_scope of;              /* the ranks that `scope` covers */
    cudaStream_t stream;      /* stream of bulk */
    cuda_sum *free_sums;
    double limit_s;
    bool is_bf16, is_failed;
    float *taken; /* [n_taken] memory given out by sp_transport_alloc */
    size_t n_taken;
    uint16_t *wire;  /* [n_taken] its floats as bf16 on the wire; NULL: fp32 travels */
    bool is_ncclmem; /* `taken` was allocated by NCCL */
    void *registration;
};

nccl_transport *nccl_of(sp_transport *t)
{
    return (nccl_transport *)t->impl;
}

void pause_s(double s)
{
    const struct timespec nap = {(time_t)s, (long)(1e9 * (s - (double)(time_t)s))};

    nanosleep(&nap, NULL);
}

/* ---- errors ---- */

/* "In progress" is not an error of a non-blocking communicator. */
bool is_fine(sp_nccl_result result)
{
    return result == SP_NCCL_SUCCESS || result == SP_NCCL_IN_PROGRESS;
}

/* Makes the result of a call the error record, if it is an error. */
sp_status reduce_check(nccl_transport *n, sp_nccl_comm comm, sp_nccl_result result,
                       const char *what)
{
    const char *more;

    if (is_fine(result))
        return SP_OK;
    more = n->lib->get_last_error(comm);
    n->is_failed = true;
    if (result == SP_NCCL_REMOTE_ERROR && !sp_exit_requested())
        pause_s(SECONDHAND_S);
    return SP_FAIL(SP_EMPI, "NCCL: %s: %s%s%s", what, n->lib->get_error_string(result),
                   more && *more ? ": " : "", more ? more : "");
}

/* Asks whether a communicator's background work is at rest and whether it has failed.
 */
sp_status ask(nccl_transport *n, sp_nccl_comm comm, const char *what, bool *is_ready)
{
    sp_nccl_result state = SP_NCCL_SUCCESS;

    *is_ready = true;
    if (!comm)
        return SP_OK;
    SP_TRY(reduce_check(n, comm, n->lib->comm_get_async_error(comm, &state), what));
    SP_TRY(reduce_check(n, comm, state, what));
    *is_ready = state == SP_NCCL_SUCCESS;
    return SP_OK;
}

sp_status look_for_errors(sp_transport *t)
{
    nccl_transport *n = nccl_of(t);
    bool ignored;

    SP_TRY(ask(n, n->bulk, "all-reduce", &ignored));
    return ask(n, n->scope, "all-reduce", &ignored);
}

struct queueing {
    nccl_transport *n;
    sp_nccl_comm comm;
    const char *what;
};

sp_status test_ready(void *arg, bool *is_done)
{
    const queueing *s = (const queueing *)arg;

    return ask(s->n, s->comm, s->what, is_done);
}

/* Waits until NCCL has put the requested work into the stream. */
sp_status wait_until_queued(sp_transport *t, sp_nccl_comm comm, const char *what)
{
    queueing s = {nccl_of(t), comm, what};
    bool is_ready;

    SP_TRY(ask(s.n, comm, what, &is_ready));
    return is_ready ? SP_OK : sp_comm_wait_for(t->comm, true, test_ready, &s);
}

/* ---- start ---- */

sp_status probe()
{
    const sp_nccl *lib;

    return sp_nccl_load(&lib);
}

/* Excludes algorithms that sum in another order from run to run; the user's settings
 * are kept. NCCL reads its environment at its first call. */
void ask_for_repeatable()
{
    setenv("NCCL_ALGO", "Ring", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    setenv("NCCL_COLLNET_ENABLE", "0", 0);
}

sp_nccl_config config_of(int max_blocks)
{
    sp_nccl_config c = {};

    c.size = sizeof c;
    c.magic = 0xcafebeef;
    c.version = SP_NCCL_LEAST;
    c.blocking = 0;
    c.cga_cluster_size = c.min_ctas = c.split_share = SP_NCCL_DEFAULT;
    c.max_ctas = max_blocks;
    return c;
}

/* Waits for a communicator to start; its call gave `result`. All ranks ask theirs in
 * rounds, so that all learn of one that fails or of the time limit. Collective over the
 * world. */
sp_status start_together(sp_transport *t, sp_nccl_comm *comm, sp_nccl_result result,
                         const char *what)
{
    nccl_transport *n = nccl_of(t);
    const double end = sp_now_s() + n->limit_s;
    sp_status rc = reduce_check(n, *comm, result, what);

    for (;;) {
        const double round_end = sp_now_s() + ROUND_S;
        int64_t failed, busy, late;
        bool is_ready = false;

        while (rc == SP_OK && !is_ready && sp_now_s() < round_end) {
            if (*comm)
                rc = ask(n, *comm, what, &is_ready);
            if (rc == SP_OK && !is_ready)
                pause_s(0.001);
        }
        int64_t state[3] = {rc != SP_OK, rc == SP_OK && !is_ready, sp_now_s() > end};

        SP_TRY(sp_comm_allreduce(t->comm, SP_SCOPE_WORLD, state, 3, SP_I64, SP_MAX));
        failed = state[0];
        busy = state[1];
        late = state[2];
        if (!failed && busy && late && rc == SP_OK && !is_ready)
            rc = SP_FAIL(SP_EMPI, "NCCL: %s: not done after %.0f s", what, n->limit_s);
        if (failed || !busy || late)
            return sp_comm_agree(t->comm, rc);
    }
}

sp_status make_bulk(sp_transport *t)
{
    nccl_transport *n = nccl_of(t);
    sp_nccl_config config = config_of(BULK_BLOCKS);
    sp_nccl_id id = {};
    sp_nccl_result result = SP_NCCL_SUCCESS;

    if (t->comm->rank == 0)
        result = n->lib->get_unique_id(&id);
    SP_TRY(sp_comm_agree(t->comm, reduce_check(n, NULL, result, "ncclGetUniqueId")));
    SP_TRY(sp_comm_bcast(t->comm, &id, sizeof id, 0));
    /* Some MPIs let the root continue before the others have the data. */
    SP_TRY(sp_comm_barrier(t->comm));
    result = n->lib->comm_init_rank_config(&n->bulk, t->comm->size, id, t->comm->rank,
                                           &config);
    return start_together(t, &n->bulk, result, "ncclCommInitRankConfig");
}

sp_status make_scope(sp_transport *t)
{
    nccl_transport *n = nccl_of(t);
    sp_nccl_config config = config_of(SP_NCCL_DEFAULT);
    const int color = n->of == SP_SCOPE_NODE ? t->comm->node : 0;
    sp_nccl_result result;

    if (n->of == SP_SCOPE_RANK)
        return SP_OK;
    result = n->lib->comm_split(n->bulk, color, t->comm->rank, &n->scope, &config);
    SP_TRY(start_together(t, &n->bulk, result, "ncclCommSplit"));
    return start_together(t, &n->scope, SP_NCCL_SUCCESS, "ncclCommSplit");
}

/* ---- open and close ---- */

sp_status reduce_check_same(sp_transport *t)
{
    const int version = nccl_of(t)->lib->version;
    bool is_same;

    SP_TRY(sp_comm_is_same(t->comm, &version, sizeof version, &is_same));
    return is_same
               ? SP_OK
               : SP_FAIL(SP_EMPI, "NCCL: %s is version %d here, another on other ranks",
                         nccl_of(t)->lib->path, version);
}

sp_status reduce_nccl_start(sp_transport *t, const sp_transport_options *options)
{
    nccl_transport *n = nccl_of(t);
    sp_status rc = sp_nccl_load(&n->lib);

    n->of = options->scope;
    n->is_bf16 = options->is_bf16;
    n->limit_s = options->limit_s > 0 ? options->limit_s : LONG_START_S;
    if (rc == SP_OK)
        rc = cuda_urgent_stream(&n->stream);
    SP_TRY(sp_comm_agree(t->comm, rc));
    SP_TRY(reduce_check_same(t));
    if (options->is_repeatable)
        ask_for_repeatable();
    SP_TRY(make_bulk(t));
    SP_TRY(make_scope(t));
    cuda_of(t->backend)->wait = cuda_wait_idle;
    cuda_of(t->backend)->wait_arg = t;
    snprintf(t->words, sizeof t->words, "NCCL %d.%d.%d, %s on the wire (%.128s)",
             n->lib->version / 10000, n->lib->version % 10000 / 100,
             n->lib->version % 100, n->is_bf16 ? "bf16" : "fp32", n->lib->path);
    return SP_OK;
}

sp_status nccl_open(sp_transport *t, const sp_transport_options *options)
{
    sp_status rc;

    t->impl = calloc(1, sizeof(nccl_transport));
    rc = t->impl ? SP_OK : SP_FAIL(SP_EMEM, "transport: out of memory");
    SP_TRY(sp_comm_agree(t->comm, rc));
    rc = reduce_nccl_start(t, options);
    if (rc != SP_OK) /* on some rank: nothing is closed collectively any more */
        nccl_of(t)->is_failed = true;
    return rc;
}

void reduce_finish(nccl_transport *n, sp_nccl_comm comm)
{
    const double end = sp_now_s() + CLOSE_S;
    sp_nccl_result state = SP_NCCL_IN_PROGRESS;

    if (!comm)
        return;
    if (n->is_failed || !is_fine(n->lib->comm_finalize(comm))) {
        n->lib->comm_abort(comm);
        return;
    }
    while (state == SP_NCCL_IN_PROGRESS && sp_now_s() < end &&
           n->lib->comm_get_async_error(comm, &state) == SP_NCCL_SUCCESS)
        pause_s(0.001);
    if (state == SP_NCCL_SUCCESS)
        n->lib->comm_destroy(comm);
    else
        n->lib->comm_abort(comm);
}

void nccl_close(sp_transport *t)
{
    nccl_transport *n = nccl_of(t);

    if (!n)
        return;
    cuda_of(t->backend)->wait = NULL;
    if (n->registration && !n->is_failed)
        n->lib->comm_deregister(n->bulk, n->registration);
    reduce_finish(n, n->scope);
    reduce_finish(n, n->bulk);
    if (n->is_ncclmem)
        n->lib->mem_free(n->taken);
    if (n->stream)
        cudaStreamDestroy(n->stream);
    cuda_sums_destroy(&n->free_sums);
    free(n);
}

void *abort_all(void *arg)
{
    nccl_transport *n = (nccl_transport *)arg;

    if (n->scope)
        n->lib->comm_abort(n->scope);
    if (n->bulk)
        n->lib->comm_abort(n->bulk);
    return NULL;
}

/* The process is about to end. The abort runs in a thread, so that one that hangs does
 * not keep the process. */
void nccl_abandon(sp_transport *t)
{
    struct timespec end;
    pthread_t thread;

    if (!t->impl || pthread_create(&thread, NULL, abort_all, t->impl) != 0)
        return;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (time_t)ABANDON_S;
    pthread_timedjoin_np(thread, NULL, &end);
}

/* ---- memory ---- */

/* Memory that NCCL allocates can be registered, so that the network and the links
 * between devices read it in place. Sums without registration are the same. */
sp_status nccl_alloc_registered(sp_transport *t, size_t bytes, void **out)
{
    nccl_transport *n = nccl_of(t);
    void *data = NULL;

    if (!n->lib->mem_alloc || !n->lib->mem_free || !n->lib->comm_register ||
        !n->lib->comm_deregister || n->lib->mem_alloc(&data, bytes) != SP_NCCL_SUCCESS)
        return sp_transport_alloc_arena(t, bytes, out);
    n->is_ncclmem = true;
    if (!is_fine(n->lib->comm_register(n->bulk, data, bytes, &n->registration)))
        n->registration = NULL;
    *out = data;
    return wait_until_queued(t, n->bulk, "ncclCommRegister");
}

sp_status nccl_alloc(sp_transport *t, size_t bytes, void **out)
{
    nccl_transport *n = nccl_of(t);
    const size_t floats = (bytes + 127) / 128 * 32;

    SP_TRY(nccl_alloc_registered(t, floats * (n->is_bf16 ? 6 : 4), out));
    n->taken = (float *)*out;
    n->n_taken = floats;
    if (n->is_bf16)
        n->wire = (uint16_t *)(n->taken + floats);
    return SP_OK;
}

/* ---- bf16 on the wire ---- */

/* Narrows floats to bf16, rounded to nearest, ties to even; NaN stays NaN. */
__global__ void __launch_bounds__(CAST_THREADS)
    narrow_kernel(const float *from, size_t n, uint16_t *to)
{
    sp_grid_wait();
    const size_t i = (size_t)blockIdx.x * CAST_THREADS + threadIdx.x;

    if (i >= n)
        return;
    uint32_t bits = __float_as_uint(from[i]);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        bits |= 0x00400000u;
    else
        bits += 0x7fffu + (bits >> 16 & 1);
    to[i] = (uint16_t)(bits >> 16);
}

__global__ void __launch_bounds__(CAST_THREADS)
    widen_kernel(const uint16_t *from, size_t n, float *to)
{
    sp_grid_wait();
    const size_t i = (size_t)blockIdx.x * CAST_THREADS + threadIdx.x;

    if (i < n)
        to[i] = __uint_as_float((uint32_t)from[i] << 16);
}

/* The bf16 buffer of a part's floats; NULL if they travel unchanged. */
uint16_t *wire_of(const nccl_transport *n, const sp_part *part)
{
    const float *data = (const float *)part->data;

    if (!n->wire || part->type != SP_F32 || data < n->taken ||
        data + part->count > n->taken + n->n_taken)
        return NULL;
    return n->wire + (data - n->taken);
}

/* Puts into the stream that the part's floats become bf16 on the wire, or, after the
 * sum, floats again. */
sp_status reduce_cast(nccl_transport *n, const sp_part *part, bool is_narrowed)
{
    const unsigned blocks = (unsigned)((part->count + CAST_THREADS - 1) / CAST_THREADS);
    float *data = (float *)part->data;
    uint16_t *wire = wire_of(n, part);

    if (!wire || !part->count)
        return SP_OK;
    if (is_narrowed)
        return CUDA_LAUNCH(narrow_kernel, blocks, CAST_THREADS, n->stream, data,
                           part->count, wire);
    return CUDA_LAUNCH(widen_kernel, blocks, CAST_THREADS, n->stream, wire, part->count,
                       data);
}

/* ---- sums ---- */

int type_of(sp_type type)
{
    return type == SP_F32   ? SP_NCCL_FLOAT32
           : type == SP_F64 ? SP_NCCL_FLOAT64
                            : SP_NCCL_INT64;
}

sp_status reduce_put_sum(nccl_transport *n, sp_nccl_comm comm, const void *from,
                         const sp_part *part, uint16_t *wire, cudaStream_t stream)
{
    void *data = wire ? wire : part->data;

    return reduce_check(
        n, comm,
        n->lib->all_reduce(wire ? wire : from, data, part->count,
                           wire ? SP_NCCL_BFLOAT16 : type_of(part->type), SP_NCCL_SUM,
                           comm, stream),
        "ncclAllReduce");
}

sp_status nccl_allreduce(sp_transport *t, const sp_small_sum *sum)
{
    nccl_transport *n = nccl_of(t);
    const sp_nccl_comm comm = sum->scope == n->of ? n->scope : n->bulk;

    if (sum->scope != n->of && sum->scope != SP_SCOPE_WORLD)
        return SP_FAIL_INTERNAL(SP_EMPI,
                                "all-reduce over a scope that was not announced");
    sp_early_break(cuda_of(t->backend)->compute);
    SP_TRY(reduce_put_sum(n, comm, sum->from, &sum->part, NULL,
                          cuda_of(t->backend)->compute));
    return wait_until_queued(t, comm, "ncclAllReduce");
}

sp_status put_sums(nccl_transport *n, const sp_part *part, int count)
{
    for (int i = 0; i < count; i++)
        if (part[i].count)
            SP_TRY(reduce_put_sum(n, n->bulk, part[i].data, &part[i],
                                  wire_of(n, &part[i]), n->stream));
    return SP_OK;
}

/* Sums all parts in one group, which is one launch. After a failure the group is closed
 * too, since an open group would put off ncclCommAbort. */
sp_status put_group(sp_transport *t, const sp_part *part, int count)
{
    nccl_transport *n = nccl_of(t);
    sp_status rc;

    SP_TRY(reduce_check(n, n->bulk, n->lib->group_start(), "ncclGroupStart"));
    rc = put_sums(n, part, count);
    if (rc != SP_OK)
        n->lib->group_end();
    SP_TRY(rc);
    SP_TRY(reduce_check(n, n->bulk, n->lib->group_end(), "ncclGroupEnd"));
    return wait_until_queued(t, n->bulk, "ncclAllReduce");
}

sp_status nccl_post(sp_transport *t, const sp_part *part, int count, sp_sum *sum)
{
    nccl_transport *n = nccl_of(t);
    const cuda_sum *own;

    SP_TRY(cuda_sum_begin(t->backend, &n->free_sums, sum));
    own = (const cuda_sum *)sum->handle;
    SP_CUDA(cudaStreamWaitEvent(n->stream, own->computed, 0));
    for (int i = 0; i < count; i++)
        SP_TRY(reduce_cast(n, &part[i], true));
    SP_TRY(put_group(t, part, count));
    for (int i = 0; i < count; i++)
        SP_TRY(reduce_cast(n, &part[i], false));
    SP_CUDA(cudaEventRecord(own->done, n->stream));
    return SP_OK;
}

sp_status nccl_test(sp_transport *t, sp_sum *sum, bool *is_done)
{
    SP_TRY(cuda_sum_test(t->backend, &nccl_of(t)->free_sums, sum, is_done));
    return *is_done ? SP_OK : look_for_errors(t);
}

sp_status nccl_join(sp_transport *t, sp_sum *sum)
{
    const cuda_sum *own = (const cuda_sum *)sum->handle;

    if (own)
        SP_TRY(cuda_wait_event(cuda_of(t->backend)->compute, own->done));
    return SP_OK;
}

} // namespace

const sp_transport_ops sp_cuda_nccl_ops = {
    "nccl",       probe,      nccl_open,       nccl_close,
    nccl_abandon, nccl_alloc, nccl_allreduce,  nccl_post,
    nccl_test,    nccl_join,  look_for_errors, &sp_cuda_peer_ops};

/* The transports of device memory, best first, for the table of the backend. */
extern "C" const sp_transport_ops *const sp_cuda_transports[] = {
    &sp_cuda_nccl_ops, &sp_cuda_staged_ops, NULL};

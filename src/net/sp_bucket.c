#include "net/sp_bucket.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_machine.h"
#include "base/sp_number.h"

enum { BUCKET_BYTES = 16 << 20, ALIGNMENT = 128, NARROW = 16 };

/* Doubles in backend memory that the host reads at the end of a step: the sums of the
 * loss, the tail, the square of the gradient. All but the last are summed over ranks.
 */
enum { TAIL = SP_LOSS_SUMS, SQUARES = TAIL + sizeof(sp_tail) / sizeof(double), N_SUMS };
_Static_assert(sizeof(sp_tail) % sizeof(double) == 0, "the tail is all doubles");

struct sp_buckets_impl {
    int n_posted, n_done; /* the first n buckets are posted, summed */
    /* [n_buckets] all its layers are frozen: zeros, which do not travel. */
    bool *is_idle;
    sp_sum *sum;             /* [n_buckets] */
    sp_transport own;        /* MPI between hosts */
    sp_transport *transport; /* `own`, or the one attached */
    sp_backend *backend;     /* NULL: not attached */
    float *host;     /* [n_floats] grad of the host, or the limbs' values; NULL */
    double sequence; /* this rank's, when it posted the tail */
    double *sums;    /* [N_SUMS] backend memory; on the host host_sums */
    double host_sums[N_SUMS]; /* a copy of them */
};

/* The end of the first layers' bucket, which is a small part of a full one, and not the
 * whole gradient. */
static int64_t narrow_end(const sp_graph *graph, int64_t at_least)
{
    int64_t end = 0;

    for (int p = 1; p < graph->n_params; p++)
        if (graph->param[p].offset <= at_least / NARROW)
            end = graph->param[p].offset;
    return graph->n_floats > at_least / NARROW ? end : 0;
}

/* Cuts from the end where a bucket is full, where the next parameter would fill it half
 * as much again, and before the narrow layers. begin NULL: only counts. */
static int bucket_cut(const sp_graph *graph, int64_t at_least, int64_t *begin)
{
    const int64_t narrow = narrow_end(graph, at_least);
    int64_t end = graph->n_floats;
    int n = 0;

    if (begin)
        begin[0] = end;
    for (int p = graph->n_params - 1; p >= 0; p--) {
        int64_t at = p ? graph->param[p].offset : 0;
        int64_t next = p > 1 ? graph->param[p - 1].offset : 0;

        if (p && at != narrow && end - at < at_least &&
            end - next <= at_least + at_least / 2)
            continue;
        if (p && at < narrow)
            continue;
        n++;
        if (begin)
            begin[n] = at;
        end = at;
    }
    if (n == 0 && begin) /* nothing to learn: only the tail travels */
        begin[1] = 0;
    return n ? n : 1;
}

/* Marks the buckets without a parameter that is trained. The last one carries the tail
 * and always travels. The others' contents stay the same, and so do their sums. */
static void mark_idle(const sp_buckets *b, const sp_graph *graph)
{
    for (int i = 0; i + 1 < b->n_buckets; i++) {
        bool is_idle = true;

        for (int p = 0; p < graph->n_params; p++)
            if (graph->param[p].offset >= b->begin[i + 1] &&
                graph->param[p].offset < b->begin[i])
                is_idle = is_idle && graph->node[graph->param[p].node].is_frozen;
        b->impl->is_idle[i] = is_idle;
    }
}

sp_status sp_buckets_create(sp_buckets *b, const sp_graph *graph, sp_comm *comm,
                            bool is_exact, size_t bucket_bytes)
{
    size_t each = is_exact ? SP_EXACT_LIMBS * sizeof(int64_t) : sizeof(float);
    size_t n = (size_t)graph->n_floats;
    int64_t at_least = (int64_t)((bucket_bytes ? bucket_bytes : BUCKET_BYTES) / each);

    assert(graph->n_floats >= 0 && comm);
    memset(b, 0, sizeof *b);
    b->comm = comm;
    b->graph = graph;
    b->is_overlapped = true;
    b->n_buckets = bucket_cut(graph, at_least, NULL);
    SP_TRY(SP_NEW(&b->begin, b->n_buckets, "gradient buckets"));
    SP_TRY(SP_NEW(&b->impl, 1, "gradient buckets"));
    bucket_cut(graph, at_least, b->begin);
    SP_TRY(SP_NEW(&b->impl->sum, b->n_buckets, "gradient buckets"));
    SP_TRY(SP_NEW(&b->impl->is_idle, b->n_buckets, "gradient buckets"));
    mark_idle(b, graph);
    sp_transport_open_host(&b->impl->own, comm);
    b->impl->transport = &b->impl->own;
    SP_TRY(sp_comm_alloc(comm, n * sizeof *b->grad, (void **)&b->impl->host));
    b->grad = b->impl->host;
    b->loss = b->impl->sums = b->impl->host_sums;
    b->squares = NAN;
    if (is_exact)
        SP_TRY(sp_comm_alloc(comm, n * each, (void **)&b->exact));
    return SP_OK;
}

sp_status sp_buckets_attach(sp_buckets *buckets, sp_transport *transport)
{
    struct sp_buckets_impl *impl = buckets->impl;
    sp_backend *backend = transport->backend;
    size_t bytes = (size_t)buckets->graph->n_floats * sizeof(float);
    void *memory;

    assert(impl && "sp_buckets_create comes first");
    assert(!impl->backend && "attached once");
    impl->backend = backend;
    if (!buckets->exact)
        impl->transport = transport;
    if (backend->ops->is_host)
        return SP_OK;
    bytes = sp_multiple(bytes, ALIGNMENT);
    SP_TRY(sp_transport_alloc(transport, bytes + sizeof impl->host_sums, &memory));
    buckets->grad = memory;
    buckets->loss = impl->sums = (double *)((char *)memory + bytes);
    if (!buckets->exact) { /* nothing passes through the host */
        sp_comm_free(buckets->comm, impl->host);
        impl->host = NULL;
    }
    return backend->ops->fill(backend, memory, 0, bytes + sizeof impl->host_sums);
}

void sp_buckets_destroy(sp_buckets *buckets)
{
    struct sp_buckets_impl *impl = buckets->impl;

    if (impl) {
        sp_transport_close(&impl->own);
        sp_comm_free(buckets->comm, impl->host);
        sp_comm_free(buckets->comm, buckets->exact);
        free(impl->sum);
        free(impl->is_idle);
    }
    free(buckets->impl);
    free(buckets->begin);
    memset(buckets, 0, sizeof *buckets);
}

/* True if the gradient is in a device's memory. */
static bool is_device(const sp_buckets *b)
{
    return b->grad != b->impl->host;
}

sp_status sp_buckets_begin(sp_buckets *buckets)
{
    struct sp_buckets_impl *impl = buckets->impl;
    sp_backend *backend = impl->backend;
    size_t n = (size_t)buckets->graph->n_floats;

    assert(impl->transport && "sp_buckets_attach comes first");
    if (buckets->exact)
        memset(buckets->exact, 0, n * SP_EXACT_LIMBS * sizeof *buckets->exact);
    memset(&buckets->tail, 0, sizeof buckets->tail);
    memset(buckets->tail_exact, 0, sizeof buckets->tail_exact);
    impl->n_posted = impl->n_done = 0;
    buckets->is_begun = false;
    if (!is_device(buckets)) {
        if (buckets->comm->size == 1)
            sp_machine_zero(buckets->grad,
                            sp_multiple(n * sizeof *buckets->grad, SP_LARGE_PAGE));
        else /* an evaluation may have used it (sp_net_lend) */
            memset(buckets->grad, 0, n * sizeof *buckets->grad);
        memset(impl->sums, 0, sizeof impl->host_sums);
        return SP_OK;
    }
    return backend->ops->fill(backend, impl->sums, 0, sizeof impl->host_sums);
}

/* Bucket i as it travels. */
static sp_part bucket_part_of(const sp_buckets *b, int i)
{
    int64_t at = b->begin[i + 1], n = b->begin[i] - at;

    if (b->exact)
        return (sp_part){b->exact + at * SP_EXACT_LIMBS, (size_t)n * SP_EXACT_LIMBS,
                         SP_I64};
    return (sp_part){b->grad + at, (size_t)n, SP_F32};
}

/* The last bucket goes with the tail. */
sp_status sp_bucket_ready(sp_buckets *b, int64_t from)
{
    struct sp_buckets_impl *impl = b->impl;

    assert(from >= 0 && from <= b->graph->n_floats);
    if (b->comm->size == 1 || !b->is_overlapped)
        return SP_OK;
    for (; impl->n_posted < b->n_buckets - 1 && b->begin[impl->n_posted + 1] >= from;
         impl->n_posted++) {
        const sp_part part = bucket_part_of(b, impl->n_posted);

        if (impl->is_idle[impl->n_posted])
            continue;
        SP_TRY(
            sp_transport_post(impl->transport, &part, 1, &impl->sum[impl->n_posted]));
    }
    return SP_OK;
}

sp_status sp_bucket_poll(sp_buckets *buckets)
{
    struct sp_buckets_impl *impl = buckets->impl;
    bool is_done = true;

    assert(impl->n_done <= impl->n_posted && impl->n_posted <= buckets->n_buckets);
    while (is_done && impl->n_done < impl->n_posted) {
        is_done = impl->is_idle[impl->n_done];
        if (!is_done)
            SP_TRY(
                sp_transport_test(impl->transport, &impl->sum[impl->n_done], &is_done));
        impl->n_done += is_done;
    }
    return SP_OK;
}

/* ---- the end of a step ---- */

static sp_status to_backend(sp_buckets *b, void *to, const void *from, size_t bytes)
{
    sp_backend *backend = b->impl->backend;

    if (is_device(b))
        return backend->ops->upload(backend, to, from, bytes);
    memcpy(to, from, bytes);
    return SP_OK;
}

/* Posts the last bucket with the tail. The counts are whole numbers: their sum in
 * double does not depend on the order. The loss sum does, so in exact mode it travels
 * as limbs. */
static sp_status post_last(sp_buckets *b)
{
    struct sp_buckets_impl *impl = b->impl;
    sp_part part[SP_SUM_PARTS] = {bucket_part_of(b, b->n_buckets - 1)};
    int n = 2;

    b->tail.sequence = impl->sequence = impl->transport->sequence;
    if (b->exact) {
        part[1] = (sp_part){&b->tail, SQUARES - TAIL, SP_F64};
        part[2] = (sp_part){b->tail_exact, 2 * SP_EXACT_WIDE, SP_I64};
        n = 3;
    } else {
        SP_TRY(to_backend(b, impl->sums + TAIL, &b->tail, sizeof b->tail));
        part[1] = (sp_part){impl->sums, SQUARES, SP_F64};
    }
    return sp_transport_post(impl->transport, part, n, &impl->sum[impl->n_posted++]);
}

static sp_status post_rest(sp_buckets *b)
{
    const bool is_overlapped = b->is_overlapped;
    sp_status rc;

    b->is_overlapped = true;
    rc = sp_bucket_ready(b, 0);
    b->is_overlapped = is_overlapped;
    SP_TRY(rc);
    SP_TRY(post_last(b));
    for (int i = b->impl->n_done; i < b->n_buckets; i++)
        if (!b->impl->is_idle[i])
            SP_TRY(sp_transport_join(b->impl->transport, &b->impl->sum[i]));
    return SP_OK;
}

/* Waits until all sums are there: from then on no wait of the host depends on other
 * ranks. */
static sp_status wait_for_all(sp_buckets *b)
{
    struct sp_buckets_impl *impl = b->impl;

    for (; impl->n_done < b->n_buckets; impl->n_done++)
        if (!impl->is_idle[impl->n_done])
            SP_TRY(sp_transport_wait(impl->transport, &impl->sum[impl->n_done]));
    return SP_OK;
}

static sp_status use_limbs(sp_buckets *b)
{
    size_t n = (size_t)b->graph->n_floats;
    double loss[2];

    sp_exact_get_f32(b->exact, b->impl->host, n);
    sp_exact_get_wide(b->tail_exact, loss, 2);
    b->tail.loss_sum = loss[0];
    b->tail.weight_sum = loss[1];
    return is_device(b) ? to_backend(b, b->grad, b->impl->host, n * sizeof *b->grad)
                        : SP_OK;
}

/* Adds the sums that the backend has formed to the tail. */
static sp_status fetch_sums(sp_buckets *b)
{
    struct sp_buckets_impl *impl = b->impl;

    if (is_device(b))
        SP_TRY(impl->backend->ops->download(impl->backend, impl->host_sums, impl->sums,
                                            sizeof impl->host_sums));
    if (impl->backend)
        b->squares = impl->host_sums[SQUARES];
    if (b->exact)
        return SP_OK;
    if (b->comm->size > 1)
        memcpy(&b->tail, impl->host_sums + TAIL, sizeof b->tail);
    b->tail.loss_sum += impl->host_sums[0];
    b->tail.weight_sum += impl->host_sums[1];
    return SP_OK;
}

/* Numbers below 2^32 add up exactly in double, so if all are equal their sum is a
 * multiple of each; else it is not for at least one rank. */
static sp_status check_sequence(const sp_buckets *b)
{
    if (b->comm->size == 1 || b->tail.sequence == b->comm->size * b->impl->sequence)
        return SP_OK;
    return SP_FAIL_INTERNAL(SP_EMPI,
                            "rank %d has asked for other sums over the ranks than the "
                            "others, or in another order",
                            b->comm->rank);
}

sp_status sp_bucket_wait(sp_buckets *b, double *exposed_s)
{
    struct sp_buckets_impl *impl = b->impl;
    sp_backend *backend = impl->backend;
    const double before = impl->transport->exposed_s;

    assert(impl->n_done <= impl->n_posted);
    if (b->comm->size > 1)
        SP_TRY(post_rest(b));
    if (b->exact && b->comm->size > 1)
        SP_TRY(wait_for_all(b));
    if (b->exact)
        SP_TRY(use_limbs(b));
    if (backend)
        SP_TRY(backend->ops->sum_squares(backend, b->grad, b->graph->n_floats,
                                         &impl->sums[SQUARES]));
    if (b->comm->size > 1)
        SP_TRY(wait_for_all(b));
    if (exposed_s)
        *exposed_s = impl->transport->exposed_s - before;
    SP_TRY(fetch_sums(b));
    return check_sequence(b);
}

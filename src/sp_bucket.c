#include "sp_bucket.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BUCKET_BYTES = 16 << 20, ALIGNMENT = 128 };

/* Positions of the tail's requests behind those of the buckets. */
enum { TAIL_COUNTS, TAIL_EXACT, N_TAIL };

struct sp_buckets_impl {
    int n_posted, n_done; /* buckets, in order */
    sp_request *request;  /* [n_buckets + N_TAIL] */
    sp_backend *backend;  /* NULL: device is grad */
    sp_arena arena;       /* of device */
    float *stage;         /* [n_floats] host: sums on their way from device to grad */
};

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static sp_status take(void **out, size_t bytes)
{
    bytes = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    *out = aligned_alloc(ALIGNMENT, bytes);
    if (!*out)
        return SP_FAIL(SP_EMEM, "gradient buffer: cannot allocate %zu bytes", bytes);
    memset(*out, 0, bytes);
    return SP_OK;
}

/* Cut from the end. begin NULL: count only. */
static int cut(const sp_graph *graph, int64_t at_least, int64_t *begin)
{
    int64_t end = graph->n_floats;
    int n = 0, p;

    if (begin)
        begin[0] = end;
    for (p = graph->n_params - 1; p >= 0; p--) {
        int64_t at = p ? graph->param[p].offset : 0;

        if (end - at < at_least && p)
            continue;
        n++;
        if (begin)
            begin[n] = at;
        end = at;
    }
    return n;
}

sp_status sp_buckets_create(sp_buckets *buckets, const sp_graph *graph, sp_comm *comm,
                            bool is_exact, size_t bucket_bytes)
{
    sp_buckets *b = buckets;
    size_t each = is_exact ? SP_EXACT_LIMBS * sizeof(int64_t) : sizeof(float);
    size_t n = (size_t)graph->n_floats;
    int64_t at_least = (int64_t)((bucket_bytes ? bucket_bytes : BUCKET_BYTES) / each);

    memset(b, 0, sizeof *b);
    b->comm = comm;
    b->graph = graph;
    b->is_overlapped = true;
    b->n_buckets = cut(graph, at_least, NULL);
    b->begin = malloc(((size_t)b->n_buckets + 1) * sizeof *b->begin);
    b->impl = calloc(1, sizeof *b->impl);
    if (!b->begin || !b->impl)
        return SP_FAIL(SP_EMEM, "gradient buckets: out of memory");
    cut(graph, at_least, b->begin);
    b->impl->request = calloc((size_t)b->n_buckets + N_TAIL, sizeof *b->impl->request);
    if (!b->impl->request)
        return SP_FAIL(SP_EMEM, "gradient buckets: out of memory");
    SP_TRY(take((void **)&b->grad, n * sizeof *b->grad));
    b->device = b->grad;
    if (is_exact)
        SP_TRY(take((void **)&b->exact, n * each));
    return SP_OK;
}

sp_status sp_buckets_attach(sp_buckets *buckets, sp_backend *backend)
{
    struct sp_buckets_impl *impl = buckets->impl;
    size_t bytes = (size_t)buckets->graph->n_floats * sizeof(float);

    if (backend->ops->is_host)
        return SP_OK;
    SP_TRY(take((void **)&impl->stage, bytes));
    SP_TRY(backend->ops->arena_create(&impl->arena, bytes + ALIGNMENT, "gradients"));
    impl->backend = backend;
    SP_TRY(sp_arena_take(&impl->arena, bytes, (void **)&buckets->device));
    return backend->ops->fill(backend, buckets->device, 0, bytes);
}

void sp_buckets_destroy(sp_buckets *buckets)
{
    struct sp_buckets_impl *impl = buckets->impl;

    if (impl) {
        if (impl->backend)
            impl->backend->ops->arena_destroy(&impl->arena);
        free(impl->stage);
        free(impl->request);
    }
    free(buckets->impl);
    free(buckets->begin);
    free(buckets->grad);
    free(buckets->exact);
    memset(buckets, 0, sizeof *buckets);
}

sp_status sp_buckets_zero(sp_buckets *buckets)
{
    sp_backend *backend = buckets->impl->backend;
    size_t n = (size_t)buckets->graph->n_floats;

    memset(buckets->grad, 0, n * sizeof *buckets->grad);
    if (buckets->exact)
        memset(buckets->exact, 0, n * SP_EXACT_LIMBS * sizeof *buckets->exact);
    memset(&buckets->tail, 0, sizeof buckets->tail);
    memset(buckets->tail_exact, 0, sizeof buckets->tail_exact);
    buckets->impl->n_posted = buckets->impl->n_done = 0;
    if (backend)
        SP_TRY(backend->ops->fill(backend, buckets->device, 0,
                                  n * sizeof *buckets->device));
    return SP_OK;
}

/* grad += device for bucket i: from now on it is as on the host. Waits for the device.
 */
static sp_status gather(sp_buckets *b, int i)
{
    struct sp_buckets_impl *impl = b->impl;
    int64_t at = b->begin[i + 1], end = b->begin[i], p;

    if (!impl->backend || b->exact)
        return SP_OK;
    SP_TRY(impl->backend->ops->download(impl->backend, impl->stage + at, b->device + at,
                                        (size_t)(end - at) * sizeof *b->grad));
    for (p = at; p < end; p++)
        b->grad[p] += impl->stage[p];
    return SP_OK;
}

static sp_status post(sp_buckets *b, int i)
{
    int64_t at = b->begin[i + 1], n = b->begin[i] - at;
    sp_request *request = &b->impl->request[i];

    SP_TRY(gather(b, i));
    if (b->exact)
        SP_TRY(sp_comm_iallreduce(b->comm, SP_SCOPE_WORLD,
                                  b->exact + at * SP_EXACT_LIMBS,
                                  (size_t)n * SP_EXACT_LIMBS, SP_I64, SP_SUM, request));
    else
        SP_TRY(sp_comm_iallreduce(b->comm, SP_SCOPE_WORLD, b->grad + at, (size_t)n,
                                  SP_F32, SP_SUM, request));
    return SP_OK;
}

static sp_status post_from(sp_buckets *b, int64_t from)
{
    int *i = &b->impl->n_posted;

    for (; *i < b->n_buckets && b->begin[*i + 1] >= from; ++*i)
        SP_TRY(post(b, *i));
    return SP_OK;
}

sp_status sp_bucket_ready(sp_buckets *buckets, int64_t from)
{
    if (buckets->comm->size > 1 && buckets->is_overlapped)
        SP_TRY(post_from(buckets, from));
    return SP_OK;
}

sp_status sp_bucket_poll(sp_buckets *buckets)
{
    struct sp_buckets_impl *impl = buckets->impl;
    bool is_done = true;

    while (is_done && impl->n_done < impl->n_posted) {
        SP_TRY(sp_comm_test(buckets->comm, &impl->request[impl->n_done], &is_done));
        impl->n_done += is_done;
    }
    return SP_OK;
}

/* The counts are whole numbers, so their sum in double has no order; the loss has one,
 * and travels as limbs where that matters. */
static sp_status post_tail(sp_buckets *b)
{
    sp_request *request = b->impl->request + b->n_buckets;

    _Static_assert(sizeof(sp_tail) % sizeof(double) == 0, "the tail is all doubles");
    SP_TRY(sp_comm_iallreduce(b->comm, SP_SCOPE_WORLD, &b->tail,
                              sizeof b->tail / sizeof(double), SP_F64, SP_SUM,
                              &request[TAIL_COUNTS]));
    if (b->exact)
        SP_TRY(sp_comm_iallreduce(b->comm, SP_SCOPE_WORLD, b->tail_exact,
                                  2 * SP_EXACT_LIMBS, SP_I64, SP_SUM,
                                  &request[TAIL_EXACT]));
    return SP_OK;
}

static sp_status reduce_rest(sp_buckets *b)
{
    struct sp_buckets_impl *impl = b->impl;
    int i, n = b->n_buckets + (b->exact ? N_TAIL : TAIL_EXACT);

    SP_TRY(post_from(b, 0));
    SP_TRY(post_tail(b));
    for (i = impl->n_done; i < n; i++)
        SP_TRY(sp_comm_wait(b->comm, &impl->request[i]));
    impl->n_done = b->n_buckets;
    return SP_OK;
}

sp_status sp_bucket_wait(sp_buckets *buckets, double *exposed_s)
{
    struct sp_buckets_impl *impl = buckets->impl;
    size_t n = (size_t)buckets->graph->n_floats;
    double begin = now_s(), loss[2];
    int i;

    if (buckets->comm->size > 1)
        SP_TRY(reduce_rest(buckets));
    for (i = 0; buckets->comm->size == 1 && i < buckets->n_buckets; i++)
        SP_TRY(gather(buckets, i));
    if (exposed_s)
        *exposed_s = buckets->comm->size > 1 ? now_s() - begin : 0;
    if (buckets->exact) {
        sp_exact_get_f32(buckets->exact, buckets->grad, n);
        sp_exact_get_f64(buckets->tail_exact, loss, 2);
        buckets->tail.loss_sum = loss[0];
        buckets->tail.weight_sum = loss[1];
    }
    if (impl->backend)
        SP_TRY(impl->backend->ops->upload(impl->backend, buckets->device, buckets->grad,
                                          n * sizeof *buckets->grad));
    return SP_OK;
}

#include "sp_bucket.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BUCKET_BYTES = 16 << 20, ALIGNMENT = 128 };

/* Positions of the tail's requests behind those of the buckets. */
enum { TAIL_COUNTS, TAIL_EXACT, N_TAIL };

/* Of the sums that the host learns at the end of a step: the loss's, then squares. */
enum { SQUARES = SP_LOSS_SUMS, N_SUMS };

struct sp_buckets_impl {
    int n_posted, n_done; /* buckets, in order */
    sp_request *request;  /* [n_buckets + N_TAIL] */
    sp_backend *backend;  /* NULL: not attached */
    sp_arena arena;       /* of a device: grad, sums */
    float *host;          /* [n_floats] what travels: grad, or a copy of the device's */
    double *sums;         /* [N_SUMS] backend memory, brought to the host at once */
    double host_sums[N_SUMS];
};

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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
    SP_TRY(sp_comm_alloc(comm, n * sizeof *b->grad, (void **)&b->impl->host));
    b->grad = b->impl->host;
    b->loss = b->impl->sums = b->impl->host_sums;
    b->squares = NAN;
    if (is_exact)
        SP_TRY(sp_comm_alloc(comm, n * each, (void **)&b->exact));
    return SP_OK;
}

sp_status sp_buckets_attach(sp_buckets *buckets, sp_backend *backend)
{
    struct sp_buckets_impl *impl = buckets->impl;
    size_t bytes = (size_t)buckets->graph->n_floats * sizeof(float);

    impl->backend = backend;
    if (backend->ops->is_host)
        return SP_OK;
    SP_TRY(
        backend->ops->arena_create(&impl->arena, bytes + 3 * ALIGNMENT, "gradients"));
    SP_TRY(sp_arena_take(&impl->arena, bytes, (void **)&buckets->grad));
    SP_TRY(SP_TAKE(&impl->arena, N_SUMS, &impl->sums));
    buckets->loss = impl->sums;
    SP_TRY(backend->ops->fill(backend, impl->sums, 0, N_SUMS * sizeof *impl->sums));
    return backend->ops->fill(backend, buckets->grad, 0, bytes);
}

void sp_buckets_destroy(sp_buckets *buckets)
{
    struct sp_buckets_impl *impl = buckets->impl;

    if (impl) {
        if (impl->arena.base)
            impl->backend->ops->arena_destroy(&impl->arena);
        sp_comm_free(buckets->comm, impl->host);
        sp_comm_free(buckets->comm, buckets->exact);
        free(impl->request);
    }
    free(buckets->impl);
    free(buckets->begin);
    memset(buckets, 0, sizeof *buckets);
}

/* Its memory is not the host's. */
static bool is_device(const sp_buckets *b)
{
    return b->grad != b->impl->host;
}

sp_status sp_buckets_zero(sp_buckets *buckets)
{
    struct sp_buckets_impl *impl = buckets->impl;
    sp_backend *backend = impl->backend;
    size_t n = (size_t)buckets->graph->n_floats;

    if (buckets->exact)
        memset(buckets->exact, 0, n * SP_EXACT_LIMBS * sizeof *buckets->exact);
    memset(&buckets->tail, 0, sizeof buckets->tail);
    memset(buckets->tail_exact, 0, sizeof buckets->tail_exact);
    impl->n_posted = impl->n_done = 0;
    if (!is_device(buckets)) {
        memset(buckets->grad, 0, n * sizeof *buckets->grad);
        memset(impl->sums, 0, sizeof impl->host_sums);
        return SP_OK;
    }
    SP_TRY(backend->ops->fill(backend, impl->sums, 0, sizeof impl->host_sums));
    return backend->ops->fill(backend, buckets->grad, 0, n * sizeof *buckets->grad);
}

/* Bucket i to the host. Waits for the device. */
static sp_status gather(sp_buckets *b, int i)
{
    struct sp_buckets_impl *impl = b->impl;
    int64_t at = b->begin[i + 1], n = b->begin[i] - at;

    if (!is_device(b) || b->exact)
        return SP_OK;
    return impl->backend->ops->download(impl->backend, impl->host + at, b->grad + at,
                                        (size_t)n * sizeof *b->grad);
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
        SP_TRY(sp_comm_iallreduce(b->comm, SP_SCOPE_WORLD, b->impl->host + at,
                                  (size_t)n, SP_F32, SP_SUM, request));
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

/* The sums that the backend made, to the host. Waits for the device. */
static sp_status fetch_sums(sp_buckets *b)
{
    struct sp_buckets_impl *impl = b->impl;

    if (!is_device(b))
        return SP_OK;
    return impl->backend->ops->download(impl->backend, impl->host_sums, impl->sums,
                                        sizeof impl->host_sums);
}

/* The backend's loss joins the tail, once. */
static void add_loss(sp_buckets *b)
{
    b->tail.loss_sum += b->impl->host_sums[0];
    b->tail.weight_sum += b->impl->host_sums[1];
}

/* Of many ranks: through the host, which waits for the device before and after. */
static sp_status reduce_all(sp_buckets *b, double *exposed_s)
{
    double begin = now_s();

    SP_TRY(fetch_sums(b));
    add_loss(b);
    SP_TRY(reduce_rest(b));
    if (exposed_s)
        *exposed_s = now_s() - begin;
    return SP_OK;
}

static void use_limbs(sp_buckets *b)
{
    double loss[2];

    sp_exact_get_f32(b->exact, b->impl->host, (size_t)b->graph->n_floats);
    sp_exact_get_f64(b->tail_exact, loss, 2);
    b->tail.loss_sum = loss[0];
    b->tail.weight_sum = loss[1];
}

sp_status sp_bucket_wait(sp_buckets *buckets, double *exposed_s)
{
    sp_buckets *b = buckets;
    struct sp_buckets_impl *impl = b->impl;
    sp_backend *backend = impl->backend;
    int64_t n = b->graph->n_floats;
    bool is_alone = b->comm->size == 1;

    if (exposed_s)
        *exposed_s = 0;
    if (!is_alone)
        SP_TRY(reduce_all(b, exposed_s));
    if (b->exact)
        use_limbs(b);
    if (is_device(b) && (b->exact || !is_alone))
        SP_TRY(backend->ops->upload(backend, b->grad, impl->host,
                                    (size_t)n * sizeof *b->grad));
    if (backend)
        SP_TRY(backend->ops->sum_squares(backend, b->grad, n, &impl->sums[SQUARES]));
    SP_TRY(fetch_sums(b));
    if (is_alone && !b->exact)
        add_loss(b);
    if (backend)
        b->squares = impl->host_sums[SQUARES];
    return SP_OK;
}

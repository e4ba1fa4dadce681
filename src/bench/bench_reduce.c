/* spbench reduce: all-reduce over the ranks it is started with, by size; and the
 * gradient's buckets of the deck's network, compared with the faster of two ways to
 * reduce the same bytes: one all-reduce, or several of the buckets' sizes. */
#include "bench/bench.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_log.h"

typedef struct reduce_case {
    sp_comm *comm;
    float *data;
    int64_t n;
    sp_buckets *buckets;
} reduce_case;

static sp_status once_plain(reduce_case *c)
{
    return sp_comm_allreduce(c->comm, SP_SCOPE_WORLD, c->data, (size_t)c->n, SP_F32,
                             SP_SUM);
}

static sp_status once_pieces(reduce_case *c)
{
    const int64_t *begin = c->buckets->begin;

    for (int i = 0; i < c->buckets->n_buckets; i++)
        SP_TRY(sp_comm_allreduce(c->comm, SP_SCOPE_WORLD, c->data + begin[i + 1],
                                 (size_t)(begin[i] - begin[i + 1]), SP_F32, SP_SUM));
    return SP_OK;
}

static sp_status once_buckets(reduce_case *c)
{
    SP_TRY(sp_bucket_ready(c->buckets, 0));
    return sp_bucket_wait(c->buckets, NULL);
}

/* Sums 1 + rank over the ranks in data [n] by `once` and leaves zeros there for the
 * timed sums. SP_EMPI if an element is not the sum. Collective, agreed. */
static sp_status check_once(reduce_case *c, sp_status (*once)(reduce_case *),
                            float *data)
{
    const int size = c->comm->size;
    const float want = (float)(size * (size + 1) / 2);
    sp_status rc;

    for (int64_t i = 0; i < c->n; i++)
        data[i] = (float)(1 + c->comm->rank);
    rc = once(c);
    for (int64_t i = 0; rc == SP_OK && i < c->n; i++)
        if (data[i] != want)
            rc = SP_FAIL(SP_EMPI, "sum of element %lld of %lld: %g, expected %g",
                         (long long)i, (long long)c->n, (double)data[i], (double)want);
    memset(data, 0, (size_t)c->n * sizeof *data);
    return sp_comm_agree(c->comm, rc);
}

/* Times `once`; *s is the slowest rank's time. Collective. */
static sp_status reduce_time_once(reduce_case *c, sp_status (*once)(reduce_case *),
                                  double *s)
{
    double begin;

    SP_TRY(sp_comm_barrier(c->comm));
    begin = sp_now_s();
    SP_TRY(once(c));
    *s = sp_now_s() - begin;
    return sp_comm_allreduce(c->comm, SP_SCOPE_WORLD, s, 1, SP_F64, SP_MAX);
}

/* Times an all-reduce of n floats over all ranks; the time is the slowest rank's.
 * Collective. */
static sp_status reduce_time(bench *b, float *data, int64_t n, bench_time *t)
{
    reduce_case c = {.comm = b->comm, .data = data, .n = n};
    double s[BENCH_STEPS];
    const int rounds = bench_runs_wanted(b);

    assert(n >= 0 && (data || n == 0));
    SP_TRY(check_once(&c, once_plain, data)); /* it opens connections, too */
    for (int i = 0; i < rounds; i++)
        SP_TRY(reduce_time_once(&c, once_plain, &s[i]));
    *t = (bench_time){.cpu_s = NAN, .is_wall = true, .repeats = rounds};
    t->wall_s = bench_median(s, rounds, &t->spread);
    return SP_OK;
}

static sp_status measure_size(bench *b, float *data, int64_t n)
{
    bench_job job = {.name = "allreduce", .n = n, .limit = BENCH_BYTES};
    bench_time t;

    SP_TRY(reduce_time(b, data, n, &t));
    job.bytes = 4.0 * (double)n;
    return bench_print(b, &job, &t, 0);
}

/* Runs one round: the gradient in one all-reduce, in pieces of the buckets' sizes, and
 * in buckets (*s). *least becomes the shortest of the first two so far. */
static sp_status time_round(reduce_case *c, double *least, double *s)
{
    double plain = 0, pieces = 0;

    SP_TRY(reduce_time_once(c, once_plain, &plain));
    SP_TRY(reduce_time_once(c, once_pieces, &pieces));
    *least = fmin(*least, fmin(plain, pieces));
    SP_TRY(sp_buckets_begin(c->buckets));
    return reduce_time_once(c, once_buckets, s);
}

/* Times rounds, and more of them if the buckets seem faster than plain all-reduces. All
 * ranks decide the same, since they hold the slowest rank's times. */
static sp_status time_buckets(bench *b, reduce_case *c, double bytes, bench_time *t,
                              double *ceiling)
{
    double s[BENCH_STEPS], least = INFINITY;

    SP_TRY(check_once(c, once_pieces, c->data));
    SP_TRY(sp_buckets_begin(c->buckets));
    SP_TRY(check_once(c, once_buckets, c->buckets->grad));
    for (int tries = 0; tries < 5; tries++) {
        for (int i = 0; i < t->repeats; i++)
            SP_TRY(time_round(c, &least, &s[i]));
        t->wall_s = bench_median(s, t->repeats, &t->spread);
        *ceiling = bytes / least;
        if (!bench_is_above(b, bytes / t->wall_s, *ceiling))
            break;
    }
    return SP_OK;
}

static sp_status measure_buckets(bench *b, const sp_graph *graph, float *data)
{
    sp_buckets buckets;
    reduce_case c = {.comm = b->comm, .data = data, .n = graph->n_floats};
    bench_job job = {.name = "buckets",
                     .n = graph->n_floats,
                     .bytes = 4.0 * (double)graph->n_floats,
                     .limit = BENCH_BYTES};
    bench_time t = {.cpu_s = NAN, .is_wall = true, .repeats = bench_runs_wanted(b)};
    double ceiling = 0;
    sp_status rc = sp_buckets_create(&buckets, graph, b->comm, false, 0);

    c.buckets = &buckets;
    rc = sp_comm_agree(b->comm, rc);
    if (rc == SP_OK)
        rc = time_buckets(b, &c, job.bytes, &t, &ceiling);
    sp_buckets_destroy(&buckets);
    SP_TRY(rc);
    return sp_comm_agree(b->comm, bench_print(b, &job, &t, ceiling));
}

static sp_status reduce_measure(bench *b, const sp_graph *graph)
{
    const int64_t sizes[] = {1, 1 << 10, 1 << 14, 1 << 18, 1 << 20, graph->n_floats};
    const int64_t most = graph->n_floats > 1 << 20 ? graph->n_floats : 1 << 20;
    float *data = NULL; /* in memory of sp_comm, as the gradient is */
    sp_status rc = sp_comm_alloc(b->comm, (size_t)most * sizeof *data, (void **)&data);

    rc = sp_comm_agree(b->comm, rc);
    for (size_t i = 0; rc == SP_OK && i < sizeof sizes / sizeof *sizes; i++)
        rc = measure_size(b, data, sizes[i]);
    if (rc == SP_OK && b->comm->size > 1)
        rc = measure_buckets(b, graph, data);
    sp_comm_free(b->comm, data);
    return rc;
}

sp_status bench_reduce(bench *b)
{
    const sp_config *config = b->options->command.config;
    sp_session session;
    sp_data_sets data = {0};
    sp_network network = {0};
    sp_device device = {0}; /* not opened */
    sp_status rc;

    if (config->run.device == SP_DEVICE_CUDA)
        return bench_sums(b);
    rc = sp_session_open(&session, &b->options->command, false);
    if (rc == SP_OK)
        rc = sp_session_open_data(&session, &data, &network, true, false);
    if (rc == SP_OK)
        rc = sp_comm_agree(b->comm,
                           sp_graph_build(&network.graph, config, network.n_columns,
                                          network.n_classes));
    if (rc == SP_OK)
        rc = sp_comm_agree(b->comm, bench_device_open(b, NULL));
    if (rc == SP_OK)
        rc = reduce_measure(b, &network.graph);
    b->is_reported = rc != SP_OK;
    return sp_session_end(&session, rc, &network, &data, &device);
}

/* spbench reduce on devices: small sums over the ranks, as batch norms need them, by
 * each of three ways: through the devices' memory, NCCL, or the host. */
#include "bench/bench.h"

#include <math.h>

#include "base/sp_log.h"

enum { MOST_ROUNDS = 25, N_CHANNELS = 2, N_WAYS = 3 };

static const int channels[N_CHANNELS] = {96, 256};
enum { MOST_DOUBLES = 2 * 256 + 1 };

typedef struct way {
    const char *name, *words;
    sp_transport_kind want;
    bool is_peer;
} way;

static const way ways[N_WAYS] = {
    {"sum_peers", "the devices' memory", SP_TRANSPORT_AUTO, true},
    {"sum_nccl", "NCCL", SP_TRANSPORT_NCCL, false},
    {"sum_host", "the host", SP_TRANSPORT_MPI, false}};

typedef struct sums {
    bench *b;
    sp_session session;
    sp_device device;
    sp_transport transport;
    sp_arena arena;
    double *from, *to; /* [2c + 1] for the most channels; from: 1 + rank each */
    int way;           /* the one that is timed */
    /* Microseconds of one sum; NAN: the way is not available. */
    double us[N_WAYS][N_CHANNELS];
} sums;

/* Times many sums in a row; seconds of one, on the slowest rank. Collective. */
static sp_status sums_time_once(sums *s, size_t n, int repeats, double *seconds)
{
    sp_backend *be = &s->device.backend;
    sp_comm *comm = s->b->comm;

    SP_TRY(sp_comm_barrier(comm));
    SP_TRY(be->ops->clock_begin(be));
    for (int i = 0; i < repeats; i++)
        SP_TRY(sp_transport_allreduce(&s->transport, SP_SCOPE_WORLD, s->from, s->to, n,
                                      SP_F64));
    SP_TRY(be->ops->clock_end(be, seconds));
    *seconds /= repeats;
    return sp_comm_allreduce(comm, SP_SCOPE_WORLD, seconds, 1, SP_F64, SP_MAX);
}

/* Checks the n sums of the last round. */
static sp_status check_sums(sums *s, size_t n)
{
    sp_backend *be = &s->device.backend;
    const int size = s->b->comm->size;
    const double want = size * (size + 1) / 2;
    double host[MOST_DOUBLES];

    SP_TRY(be->ops->download(be, host, s->to, n * sizeof *host));
    for (size_t i = 0; i < n; i++)
        if (host[i] != want)
            return SP_FAIL(SP_EDEVICE, "sum of element %zu of %zu: %g, expected %g", i,
                           n, host[i], want);
    return SP_OK;
}

static sp_status time_sum(sums *s, int k)
{
    const int c = channels[k], in_a_row = s->b->options->is_quick ? 10 : 200;
    bench_job job = {
        .name = ways[s->way].name, .n = 2 * c + 1, .c_in = c, .limit = BENCH_BYTES};
    bench_time t = {.cpu_s = NAN, .is_wall = true};
    double seconds[MOST_ROUNDS];

    t.repeats = (int)fmin((double)s->b->options->repeats, MOST_ROUNDS);
    for (int i = -1; i < t.repeats; i++) /* the first round opens connections */
        SP_TRY(sums_time_once(s, (size_t)job.n, in_a_row, &seconds[i < 0 ? 0 : i]));
    SP_TRY(check_sums(s, (size_t)job.n));
    t.wall_s = bench_median(seconds, t.repeats, &t.spread);
    s->us[s->way][k] = 1e6 * t.wall_s;
    job.bytes = 8.0 * (double)job.n;
    return bench_print(s->b, &job, &t, 0);
}

/* Opens a transport. If it is not available, that is no failure: a line gives the
 * reason. Agreed. */
static bool open_way(sums *s, const way *w)
{
    const sp_transport_options options = {
        .want = w->want,
        .objection = s->device.placement.is_shared ? "ranks share a GPU" : NULL,
        .without_peers = !w->is_peer,
        .scope = SP_SCOPE_WORLD,
        .is_repeatable = true,
        .limit_s = 60,
        .peer_limit_s = 60};
    const sp_status rc =
        sp_transport_choose(&s->transport, s->b->comm, &s->device.backend, &options);
    const bool is_there = rc == SP_OK && (!w->is_peer || s->transport.peer);

    if (!is_there)
        sp_log_info("no sums through %s: %s", w->words,
                    rc == SP_OK ? s->transport.words : sp_error_last()->message);
    return is_there;
}

/* The sums of a way, one number of channels after the other. */
static sp_status time_sums(void *arg)
{
    for (int k = 0; k < N_CHANNELS; k++)
        SP_TRY(time_sum(arg, k));
    return SP_OK;
}

static void time_way(sums *s)
{
    sp_session *session = &s->session;

    for (int k = 0; k < N_CHANNELS; k++)
        s->us[s->way][k] = NAN;
    if (open_way(s, &ways[s->way])) {
        session->transport = &s->transport;
        sp_session_run_or_abort(session, time_sums, s);
        session->transport = NULL;
    }
    sp_transport_close(&s->transport);
}

static void sums_print_summary(const bench *b, const sums *s)
{
    if (b->comm->rank || b->options->is_json)
        return;
    for (int i = 0; i < N_WAYS; i++)
        for (int k = 0; k < N_CHANNELS; k++)
            if (!isnan(s->us[i][k]))
                fprintf(b->out, "%d doubles over %d ranks through %s: %.1f us\n",
                        2 * channels[k] + 1, b->comm->size, ways[i].words, s->us[i][k]);
    fflush(b->out);
}

static sp_status sums_alloc_vectors(sums *s)
{
    sp_backend *be = &s->device.backend;
    double host[MOST_DOUBLES];

    SP_TRY(bench_device_open(s->b, be));
    SP_TRY(be->ops->arena_create(&s->arena, 1 << 20, "sums"));
    SP_TRY(SP_ALLOC(&s->arena, MOST_DOUBLES, &s->from));
    SP_TRY(SP_ALLOC(&s->arena, MOST_DOUBLES, &s->to));
    for (int i = 0; i < MOST_DOUBLES; i++)
        host[i] = 1 + s->b->comm->rank;
    return be->ops->upload(be, s->from, host, sizeof host);
}

static sp_status sums_run(sums *s)
{
    SP_TRY(sp_session_open(&s->session, &s->b->options->command, false));
    if (s->b->comm->size == 1)
        return SP_FAIL(SP_EUSAGE,
                       "spbench reduce times sums of several ranks on devices: "
                       "start it with mpirun -n 2, one device each");
    SP_TRY(sp_session_open_device(&s->session, &s->device));
    SP_TRY(sp_comm_agree(s->b->comm, sums_alloc_vectors(s)));
    for (; s->way < N_WAYS; s->way++)
        time_way(s);
    sums_print_summary(s->b, s);
    return SP_OK;
}

sp_status bench_sums(bench *b)
{
    sums s = {.b = b};
    const sp_status rc = sums_run(&s);

    b->is_reported = rc != SP_OK;
    if (s.arena.base)
        s.device.backend.ops->arena_destroy(&s.arena);
    bench_device_close(b);
    sp_session_report(&s.session, rc);
    sp_device_close(&s.device);
    sp_session_close(&s.session);
    return rc;
}

/* Ceilings: the highest rates of the machine for the resources that limit operations.
 *
 * Other programs can only lengthen a timing, so the best of several timings is the rate
 * of the machine, and it is trusted once others come close to it. A timing must be long
 * against the clock's resolution and the start of the threads. The amount of work for
 * that is determined with one thread and its CPU time, which other programs do not
 * affect: by wall time an interruption would make any small amount of work look long
 * enough.
 */
#include "bench/bench.h"

#include <assert.h>
#include <math.h>

#include "base/sp_fault.h"
#include "base/sp_log.h"

#define PATIENCE_S 1.0
enum {
    MOST = 301,       /* most timings of a first row */
    LEAST_TIMINGS = 8 /* fewest timings of a ceiling that is in doubt */
};

/* ---- one timing ---- */

static sp_status ceiling_begin(bench *b)
{
    SP_TRY(b->backend.ops->clock_begin(&b->backend));
    sp_fault_at("peak", b->n_timings++);
    return SP_OK;
}

/* Work a second, by the backend's own clock; 0: the backend has no such limit. */
static sp_status ceiling_rate_of(bench *b, const sp_peak_args *args, double *seconds,
                                 double *rate)
{
    double work = 0;

    SP_TRY(ceiling_begin(b));
    SP_TRY(b->backend.ops->peak(&b->backend, args, &work));
    SP_TRY(b->backend.ops->clock_end(&b->backend, seconds));
    *seconds = fmax(*seconds, 1e-9);
    *rate = work / *seconds;
    return SP_OK;
}

/* Determines the work that keeps one thread busy long enough; the shortest of a few
 * timings decides. one_rate: work a second of that thread. */
static sp_status find_amount(bench *b, sp_peak_args args, double *amount,
                             double *one_rate)
{
    const double least = b->options->is_quick ? 2e-4 : 1e-3;
    double shortest, seconds = 0, rate = 0;

    args.amount = 16;
    do {
        args.amount *= 4;
        shortest = INFINITY;
        for (int i = 0; i < 3; i++) {
            SP_TRY(ceiling_rate_of(b, &args, &seconds, &rate));
            shortest = fmin(shortest, seconds);
        }
    } while (rate > 0 && shortest < least);
    *amount = args.amount;
    *one_rate = args.amount / shortest;
    return SP_OK;
}

/* Times as much work as keeps all threads busy for long enough. */
static sp_status time_enough(bench *b, sp_peak_args *args, double *seconds,
                             double *rate)
{
    const int threads = b->backend.threads;
    double *amount = &b->amount[args->what], one_rate = 0;
    sp_status rc = SP_OK;

    if (*amount <= 0) {
        b->backend.threads = b->backend.ops->is_host ? 1 : threads;
        rc = find_amount(b, *args, amount, &one_rate);
        b->one_rate = args->what == SP_PEAK_PRODUCTS ? one_rate : b->one_rate;
        b->backend.threads = threads;
        *amount *= b->backend.ops->is_host ? threads : 1;
    }
    SP_TRY(rc);
    args->amount = *amount;
    return ceiling_rate_of(b, args, seconds, rate);
}

static sp_peak_args args_of(const bench *b, sp_peak what)
{
    return (sp_peak_args){.what = what, .x = b->x, .y = b->y, .n = b->stream_floats};
}

sp_status bench_peak(bench *b, double *rate)
{
    sp_peak_args args = args_of(b, SP_PEAK_PRODUCTS);
    double seconds = 0;

    args.amount = b->amount[args.what] / 4;
    /* Raises the clock frequency after an idle time. */
    SP_TRY(ceiling_rate_of(b, &args, &seconds, rate));
    SP_TRY(time_enough(b, &args, &seconds, rate));
    b->best_flops = fmax(b->best_flops, *rate);
    return SP_OK;
}

/* ---- streams ---- */

/* Writes the vectors, so that they have pages of their own again after
 * bench_ceilings_open has returned these to the system. Pages that were never written
 * are all the same zero page, which is read from a cache. */
static sp_status fill_stream(bench *b)
{
    const sp_backend_ops *ops = b->backend.ops;
    const size_t bytes = (size_t)b->stream_floats * sizeof(float);

    if (b->is_filled)
        return SP_OK;
    SP_TRY(ops->fill(&b->backend, b->x, 0x3f, bytes));
    SP_TRY(ops->fill(&b->backend, b->y, 0x3f, bytes));
    b->is_filled = true;
    return SP_OK;
}

/* Times several passes over n floats of both vectors; the first pass is not counted. On
 * a device each pass is a launch, which limits a small stream as it limits a small
 * operation. */
static sp_status time_passes(bench *b, sp_peak what, int64_t n, double *rate)
{
    const sp_backend_ops *ops = b->backend.ops;
    const int rounds = (int)(1000000 / n) + 1;
    sp_peak_args args = args_of(b, what);
    double moved = 0, seconds;

    args.n = n;
    SP_TRY(ops->peak(&b->backend, &args, &moved));
    SP_TRY(ceiling_begin(b));
    for (int r = 0; moved > 0 && r < rounds; r++)
        SP_TRY(ops->peak(&b->backend, &args, &moved));
    SP_TRY(ops->clock_end(&b->backend, &seconds));
    *rate = moved * rounds / fmax(seconds, 1e-9);
    return SP_OK;
}

/* The fastest of four mixtures of reading and writing. Operations differ in their
 * mixture, and memory and caches in the mixture that they handle fastest. */
static sp_status time_mixtures(bench *b, int64_t n, double *rate)
{
    static const sp_peak mixtures[] = {SP_PEAK_STREAM, SP_PEAK_UPDATE, SP_PEAK_READ,
                                       SP_PEAK_COPY};

    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++) {
        double one = 0;
        SP_TRY(time_passes(b, mixtures[i], n, &one));
        *rate = fmax(*rate, one);
    }
    return SP_OK;
}

/* Measures by one timing the bytes a second through `bytes` of memory. On the host a
 * single thread is timed too: for small amounts of data the start of other threads
 * costs more than they gain, and the operations choose the number of threads
 * accordingly. */
static sp_status stream(bench *b, double bytes, double *rate)
{
    const int threads = b->backend.threads;
    int64_t n = (int64_t)(bytes / 2 / sizeof(float));
    sp_status rc;

    n = n < 1024 ? 1024 : n > b->stream_floats ? b->stream_floats : n;
    *rate = 0;
    SP_TRY(fill_stream(b));
    SP_TRY(time_mixtures(b, n, rate));
    if (threads == 1 || !b->backend.ops->is_host)
        return SP_OK;
    b->backend.threads = 1;
    rc = time_mixtures(b, n, rate);
    b->backend.threads = threads;
    return rc;
}

/* ---- of a job ---- */

sp_status bench_ceiling(bench *b, const bench_job *job, double *rate)
{
    assert(job->limit == BENCH_FLOPS || job->limit == BENCH_BYTES || job->ceiling);
    if (job->ceiling)
        return job->ceiling(job->arg, rate);
    if (job->limit == BENCH_FLOPS)
        return bench_peak(b, rate);
    return stream(b, job->footprint > 0 ? job->footprint : job->bytes, rate);
}

bool bench_is_above(const bench *b, double rate, double ceiling)
{
    return ceiling > 0 && rate > BENCH_MOST_RATIO * ceiling && !b->is_emulated;
}

/* The pauses let a passing load end, and schedulers favour threads that have slept. In
 * the end the rates of the first rows count too. On a device the stream of a small job
 * is limited by its launches, while an operation that follows others may overlap them;
 * a rate that this machine has been seen to reach is no failed measurement. */
sp_status bench_renew(bench *b, const bench_job *job, double rate, double *ceiling)
{
    const double begin = sp_now_s();

    assert(ceiling && job->name);
    for (int i = 1; bench_is_above(b, rate, *ceiling); i++) {
        if (i > LEAST_TIMINGS && sp_now_s() - begin > PATIENCE_S)
            break;
        double again = 0;
        sp_sleep_s(i * 0.001);
        SP_TRY(bench_ceiling(b, job, &again));
        *ceiling = fmax(*ceiling, again);
    }
    if (bench_is_above(b, rate, *ceiling) && job->limit == BENCH_BYTES && !job->ceiling)
        *ceiling = fmax(*ceiling, fmax(b->best_bytes, b->best_gather));
    return SP_OK;
}

/* ---- the first rows ---- */

/* The first rows. A launch's time is printed as `ms`. Gathers have rows of 64 to 512
 * bytes. */
static const struct {
    const char *name;
    sp_peak what;
    bench_limit limit;
    int row_bytes;
} peaks[] = {
    {"multiply_add", SP_PEAK_PRODUCTS, BENCH_FLOPS, 0},
    {"stream", SP_PEAK_STREAM, BENCH_BYTES, 0},
    {"launch", SP_PEAK_LAUNCH, BENCH_FLOPS, 0},
    {"gather_64", SP_PEAK_GATHER, BENCH_BYTES, 64},
    {"gather_128", SP_PEAK_GATHER, BENCH_BYTES, 128},
    {"gather_256", SP_PEAK_GATHER, BENCH_BYTES, 256},
    {"gather_512", SP_PEAK_GATHER, BENCH_BYTES, 512},
};

static sp_status sample_peak(bench *b, size_t which, double *seconds, double *rate)
{
    const double bytes = 2.0 * sizeof(float) * (double)b->stream_floats;
    sp_peak_args args = args_of(b, peaks[which].what);

    args.row_bytes = peaks[which].row_bytes;
    if (args.what != SP_PEAK_STREAM)
        return time_enough(b, &args, seconds, rate);
    SP_TRY(stream(b, bytes, rate));
    *seconds = *rate > 0 ? bytes / *rate : 0;
    return SP_OK;
}

/* Number of rates close to the best. */
static int n_close(const double *value, int n, double best)
{
    int close = 0;

    for (int i = 0; i < n; i++)
        close += value[i] > 0.97 * best;
    return close;
}

/* True if enough timings are close to the best, and the best is plausible for the
 * number of threads: two threads that share a core run at half speed. An emulated
 * device has no rate to find. */
static bool is_credible(const bench *b, size_t which, const double *value, int n,
                        double best)
{
    const double least = 0.4 * b->one_rate * b->backend.threads;

    if (b->is_emulated)
        return true;
    return n_close(value, n, best) >= 3 && (peaks[which].what != SP_PEAK_PRODUCTS ||
                                            !b->backend.ops->is_host || best >= least);
}

/* The best rate of at least `least` timings. Timed again while it is not credible,
 * since other programs were then running. t: times of the best. */
static sp_status sample_best(bench *b, size_t which, int least, double *value,
                             bench_time *t, double *best)
{
    const double begin = sp_now_s();
    int n = 0;

    *best = 0;
    while (n < least || (!is_credible(b, which, value, n, *best) && n < MOST &&
                         sp_now_s() - begin < PATIENCE_S)) {
        double seconds = 0;
        if (n >= least)
            sp_sleep_s(0.001);
        SP_TRY(sample_peak(b, which, &seconds, &value[n]));
        if (value[n] <= 0)
            return SP_OK; /* the backend has no such limit */
        if (value[n] > *best)
            t->wall_s = t->cpu_s = seconds;
        *best = fmax(*best, value[n++]);
    }
    t->repeats = n;
    bench_median(value, n, &t->spread);
    return SP_OK;
}

/* Prints the row of a peak, with the times of the best timing. */
static sp_status print_peak(bench *b, size_t which, double *best)
{
    const int least = b->options->repeats > 5 ? (int)b->options->repeats : 5;
    bench_job job = {.name = peaks[which].name, .limit = peaks[which].limit};
    bench_time t = {.is_wall = bench_is_wall(b)};
    double value[MOST];

    SP_TRY(sample_best(b, which, least, value, &t, best));
    if (*best <= 0)
        return SP_OK;
    if (t.is_wall)
        t.cpu_s = NAN; /* the clock of the calling thread does not see the others */
    if (peaks[which].what == SP_PEAK_LAUNCH) {
        t.wall_s = 1 / *best;
        return bench_print(b, &job, &t, 0);
    }
    *(job.limit == BENCH_BYTES ? &job.bytes : &job.flops) = *best * t.wall_s;
    return bench_print(b, &job, &t, *best);
}

/* Allocates the vectors from an arena, so that they have the same kind of pages as
 * tensors. The gap between them avoids 4K aliasing, where loads of one vector look like
 * loads after stores to the other because the low address bits agree. On a device the
 * vectors must be long against its L2 cache. */
static sp_status ceiling_alloc_stream(bench *b)
{
    enum { APART = 2112 };
    const sp_backend_ops *ops = b->backend.ops;
    const int64_t n = b->is_emulated         ? 1 << 16
                      : b->options->is_quick ? 1 << 20
                      : ops->is_host         ? 16 << 20
                                             : 128 << 20;
    void *gap;

    SP_TRY(ops->arena_create(&b->arena, 0, "stream"));
    SP_TRY(SP_ALLOC(&b->arena, n, &b->x));
    SP_TRY(sp_arena_alloc(&b->arena, APART, &gap));
    SP_TRY(SP_ALLOC(&b->arena, n, &b->y));
    b->stream_floats = n;
    return SP_OK;
}

sp_status bench_ceilings_open(bench *b)
{
    SP_TRY(ceiling_alloc_stream(b));
    for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
        double rate = 0;
        SP_TRY(print_peak(b, i, &rate));
        if (peaks[i].what == SP_PEAK_PRODUCTS)
            b->best_flops = rate;
        if (peaks[i].what == SP_PEAK_STREAM)
            b->best_bytes = rate;
        if (peaks[i].what == SP_PEAK_GATHER)
            b->best_gather = fmax(b->best_gather, rate);
    }
    /* Returns the memory of the vectors on the host, so that it does not count in the
     * jobs that follow. */
    if (sp_arena_release(&b->arena, 0, b->arena.used) < b->arena.used)
        b->is_filled = false;
    return SP_OK;
}

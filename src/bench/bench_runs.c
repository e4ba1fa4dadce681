/* Repeated runs of one kind, steps of a training or passes of an evaluation: their
 * ceiling, medians and rows. */
#include "bench/bench.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/sp_liveness.h"
#include "base/sp_log.h"

enum { PEAKS = 5 }; /* timings before the runs, and again after them */

void bench_runs_clock(bench_parts *parts, int sign)
{
    sp_liveness liveness;

    assert(sign == 1 || sign == -1);
    sp_liveness_read(&liveness);
    parts->all += sign * sp_now_s();
    parts->cpu += sign * sp_clock_s(CLOCK_THREAD_CPUTIME_ID);
    parts->process_cpu += sign * sp_clock_s(CLOCK_PROCESS_CPUTIME_ID);
    parts->waited += sign * liveness.waited_s;
}

/* Ranks that share cores are timed in turns, and would together have more than the
 * machine: they have no ceiling. */
sp_status bench_runs_peak(bench *b, bench_runs *s)
{
    double is_shared = b->comm->is_oversubscribed && b->backend.ops->is_host;

    SP_TRY(sp_comm_barrier(b->comm));
    for (int i = 0; i < PEAKS; i++) {
        double rate;
        SP_TRY(bench_peak(b, &rate));
    }
    s->ceiling = b->best_flops;
    SP_TRY(sp_comm_allreduce(b->comm, SP_SCOPE_WORLD, &s->ceiling, 1, SP_F64, SP_SUM));
    SP_TRY(sp_comm_allreduce(b->comm, SP_SCOPE_WORLD, &is_shared, 1, SP_F64, SP_MAX));
    s->ceiling = is_shared > 0 ? 0 : s->ceiling;
    return SP_OK;
}

sp_status bench_runs_end(bench *b, sp_backend *backend, bench_runs *s)
{
    SP_TRY(bench_runs_peak(b, s));
    SP_TRY(backend->ops->memory_used(backend, &s->memory_bytes));
    if (s->memory_bytes) /* the vectors of the ceilings do not count */
        s->memory_bytes -= (int64_t)b->arena.committed;
    return SP_OK;
}

int bench_runs_wanted(const bench *b)
{
    assert(b->options->repeats > 0);
    return b->options->repeats < BENCH_STEPS ? (int)b->options->repeats : BENCH_STEPS;
}

static double runs_value_of(const bench_parts *parts, size_t offset)
{
    double value;

    memcpy(&value, (const char *)parts + offset, sizeof value);
    return value;
}

double bench_runs_median(const bench_parts *run, int n, size_t offset, double *spread)
{
    double value[BENCH_STEPS];

    assert(n >= 1 && n <= BENCH_STEPS);
    for (int i = 0; i < n; i++)
        value[i] = runs_value_of(&run[i], offset);
    return bench_median(value, n, spread);
}

/* Prints a part on this rank. The loader's parts are means: it works while runs are
 * computed, and may finish two batches during one run and no batch during the next, so
 * a median would mislead. */
static sp_status print_part(bench *b, const bench_runs *s, const bench_part *part)
{
    const bench_job job = {.name = part->name, .n = (int64_t)s->whole[0].n};
    const bench_parts *run = part->of == BENCH_OF_SPLIT ? s->split : s->whole;
    bench_time time = {.cpu_s = NAN, .is_wall = true, .repeats = s->n, .spread = NAN};

    if (part->of != BENCH_OF_LOADER)
        time.wall_s = bench_runs_median(run, s->n, part->offset, &time.spread);
    if (part->cpu_offset)
        time.cpu_s = bench_runs_median(run, s->n, part->cpu_offset, NULL);
    for (int i = 0; part->of == BENCH_OF_LOADER && i < s->n; i++)
        time.wall_s += runs_value_of(&run[i], part->offset) / s->n;
    return bench_print(b, &job, &time, 0);
}

/* Reduces the double at `offset` of each run over the ranks and returns the median over
 * the runs. Collective. */
static sp_status reduce_runs(bench *b, const bench_runs *s, size_t offset,
                             sp_reduce_op op, double *median, double *spread)
{
    double value[BENCH_STEPS];

    for (int i = 0; i < s->n; i++)
        value[i] = runs_value_of(&s->whole[i], offset);
    SP_TRY(sp_comm_allreduce(b->comm, SP_SCOPE_WORLD, value, (size_t)s->n, SP_F64, op));
    *median = bench_median(value, s->n, spread);
    return SP_OK;
}

/* Prints the row of the whole run. With one thread and one rank its time is the CPU
 * time of all threads of the process, loader and planner included: the run on one core.
 * Otherwise it is the wall time of the slowest rank. Work and ceiling are sums over all
 * ranks. Collective. */
static sp_status print_whole(bench *b, bench_runs *s, const char *name)
{
    const bool is_wall = bench_is_wall(b) || b->comm->size > 1;
    bench_job job = {.name = name, .limit = BENCH_FLOPS, .work = &s->work};
    bench_time time = {
        .is_wall = is_wall, .repeats = s->n, .memory_bytes = s->memory_bytes};
    double wall_spread = 0, cpu_spread = 0, voxels = 0, pairs = 0, left_out = 0, rate;

    SP_TRY(reduce_runs(b, s, offsetof(bench_parts, all), SP_MAX, &time.wall_s,
                       &wall_spread));
    SP_TRY(reduce_runs(b, s, offsetof(bench_parts, process_cpu), SP_SUM, &time.cpu_s,
                       &cpu_spread));
    SP_TRY(reduce_runs(b, s, offsetof(bench_parts, n), SP_SUM, &voxels, NULL));
    SP_TRY(reduce_runs(b, s, offsetof(bench_parts, pairs), SP_SUM, &pairs, NULL));
    SP_TRY(reduce_runs(b, s, offsetof(bench_parts, flops), SP_SUM, &job.flops, NULL));
    SP_TRY(reduce_runs(b, s, offsetof(bench_parts, left_out), SP_SUM, &left_out, NULL));
    job.flops -= left_out;
    job.n = (int64_t)voxels;
    job.pairs = (int64_t)pairs;
    time.spread = is_wall ? wall_spread : cpu_spread;
    rate = job.flops / (is_wall ? time.wall_s : time.cpu_s);
    /* All ranks hold the same numbers here, so all decide the same. */
    for (int i = 0; i < 2 * PEAKS && bench_is_above(b, rate, s->ceiling); i++)
        SP_TRY(bench_runs_peak(b, s));
    return bench_print(b, &job, &time, s->ceiling);
}

sp_status bench_runs_print(bench *b, bench_runs *s, const char *name,
                           const bench_part *part, size_t n_parts)
{
    assert(s->n >= 1 && name);
    SP_TRY(print_whole(b, s, name));
    for (size_t i = 0; i < n_parts; i++)
        SP_TRY(print_part(b, s, &part[i]));
    return SP_OK;
}

/* spbench step: whole training steps of a deck, with loader, plan, loss and update. */
#include "bench/bench.h"

#include <math.h>
#include <string.h>

#include "base/sp_log.h"
#include "process/sp_pulse.h"

sp_status bench_training_open(bench *b, bench_training *t)
{
    sp_resources *r = &t->resources;

    memset(t, 0, sizeof *t);
    SP_TRY(sp_resources_open(r, &b->options->command, false));
    SP_TRY(sp_resources_open_device(r));
    r->backend.is_in_line = b->options->is_in_line || b->options->is_by_layer;
    if (b->options->is_by_layer || b->counter)
        SP_TRY(sp_session_agree(&r->session, bench_trace_open(&t->trace, b, r)));
    SP_TRY(sp_resources_open_transport(r));
    SP_TRY(sp_resources_open_data(r, true, false));
    SP_TRY(sp_resources_normalize(r, &r->train));
    if (r->train.n_samples == 0)
        return SP_FAIL(SP_EDATA, "%s: no samples to train on", r->train.shard[0].path);
    SP_TRY(sp_resources_open_net(r, NULL));
    SP_TRY(sp_resources_open_training(r, 2));
    return sp_session_agree(&r->session,
                            sp_loader_seek(r->loader, (sp_position){0, 0}));
}

sp_status bench_training_close(bench *b, bench_training *t, sp_status rc)
{
    b->is_reported = rc != SP_OK;
    rc = sp_resources_close(&t->resources, rc);
    bench_trace_close(t->trace);
    return rc;
}

/* ---- one step ---- */

/* Flops of all convolutions: forward, weight gradient and, unless the input needs no
 * gradient, input gradient. */
static double conv_flops(const sp_graph *graph, const sp_batch *batch)
{
    double flops = 0;

    for (int i = 0; i < graph->n_nodes; i++) {
        const sp_node *node = &graph->node[i];
        const int from = node->in[0];
        const bool has_grad_input = from >= 0 && graph->node[from].needs_grad;
        double pairs;
        if (node->op != SP_OP_CONV)
            continue;
        pairs = node->map >= 0 ? (double)batch->plan.map[node->map].pairs
                : node->level == SP_LEVEL_SAMPLE ? batch->n_samples
                                                 : batch->plan.level[node->level].n;
        flops += 2 * pairs * node->c_in * node->c_out * (has_grad_input ? 3 : 2);
    }
    return flops;
}

static void count_work(const sp_resources *r, const sp_batch *batch, bench_parts *parts)
{
    parts->flops += conv_flops(&r->graph, batch);
    parts->n += batch->n;
    parts->n_samples += batch->n_samples;
    for (int i = 0; i < batch->plan.n_maps; i++)
        parts->pairs += (double)batch->plan.map[i].pairs;
    for (int i = 0; i < batch->n_samples; i++)
        parts->cost += (double)sp_dataset_cost(&r->train, batch->sample_id[i]);
    parts->cost_max += (double)batch->cost_max;
    parts->cost_sum += (double)batch->cost_sum;
}

/* The clock of a step: the part that runs, since when, and what all have taken. */
typedef struct step_clock {
    bench_training *training;
    bench_parts *parts;
    sp_step_part part;
    double at;
} step_clock;

/* The seconds that a part adds to; NULL: those of no part that is printed. */
static double *seconds_of(bench_parts *parts, sp_step_part part)
{
    double *const seconds[SP_STEP_PARTS] = {
        [SP_STEP_READ] = &parts->wait,     [SP_STEP_FORWARD] = &parts->forward,
        [SP_STEP_LOSS] = &parts->loss,     [SP_STEP_BACKWARD] = &parts->backward,
        [SP_STEP_REDUCE] = &parts->reduce, [SP_STEP_UPDATE] = &parts->update};

    return seconds[part];
}

/* Ends the part that has run, and begins the next. The whole step ends when the device
 * has finished it. */
static sp_status begin_part(void *arg, sp_step_part part, const sp_batch *batch)
{
    step_clock *clock = arg;
    sp_resources *r = &clock->training->resources;
    double *seconds = seconds_of(clock->parts, clock->part);

    if (clock->training->is_split || part == SP_STEP_END)
        SP_TRY(r->backend.ops->wait(&r->backend));
    if (seconds)
        *seconds += sp_now_s() - clock->at;
    if (part == SP_STEP_RECYCLE)
        count_work(r, batch, clock->parts);
    clock->part = part;
    clock->at = sp_now_s();
    clock->training->batch = batch;
    return SP_OK;
}

static sp_status run_step(void *arg)
{
    step_clock *clock = arg;
    sp_resources *r = &clock->training->resources;
    const sp_step_hooks hooks = {.begin = begin_part, .arg = clock};
    const double lr = sp_optim_lr(r->session.config, 0, 1000000, r->sampler.effective);
    sp_step_result result;

    return sp_step_run(r, lr, &hooks, &result);
}

void bench_training_step(bench_training *t, bench_parts *parts)
{
    const double begin = sp_now_s(), cpu = bench_cpu_s(), all = bench_process_cpu_s();
    step_clock clock = {.training = t, .parts = parts, .part = SP_STEP_END};
    sp_pulse before, after;

    sp_pulse_read(&before);
    memset(parts, 0, sizeof *parts);
    sp_session_run_alone(&t->resources.session, run_step, &clock);
    sp_loader_times(t->resources.loader, &parts->plan, &parts->read);
    parts->cpu = bench_cpu_s() - cpu;
    parts->process_cpu = bench_process_cpu_s() - all;
    parts->all = sp_now_s() - begin;
    sp_pulse_read(&after);
    parts->waited = after.waited_s - before.waited_s;
}

/* ---- report ---- */

typedef struct steps {
    int n;
    bench_parts step[BENCH_STEPS];
    /* As `step` on the CPU; on a device steps with waits between their parts. */
    bench_parts split[BENCH_STEPS];
    double ceiling; /* flops a second of all ranks together */
    bench_work work;
    int64_t memory_bytes;
} steps;

enum { PEAKS = 5 }; /* timings before the steps, and again after them */

/* Measures the peak on all ranks at the same time and sums it. Collective. */
static sp_status measure_peak(bench *b, int timings, steps *s)
{
    SP_TRY(sp_comm_barrier(b->comm));
    for (int i = 0; i < timings; i++) {
        double rate;
        SP_TRY(bench_peak(b, &rate));
    }
    s->ceiling = b->best_flops;
    return sp_comm_allreduce(b->comm, SP_SCOPE_WORLD, &s->ceiling, 1, SP_F64, SP_SUM);
}

/* Runs the steps, the same number on every rank, since a step is collective. They
 * follow each other as in training: in a pause between two of them the loader would
 * work ahead without being timed. The parts of a step on a device are timed in separate
 * steps. */
static sp_status run_steps(bench *b, bench_training *t, steps *s)
{
    const int64_t want =
        b->options->repeats < BENCH_STEPS ? b->options->repeats : BENCH_STEPS;
    sp_backend *backend = &t->resources.backend;
    bench_parts unused;

    SP_TRY(measure_peak(b, PEAKS, s));
    for (int i = 0; i < (b->options->is_quick ? 1 : 2); i++)
        bench_training_step(t, &unused);
    for (; s->n < want; s->n++) {
        bench_progress(b, "step %d of %lld", s->n + 1, (long long)want);
        bench_training_step(t, &s->step[s->n]);
    }
    SP_TRY(measure_peak(b, PEAKS, s));
    SP_TRY(backend->ops->memory_used(backend, &s->memory_bytes));
    if (s->memory_bytes) /* the vectors of the ceilings do not count */
        s->memory_bytes -= (int64_t)b->arena.committed;
    memcpy(s->split, s->step, sizeof s->split);
    t->is_split = !backend->ops->is_host;
    for (int i = 0; t->is_split && i < s->n; i++)
        bench_training_step(t, &s->split[i]);
    t->is_split = false;
    for (int i = 0; t->trace && i < s->n; i++) {
        bench_progress(b, "layers of step %d of %d", i + 1, s->n);
        SP_TRY(bench_trace_begin(t->trace));
        bench_training_step(t, &unused);
        bench_trace_end(t->trace);
    }
    return SP_OK;
}

/* Median over the steps of the double at `offset` in bench_parts. */
static double median_of(const bench_parts *step, int n, size_t offset, double *spread)
{
    double value[BENCH_STEPS];

    for (int i = 0; i < n; i++)
        memcpy(&value[i], (const char *)&step[i] + offset, sizeof *value);
    return bench_median(value, n, spread);
}

static sp_status print_part(bench *b, const steps *s, const char *name, size_t offset,
                            bool is_whole)
{
    const bench_job job = {.name = name, .n = (int64_t)s->step[0].n};
    bench_time time = {.cpu_s = NAN, .is_wall = true, .repeats = s->n};

    time.wall_s = median_of(is_whole ? s->step : s->split, s->n, offset, &time.spread);
    return bench_print(b, &job, &time, 0);
}

/* Prints the mean of a loader's time. The loader runs while steps are computed, and may
 * finish two batches during one step and none during the next, so a median would
 * mislead. */
static sp_status print_loader(bench *b, const steps *s, const char *name, size_t offset)
{
    const bench_job job = {.name = name, .n = (int64_t)s->step[0].n};
    bench_time time = {.cpu_s = NAN, .is_wall = true, .repeats = s->n, .spread = NAN};

    for (int i = 0; i < s->n; i++) {
        double value;

        memcpy(&value, (const char *)&s->step[i] + offset, sizeof value);
        time.wall_s += value / s->n;
    }
    return bench_print(b, &job, &time, 0);
}

/* Reduces the double at `offset` of each step over the ranks and takes the median over
 * the steps. Collective. */
static sp_status reduce_steps(bench *b, const steps *s, size_t offset, sp_reduce_op op,
                              double *median, double *spread)
{
    double value[BENCH_STEPS];

    for (int i = 0; i < s->n; i++)
        memcpy(&value[i], (const char *)&s->step[i] + offset, sizeof *value);
    SP_TRY(sp_comm_allreduce(b->comm, SP_SCOPE_WORLD, value, (size_t)s->n, SP_F64, op));
    *median = bench_median(value, s->n, spread);
    return SP_OK;
}

/* Measures the ceiling again while the rate is above it. All ranks hold the same
 * numbers here, so all make the same decision. */
static sp_status renew_ceiling(bench *b, double rate, steps *s)
{
    for (int i = 0; i < 2 * PEAKS && bench_is_above(b, rate, s->ceiling); i++)
        SP_TRY(measure_peak(b, PEAKS, s));
    return SP_OK;
}

/* Prints the row of the whole step. With one thread and one rank its time is the CPU
 * time of all threads of the process, loader and planner included: the step on one
 * core. Otherwise it is the wall time of the slowest rank. Work and ceiling are those
 * of all ranks. Collective. */
static sp_status print_step(bench *b, steps *s)
{
    const bool is_wall =
        b->backend.threads > 1 || b->comm->size > 1 || !b->backend.ops->is_host;
    bench_job job = {.name = "step", .limit = BENCH_FLOPS, .work = &s->work};
    bench_time time = {
        .is_wall = is_wall, .repeats = s->n, .memory_bytes = s->memory_bytes};
    double wall_spread = 0, cpu_spread = 0, voxels = 0, pairs = 0;

    SP_TRY(reduce_steps(b, s, offsetof(bench_parts, all), SP_MAX, &time.wall_s,
                        &wall_spread));
    SP_TRY(reduce_steps(b, s, offsetof(bench_parts, process_cpu), SP_SUM, &time.cpu_s,
                        &cpu_spread));
    SP_TRY(reduce_steps(b, s, offsetof(bench_parts, n), SP_SUM, &voxels, NULL));
    SP_TRY(reduce_steps(b, s, offsetof(bench_parts, pairs), SP_SUM, &pairs, NULL));
    SP_TRY(reduce_steps(b, s, offsetof(bench_parts, flops), SP_SUM, &job.flops, NULL));
    job.n = (int64_t)voxels;
    job.pairs = (int64_t)pairs;
    time.spread = is_wall ? wall_spread : cpu_spread;
    SP_TRY(renew_ceiling(b, job.flops / (is_wall ? time.wall_s : time.cpu_s), s));
    return bench_print(b, &job, &time, s->ceiling);
}

static sp_status print_steps(bench *b, steps *s)
{
    static const struct {
        const char *name;
        size_t offset;
        bool is_whole; /* timed in whole steps: the time that the step waited */
    } part[] = {
        {"step_wait", offsetof(bench_parts, wait), true},
        {"step_forward", offsetof(bench_parts, forward), false},
        {"step_loss", offsetof(bench_parts, loss), false},
        {"step_backward", offsetof(bench_parts, backward), false},
        {"step_reduce", offsetof(bench_parts, reduce), false},
        {"step_update", offsetof(bench_parts, update), false},
    };

    SP_TRY(print_step(b, s));
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        SP_TRY(print_part(b, s, part[i].name, part[i].offset, part[i].is_whole));
    SP_TRY(print_loader(b, s, "loader_plan", offsetof(bench_parts, plan)));
    return print_loader(b, s, "loader_read", offsetof(bench_parts, read));
}

/* Operations of one thread are timed by its CPU time, so the step that their shares
 * refer to is too. */
static sp_status print_layers(bench *b, const bench_training *t, const steps *s)
{
    const bool is_wall = b->backend.threads > 1 || !b->backend.ops->is_host;
    const size_t clock =
        is_wall ? offsetof(bench_parts, all) : offsetof(bench_parts, cpu);

    return bench_trace_print(t->trace, median_of(s->step, s->n, clock, NULL));
}

/* Ceilings are measured on the device that the deck's session has opened. */
sp_status bench_step(bench *b)
{
    bench_training t;
    sp_session *session = &t.resources.session;
    steps s = {0};
    sp_status rc = bench_training_open(b, &t);

    if (rc == SP_OK)
        rc = sp_session_agree(session, bench_device_open(b, &t.resources.backend));
    if (rc == SP_OK)
        rc = run_steps(b, &t, &s);
    if (rc == SP_OK)
        rc = bench_work_count(session, s.step, s.n, &s.work);
    if (rc == SP_OK)
        rc = sp_session_agree(session, print_steps(b, &s));
    if (rc == SP_OK && t.trace)
        rc = sp_session_agree(session, print_layers(b, &t, &s));
    bench_work_free(&s.work);
    bench_device_close(b);
    return bench_training_close(b, &t, rc);
}

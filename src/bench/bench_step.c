/* spbench step: whole training steps of a deck, with loader, plan, loss and update. */
#include "bench/bench.h"

#include <math.h>
#include <string.h>

#include "base/sp_log.h"
#include "process/sp_pulse.h"

static sp_status open_loader(bench_training *t)
{
    sp_session *s = &t->session;
    const sp_loader_options options = {
        .set = &s->train,
        .config = s->config,
        .graph = &s->graph,
        .backend = &s->backend,
        .sampler = &t->sampler,
        .columns = s->columns,
        .n_columns = s->n_columns,
        .mean = s->norm.mean,
        .std = s->norm.std,
        .is_training = true,
        .n_slots = 2,
    };

    SP_TRY(sp_sampler_open(&t->sampler, &s->train, s->comm, s->config, true));
    SP_TRY(sp_loader_create(&t->loader, &options));
    return sp_loader_seek(t->loader, (sp_position){0, 0});
}

sp_status bench_training_open(bench *b, bench_training *t)
{
    sp_session *s = &t->session;
    sp_status rc;

    memset(t, 0, sizeof *t);
    SP_TRY(sp_session_open(s, &b->options->command, false));
    SP_TRY(sp_session_open_device(s));
    s->backend.is_in_line = b->options->is_in_line || b->options->is_by_layer;
    if (b->options->is_by_layer)
        bench_layers_attach(b, s);
    SP_TRY(sp_session_open_transport(s));
    SP_TRY(sp_session_open_data(s, true, false));
    SP_TRY(sp_session_normalize(s, &s->train));
    SP_TRY(sp_session_open_net(s, NULL));
    rc = sp_buckets_create(&t->buckets, &s->graph, s->comm,
                           s->config->train.deterministic == SP_DET_WORLD,
                           (size_t)(s->config->run.bucket_mb * (1 << 20)));
    t->buckets.is_overlapped = s->config->run.overlap;
    if (rc == SP_OK)
        rc = sp_buckets_attach(&t->buckets, &s->transport);
    if (rc == SP_OK)
        rc = sp_optim_create(&t->optim, &s->graph, s->config, &s->backend);
    if (rc == SP_OK && s->train.n_samples == 0)
        rc = SP_FAIL(SP_EDATA, "%s: no samples to train on", s->train.shard[0].path);
    if (rc == SP_OK)
        rc = open_loader(t);
    return sp_session_agree(s, rc);
}

sp_status bench_training_close(bench *b, bench_training *t, sp_status rc)
{
    b->is_reported = rc != SP_OK;
    sp_loader_destroy(t->loader);
    sp_sampler_close(&t->sampler);
    sp_optim_destroy(&t->optim);
    sp_buckets_destroy(&t->buckets);
    return sp_session_close(&t->session, rc);
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

static void count_work(const bench_training *t, const sp_batch *batch,
                       bench_parts *parts)
{
    const int world = t->session.comm->size;

    parts->flops += conv_flops(&t->session.graph, batch);
    parts->n += batch->n;
    parts->n_samples += batch->n_samples;
    for (int i = 0; i < batch->plan.n_maps; i++)
        parts->pairs += (double)batch->plan.map[i].pairs;
    for (int i = 0; i < batch->n_samples; i++)
        parts->cost += (double)sp_dataset_cost(&t->session.train, batch->sample_id[i]);
    parts->cost_max += (double)batch->cost_max;
    parts->cost_sum += (double)batch->cost_sum;
    parts->imbalance =
        batch->cost_sum ? (double)batch->cost_max * world / (double)batch->cost_sum : 1;
}

/* Adds the seconds since *at to *sum and moves *at to now. */
static sp_status lap(bench_training *t, double *at, double *sum)
{
    sp_backend *backend = &t->session.backend;
    const double before = *at;

    if (t->is_split)
        SP_TRY(backend->ops->wait(backend));
    *at = sp_now_s();
    *sum += *at - before;
    return SP_OK;
}

static sp_status micro_step(bench_training *t, bench_parts *parts, bool *is_last)
{
    sp_session *s = &t->session;
    sp_batch *batch;
    double at = sp_now_s();

    SP_TRY(sp_loader_next(t->loader, &batch, NULL));
    SP_TRY(lap(t, &at, &parts->wait));
    SP_TRY(sp_net_forward(&s->net, batch, true, NULL));
    SP_TRY(lap(t, &at, &parts->forward));
    SP_TRY(sp_net_train_loss(&s->net, batch, &t->buckets));
    SP_TRY(lap(t, &at, &parts->loss));
    *is_last = batch->micro == batch->n_micro - 1;
    SP_TRY(sp_net_backward(&s->net, batch, &t->buckets, *is_last));
    SP_TRY(lap(t, &at, &parts->backward));
    count_work(t, batch, parts);
    return sp_loader_recycle(t->loader, batch);
}

sp_status bench_training_step(bench_training *t, bench_parts *parts)
{
    sp_session *s = &t->session;
    const double begin = sp_now_s(), cpu = bench_cpu_s(), all = bench_process_cpu_s();
    const double lr = sp_optim_lr(s->config, 0, 1000000, t->sampler.effective);
    double at;
    bool is_last = false;
    sp_pulse before, after;

    sp_pulse_read(&before);
    memset(parts, 0, sizeof *parts);
    s->is_alone = true;
    SP_TRY(sp_buckets_zero(&t->buckets));
    while (!is_last)
        SP_TRY(micro_step(t, parts, &is_last));
    at = sp_now_s();
    SP_TRY(sp_bucket_wait(&t->buckets, NULL));
    SP_TRY(lap(t, &at, &parts->reduce));
    SP_TRY(sp_optim_step(&t->optim, s->net.param, t->buckets.grad, t->buckets.squares,
                         t->buckets.tail.weight_sum, lr, NULL));
    sp_net_updated(&s->net);
    SP_TRY(s->backend.ops->wait(&s->backend));
    SP_TRY(lap(t, &at, &parts->update));
    s->is_alone = false;
    sp_loader_times(t->loader, &parts->plan, &parts->read);
    parts->cpu = bench_cpu_s() - cpu;
    parts->process_cpu = bench_process_cpu_s() - all;
    parts->all = sp_now_s() - begin;
    sp_pulse_read(&after);
    parts->waited = after.waited_s - before.waited_s;
    return SP_OK;
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
    sp_backend *backend = &t->session.backend;
    bench_parts warm_up;

    SP_TRY(measure_peak(b, PEAKS, s));
    for (int i = 0; i < (b->options->is_quick ? 1 : 2); i++)
        SP_TRY(bench_training_step(t, &warm_up));
    for (; s->n < want; s->n++) {
        bench_progress(b, "step %d of %lld", s->n + 1, (long long)want);
        SP_TRY(bench_training_step(t, &s->step[s->n]));
    }
    SP_TRY(measure_peak(b, PEAKS, s));
    SP_TRY(backend->ops->memory_used(backend, &s->memory_bytes));
    if (s->memory_bytes) /* the vectors of the ceilings do not count */
        s->memory_bytes -= (int64_t)b->arena.committed;
    memcpy(s->split, s->step, sizeof s->split);
    t->is_split = !backend->ops->is_host;
    for (int i = 0; t->is_split && i < s->n; i++)
        SP_TRY(bench_training_step(t, &s->split[i]));
    t->is_split = false;
    return b->options->is_by_layer ? bench_layers_run(t, s->n) : SP_OK;
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

    return bench_layers_print(b, &t->session.graph,
                              median_of(s->step, s->n, clock, NULL));
}

/* Ceilings are measured on the device that the deck's session has opened. */
sp_status bench_step(bench *b)
{
    bench_training t;
    steps s = {0};
    sp_status rc = bench_training_open(b, &t);

    if (rc == SP_OK)
        rc = sp_session_agree(&t.session, bench_device_open(b, &t.session.backend));
    if (rc == SP_OK)
        rc = run_steps(b, &t, &s);
    if (rc == SP_OK)
        rc = bench_work_count(&t.session, s.step, s.n, &s.work);
    if (rc == SP_OK)
        rc = sp_session_agree(&t.session, print_steps(b, &s));
    if (rc == SP_OK && b->options->is_by_layer)
        rc = sp_session_agree(&t.session, print_layers(b, &t, &s));
    bench_work_free(&s.work);
    bench_layers_free();
    bench_device_close(b);
    return bench_training_close(b, &t, rc);
}

/* spbench step: whole training steps of a deck, with loader, plan, loss and update. */
#include "bench/bench.h"

#include <math.h>
#include <string.h>

#include "base/sp_log.h"

sp_status bench_training_open(bench *b, bench_training *t)
{
    const sp_config *config = b->options->command.config;
    const sp_dataset *train = &t->data.train;
    sp_comm *comm = b->comm;
    sp_device *device = &t->device;
    sp_network *network = &t->network;

    memset(t, 0, sizeof *t);
    sp_learner_begin(&t->learner, config, train, network, &t->budgets);
    SP_TRY(sp_session_open(&t->session, &b->options->command, false));
    SP_TRY(sp_session_open_device(&t->session, device));
    device->backend.is_in_line = b->options->is_in_line || b->options->is_by_layer;
    if (b->options->is_by_layer || b->counter)
        SP_TRY(sp_comm_agree(
            comm, bench_trace_open(&t->trace, b, &network->net, &device->backend)));
    SP_TRY(sp_device_open_transport(device));
    SP_TRY(sp_session_open_data(&t->session, &t->data, network, true, false));
    /* Refuses data without labels: their steps would leave the update out. */
    SP_TRY(sp_learner_open(&t->learner, device, &t->data, 2));
    return sp_comm_agree(comm, sp_loader_seek(t->learner.loader, (sp_position){0, 0}));
}

sp_status bench_training_close(bench *b, bench_training *t, sp_status rc)
{
    b->is_reported = rc != SP_OK;
    sp_learner_close(&t->learner);
    sp_session_end(&t->session, rc, &t->network, &t->data, &t->device);
    bench_trace_close(t->trace);
    return rc;
}

/* ---- one step ---- */

/* The clock of a step: the running part, its start, and the times of all parts. */
typedef struct step_clock {
    bench_training *training;
    bench_parts *parts;
    sp_step_part part;
    double at;
} step_clock;

/* Ends the part that has run, and begins the next. The whole step ends when the device
 * has finished it. */
static sp_status step_begin_part(void *arg, sp_step_part part, const sp_batch *batch)
{
    static const char *const host_part[SP_STEP_PARTS] = {
        [SP_STEP_READ] = "host_read",       [SP_STEP_FORWARD] = "host_forward",
        [SP_STEP_LOSS] = "host_loss",       [SP_STEP_BACKWARD] = "host_backward",
        [SP_STEP_RECYCLE] = "host_recycle", [SP_STEP_REDUCE] = "host_reduce",
        [SP_STEP_UPDATE] = "host_update"};
    step_clock *clock = arg;
    sp_backend *backend = &clock->training->device.backend;

    if (clock->training->is_split || part == SP_STEP_END)
        SP_TRY(backend->ops->wait(backend));
    clock->parts->part[clock->part] += sp_now_s() - clock->at;
    if (part == SP_STEP_RECYCLE)
        bench_work_add(backend, &clock->training->network.graph, batch, true,
                       clock->parts);
    clock->part = part;
    clock->at = sp_now_s();
    clock->training->batch = batch;
    return clock->training->trace
               ? bench_trace_part(clock->training->trace, host_part[part])
               : SP_OK;
}

static sp_status bench_step_run(void *arg)
{
    step_clock *clock = arg;
    sp_learner *learner = &clock->training->learner;
    const sp_step_hooks hooks = {.begin = step_begin_part, .arg = clock};
    const sp_rates rates =
        sp_optim_rates(learner->config, 0, 1000000, learner->sampler.effective);
    sp_step_result result;
    sp_status rc;

    rc = sp_step_run(learner, rates, &hooks, &result);
    SP_TRY(sp_step_explain(learner, rc, &result));
    clock->parts->is_updated = result.is_updated;
    return SP_OK;
}

void bench_training_step(bench_training *t, bench_parts *parts)
{
    step_clock clock = {.training = t, .parts = parts, .part = SP_STEP_END};

    memset(parts, 0, sizeof *parts);
    bench_runs_clock(parts, -1);
    sp_session_run_or_abort(&t->session, bench_step_run, &clock);
    sp_loader_times(t->learner.loader, &parts->plan, &parts->read);
    bench_runs_clock(parts, 1);
}

/* ---- the command ---- */

/* The time that the shares of a timed step's operations refer to. Operations of one
 * thread are timed by its CPU time, so the step is too. On a device the waits between
 * operations are no part of a step: the time is that of steps without them. */
static double timed_step_s(const bench *b, const bench_runs *s, const bench_parts *step,
                           const sp_backend *backend)
{
    if (!backend->ops->is_host)
        return bench_runs_median(s->whole, s->n, offsetof(bench_parts, all), NULL);
    return bench_is_wall(b) ? step->all : step->cpu;
}

/* Runs the steps, the same number on every rank, since a step is collective. They
 * follow each other as in training: in a pause between two of them the loader would
 * work ahead without being timed. The parts of a step on a device are timed in separate
 * steps. */
static sp_status step_run_steps(bench *b, bench_training *t, bench_runs *s)
{
    const int want = bench_runs_wanted(b);
    sp_backend *backend = &t->device.backend;
    bench_parts unused;

    SP_TRY(bench_runs_peak(b, s));
    for (int i = 0; i < (b->options->is_quick ? 1 : 2); i++)
        bench_training_step(t, &unused);
    for (; s->n < want; s->n++) {
        bench_progress(b, "step %d of %d", s->n + 1, want);
        bench_training_step(t, &s->whole[s->n]);
        if (!s->whole[s->n].is_updated) /* the same on all ranks */
            return SP_FAIL(SP_EDATA,
                           "step %d of %d updated no weights: its samples have no "
                           "labelled voxel, or a number was not finite",
                           s->n + 1, want);
    }
    SP_TRY(bench_runs_end(b, backend, s));
    memcpy(s->split, s->whole, sizeof s->split);
    t->is_split = !backend->ops->is_host;
    for (int i = 0; t->is_split && i < s->n; i++)
        bench_training_step(t, &s->split[i]);
    t->is_split = false;
    for (int i = 0; t->trace && i < s->n; i++) {
        bench_progress(b, "layers of step %d of %d", i + 1, s->n);
        SP_TRY(bench_trace_begin(t->trace));
        bench_training_step(t, &unused);
        bench_trace_end(t->trace, timed_step_s(b, s, &unused, backend));
    }
    return SP_OK;
}

static sp_status print_steps(bench *b, bench_runs *s)
{
    static const bench_part part[] = {
        {"step_wait", offsetof(bench_parts, part[SP_STEP_READ]), BENCH_OF_WHOLE, 0},
        {"step_forward", offsetof(bench_parts, part[SP_STEP_FORWARD]), BENCH_OF_SPLIT,
         0},
        {"step_loss", offsetof(bench_parts, part[SP_STEP_LOSS]), BENCH_OF_SPLIT, 0},
        {"step_backward", offsetof(bench_parts, part[SP_STEP_BACKWARD]), BENCH_OF_SPLIT,
         0},
        {"step_reduce", offsetof(bench_parts, part[SP_STEP_REDUCE]), BENCH_OF_SPLIT, 0},
        {"step_update", offsetof(bench_parts, part[SP_STEP_UPDATE]), BENCH_OF_SPLIT, 0},
        {"loader_plan", offsetof(bench_parts, plan), BENCH_OF_LOADER, 0},
        {"loader_read", offsetof(bench_parts, read), BENCH_OF_LOADER, 0},
    };

    return bench_runs_print(b, s, "step", part, sizeof part / sizeof *part);
}

/* Ceilings are measured on the device that the deck's session has opened. */
sp_status bench_step(bench *b)
{
    bench_training t;
    bench_runs s = {
        .work = {.unit = "step", .units = "steps", .size_key = "batch.size"}};
    sp_status rc = bench_training_open(b, &t);

    if (rc == SP_OK)
        rc = sp_comm_agree(b->comm, bench_device_open(b, &t.device.backend));
    if (rc == SP_OK)
        rc = step_run_steps(b, &t, &s);
    if (rc == SP_OK)
        rc = bench_work_count(&t.session, s.whole, s.n, &s.work);
    if (rc == SP_OK)
        rc = sp_comm_agree(b->comm, print_steps(b, &s));
    if (rc == SP_OK && t.trace)
        rc = sp_comm_agree(b->comm, bench_trace_print(t.trace));
    bench_work_free(&s.work);
    bench_device_close(b);
    return bench_training_close(b, &t, rc);
}

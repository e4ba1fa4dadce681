/* spbench eval: passes over data.val as a training evaluates, with the weights that the
 * deck's network begins with.
 *
 *     whole passes    sp_evaluate_pass, the function that sptrain runs
 *     split passes    the same batches; the host waits between network and count
 *     --training      in split passes each batch also goes forward as in a training,
 *                     which uses and stores more; both are timed by core time */
#include "bench/bench.h"

#include <string.h>

#include "api/sp_memory.h"
#include "base/sp_log.h"
#include "cpu/cpu.h"
#include "train/sp_evaluate.h"

typedef struct evaluation {
    bench *b;
    sp_session session;
    sp_device device;
    sp_data_sets data;
    sp_network network;
    sp_evaluator evaluator;
    sp_budgets budgets;
    sp_metrics metrics;
    sp_arena scratch;   /* predictions of a batch */
    bench_parts *parts; /* parts of the pass that runs */
} evaluation;

static sp_status eval_open_evaluation(evaluation *e)
{
    const sp_config *config = e->b->options->command.config;
    const sp_dataset *val = &e->data.val;
    sp_comm *comm = e->b->comm;
    sp_network *network = &e->network;
    sp_evaluator *evaluator = &e->evaluator;

    if (e->b->options->is_beside_training && comm->size > 1)
        return SP_FAIL(SP_EUSAGE, "--training: expected one rank, found %d",
                       comm->size);
    sp_evaluator_begin(evaluator, config, comm, network, &e->budgets);
    sp_evaluate_watch(evaluator, &e->session);
    SP_TRY(sp_session_open(&e->session, &e->b->options->command, false));
    SP_TRY(sp_session_open_device(&e->session, &e->device));
    SP_TRY(sp_session_open_data(&e->session, &e->data, network, false, true));
    if (val->n_shards == 0)
        return SP_FAIL(SP_EUSAGE, "data.val: spbench eval needs samples to evaluate");
    if (!val->has_labels || val->n_samples == 0)
        return SP_FAIL(SP_EDATA, "%s: expected samples with labels to evaluate",
                       val->shard[0].path);
    SP_TRY(sp_comm_agree(comm, sp_network_normalize(network, config, val)));
    SP_TRY(sp_network_open(network, config, &e->device, &e->data, NULL, false));
    SP_TRY(sp_evaluator_open(evaluator, &e->data));
    SP_TRY(sp_memory_bound(&e->budgets, &e->device, &e->data, NULL, evaluator));
    SP_TRY(sp_arena_create(&e->scratch, 0, "predictions"));
    return sp_comm_agree(
        comm, sp_metrics_create(&e->metrics, network->n_classes,
                                sp_evaluate_parts(evaluator, &evaluator->val)));
}

/* Times a forward pass by both clocks. */
static sp_status time_forward(evaluation *e, const sp_batch *batch, bool is_training,
                              double *wall, double *cpu, sp_tensor *logits)
{
    sp_backend *backend = &e->device.backend;
    const double at = sp_now_s(), cpu_at = sp_clock_s(CLOCK_PROCESS_CPUTIME_ID);

    if (backend->ops->is_host) /* the work of the last pass counts */
        sp_cpu_reset_left_out(backend);
    SP_TRY(sp_net_forward(&e->network.net, batch, is_training, logits));
    SP_TRY(backend->ops->wait(backend));
    *wall += sp_now_s() - at;
    *cpu += sp_clock_s(CLOCK_PROCESS_CPUTIME_ID) - cpu_at;
    return SP_OK;
}

/* Times one batch and counts its work. */
static sp_status time_batch(void *arg, const sp_batch *batch)
{
    evaluation *e = arg;
    sp_network *network = &e->network;
    sp_net_loss_out out = {.exact = e->metrics.exact};
    bench_parts *parts = e->parts;
    sp_tensor logits;
    int32_t *prediction;
    double at;

    sp_arena_reset(&e->scratch);
    SP_TRY(SP_ALLOC(&e->scratch, batch->n, &prediction));
    if (e->b->options->is_beside_training)
        SP_TRY(time_forward(e, batch, true, &parts->train_forward, &parts->train_cpu,
                            &logits));
    SP_TRY(time_forward(e, batch, false, &parts->part[SP_STEP_FORWARD],
                        &parts->eval_cpu, &logits));
    at = sp_now_s();
    SP_TRY(sp_net_loss(&network->net, batch, &out, e->metrics.confusion, prediction));
    e->parts->part[SP_STEP_LOSS] += sp_now_s() - at;
    bench_work_add(&e->device.backend, &network->graph, batch, false, e->parts);
    return sp_evaluator_check(network, &e->data.val, batch, prediction);
}

static sp_status run_split(void *arg)
{
    evaluation *e = arg;

    return sp_evaluator_run(&e->evaluator, &e->evaluator.val, time_batch, e);
}

/* One pass by time_batch. Ends all ranks if it fails on one. */
static void pass_split(evaluation *e, bench_parts *parts)
{
    memset(parts, 0, sizeof *parts);
    e->parts = parts;
    sp_metrics_zero(&e->metrics);
    sp_session_run_or_abort(&e->session, run_split, e);
    sp_loader_times(e->evaluator.val.loader, &parts->plan, &parts->read);
}

/* One pass as sptrain runs it; its work is the split pass's. Collective. */
static sp_status pass_whole(evaluation *e, const bench_parts *work, bench_parts *parts)
{
    *parts = *work;
    bench_runs_clock(parts, -1);
    SP_TRY(sp_evaluate_pass(&e->session, &e->evaluator, &e->evaluator.val, &e->metrics,
                            NULL, NULL, NULL));
    sp_loader_times(e->evaluator.val.loader, &parts->plan, &parts->read);
    bench_runs_clock(parts, 1);
    return SP_OK;
}

/* Whole and split passes take turns, so that both see the same machine. */
static sp_status run_passes(evaluation *e, bench_runs *s)
{
    bench *b = e->b;
    const int want = bench_runs_wanted(b);
    bench_parts unused;

    SP_TRY(bench_runs_peak(b, s));
    pass_split(e, &unused);
    for (; s->n < want; s->n++) {
        bench_progress(b, "pass %d of %d", s->n + 1, want);
        pass_split(e, &s->split[s->n]);
        SP_TRY(pass_whole(e, &s->split[s->n], &s->whole[s->n]));
    }
    return bench_runs_end(b, &e->device.backend, s);
}

static sp_status print_passes(bench *b, bench_runs *s)
{
    static const bench_part part[] = {
        {"eval_forward", offsetof(bench_parts, part[SP_STEP_FORWARD]), BENCH_OF_SPLIT,
         offsetof(bench_parts, eval_cpu)},
        {"eval_count", offsetof(bench_parts, part[SP_STEP_LOSS]), BENCH_OF_SPLIT, 0},
        {"loader_plan", offsetof(bench_parts, plan), BENCH_OF_LOADER, 0},
        {"loader_read", offsetof(bench_parts, read), BENCH_OF_LOADER, 0},
        {"train_forward", offsetof(bench_parts, train_forward), BENCH_OF_SPLIT,
         offsetof(bench_parts, train_cpu)},
    };
    const size_t n = sizeof part / sizeof *part - !b->options->is_beside_training;

    return bench_runs_print(b, s, "eval", part, n);
}

sp_status bench_eval(bench *b)
{
    evaluation e = {.b = b};
    bench_runs s = {
        .work = {.unit = "pass", .units = "passes", .size_key = "batch.eval_size"}};
    sp_status rc = eval_open_evaluation(&e);

    if (rc == SP_OK)
        rc = sp_comm_agree(b->comm, bench_device_open(b, &e.device.backend));
    if (rc == SP_OK)
        rc = run_passes(&e, &s);
    if (rc == SP_OK)
        rc = bench_work_count(&e.session, s.whole, s.n, &s.work);
    if (rc == SP_OK)
        rc = sp_comm_agree(b->comm, print_passes(b, &s));
    bench_work_free(&s.work);
    bench_device_close(b);
    sp_arena_destroy(&e.scratch);
    sp_metrics_destroy(&e.metrics);
    b->is_reported = rc != SP_OK;
    sp_evaluator_close(&e.evaluator);
    return sp_session_end(&e.session, rc, &e.network, &e.data, &e.device);
}

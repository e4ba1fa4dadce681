/* The training run: epochs, steps, and the work between them. */
#include "train/sp_train.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_log.h"
#include "process/sp_pulse.h"
#include "process/sp_signal.h"
#include "run/sp_replica.h"
#include "train/sp_trainer.h"

/* Seconds of the job's time kept for the last checkpoint and the end of the program. */
#define JOB_LEFT_S 90
enum { TIME_STEP, TIME_DATA_WAIT, TIME_COMM_EXPOSED, N_TIMES };
static const char *const time_names[] = {"step_s", "data_wait_s", "comm_exposed_s"};
enum { REPLICA_STEPS = 100 }; /* between two comparisons of the ranks' weights */

/* ---- one step ---- */

/* Logs the samples of this rank whose loss was not finite. */
static sp_status name_samples(sp_trainer *t)
{
    const sp_dataset *set = &t->session.train;
    const double(*loss)[2];
    const int64_t *id;
    int n, i;

    SP_TRY(sp_net_sample_losses(&t->session.net, &n, &id, &loss));
    for (i = 0; i < n; i++)
        if (id[i] >= 0 && !(isfinite(loss[i][0]) && isfinite(loss[i][1])))
            sp_log_warn("step %lld: non-finite loss of sample %lld of %s%s%s",
                        (long long)t->state.step + 1, (long long)id[i],
                        set->shard[sp_dataset_shard_of(set, id[i])].path,
                        set->name ? ": " : "", set->name ? set->name[id[i]] : "");
    return SP_OK;
}

static sp_status compute(sp_trainer *t, const sp_batch *batch, bool is_last)
{
    sp_session *s = &t->session;
    sp_tail *tail = &t->buckets.tail;

    sp_run_beat(&s->run, SP_PHASE_FORWARD, t->state.at.epoch, t->state.step);
    SP_TRY(sp_net_forward(&s->net, batch, true, NULL));
    SP_TRY(sp_net_train_loss(&s->net, batch, &t->buckets));
    tail->n_voxels += batch->n;
    tail->n_samples += batch->n_samples;
    sp_run_beat(&s->run, SP_PHASE_BACKWARD, t->state.at.epoch, t->state.step);
    return sp_net_backward(&s->net, batch, &t->buckets, is_last);
}

static sp_status micro_step(sp_trainer *t, sp_step_report *report, bool *is_last)
{
    sp_session *s = &t->session;
    sp_batch *batch;
    double waited;
    sp_status rc;

    sp_run_beat(&s->run, SP_PHASE_READ, t->state.at.epoch, t->state.step);
    rc = sp_loader_next(t->loader, &batch, &waited);
    if (rc == SP_OK) {
        assert(batch->epoch == t->state.at.epoch &&
               batch->position == t->state.at.position);
        *is_last = batch->micro == batch->n_micro - 1;
        report->data_wait_s += waited;
        report->n_samples = batch->step_samples;
        report->n_micro = batch->n_micro;
        report->cost_max += batch->cost_max;
        report->cost_sum += batch->cost_sum;
        rc = compute(t, batch, *is_last);
    }
    if (rc == SP_EMEM)
        rc = sp_cut_explain(&s->cut, &s->cut.train, batch->sample_id, batch->n_samples);
    SP_TRY(rc);
    return sp_loader_recycle(t->loader, batch);
}

/* Updates the weights. All ranks hold the same sums here, so all make the same
 * decision. */
static sp_status update(sp_trainer *t, sp_step_report *report)
{
    sp_session *s = &t->session;
    const sp_tail *tail = &t->buckets.tail;

    report->loss = tail->weight_sum > 0 ? tail->loss_sum / tail->weight_sum : NAN;
    report->voxels = tail->n_voxels;
    if (tail->weight_sum == 0)
        return SP_OK; /* no voxel was labelled: no update, but it counts as a step */
    report->is_skipped = !isfinite(report->loss);
    if (report->is_skipped) {
        SP_TRY(name_samples(t));
    } else {
        SP_TRY(sp_optim_step(&t->optim, s->net.param, t->buckets.grad,
                             t->buckets.squares, tail->weight_sum, report->lr,
                             &report->grad_norm));
        report->is_skipped = !isfinite(report->grad_norm);
    }
    if (report->is_skipped) {
        t->state.skipped++;
        sp_log_warn0(
            "step %lld: non-finite loss or gradient, weights left as they were "
            "(%lld in a row)",
            (long long)t->state.step + 1, (long long)t->state.skipped);
    } else {
        t->state.skipped = 0;
        sp_net_updated(&s->net);
    }
    return SP_OK;
}

static bool is_stop_asked(const sp_trainer *t)
{
    double limit = t->session.config->run.time_limit_s;

    return sp_signal_received() || (limit > 0 && sp_now_s() - t->begin_s >= limit) ||
           sp_signal_job_left_s() < JOB_LEFT_S;
}

static sp_status check_numbers(sp_trainer *t)
{
    int limit = t->session.config->train.nonfinite_limit;

    if (limit <= 0 || t->state.skipped < limit)
        return SP_OK;
    /* All ranks have counted the same, so they fail together. */
    t->session.is_alone = false;
    return SP_FAIL(SP_ENUMERIC,
                   "step %lld: loss or gradient non-finite %lld steps in a row "
                   "(train.nonfinite_limit); the last good checkpoint is kept",
                   (long long)t->state.step, (long long)t->state.skipped);
}

/* Moves the run's position behind the step; the last step of an epoch ends it. */
static void advance(sp_trainer *t, sp_step_report *report)
{
    sp_checkpoint_state *state = &t->state;

    state->step++;
    state->samples_seen += report->n_samples;
    report->step = state->step;
    report->epoch = state->at.epoch;
    report->samples = state->samples_seen;
    state->at.position += report->n_samples;
    report->is_end = state->at.position >= t->session.train.n_samples;
    if (report->is_end)
        state->at = (sp_position){.epoch = state->at.epoch + 1, .position = 0};
    state->updates = t->optim.t;
    t->session.step = state->step;
    t->must_stop = t->buckets.tail.n_stop > 0;
}

/* One optimizer step: as many micro-batches as the sampler has cut it into. */
static sp_status train_step(sp_trainer *t, sp_step_report *report)
{
    sp_session *s = &t->session;
    double begin = sp_now_s();
    bool is_last = false;
    sp_pulse before, after;

    sp_pulse_read(&before);
    memset(report, 0, sizeof *report);
    report->lr = sp_optim_lr(s->config, t->state.samples_seen, t->total_samples,
                             t->sampler.effective);
    SP_TRY(sp_buckets_zero(&t->buckets));
    while (!is_last)
        SP_TRY(micro_step(t, report, &is_last));
    t->buckets.tail.n_stop += is_stop_asked(t);
    sp_run_beat(&s->run, SP_PHASE_REDUCE, t->state.at.epoch, t->state.step);
    SP_TRY(sp_bucket_wait(&t->buckets, &report->comm_exposed_s));
    sp_run_beat(&s->run, SP_PHASE_UPDATE, t->state.at.epoch, t->state.step);
    SP_TRY(sp_net_fetch_running(&s->net));
    SP_TRY(update(t, report));
    /* Running statistics are averaged over the ranks after every step and not only
     * before saving, so that neither a checkpoint nor a stop changes the following
     * steps. With bn_scope = "world" they are equal already. */
    SP_TRY(sp_net_sync_running(&s->net));
    advance(t, report);
    report->step_s = sp_now_s() - begin;
    sp_pulse_read(&after);
    sp_watchdog_step(s->watchdog, report->step_s - (after.waited_s - before.waited_s));
    t->train_s += report->step_s;
    return SP_OK;
}

/* Maximum over the ranks of a step's times, for steps that are logged. Collective. */
static sp_status reduce_times(sp_trainer *t, sp_step_report *report)
{
    sp_table_zero(&t->times);
    sp_table_add(&t->times, TIME_STEP, report->step_s);
    sp_table_add(&t->times, TIME_DATA_WAIT, report->data_wait_s);
    sp_table_add(&t->times, TIME_COMM_EXPOSED, report->comm_exposed_s);
    SP_TRY(sp_table_reduce(&t->times));
    report->step_s = t->times.row[TIME_STEP].max;
    report->data_wait_s = t->times.row[TIME_DATA_WAIT].max;
    report->comm_exposed_s = t->times.row[TIME_COMM_EXPOSED].max;
    return SP_OK;
}

/* ---- between steps ---- */

static sp_status evaluate(sp_trainer *t, bool *is_best)
{
    const sp_metrics *m = &t->metrics;
    double begin = sp_now_s(), score;

    *is_best = false;
    SP_TRY(sp_evaluate_pass(&t->session, t->val_loader, &t->metrics));
    SP_TRY(sp_report_eval(&t->session, m, t->session.epoch, t->state.step,
                          &t->state.metrics_bytes));
    score = sp_metrics_miou(m->point_confusion ? m->point_confusion : m->confusion,
                            m->n_classes);
    /* state.best is NAN before the first evaluation. */
    if (!isnan(score) && !(score <= t->state.best)) {
        t->state.best = score;
        *is_best = true;
    }
    t->eval_s += sp_now_s() - begin;
    return SP_OK;
}

/* Reports and evaluates at the end of an epoch or of the training, and then agrees on
 * requests to stop that have come meanwhile. Collective. */
static sp_status end_epoch(sp_trainer *t, const sp_step_report *report, bool is_final,
                           bool *is_best)
{
    const int every = t->session.config->run.eval_every;
    const int64_t epoch = t->state.at.epoch;
    int64_t stop;

    t->session.epoch = epoch + (t->state.at.position > 0);
    SP_TRY(sp_report_epoch(t, report));
    if (t->val_loader && (is_final || epoch % every == 0))
        SP_TRY(evaluate(t, is_best));
    stop = t->must_stop || is_stop_asked(t);
    SP_TRY(
        sp_comm_allreduce(t->session.comm, SP_SCOPE_WORLD, &stop, 1, SP_I64, SP_MAX));
    t->must_stop = stop;
    return SP_OK;
}

static sp_status stop(const sp_trainer *t)
{
    int number = sp_signal_received();
    char why[48] = "by another rank";

    if (number)
        snprintf(why, sizeof why, "by signal %d", number);
    else if (sp_signal_job_left_s() < JOB_LEFT_S)
        snprintf(why, sizeof why, "near the end of the job's time");
    else if (is_stop_asked(t))
        snprintf(why, sizeof why, "by run.time_limit_s");
    return SP_FAIL(SP_ELIMIT,
                   "stopped %s after step %lld: run the same command again to continue",
                   why, (long long)t->state.step);
}

/* Gives the weights in host memory: *copy is NULL or to be freed by the caller. */
static sp_status fetch_weights(const sp_net *net, float **copy, const float **weights)
{
    size_t bytes = (size_t)net->graph->n_floats * sizeof(float);

    *copy = NULL;
    *weights = net->param;
    if (net->backend->ops->is_host)
        return SP_OK;
    *copy = malloc(bytes + 1);
    if (!*copy)
        return SP_FAIL(SP_EMEM, "copy of the weights: out of memory");
    *weights = *copy;
    return net->backend->ops->download(net->backend, *copy, net->param, bytes);
}

static sp_status check_replicas(sp_trainer *t)
{
    const sp_net *net = &t->session.net;
    double begin = sp_now_s();
    sp_pulse before, after;
    const float *weights;
    float *copy = NULL;
    sp_status rc;

    if (net->comm->size == 1)
        return SP_OK;
    sp_pulse_read(&before);
    rc = sp_session_agree(&t->session, fetch_weights(net, &copy, &weights));
    if (rc == SP_OK)
        rc = sp_replica_check(net->comm, weights, net->graph->n_floats, "weights",
                              t->state.step);
    free(copy);
    sp_pulse_read(&after);
    t->replica_s += sp_now_s() - begin - (after.waited_s - before.waited_s);
    return rc;
}

/* Evaluates, saves or stops between two steps, where the ranks agree. Collective. */
static sp_status settle(sp_trainer *t, const sp_step_report *report)
{
    const int every = t->session.config->run.checkpoint_every;
    const bool is_final = sp_resume_is_complete(t);
    bool is_best = false, is_stopping, is_due;

    if (report->is_end || is_final)
        SP_TRY(end_epoch(t, report, is_final, &is_best));
    is_stopping = t->must_stop && !is_final;
    is_due = every > 0 ? t->state.step % every == 0 : report->is_end;
    /* Weights with a non-finite loss must not replace good checkpoints. */
    is_due = is_due && t->state.skipped == 0;
    if (is_due || is_best || is_final || is_stopping) {
        SP_TRY(check_replicas(t));
        SP_TRY(sp_resume_save(t, is_best, is_final || is_stopping));
    }
    return is_stopping ? stop(t) : SP_OK;
}

static sp_status log_step(sp_trainer *t, sp_step_report *report)
{
    int every = t->session.config->run.log_every;

    const bool is_due = every > 0 ? report->step % every == 0 || report->step == 1
                                  : report->is_end || sp_resume_is_complete(t);

    if (!is_due)
        return SP_OK;
    SP_TRY(reduce_times(t, report));
    return sp_report_step(t, report);
}

static sp_status run_steps(sp_trainer *t)
{
    sp_step_report report;

    while (!sp_resume_is_complete(t)) {
        t->session.is_alone = true;
        SP_TRY(train_step(t, &report));
        SP_TRY(log_step(t, &report));
        SP_TRY(check_numbers(t));
        t->session.is_alone = false;
        sp_resume_poll(t);
        if (t->state.step % REPLICA_STEPS == 0)
            SP_TRY(check_replicas(t));
        SP_TRY(settle(t, &report));
    }
    return SP_OK;
}

/* ---- setup ---- */

static sp_status open_loaders(sp_trainer *t)
{
    sp_session *s = &t->session;
    const sp_config *config = s->config;
    const sp_loader_options options = {
        .set = &s->train,
        .config = config,
        .graph = &s->graph,
        .backend = &s->backend,
        .sampler = &t->sampler,
        .columns = s->columns,
        .n_columns = s->n_columns,
        .mean = s->norm.mean,
        .std = s->norm.std,
        .is_training = true,
        .n_slots = SP_LOADER_SLOTS,
    };

    SP_TRY(sp_sampler_open(&t->sampler, &s->train, s->comm, config, true));
    SP_TRY(sp_loader_create(&t->loader, &options));
    if (s->val.n_shards && s->val.has_labels && config->run.eval_every > 0) {
        SP_TRY(sp_evaluate_open(s, &s->val, &t->val_sampler, &t->val_loader));
        SP_TRY(sp_metrics_create(&t->metrics, s->n_classes, s->val.has_points));
    }
    return SP_OK;
}

static sp_status check_training_set(const sp_session *s)
{
    if (!s->train.has_labels)
        return SP_FAIL(SP_EDATA, "%s: /labels: expected for training, found none",
                       s->train.shard[0].path);
    if (s->train.n_samples == 0)
        return SP_FAIL(SP_EDATA, "%s: no samples to train on", s->train.shard[0].path);
    return SP_OK;
}

static void set_totals(sp_trainer *t)
{
    const sp_config *config = t->session.config;
    const bool is_by_steps = config->train.steps > 0;

    if (__builtin_mul_overflow(is_by_steps ? config->train.steps : config->train.epochs,
                               is_by_steps ? t->sampler.effective
                                           : t->session.train.n_samples,
                               &t->total_samples))
        t->total_samples = INT64_MAX; /* more samples than can be counted */
}

static sp_status setup(sp_trainer *t, const sp_command *command)
{
    sp_session *s = &t->session;
    float *class_weight = NULL;
    sp_status rc;

    SP_TRY(sp_session_open(s, command, true));
    SP_TRY(sp_session_open_device(s));
    SP_TRY(sp_session_open_transport(s));
    sp_report_machine(s);
    SP_TRY(sp_session_open_data(s, true, true));
    SP_TRY(check_training_set(s));
    SP_TRY(sp_session_check_labels(s));
    SP_TRY(sp_session_normalize(s, &s->train));
    SP_TRY(sp_session_class_weights(s, &class_weight));
    rc = sp_session_open_net(s, class_weight);
    free(class_weight);
    SP_TRY(rc);
    rc = sp_buckets_create(&t->buckets, &s->graph, s->comm,
                           s->config->train.deterministic == SP_DET_WORLD,
                           (size_t)(s->config->run.bucket_mb * (1 << 20)));
    t->buckets.is_overlapped = s->config->run.overlap;
    if (rc == SP_OK)
        rc = sp_buckets_attach(&t->buckets, &s->transport);
    if (rc == SP_OK)
        rc = sp_optim_create(&t->optim, &s->graph, s->config, &s->backend);
    if (rc == SP_OK)
        rc = open_loaders(t);
    SP_TRY(sp_session_agree(s, rc));
    SP_TRY(sp_table_create(&t->times, s->comm, N_TIMES, time_names));
    set_totals(t);
    SP_TRY(sp_resume_begin(t));
    if (sp_resume_is_complete(t))
        return SP_OK;
    return sp_session_cut(s, &t->sampler, t->val_loader ? &t->val_sampler : NULL);
}

static sp_status run(sp_trainer *t)
{
    SP_TRY(sp_loader_seek(t->loader, t->state.at));
    SP_TRY(sp_report_start(t));
    sp_report_header(t);
    sp_cut_print(&t->session.cut, t->session.memory_total);
    SP_TRY(check_replicas(t)); /* compares the weights as loaded */
    sp_resume_prepare(t);
    SP_TRY(run_steps(t));
    return sp_report_end(t, "done", "");
}

static void finish(sp_trainer *t)
{
    sp_saver_destroy(t->saver);
    sp_loader_destroy(t->loader);
    sp_loader_destroy(t->val_loader);
    sp_sampler_close(&t->sampler);
    sp_sampler_close(&t->val_sampler);
    sp_metrics_destroy(&t->metrics);
    sp_optim_destroy(&t->optim);
    sp_buckets_destroy(&t->buckets);
    sp_table_destroy(&t->times);
    sp_checkpoint_state_destroy(&t->state);
}

/* Rank 0: true if an earlier start has completed the training and recorded its end. A
 * start killed between its last checkpoint and its end has not; then this one does. A
 * later start that failed has overwritten the status, which is restored here. */
static bool has_finished(sp_trainer *t)
{
    sp_run *folder = &t->session.run;

    if (!sp_resume_is_complete(t))
        return false;
    if (sp_run_is_done(folder->dir, NULL))
        return true;
    return sp_run_has_ended(folder->dir) &&
           sp_run_status(folder, "done", SP_OK, t->state.at.epoch, t->state.step,
                         NULL) == SP_OK;
}

static sp_status run_unless_done(sp_trainer *t)
{
    const sp_session *s = &t->session;
    int64_t is_done = s->comm->rank == 0 && has_finished(t);

    SP_TRY(sp_comm_bcast(s->comm, &is_done, sizeof is_done, 0));
    if (!is_done)
        return run(t);
    sp_log_info("%s: finished at step %lld; raise train.epochs or train.steps to go on",
                s->run.dir, (long long)t->state.step);
    return SP_OK;
}

sp_status sp_train(const sp_command *command)
{
    sp_trainer *t = calloc(1, sizeof *t);
    sp_status rc;

    if (!t)
        return SP_FAIL(SP_EMEM, "out of memory");
    t->begin_s = sp_now_s();
    rc = setup(t, command);
    if (rc == SP_OK)
        rc = run_unless_done(t);
    if (rc == SP_ELIMIT) {
        sp_status end = sp_report_end(t, "stopped", sp_error_last()->message);
        rc = end == SP_OK ? rc : end;
    }
    /* The results are in the run folder, so lost terminal output is only a warning. */
    if ((rc == SP_OK || rc == SP_ELIMIT) && sp_log_written() != SP_OK)
        sp_log_warn0("%s; %s/metrics.jsonl has every line", sp_error_last()->message,
                     command->config->run.dir);
    if (!t->session.is_alone)
        finish(t);
    rc = sp_session_close(&t->session, rc);
    free(t);
    return rc;
}

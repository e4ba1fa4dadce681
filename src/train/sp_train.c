/* The training run: epochs, steps, and the work between them. */
#include "train/sp_train.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/sp_log.h"
#include "base/sp_signal.h"
#include "train/sp_evaluate.h"
#include "train/sp_output.h"
#include "train/sp_resume.h"
#include "train/sp_test.h"

/* Seconds of the job's time kept for the last checkpoint and the end of the program. */
#define JOB_LEFT_S 90
enum { REPLICA_STEPS = 100 }; /* between two comparisons of the ranks' weights */

static bool train_is_stop_asked(void *trainer)
{
    const sp_trainer *t = trainer;
    double limit = t->session.config->run.time_limit_s;

    return sp_signal_received() || (limit > 0 && sp_now_s() - t->begin_s >= limit) ||
           sp_signal_job_left_s() < JOB_LEFT_S;
}

/* ---- one step ---- */

/* Times the parts of a step, and publishes its phases to the other processes. */
static sp_status train_begin_part(void *arg, sp_step_part part,
                                  const struct sp_batch *batch)
{
    sp_trainer *t = arg;
    sp_phase phase;

    (void)batch;
    if (part == SP_STEP_UPDATE)
        sp_resume_await(t);
    phase = sp_times_part(&t->times, part);
    if (phase != SP_PHASE_START)
        sp_session_beat(&t->session, phase);
    return SP_OK;
}

/* Moves the run's position past the step; the last step of an epoch ends it. */
static void train_advance(sp_trainer *t, sp_step_report *report)
{
    sp_checkpoint_state *state = &t->state;
    const sp_step_result *result = &report->result;

    report->epoch = state->at.epoch;
    report->is_end = sp_step_advance(state, result, t->data.train.n_samples);
    report->step = state->step;
    report->samples = state->samples_seen;
    t->session.epoch = sp_position_epochs(state->at);
    t->session.step = t->network.step = state->step;
    t->must_stop = result->is_stopping;
}

static sp_status log_skipped(sp_trainer *t, const sp_step_report *report)
{
    if (!isfinite(report->result.loss))
        SP_TRY(
            sp_step_name_samples(&t->learner, report->step, report->result.at.epoch));
    sp_log_warn0("step %lld: non-finite loss or gradient, weights left as they were "
                 "(%lld in a row)",
                 (long long)report->step, (long long)t->state.skipped);
    return SP_OK;
}

static sp_status train_step(sp_trainer *t, sp_step_report *report)
{
    const sp_step_hooks hooks = {
        .begin = train_begin_part, .is_stop_asked = train_is_stop_asked, .arg = t};
    sp_status rc;

    sp_times_begin(&t->times);
    *report = (sp_step_report){
        .rates = sp_optim_rates(t->session.config, t->state.samples_seen,
                                t->total_samples, t->learner.sampler.effective)};
    rc = sp_step_run(&t->learner, report->rates, &hooks, &report->result);
    SP_TRY(sp_step_explain(&t->learner, rc, &report->result));
    train_advance(t, report);
    if (isfinite(report->result.loss)) {
        t->loss_sum += report->result.loss * report->result.sum.weight_sum;
        t->weight_sum += report->result.sum.weight_sum;
    }
    if (report->result.is_skipped)
        SP_TRY(log_skipped(t, report));
    sp_times_end(&t->times, &t->learner, report);
    sp_pace_add(&t->pace, report->result.n_samples, report->step_s);
    sp_session_watch(&t->session, t->times.phase_s);
    t->train_s += report->step_s;
    return SP_OK;
}

/* ---- between steps ---- */

static sp_status train_stop(sp_trainer *t)
{
    int number = sp_signal_received();
    char why[48] = "by another rank";

    if (number)
        snprintf(why, sizeof why, "by signal %d", number);
    else if (sp_signal_job_left_s() < JOB_LEFT_S)
        snprintf(why, sizeof why, "near the end of the job's time");
    else if (train_is_stop_asked(t))
        snprintf(why, sizeof why, "by run.time_limit_s");
    return SP_FAIL(SP_ELIMIT,
                   "stopped %s after step %lld: run the same command again%s", why,
                   (long long)t->state.step,
                   t->session.config->run.resume.from == SP_RESUME_AUTO
                       ? " to continue"
                       : " with run.resume=auto to continue");
}

/* Gives up an evaluation if a stop is asked for. A time limit does not end the
 * evaluation that a continued run begins with, so that jobs shorter than an evaluation
 * get on. */
static sp_status train_check_stop(void *trainer)
{
    const sp_trainer *t = trainer;
    const bool is_owed = t->state.step == t->first_step;

    return (is_owed ? sp_signal_received() != 0 : train_is_stop_asked(trainer))
               ? train_stop(trainer)
               : SP_OK;
}

/* Evaluates the averaged weights. */
static sp_status evaluate_average(sp_trainer *t)
{
    sp_status rc;

    sp_learner_exchange_average(&t->learner);
    rc = sp_evaluate_pass(&t->session, &t->evaluator, &t->evaluator.val, &t->averaged,
                          train_check_stop, t, NULL);
    sp_learner_exchange_average(&t->learner);
    return rc;
}

/* Evaluates data.val_sets with the weights that run.weights names. */
static sp_status train_evaluate_sets(sp_trainer *t)
{
    const bool is_averaged = t->session.config->run.weights == SP_WEIGHTS_EMA;
    sp_status rc;

    if (!t->sets)
        return SP_OK;
    if (is_averaged)
        sp_learner_exchange_average(&t->learner);
    rc = sp_evaluate_sets(&t->session, &t->evaluator, t->sets, train_check_stop, t);
    if (is_averaged)
        sp_learner_exchange_average(&t->learner);
    return rc;
}

static sp_status train_evaluate(sp_trainer *t, bool is_final, bool *is_best)
{
    const int every = t->session.config->run.report_every;
    const bool is_reported = every > 0 && (is_final || (t->n_evals + 1) % every == 0);
    const bool with_pictures = is_reported || t->session.config->run.pictures;
    const bool has_average =
        sp_optim_states[SP_OPTIM_STATE_EMA].is_kept(t->session.config);
    double begin = sp_now_s();

    *is_best = false;
    SP_TRY(sp_evaluate_pass(&t->session, &t->evaluator, &t->evaluator.val, &t->metrics,
                            train_check_stop, t,
                            with_pictures ? &t->pictures_s : NULL));
    if (has_average)
        SP_TRY(evaluate_average(t));
    SP_TRY(train_evaluate_sets(t));
    SP_TRY(sp_output_eval(&t->session, &t->evaluator, &t->metrics,
                          has_average ? &t->averaged : NULL, t->sets, NULL,
                          &t->state.metrics_bytes));
    if (is_reported && !is_final) /* the last one is made when the end is written */
        sp_output_renew(&t->session);
    t->score = sp_metrics_score(
        t->session.config->run.weights == SP_WEIGHTS_EMA ? &t->averaged : &t->metrics);
    SP_TRY(sp_resume_agree_best(t));
    /* state.best is NAN until a best score's weights are on disk. */
    *is_best = !isnan(t->score) && !(t->score <= t->state.best);
    t->drawn_s = 0; /* the next step draws its line at once */
    t->n_evals++;
    t->eval_s += sp_now_s() - begin;
    return SP_OK;
}

/* Evaluates at the end of an epoch or of the training, and then agrees on requests to
 * stop that have come meanwhile. One that ends the evaluation leaves it to the
 * continued run. Collective. */
static sp_status end_epoch(sp_trainer *t, bool is_final, bool *is_best)
{
    const int every = t->session.config->run.eval_every;
    const bool is_owed = t->state.eval_due;
    int64_t stop;
    sp_status rc = SP_OK;

    t->state.eval_due = 0;
    if (t->is_evaluated && (is_owed || is_final || t->state.at.epoch % every == 0))
        rc = train_evaluate(t, is_final, is_best);
    t->state.eval_due = rc == SP_ELIMIT;
    if (rc != SP_ELIMIT)
        SP_TRY(rc);
    stop = t->must_stop || t->state.eval_due || train_is_stop_asked(t);
    SP_TRY(
        sp_comm_allreduce(t->session.comm, SP_SCOPE_WORLD, &stop, 1, SP_I64, SP_MAX));
    t->must_stop = stop;
    return SP_OK;
}

/* Evaluates, saves or stops between two steps; the ranks agree there. is_end: an epoch
 * ends here, or its evaluation is owed. Collective. */
static sp_status between_steps(sp_trainer *t, bool is_end)
{
    const int every = t->session.config->run.checkpoint_every;
    const bool is_final = sp_resume_is_complete(t);
    bool is_best = false, is_stopping, is_due;

    if (is_end || is_final)
        SP_TRY(end_epoch(t, is_final, &is_best));
    is_stopping = t->must_stop && (!is_final || t->state.eval_due);
    is_due = every > 0 ? t->state.step % every == 0 : is_end;
    /* Weights with a non-finite loss must not replace good checkpoints. */
    is_due = is_due && t->state.skipped == 0;
    if (is_due || is_best || is_final || is_stopping) {
        SP_TRY(sp_trainer_check_replicas(t));
        SP_TRY(sp_resume_save(t, is_best, is_final || is_stopping));
    }
    return is_stopping ? train_stop(t) : SP_OK;
}

static sp_status log_step(sp_trainer *t, sp_step_report *report)
{
    int every = t->session.config->run.log_every;

    const bool is_due = every > 0 ? report->step % every == 0 || report->step == 1
                                  : report->is_end || sp_resume_is_complete(t);

    if (!is_due)
        return SP_OK;
    SP_TRY(sp_times_reduce(&t->device, report));
    t->memory_bytes = report->memory_bytes;
    return sp_output_step(t, report);
}

/* A step and its line of the log; the ranks wait for each other in both. */
typedef struct step_work {
    sp_trainer *trainer;
    sp_step_report report;
} step_work;

static sp_status train_and_log(void *arg)
{
    step_work *work = arg;

    SP_TRY(train_step(work->trainer, &work->report));
    SP_TRY(log_step(work->trainer, &work->report));
    sp_output_live(work->trainer, &work->report);
    return SP_OK;
}

static sp_status train_run_steps(sp_trainer *t)
{
    step_work work = {.trainer = t};

    if (t->state.eval_due)
        SP_TRY(between_steps(t, true));
    while (!sp_resume_is_complete(t)) {
        sp_session_run_or_abort(&t->session, train_and_log, &work);
        SP_TRY(sp_step_check_numbers(t->session.config, &t->state));
        sp_resume_poll(t);
        if (t->state.step % REPLICA_STEPS == 0)
            SP_TRY(sp_trainer_check_replicas(t));
        if (work.report.is_end || sp_resume_is_complete(t))
            SP_TRY(sp_output_epoch(t, &work.report));
        SP_TRY(between_steps(t, work.report.is_end));
    }
    return SP_OK;
}

/* Rank 0: true if an earlier start has completed the training and recorded its end. A
 * start killed between its last checkpoint and its end has not; then this one does. A
 * later start that failed has overwritten the status, which is restored here. */
static bool has_finished(sp_trainer *t)
{
    sp_run *folder = &t->session.run;

    if (!sp_resume_is_complete(t))
        return false;
    if (sp_run_is_done(folder->dir))
        return true;
    return sp_run_has_ended(folder->dir) &&
           sp_run_status(folder, "done", SP_OK, t->session.epoch, t->state.step,
                         NULL) == SP_OK;
}

static sp_status run_unless_done(sp_trainer *t)
{
    const sp_session *s = &t->session;
    int64_t is_done = s->comm->rank == 0 && has_finished(t);

    SP_TRY(sp_comm_bcast(s->comm, &is_done, sizeof is_done, 0));
    if (!is_done) {
        SP_TRY(sp_trainer_begin(t));
        SP_TRY(train_run_steps(t));
        SP_TRY(sp_test_run(t, train_check_stop));
        return sp_output_end(t, "done", "");
    }
    sp_log_info("%s: finished at step %lld; raise train.epochs or train.steps to go on",
                s->run.dir, (long long)t->state.step);
    return SP_OK;
}

sp_status sp_train(const sp_command *command)
{
    sp_trainer t;
    sp_status rc = sp_trainer_open(&t, command);

    if (rc == SP_OK)
        rc = run_unless_done(&t);
    if (rc == SP_ELIMIT) {
        sp_status end = sp_output_end(&t, "stopped", sp_error_last()->message);
        rc = end == SP_OK ? rc : end;
    }
    /* The results are in the run folder, so lost terminal output is only a warning. */
    if ((rc == SP_OK || rc == SP_ELIMIT) && sp_log_written() != SP_OK)
        sp_log_warn0("%s; %s/metrics.jsonl has every line", sp_error_last()->message,
                     command->config->run.dir);
    return sp_trainer_close(&t, rc);
}

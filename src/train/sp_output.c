#include "train/sp_output_internal.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "base/sp_machine.h"
#include "base/sp_text.h"
#include "config.h"
#include "h5/sp_h5.h"
#include "health/sp_watchdog.h"
#include "report/sp_live.h"
#include "train/sp_session.h"

/* Header only: no library to link. */
#define XXH_INLINE_ALL
#include <xxhash.h>

sp_json sp_output_json;
static sp_json *const json = &sp_output_json;

/* ---- lines ---- */

/* Ends the line and appends it to metrics.jsonl. *bytes, unless NULL, becomes the
 * length of the file. */
static sp_status output_append(sp_run *run, int64_t *bytes)
{
    const char *line;

    SP_TRY(sp_json_end(json, &line));
    return sp_run_event(run, line, bytes);
}

void sp_output_begin(const char *event)
{
    sp_json_begin(json);
    sp_json_text(json, "event", event);
}

void sp_output_time(double time_s)
{
    char text[SP_DATE];

    sp_json_text(json, "time", sp_date(time_s, text));
}

void sp_output_number(sp_events *events, const char *group, const char *key,
                      double value)
{
    sp_json_double(json, key, value);
    sp_events_scalar(events, group, key, value);
}

/* Event files are a copy of metrics.jsonl for TensorBoard, so losing some does not end
 * a run. */
sp_status sp_output_events_end(sp_run *run)
{
    static bool is_told;
    const sp_status rc = sp_events_end(run->events);

    if (rc != SP_EIO)
        return rc;
    if (!is_told)
        sp_log_warn0(
            "%s; the run goes on, and events are missing there (reported once)",
            sp_error_last()->message);
    is_told = true;
    return SP_OK;
}

/* ---- start ---- */

static void write_start(const sp_trainer *trainer, const char *deck)
{
    const sp_device *device = &trainer->device;
    const sp_comm *comm = device->comm;
    char hash[17];

    snprintf(hash, sizeof hash, "%016llx",
             (unsigned long long)XXH64(deck, strlen(deck), 0));
    sp_json_text(json, "version", PACKAGE_VERSION);
    sp_json_text(json, "mpi", sp_comm_library());
    sp_json_text(json, "hdf5", sp_h5_library());
    sp_json_text(json, "processor", sp_machine_processor());
    sp_json_int(json, "ranks", comm->size);
    sp_json_int(json, "nodes", comm->n_nodes);
    sp_json_begin_array(json, "node_of_rank");
    for (int i = 0; i < comm->size; i++)
        sp_json_int(json, NULL, comm->node_of_rank[i]);
    sp_json_end_array(json);
    sp_json_text(json, "device", device->text);
    sp_json_text(json, "precision",
                 sp_precision_word[trainer->session.config->train.precision]);
    if (device->sums != SP_SUMS_AUTO)
        sp_json_text(json, "bf16_sums", sp_bf16_sums_word[device->sums]);
    sp_json_text(json, "transport", device->transport.ops->name);
    sp_json_text(json, "transport_text", device->transport.words);
    sp_json_text(json, "deck_hash", hash);
    snprintf(hash, sizeof hash, "%016llx",
             (unsigned long long)trainer->data.train.hash);
    sp_json_text(json, "data_hash", hash);
    sp_json_int(json, "parameters", trainer->network.graph.n_weights);
}

/* The length of the training, for progress displays. */
static void write_plan(const sp_trainer *trainer)
{
    const int64_t per_epoch = sp_sampler_steps_per_epoch(&trainer->learner.sampler);
    const int64_t steps = sp_trainer_steps(trainer);

    sp_json_int(json, "steps", steps);
    sp_json_int(json, "epochs", (steps - 1) / per_epoch + 1);
    sp_json_int(json, "epoch_samples", trainer->data.train.n_samples);
}

/* Rank 0: opens the event files. Events after the checkpoint are removed even if this
 * start writes no events: it repeats their steps. */
static sp_status open_events(sp_trainer *trainer, const char *deck)
{
    sp_run *run = &trainer->session.run;
    const int64_t step = trainer->state.step;
    char dir[PATH_MAX];

    snprintf(dir, sizeof dir, "%s/tensorboard", run->dir);
    SP_TRY(sp_events_cut(dir, step));
    if (!trainer->session.config->run.tensorboard)
        return SP_OK;
    SP_TRY(sp_events_create(&run->events, dir, run->comm->host, step + 1));
    sp_events_begin(run->events, step + 1, sp_time_s());
    sp_events_text(run->events, "run", "deck", deck);
    return sp_events_end(run->events);
}

/* Rank 0. */
static sp_status output_start(sp_trainer *trainer, const char *deck)
{
    sp_session *session = &trainer->session;
    sp_run *run = &session->run;
    int64_t *bytes = &trainer->state.metrics_bytes;

    if (trainer->is_resumed)
        SP_TRY(sp_run_truncate_metrics(run, *bytes));
    SP_TRY(open_events(trainer, deck));
    SP_TRY(sp_run_write_text(run, "deck.resolved", deck));
    sp_output_begin(trainer->is_resumed ? "resume" : "start");
    sp_json_int(json, "step", trainer->state.step);
    write_start(trainer, deck);
    write_plan(trainer);
    sp_output_time(sp_time_s());
    SP_TRY(output_append(run, bytes));
    return sp_run_status(run, "running", SP_OK, session->epoch, session->step, "");
}

sp_status sp_output_start(sp_trainer *trainer)
{
    sp_session *s = &trainer->session;
    const sp_config resolved = sp_device_resolved(&trainer->device);
    char *deck = NULL;
    sp_status rc = SP_OK;

    assert(s->run.dir[0] && "the run folder is open");
    if (s->comm->rank == 0)
        rc = sp_config_to_text(&resolved, &deck);
    if (rc == SP_OK && deck)
        rc = output_start(trainer, deck);
    free(deck);
    return sp_comm_agree(s->comm, rc);
}

/* ---- steps ---- */

/* Largest cost of a rank's share over the mean cost. */
static double imbalance(const sp_comm *comm, const sp_step_report *step)
{
    return step->result.cost_sum ? (double)step->result.cost_max * comm->size /
                                       (double)step->result.cost_sum
                                 : 1;
}

/* The seconds that are left as text for the log: "left=1:02:03 ", or "". */
static const char *left_text(const sp_trainer *t, char text[48])
{
    char duration[SP_DURATION];
    const double left_s = sp_trainer_left_s(t);

    text[0] = 0;
    if (isfinite(left_s))
        snprintf(text, 48, "left=%s ", sp_live_duration(left_s, duration));
    return text;
}

/* Writes the measurements of a step. TensorBoard shows the times in a group of their
 * own. */
static void write_step(const sp_trainer *t, const sp_step_report *step)
{
    sp_events *events = t->session.run.events;
    const sp_step_result *result = &step->result;

    sp_output_number(events, "train", "loss", result->loss);
    sp_output_number(events, "train", "lr", step->rates.lr);
    if (sp_optim_cycles_momentum(t->session.config))
        sp_output_number(events, "train", "momentum", step->rates.momentum);
    sp_output_number(events, "train", "grad_norm", result->grad_norm);
    sp_output_number(events, "train", "voxels", result->sum.n_voxels);
    sp_output_number(events, "time", "step_s", step->step_s);
    sp_output_number(events, "time", "data_wait_s", result->data_wait_s);
    sp_output_number(events, "time", "comm_exposed_s", result->comm_exposed_s);
    sp_output_number(events, "train", "imbalance", imbalance(t->session.comm, step));
    sp_json_int(json, "micro_batches", result->n_micro);
    if (result->is_skipped)
        sp_json_bool(json, "skipped", true);
    sp_output_number(events, "time", "forward_s", step->forward_s);
    sp_output_number(events, "time", "backward_s", step->backward_s);
    sp_output_number(events, "time", "update_s", step->update_s);
    sp_output_number(events, "time", "plan_s", step->plan_s);
    sp_output_number(events, "train", "memory_bytes", step->memory_bytes);
    sp_json_double(json, "left_s", sp_trainer_left_s(t));
}

static void output_print_step(const sp_trainer *t, const sp_step_report *step,
                              double now_s)
{
    const int64_t total = t->total_samples;
    char left[48], date[SP_DATE];

    sp_log_progress("step=%lld epoch=%lld loss=%.5g lr=%.4g voxels=%.0f step_s=%.3f "
                    "data_wait_s=%.3f comm_exposed_s=%.3f done=%.0f%% %stime=%s",
                    (long long)step->step, (long long)step->epoch + 1,
                    step->result.loss, step->rates.lr, step->result.sum.n_voxels,
                    step->step_s, step->result.data_wait_s, step->result.comm_exposed_s,
                    total ? 100.0 * (double)step->samples / (double)total : 0,
                    left_text(t, left), sp_date(now_s, date));
}

sp_status sp_output_step(sp_trainer *trainer, const sp_step_report *step)
{
    sp_run *run = &trainer->session.run;
    const double now_s = sp_time_s();

    assert(step->step >= 1);
    if (trainer->session.comm->rank != 0)
        return SP_OK;
    sp_output_begin("step");
    sp_json_int(json, "step", step->step);
    sp_json_int(json, "epoch", step->epoch + 1);
    sp_json_int(json, "samples", step->samples);
    sp_events_begin(run->events, step->step, now_s);
    write_step(trainer, step);
    sp_output_time(now_s);
    SP_TRY(output_append(run, &trainer->state.metrics_bytes));
    SP_TRY(sp_output_events_end(run));
    output_print_step(trainer, step, now_s);
    return SP_OK;
}

/* The fields by weight; those that count most fit into 80 columns. */
static void output_draw(const sp_trainer *t, const sp_step_report *step)
{
    const double pace = sp_pace_per_second(&t->pace), left_s = sp_trainer_left_s(t);
    const int64_t steps = sp_trainer_steps(t);
    const double epochs =
        ceil((double)t->total_samples / (double)t->data.train.n_samples);
    char text[SP_DURATION];
    sp_live line;

    sp_live_begin(&line);
    sp_live_add(&line, 90, "epoch %lld/%.0f", (long long)step->epoch + 1, epochs);
    sp_live_add_bar(&line, 45, (double)step->step / (double)steps);
    sp_live_add(&line, 100, "step %lld/%lld", (long long)step->step, (long long)steps);
    sp_live_add(&line, 95, "loss %.4g", step->result.loss);
    if (!isnan(t->score))
        sp_live_add(&line, 60, "mIoU %.3f", t->score);
    if (pace > 0)
        sp_live_add(&line, 70, "%.3g/s", pace);
    if (isfinite(left_s))
        sp_live_add(&line, 80, "left %s", sp_live_duration(left_s, text));
    if (isfinite(t->memory_bytes))
        sp_live_add(&line, 50, "%s", sp_live_bytes(t->memory_bytes, text));
    sp_live_add(&line, 40, "lr %.3g", step->rates.lr);
    sp_live_add(&line, 30, "step %.3f s", step->step_s);
    sp_live_add(&line, 20, "data %.3f s", step->result.data_wait_s);
    sp_live_add(&line, 10, "ranks %.3f s", step->result.comm_exposed_s);
    sp_live_draw(&line);
}

void sp_output_live(sp_trainer *trainer, const sp_step_report *step)
{
    const double now = sp_now_s();

    if (now - trainer->drawn_s < SP_PROGRESS_EVERY_S || !sp_live_is_shown())
        return;
    trainer->drawn_s = now;
    output_draw(trainer, step);
}

sp_status sp_output_epoch(sp_trainer *trainer, const sp_step_report *step)
{
    sp_session *s = &trainer->session;
    double n = (double)(trainer->state.step - trainer->first_step);
    char left[48], date[SP_DATE];
    sp_status rc = SP_OK;

    assert(trainer->state.step >= trainer->first_step);
    sp_log_info(
        "epoch=%lld step=%lld samples=%lld loss=%.5g mean_step_s=%.3f %stime=%s",
        (long long)step->epoch + 1, (long long)step->step, (long long)step->samples,
        trainer->weight_sum > 0 ? trainer->loss_sum / trainer->weight_sum : NAN,
        n > 0 ? trainer->train_s / n : 0, left_text(trainer, left),
        sp_date(sp_time_s(), date));
    trainer->loss_sum = trainer->weight_sum = 0;
    if (s->comm->rank == 0)
        rc = sp_run_status(&s->run, "running", SP_OK, step->epoch + 1, step->step, "");
    if (rc == SP_EIO && sp_run_is_ours(&s->run)) {
        sp_log_warn0("%s; the run goes on", sp_error_last()->message);
        rc = SP_OK;
    }
    return sp_comm_agree(s->comm, rc);
}

/* ---- report.html ---- */

void sp_output_renew(sp_session *session)
{
    sp_run *run = &session->run;
    /* Borrowed by the queue of commands until it has run. */
    static char command[8 * PATH_MAX + 64];
    char self[PATH_MAX], report[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (run->comm->rank != 0 || session->config->run.report_every <= 0)
        return;
    if (n < 0) {
        sp_log_warn0("report.html is not renewed: /proc/self/exe: %s", strerror(errno));
        return;
    }
    self[n] = '\0';
    sp_file_in(run->dir, "report.html", report);
    sp_text_quote(stpcpy(sp_text_quote(command, self), " report --quiet -o "), report);
    sp_run_command(run, command, run->dir);
    sp_run_after_save(run, session->config->run.after_save, report);
}

/* ---- end ---- */

/* A part of a time in percent. */
static double output_share(double part_s, double whole_s)
{
    return whole_s > 0 ? 100 * part_s / whole_s : 0;
}

static sp_status write_end(sp_trainer *trainer, const char *state, double total_s)
{
    sp_session *s = &trainer->session;

    sp_output_begin("end");
    sp_json_text(json, "state", state);
    sp_json_int(json, "step", trainer->state.step);
    sp_json_int(json, "epoch", s->epoch);
    sp_json_int(json, "samples", trainer->state.samples_seen);
    sp_json_double(json, "best_miou", trainer->state.best);
    sp_json_double(json, "total_s", total_s);
    sp_json_double(json, "train_s", trainer->train_s);
    sp_json_double(json, "eval_s", trainer->eval_s);
    sp_json_double(json, "pictures_s", trainer->pictures_s);
    sp_json_double(json, "children_cpu_s", sp_machine_children_s());
    sp_json_double(json, "save_s", trainer->save_s);
    sp_json_double(json, "save_last_s", trainer->save_last_s);
    sp_json_double(json, "save_write_s", trainer->write_s);
    sp_json_double(json, "save_cpu_s", trainer->write_cpu_s);
    sp_json_double(json, "replica_s", trainer->replica_s);
    sp_json_double(json, "watchdog_cpu_s", sp_watchdog_cpu_s(s->watchdog));
    sp_output_time(sp_time_s());
    SP_TRY(output_append(&s->run, NULL));
    return sp_run_deliver(&s->run);
}

static void print_end(const sp_trainer *trainer, const char *state, double total_s)
{
    const double watch_s =
        trainer->replica_s + sp_watchdog_cpu_s(trainer->session.watchdog);
    char best[40] = ""; /* empty if no epoch was evaluated */
    char date[SP_DATE];

    if (!isnan(trainer->state.best))
        snprintf(best, sizeof best, " best_miou=%.4f", trainer->state.best);
    sp_log_info(
        "safety: training waited %.3g s for checkpoints (%.2g %%), their writer "
        "took %.3g s of a core; comparing weights and watching took %.3g s (%.2g "
        "%%)",
        trainer->save_s, output_share(trainer->save_s, trainer->train_s),
        trainer->write_cpu_s, watch_s, output_share(watch_s, trainer->train_s));
    if (trainer->pictures_s > 0)
        sp_log_info(
            "pictures: training waited %.3g s for them (%.2g %%); reports and "
            "run.after_save took %.3g s of a core meanwhile",
            trainer->pictures_s,
            output_share(trainer->pictures_s, trainer->train_s + trainer->eval_s),
            sp_machine_children_s());
    sp_log_info("%s: step=%lld%s total_s=%.1f train_s=%.1f eval_s=%.1f save_s=%.1f "
                "time=%s",
                state, (long long)trainer->state.step, best, total_s, trainer->train_s,
                trainer->eval_s, trainer->save_s + trainer->save_last_s,
                sp_date(sp_time_s(), date));
}

/* Rank 0: writes the end event and prints the summary. */
static sp_status train_report_end(sp_trainer *trainer, const char *state,
                                  const char *message)
{
    sp_session *s = &trainer->session;
    const bool is_done = strcmp(state, "done") == 0;
    const double total_s = sp_now_s() - trainer->begin_s;
    char path[PATH_MAX];

    sp_live_remove();
    SP_TRY(write_end(trainer, state, total_s));
    if (is_done && trainer->metrics.n_samples > 0)
        sp_output_table(&trainer->network, &trainer->metrics);
    print_end(trainer, state, total_s);
    if (!is_done)
        sp_log_info("%s", message);
    SP_TRY(sp_run_status(&s->run, state, is_done ? SP_OK : SP_ELIMIT, s->epoch,
                         trainer->state.step, message));
    sp_output_renew(s);
    if (s->config->run.report_every > 0)
        sp_run_after_save(&s->run, s->config->run.after_save,
                          sp_file_in(s->run.dir, "report.csv", path));
    sp_run_give_files(&s->run, s->config->run.after_save);
    return SP_OK;
}

sp_status sp_output_end(sp_trainer *trainer, const char *state, const char *message)
{
    sp_session *s = &trainer->session;

    assert(state && message);
    return sp_comm_agree(s->comm, s->comm->rank == 0
                                      ? train_report_end(trainer, state, message)
                                      : SP_OK);
}

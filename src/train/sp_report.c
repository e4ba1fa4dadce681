#include "train/sp_report.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "base/sp_json.h"
#include "base/sp_log.h"
#include "base/sp_machine.h"
#include "config.h"
#include "h5/sp_h5.h"
#include "picture/sp_heatmap.h"
#include "session/sp_gallery.h"
#include "session/sp_resources.h"
#include "show/sp_events.h"
#include "show/sp_live.h"

/* Header only: no library to link. */
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Writer of all lines. It is reused, so that a step's line allocates nothing. Training
 * thread only. */
static sp_json json;

/* Rank 0: ends the line and appends it to metrics.jsonl. */
static sp_status append(sp_run *run, int64_t *bytes)
{
    const char *line;

    SP_TRY(sp_json_end(&json, &line));
    return sp_run_event(run, line, bytes);
}

static void begin(const char *event)
{
    sp_json_begin(&json);
    sp_json_text(&json, "event", event);
}

static void write_time(double time_s)
{
    char text[SP_DATE];

    sp_json_text(&json, "time", sp_date(time_s, text));
}

/* A number of the line at hand that TensorBoard shows too, in the group. Both files have
 * it from here, so they agree. */
static void number(sp_events *events, const char *group, const char *key, double value)
{
    sp_json_double(&json, key, value);
    sp_events_scalar(events, group, key, value);
}

/* ---- start ---- */

static void write_start(const sp_resources *r, const char *deck)
{
    char hash[17];

    snprintf(hash, sizeof hash, "%016llx",
             (unsigned long long)XXH64(deck, strlen(deck), 0));
    sp_json_text(&json, "version", PACKAGE_VERSION);
    sp_json_text(&json, "mpi", sp_comm_library());
    sp_json_text(&json, "hdf5", sp_h5_library());
    sp_json_text(&json, "processor", sp_machine_processor());
    sp_json_int(&json, "ranks", r->session.comm->size);
    sp_json_int(&json, "nodes", r->session.comm->n_nodes);
    sp_json_begin_array(&json, "node_of_rank");
    for (int i = 0; i < r->session.comm->size; i++)
        sp_json_int(&json, NULL, r->session.comm->node_of_rank[i]);
    sp_json_end_array(&json);
    sp_json_text(&json, "device", r->device);
    sp_json_text(&json, "precision",
                 sp_precision_word[r->session.config->train.precision]);
    sp_json_text(&json, "transport", r->transport.ops->name);
    sp_json_text(&json, "transport_text", r->transport.words);
    sp_json_text(&json, "deck_hash", hash);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)r->train.hash);
    sp_json_text(&json, "data_hash", hash);
    sp_json_int(&json, "parameters", r->graph.n_weights);
}

/* The length of the training, for those who watch it. */
static void write_plan(const sp_trainer *trainer)
{
    const int64_t per_epoch = sp_sampler_steps_per_epoch(&trainer->resources->sampler);
    const int64_t steps = sp_trainer_steps(trainer);

    sp_json_int(&json, "steps", steps);
    sp_json_int(&json, "epochs", (steps - 1) / per_epoch + 1);
    sp_json_int(&json, "epoch_samples", trainer->epoch_samples);
}

/* Rank 0: opens the event files. What an earlier start wrote behind the checkpoint is
 * removed whether this one writes events or not, since its steps are repeated. */
static sp_status open_events(sp_trainer *trainer, const char *deck)
{
    sp_run *run = &trainer->session->run;
    const int64_t step = trainer->state.step;
    char dir[PATH_MAX];

    snprintf(dir, sizeof dir, "%s/tensorboard", run->dir);
    SP_TRY(sp_events_cut(dir, step));
    if (!trainer->session->config->run.tensorboard)
        return SP_OK;
    SP_TRY(sp_events_create(&run->events, dir, run->comm->host, step + 1));
    sp_events_begin(run->events, step + 1, sp_time_s());
    sp_events_text(run->events, "run", "deck", deck);
    return sp_events_end(run->events);
}

/* Rank 0. */
static sp_status start(sp_trainer *trainer, const char *deck)
{
    sp_resources *r = trainer->resources;
    sp_run *run = &r->session.run;
    int64_t *bytes = &trainer->state.metrics_bytes;

    if (trainer->is_resumed)
        SP_TRY(sp_run_truncate_metrics(run, *bytes));
    SP_TRY(open_events(trainer, deck));
    SP_TRY(sp_run_write_text(run, "deck.resolved", deck));
    begin(trainer->is_resumed ? "resume" : "start");
    sp_json_int(&json, "step", trainer->state.step);
    write_start(r, deck);
    write_plan(trainer);
    write_time(sp_time_s());
    SP_TRY(append(run, bytes));
    return sp_run_status(run, "running", SP_OK, r->session.epoch, r->session.step, "");
}

sp_status sp_report_start(sp_trainer *trainer)
{
    sp_session *s = trainer->session;
    const sp_config resolved = sp_session_resolved(s);
    char *deck = NULL;
    sp_status rc = SP_OK;

    if (s->comm->rank == 0)
        rc = sp_config_to_text(&resolved, &deck);
    if (rc == SP_OK && deck)
        rc = start(trainer, deck);
    free(deck);
    return sp_session_agree(s, rc);
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

/* Writes what a step is measured by. TensorBoard shows the times in a group of their
 * own. */
static void write_step(const sp_trainer *t, const sp_step_report *step)
{
    sp_events *events = t->session->run.events;
    const sp_step_result *result = &step->result;

    number(events, "train", "loss", result->loss);
    number(events, "train", "lr", step->lr);
    number(events, "train", "grad_norm", result->grad_norm);
    number(events, "train", "voxels", result->voxels);
    number(events, "time", "step_s", step->step_s);
    number(events, "time", "data_wait_s", result->data_wait_s);
    number(events, "time", "comm_exposed_s", result->comm_exposed_s);
    number(events, "train", "imbalance", imbalance(t->session->comm, step));
    sp_json_int(&json, "micro_batches", result->n_micro);
    if (result->is_skipped)
        sp_json_bool(&json, "skipped", true);
    number(events, "time", "forward_s", step->forward_s);
    number(events, "time", "backward_s", step->backward_s);
    number(events, "time", "update_s", step->update_s);
    number(events, "time", "plan_s", step->plan_s);
    number(events, "train", "memory_bytes", step->memory_bytes);
    sp_json_double(&json, "left_s", sp_trainer_left_s(t));
}

static void print_step(const sp_trainer *t, const sp_step_report *step, double now_s)
{
    const int64_t total = t->total_samples;
    char left[48], date[SP_DATE];

    sp_log_progress("step=%lld epoch=%lld loss=%.5g lr=%.4g voxels=%.0f step_s=%.3f "
                    "data_wait_s=%.3f comm_exposed_s=%.3f done=%.0f%% %stime=%s",
                    (long long)step->step, (long long)step->epoch + 1,
                    step->result.loss, step->lr, step->result.voxels, step->step_s,
                    step->result.data_wait_s, step->result.comm_exposed_s,
                    total ? 100.0 * (double)step->samples / (double)total : 0,
                    left_text(t, left), sp_date(now_s, date));
}

sp_status sp_report_step(sp_trainer *trainer, const sp_step_report *step)
{
    sp_run *run = &trainer->session->run;
    const double now_s = sp_time_s();

    if (trainer->session->comm->rank != 0)
        return SP_OK;
    begin("step");
    sp_json_int(&json, "step", step->step);
    sp_json_int(&json, "epoch", step->epoch + 1);
    sp_json_int(&json, "samples", step->samples);
    sp_events_begin(run->events, step->step, now_s);
    write_step(trainer, step);
    write_time(now_s);
    SP_TRY(append(run, &trainer->state.metrics_bytes));
    SP_TRY(sp_events_end(run->events));
    print_step(trainer, step, now_s);
    return SP_OK;
}

/* The fields by weight; those that count most fit into 80 columns. */
static void draw(const sp_trainer *t, const sp_step_report *step)
{
    const double pace = sp_pace_per_second(&t->pace), left_s = sp_trainer_left_s(t);
    const int64_t steps = sp_trainer_steps(t);
    const double epochs = ceil((double)t->total_samples / (double)t->epoch_samples);
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
    sp_live_add(&line, 40, "lr %.3g", step->lr);
    sp_live_add(&line, 30, "step %.3f s", step->step_s);
    sp_live_add(&line, 20, "data %.3f s", step->result.data_wait_s);
    sp_live_add(&line, 10, "ranks %.3f s", step->result.comm_exposed_s);
    sp_live_draw(&line);
}

void sp_report_live(sp_trainer *trainer, const sp_step_report *step)
{
    const double now = sp_now_s();

    if (now - trainer->drawn_s < SP_PROGRESS_EVERY_S || !sp_live_is_shown())
        return;
    trainer->drawn_s = now;
    draw(trainer, step);
}

sp_status sp_report_epoch(sp_trainer *trainer, const sp_step_report *step)
{
    sp_session *s = trainer->session;
    double n = (double)(trainer->state.step - trainer->first_step);
    char left[48], date[SP_DATE];
    sp_status rc = SP_OK;

    sp_log_info(
        "epoch=%lld step=%lld samples=%lld loss=%.5g mean_step_s=%.3f %stime=%s",
        (long long)step->epoch + 1, (long long)step->step, (long long)step->samples,
        step->result.loss, n > 0 ? trainer->train_s / n : 0, left_text(trainer, left),
        sp_date(sp_time_s(), date));
    if (s->comm->rank == 0)
        rc = sp_run_status(&s->run, "running", SP_OK, step->epoch + 1, step->step, "");
    return sp_session_agree(s, rc);
}

/* ---- evaluation ---- */

/* Writes the IoU of each class; absent classes have none, and no point on their curve.
 */
/* The events have a group for each of plain and merged IoU of voxels and points. */
static void write_iou(const sp_resources *r, sp_events *events, const char *group,
                      const char *key, const int64_t *confusion)
{
    char of[40];

    snprintf(of, sizeof of, "%s%s", strcmp(group, "merged") == 0 ? "merged_" : "", key);
    sp_json_begin_object(&json, key);
    for (int c = 0; c < r->n_classes; c++)
        number(events, of, r->class_name[c],
               sp_metrics_iou(confusion, r->n_classes, c));
    sp_json_end_object(&json);
}

static void write_confusion(const char *key, const int64_t *confusion, int n)
{
    int i, j;

    sp_json_begin_array(&json, key);
    for (i = 0; i < n; i++) {
        sp_json_begin_array(&json, NULL);
        for (j = 0; j < n; j++)
            sp_json_int(&json, NULL, confusion[i * n + j]);
        sp_json_end_array(&json);
    }
    sp_json_end_array(&json);
}

static void write_points(const sp_resources *r, sp_events *events, const char *group,
                         const int64_t *points, int n)
{
    sp_json_int(&json, "points", sp_metrics_total(points, n));
    number(events, group, "point_miou", sp_metrics_miou(points, n));
    number(events, group, "point_accuracy", sp_metrics_accuracy(points, n));
    write_iou(r, events, group, "point_iou", points);
    write_confusion("point_confusion", points, n);
}

/* The merged predictions, beside the plain ones and in the same words. */
static void write_merged(const sp_resources *r, const sp_metrics *m,
                         sp_events *events)
{
    const int n = m->n_classes;

    if (!m->merged && !m->merged_points)
        return;
    sp_json_begin_object(&json, "merged");
    sp_json_int(&json, "views", r->views.n);
    sp_json_bool(&json, "blocks", r->session.config->eval.merge);
    if (m->merged) {
        sp_json_int(&json, "voxels", sp_metrics_total(m->merged, n));
        number(events, "merged", "accuracy", sp_metrics_accuracy(m->merged, n));
        number(events, "merged", "miou", sp_metrics_miou(m->merged, n));
        write_iou(r, events, "merged", "iou", m->merged);
        write_confusion("confusion", m->merged, n);
    }
    if (m->merged_points)
        write_points(r, events, "merged", m->merged_points, n);
    sp_json_end_object(&json);
}

/* Writes to the line at hand and to the events, which are NULL or those of a training.
 */
static void write_eval(const sp_resources *r, const sp_metrics *m, sp_events *events)
{
    const int n = m->n_classes;

    sp_json_int(&json, "samples", m->n_samples);
    sp_json_int(&json, "voxels", sp_metrics_total(m->confusion, n));
    number(events, "eval", "loss",
           m->weight_sum > 0 ? m->loss_sum / m->weight_sum : NAN);
    number(events, "eval", "accuracy", sp_metrics_accuracy(m->confusion, n));
    number(events, "eval", "miou", sp_metrics_miou(m->confusion, n));
    write_iou(r, events, "eval", "iou", m->confusion);
    write_confusion("confusion", m->confusion, n);
    if (m->point_confusion)
        write_points(r, events, "eval", m->point_confusion, n);
    write_merged(r, m, events);
}

/* Adds " NAME_miou=0.1234 NAME_accuracy=0.1234" of a matrix that is there. */
static void add_shares(char *text, size_t size, const char *name, const int64_t *matrix,
                       int n)
{
    const size_t used = strlen(text);

    if (matrix)
        snprintf(text + used, size - used, " %s_miou=%.4f %s_accuracy=%.4f", name,
                 sp_metrics_miou(matrix, n), name, sp_metrics_accuracy(matrix, n));
}

/* Adds the matrix as a picture to the record at hand, where the build draws any. */
static sp_status add_picture(sp_events *events, const char *name,
                             const int64_t *confusion, int n)
{
    sp_canvas canvas;
    char *png = NULL;
    size_t bytes;
    sp_status rc;

    if (!events || !confusion || !sp_png_is_built())
        return SP_OK;
    rc = sp_heatmap_draw(confusion, n, &canvas);
    if (rc == SP_OK && canvas.pixel)
        rc = sp_png_encode(&canvas, &png, &bytes);
    if (png)
        sp_events_picture(events, "eval", name, canvas.width, canvas.height, png,
                          bytes);
    sp_canvas_destroy(&canvas);
    free(png);
    return rc;
}

static void print_eval(const sp_metrics *m, int64_t epoch, int64_t step)
{
    const int n = m->n_classes;
    char more[256] = "";

    add_shares(more, sizeof more, "point", m->point_confusion, n);
    add_shares(more, sizeof more, "merged", m->merged, n);
    add_shares(more, sizeof more, "merged_point", m->merged_points, n);
    sp_log_info("eval epoch=%lld step=%lld loss=%.5g accuracy=%.4f miou=%.4f%s",
                (long long)epoch, (long long)step,
                m->weight_sum > 0 ? m->loss_sum / m->weight_sum : NAN,
                sp_metrics_accuracy(m->confusion, n), sp_metrics_miou(m->confusion, n),
                more);
}

/* Rank 0: writes the event, prints the line and starts after_save. */
static sp_status report_eval(sp_trainer *trainer)
{
    sp_session *s = trainer->session;
    const sp_metrics *metrics = &trainer->metrics;
    const double now_s = sp_time_s();
    sp_events *events = s->run.events;
    char path[PATH_MAX];

    begin("eval");
    sp_json_int(&json, "step", s->step);
    sp_json_int(&json, "epoch", s->epoch);
    sp_events_begin(events, s->step, now_s);
    write_eval(trainer->resources, metrics, events);
    write_time(now_s);
    SP_TRY(add_picture(events, "confusion", metrics->confusion, metrics->n_classes));
    SP_TRY(add_picture(events, "point_confusion", metrics->point_confusion,
                       metrics->n_classes));
    SP_TRY(append(&s->run, &trainer->state.metrics_bytes));
    SP_TRY(sp_events_end(events));
    print_eval(metrics, s->epoch, s->step);
    snprintf(path, sizeof path, "%s/metrics.jsonl", s->run.dir);
    sp_run_after_save(&s->run, s->config->run.after_save, path);
    return SP_OK;
}

sp_status sp_report_eval(sp_trainer *trainer)
{
    sp_session *s = trainer->session;

    return sp_session_agree(s, s->comm->rank == 0 ? report_eval(trainer) : SP_OK);
}

/* Writes the checkpoint and the data that were evaluated, and the arguments of the
 * command. */
static void write_request(const sp_resources *r, const char *checkpoint)
{
    const sp_command *command = r->session.command;
    const sp_strings *data = &r->session.config->data.val;
    int i;

    write_time(sp_time_s());
    sp_json_begin_array(&json, "arguments");
    sp_json_text(&json, NULL, command->name);
    sp_json_text(&json, NULL, command->deck);
    for (i = 0; i < command->n_overrides; i++)
        sp_json_text(&json, NULL, command->overrides[i]);
    sp_json_end_array(&json);
    sp_json_int(&json, "ranks", r->session.comm->size);
    sp_json_text(&json, "checkpoint", checkpoint);
    sp_json_begin_array(&json, "data");
    for (i = 0; i < data->n; i++)
        sp_json_text(&json, NULL, data->at[i]);
    sp_json_end_array(&json);
}

/* Rank 0: writes the line of evaluations.jsonl, prints it and starts after_save. */
static sp_status report_evaluation(sp_resources *r, const sp_metrics *metrics,
                                   const char *checkpoint)
{
    char path[PATH_MAX];
    const char *line;

    begin("eval");
    write_request(r, checkpoint);
    sp_json_int(&json, "step", r->session.step);
    sp_json_int(&json, "epoch", r->session.epoch);
    write_eval(r, metrics, NULL);
    SP_TRY(sp_json_end(&json, &line));
    snprintf(path, sizeof path, "%s/evaluations.jsonl", r->session.run.dir);
    SP_TRY(sp_file_append_line(path, line));
    print_eval(metrics, r->session.epoch, r->session.step);
    sp_run_after_save(&r->session.run, r->session.config->run.after_save, path);
    return SP_OK;
}

sp_status sp_report_evaluation(sp_resources *r, const sp_metrics *metrics,
                               const char *checkpoint)
{
    sp_status rc = SP_OK;

    if (r->session.comm->rank == 0)
        rc = report_evaluation(r, metrics, checkpoint);
    return sp_session_agree(&r->session, rc);
}

/* Words a share for the table. */
static const char *word_share(char to[16], double share)
{
    snprintf(to, 16, isnan(share) ? "absent" : "%.4f", share);
    return to;
}

/* Adds a column to a row of the table. */
static void add_column(char row[128], double share, int width)
{
    const size_t used = strlen(row);
    char word[16];

    snprintf(row + used, 128 - used, " %*s", width, word_share(word, share));
}

/* Prints the row of class c. */
static void print_class(const sp_resources *r, const sp_metrics *m, int c)
{
    const int n = m->n_classes;
    const int64_t *matrix[] = {m->point_confusion, m->merged, m->merged_points};
    const int width[] = {10, 10, 16};
    int64_t voxels = 0;
    char row[128] = "";

    for (int i = 0; i < n; i++)
        voxels += m->confusion[(int64_t)c * n + i];
    add_column(row, sp_metrics_iou(m->confusion, n, c), 8);
    add_column(row, sp_metrics_precision(m->confusion, n, c), 10);
    add_column(row, sp_metrics_recall(m->confusion, n, c), 8);
    for (int i = 0; i < 3; i++)
        if (matrix[i])
            add_column(row, sp_metrics_iou(matrix[i], n, c), width[i]);
    sp_log_info("%-24s %12lld%s", r->class_name[c], (long long)voxels, row);
}

void sp_report_table(const sp_resources *r, const sp_metrics *m)
{
    const int n = m->n_classes;
    char row[128] = "";

    if (r->session.comm->rank != 0)
        return;
    sp_log_info("%-24s %12s %8s %10s %8s%s%s%s", "class", "voxels", "IoU", "precision",
                "recall", m->point_confusion ? "  point IoU" : "",
                m->merged ? "     merged" : "",
                m->merged_points ? " merged point IoU" : "");
    for (int c = 0; c < n; c++)
        print_class(r, m, c);
    add_column(row, sp_metrics_miou(m->confusion, n), 8);
    if (m->point_confusion || m->merged || m->merged_points)
        snprintf(row + strlen(row), sizeof row - strlen(row), " %10s %8s", "", "");
    if (m->point_confusion)
        add_column(row, sp_metrics_miou(m->point_confusion, n), 10);
    if (m->merged)
        add_column(row, sp_metrics_miou(m->merged, n), 10);
    if (m->merged_points)
        add_column(row, sp_metrics_miou(m->merged_points, n), 16);
    sp_log_info("%-24s %12lld%s", "mean", (long long)sp_metrics_total(m->confusion, n),
                row);
}

/* ---- end ---- */

/* A part of a time in percent. */
static double share(double part_s, double whole_s)
{
    return whole_s > 0 ? 100 * part_s / whole_s : 0;
}

/* Rank 0: writes the end event and prints the summary. */
static sp_status report_end(sp_trainer *trainer, const char *state, const char *message)
{
    sp_resources *r = trainer->resources;
    const bool is_done = strcmp(state, "done") == 0;
    const double total_s = sp_now_s() - trainer->begin_s;
    const double watch_s = trainer->replica_s + sp_watchdog_cpu_s(r->session.watchdog);
    char best[40] = ""; /* empty where no epoch was evaluated */
    char date[SP_DATE];

    sp_live_remove();
    begin("end");
    sp_json_text(&json, "state", state);
    sp_json_int(&json, "step", trainer->state.step);
    sp_json_int(&json, "epoch", r->session.epoch);
    sp_json_int(&json, "samples", trainer->state.samples_seen);
    sp_json_double(&json, "best_miou", trainer->state.best);
    sp_json_double(&json, "total_s", total_s);
    sp_json_double(&json, "train_s", trainer->train_s);
    sp_json_double(&json, "eval_s", trainer->eval_s);
    sp_json_double(&json, "save_s", trainer->save_s);
    sp_json_double(&json, "save_last_s", trainer->save_last_s);
    sp_json_double(&json, "save_write_s", trainer->write_s);
    sp_json_double(&json, "save_cpu_s", trainer->write_cpu_s);
    sp_json_double(&json, "replica_s", trainer->replica_s);
    sp_json_double(&json, "watchdog_cpu_s", sp_watchdog_cpu_s(r->session.watchdog));
    write_time(sp_time_s());
    SP_TRY(append(&r->session.run, NULL));
    if (is_done && trainer->metrics.n_samples > 0)
        sp_report_table(r, &trainer->metrics);
    if (!isnan(trainer->state.best))
        snprintf(best, sizeof best, " best_miou=%.4f", trainer->state.best);
    sp_log_info(
        "safety: training waited %.3g s for checkpoints (%.2g %%), their writer "
        "took %.3g s of a core; comparing weights and watching took %.3g s (%.2g "
        "%%)",
        trainer->save_s, share(trainer->save_s, trainer->train_s), trainer->write_cpu_s,
        watch_s, share(watch_s, trainer->train_s));
    sp_log_info("%s: step=%lld%s total_s=%.1f train_s=%.1f eval_s=%.1f save_s=%.1f "
                "time=%s",
                state, (long long)trainer->state.step, best, total_s, trainer->train_s,
                trainer->eval_s, trainer->save_s + trainer->save_last_s,
                sp_date(sp_time_s(), date));
    if (!is_done)
        sp_log_info("%s", message);
    SP_TRY(sp_run_status(&r->session.run, state, is_done ? SP_OK : SP_ELIMIT,
                         r->session.epoch, trainer->state.step, message));
    if (r->session.config->run.report_every > 0)
        sp_gallery_renew_report(&r->session.run, r->session.config->run.after_save);
    return SP_OK;
}

sp_status sp_report_end(sp_trainer *trainer, const char *state, const char *message)
{
    sp_session *s = trainer->session;

    return sp_session_agree(s, s->comm->rank == 0 ? report_end(trainer, state, message)
                                                  : SP_OK);
}

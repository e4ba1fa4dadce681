/* Evaluations in the output of a run: their lines, their table, their pictures. */
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "base/sp_text.h"
#include "report/sp_canvas.h"
#include "train/sp_members.h"
#include "train/sp_output_internal.h"
#include "train/sp_predict_files.h"
#include "train/sp_session.h"

static sp_json *const json = &sp_output_json;

/* Writes the IoU of each class; absent ones have no IoU and no point on their curve.
 * The events have a group for each of plain and merged IoU of voxels and points. */
static void write_iou(const sp_network *n, sp_events *events, const char *group,
                      const char *key, const int64_t *confusion)
{
    char of[40];

    snprintf(of, sizeof of, "%s%s", strcmp(group, "merged") == 0 ? "merged_" : "", key);
    sp_json_begin_object(json, key);
    for (int c = 0; c < n->n_classes; c++)
        sp_output_number(events, of, n->class_name[c],
                         sp_metrics_iou(confusion, n->n_classes, c));
    sp_json_end_object(json);
}

static void write_confusion(const char *key, const int64_t *confusion, int n)
{
    sp_json_begin_array(json, key);
    for (int i = 0; i < n; i++) {
        sp_json_begin_array(json, NULL);
        for (int j = 0; j < n; j++)
            sp_json_int(json, NULL, confusion[i * n + j]);
        sp_json_end_array(json);
    }
    sp_json_end_array(json);
}

static void output_write_points(const sp_network *network, sp_events *events,
                                const char *group, const int64_t *points, int n)
{
    sp_json_int(json, "points", sp_metrics_total(points, n));
    sp_output_number(events, group, "point_miou", sp_metrics_miou(points, n));
    sp_output_number(events, group, "point_accuracy", sp_metrics_accuracy(points, n));
    write_iou(network, events, group, "point_iou", points);
    write_confusion("point_confusion", points, n);
}

/* The merged predictions of an evaluation, beside the plain ones and in the same words.
 */
static void write_merged(const sp_evaluator *e, const sp_evaluation *of,
                         const sp_metrics *m, sp_events *events)
{
    const int n = m->n_classes;

    if (!m->merged && !m->merged_points)
        return;
    sp_json_begin_object(json, "merged");
    sp_json_int(json, "views", of->views.n);
    if (e->members)
        sp_json_int(json, "models", e->members->n + 1);
    sp_json_bool(json, "blocks", e->config->eval.merge);
    if (m->merged) {
        sp_json_int(json, "voxels", sp_metrics_total(m->merged, n));
        sp_output_number(events, "merged", "accuracy",
                         sp_metrics_accuracy(m->merged, n));
        sp_output_number(events, "merged", "miou", sp_metrics_miou(m->merged, n));
        write_iou(e->network, events, "merged", "iou", m->merged);
        write_confusion("confusion", m->merged, n);
    }
    if (m->merged_points)
        output_write_points(e->network, events, "merged", m->merged_points, n);
    sp_json_end_object(json);
}

static double eval_loss(const sp_metrics *m)
{
    return m->weight_sum > 0 ? m->loss_sum / m->weight_sum : NAN;
}

/* The averaged weights' results, beside the plain ones'. */
static void write_average(const sp_network *network, const sp_metrics *m,
                          sp_events *events)
{
    const int n = m->n_classes;

    sp_output_number(events, "eval", "ema_loss", eval_loss(m));
    sp_output_number(events, "eval", "ema_accuracy",
                     sp_metrics_accuracy(m->confusion, n));
    sp_output_number(events, "eval", "ema_miou", sp_metrics_miou(m->confusion, n));
    write_iou(network, events, "eval", "ema_iou", m->confusion);
    write_confusion("ema_confusion", m->confusion, n);
    if (m->point_confusion) {
        sp_output_number(events, "eval", "ema_point_miou",
                         sp_metrics_miou(m->point_confusion, n));
        sp_output_number(events, "eval", "ema_point_accuracy",
                         sp_metrics_accuracy(m->point_confusion, n));
    }
}

/* Writes to the line at hand and, as this group, to the events of a training; else
 * events is NULL. */
static void write_plain(const sp_network *network, const sp_metrics *m,
                        sp_events *events, const char *group)
{
    const int n = m->n_classes;

    sp_json_int(json, "samples", m->n_samples);
    sp_json_int(json, "voxels", sp_metrics_total(m->confusion, n));
    sp_output_number(events, group, "loss", eval_loss(m));
    sp_output_number(events, group, "accuracy", sp_metrics_accuracy(m->confusion, n));
    sp_output_number(events, group, "miou", sp_metrics_miou(m->confusion, n));
    write_iou(network, events, group, "iou", m->confusion);
    write_confusion("confusion", m->confusion, n);
    if (m->point_confusion)
        output_write_points(network, events, group, m->point_confusion, n);
}

static void write_eval(const sp_evaluator *e, const sp_metrics *m, sp_events *events)
{
    write_plain(e->network, m, events, "eval");
    write_merged(e, &e->val, m, events);
}

/* The results of data.val_sets, each by its name. */
static void write_val_sets(const sp_evaluator *e, const sp_metrics *sets,
                           sp_events *events)
{
    char group[64];

    sp_json_begin_object(json, "sets");
    for (int i = 0; i < e->n_sets; i++) {
        const sp_evaluation *set = &e->set[i];

        snprintf(group, sizeof group, "eval-%s", set->name);
        sp_json_begin_object(json, set->name);
        write_plain(e->network, &sets[i], events, group);
        write_merged(e, set, &sets[i], NULL);
        sp_json_end_object(json);
    }
    sp_json_end_object(json);
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

/* Adds the matrix as a picture to the record at hand, if the build draws any. */
static sp_status output_add_picture(sp_events *events, const char *name,
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

/* key: of the set in the deck. */
static void print_eval(const char *event, const char *key, const sp_metrics *m,
                       const sp_metrics *averaged, int64_t epoch, int64_t step)
{
    const int n = m->n_classes;
    char more[256] = "";

    add_shares(more, sizeof more, "point", m->point_confusion, n);
    add_shares(more, sizeof more, "merged", m->merged, n);
    add_shares(more, sizeof more, "merged_point", m->merged_points, n);
    if (averaged)
        add_shares(more, sizeof more, "ema", averaged->confusion, n);
    sp_log_info("%s epoch=%lld step=%lld loss=%.5g accuracy=%.4f miou=%.4f%s", event,
                (long long)epoch, (long long)step, eval_loss(m),
                sp_metrics_accuracy(m->confusion, n), sp_metrics_miou(m->confusion, n),
                more);
    if (isnan(sp_metrics_accuracy(m->confusion, n)))
        sp_log_warn0("no voxel of %s has a label: there is nothing to evaluate", key);
}

static void print_val_sets(const sp_session *s, const sp_evaluator *e,
                           const sp_metrics *sets)
{
    char event[64], key[64];

    for (int i = 0; i < e->n_sets; i++) {
        snprintf(event, sizeof event, "eval_set=%s", e->set[i].name);
        snprintf(key, sizeof key, "data.val_sets %s", e->set[i].name);
        print_eval(event, key, &sets[i], NULL, s->epoch, s->step);
    }
}

/* Writes what `sptrain eval` or `sptrain predict` was asked for: the arguments of the
 * command, the ranks, the checkpoint and the data. */
static void write_request(const sp_session *s, const char *checkpoint)
{
    const sp_command *command = s->command;
    const bool is_fold = s->config->data.folds > 1;
    const sp_strings *data = is_fold ? &s->config->data.train : &s->config->data.val;

    sp_output_time(sp_time_s());
    sp_json_begin_array(json, "arguments");
    sp_json_text(json, NULL, command->name);
    sp_json_text(json, NULL, command->deck);
    for (int i = 0; i < command->n_overrides; i++)
        sp_json_text(json, NULL, command->overrides[i]);
    sp_json_end_array(json);
    sp_json_int(json, "ranks", s->comm->size);
    sp_json_text(json, "checkpoint", checkpoint);
    sp_json_begin_array(json, "data");
    for (int i = 0; i < data->n; i++)
        sp_json_text(json, NULL, data->at[i]);
    sp_json_end_array(json);
    if (!is_fold)
        return;
    sp_json_int(json, "folds", s->config->data.folds);
    sp_json_int(json, "fold", s->config->data.fold);
}

/* Rank 0: writes the line of metrics.jsonl (with a checkpoint, of evaluations.jsonl
 * too) and the events of a training, prints it and starts after_save. */
static sp_status output_eval(sp_session *s, const sp_evaluator *e, const sp_metrics *m,
                             const sp_metrics *averaged, const sp_metrics *sets,
                             const char *checkpoint, int64_t *metrics_bytes)
{
    sp_events *events = s->run.events;
    const double now_s = sp_time_s();
    char path[PATH_MAX];
    const char *line;

    sp_output_begin("eval");
    if (checkpoint)
        write_request(s, checkpoint);
    sp_json_int(json, "step", s->step);
    sp_json_int(json, "epoch", s->epoch);
    sp_events_begin(events, s->step, now_s);
    write_eval(e, m, events);
    if (averaged)
        write_average(e->network, averaged, events);
    if (sets)
        write_val_sets(e, sets, events);
    if (!checkpoint)
        sp_output_time(now_s);
    SP_TRY(output_add_picture(events, "confusion", m->confusion, m->n_classes));
    SP_TRY(output_add_picture(events, "point_confusion", m->point_confusion,
                              m->n_classes));
    SP_TRY(sp_json_end(json, &line));
    if (checkpoint)
        SP_TRY(sp_file_append_line(sp_file_in(s->run.dir, "evaluations.jsonl", path),
                                   line));
    SP_TRY(sp_run_event(&s->run, line, metrics_bytes));
    if (checkpoint)
        SP_TRY(sp_run_deliver(&s->run));
    SP_TRY(events ? sp_output_events_end(&s->run) : SP_OK);
    print_eval("eval", "data.val", m, averaged, s->epoch, s->step);
    if (sets)
        print_val_sets(s, e, sets);
    if (checkpoint)
        sp_run_after_save(&s->run, s->config->run.after_save,
                          sp_file_in(s->run.dir, "evaluations.jsonl", path));
    sp_run_after_save(&s->run, s->config->run.after_save,
                      sp_file_in(s->run.dir, "metrics.jsonl", path));
    return SP_OK;
}

sp_status sp_output_eval(sp_session *s, const sp_evaluator *e,
                         const sp_metrics *metrics, const sp_metrics *averaged,
                         const sp_metrics *sets, const char *checkpoint,
                         int64_t *metrics_bytes)
{
    assert(metrics->sums);
    return sp_comm_agree(s->comm, s->comm->rank == 0
                                      ? output_eval(s, e, metrics, averaged, sets,
                                                    checkpoint, metrics_bytes)
                                      : SP_OK);
}

/* Rank 0: writes the line of metrics.jsonl only: curves and best weights refer to
 * data.val. */
static sp_status output_test(sp_session *s, const sp_evaluator *e, const sp_metrics *m,
                             const char *weights, int64_t step, int64_t epoch,
                             int64_t *metrics_bytes)
{
    const sp_strings *data = &s->config->data.test;
    const char *line;

    sp_output_begin("test");
    sp_json_int(json, "step", step);
    sp_json_int(json, "epoch", epoch);
    sp_json_text(json, "weights", weights[0] ? weights : "last");
    sp_json_begin_array(json, "data");
    for (int i = 0; i < data->n; i++)
        sp_json_text(json, NULL, data->at[i]);
    sp_json_end_array(json);
    write_eval(e, m, NULL);
    sp_output_time(sp_time_s());
    SP_TRY(sp_json_end(json, &line));
    SP_TRY(sp_run_event(&s->run, line, metrics_bytes));
    print_eval("test", "data.test", m, NULL, epoch, step);
    return SP_OK;
}

sp_status sp_output_test(sp_session *s, const sp_evaluator *e,
                         const sp_metrics *metrics, const char *weights, int64_t step,
                         int64_t epoch, int64_t *metrics_bytes)
{
    assert(metrics->sums && weights);
    return sp_comm_agree(
        s->comm, s->comm->rank == 0
                     ? output_test(s, e, metrics, weights, step, epoch, metrics_bytes)
                     : SP_OK);
}

sp_status sp_output_predict(sp_session *s, int64_t n_samples, const char *checkpoint,
                            const sp_predict_files *files)
{
    const char *line;

    assert(checkpoint && files && s->comm->rank == 0);
    sp_output_begin("predict");
    write_request(s, checkpoint);
    sp_json_int(json, "step", s->step);
    sp_json_int(json, "epoch", s->epoch);
    sp_json_int(json, "samples", n_samples - files->n_skipped);
    sp_json_int(json, "left_out", files->n_skipped);
    sp_json_int(json, "voxels", files->n_voxels);
    sp_json_int(json, "points", files->n_points);
    SP_TRY(sp_json_end(json, &line));
    SP_TRY(sp_run_event(&s->run, line, NULL));
    return sp_run_deliver(&s->run);
}

/* Most bytes of a class's name in the table. */
enum { NAME = 256 };

/* Words a share for the table. */
static const char *word_share(char to[16], double share)
{
    snprintf(to, 16, isnan(share) ? "absent" : "%.4f", share);
    return to;
}

/* Adds a column to a row of the table. */
static void output_add_column(char row[128], double share, int width)
{
    const size_t used = strlen(row);
    char word[16];

    snprintf(row + used, 128 - used, " %*s", width, word_share(word, share));
}

/* Prints the row of class c; the names' column has name_width characters. */
static void print_class(const sp_network *network, const sp_metrics *m, int c,
                        int name_width)
{
    const int n = m->n_classes;
    const int64_t *matrix[] = {m->point_confusion, m->merged, m->merged_points};
    const int width[] = {10, 10, 16};
    char row[128] = "", name[NAME];

    output_add_column(row, sp_metrics_iou(m->confusion, n, c), 8);
    output_add_column(row, sp_metrics_precision(m->confusion, n, c), 10);
    output_add_column(row, sp_metrics_recall(m->confusion, n, c), 8);
    for (int i = 0; i < 3; i++)
        if (matrix[i])
            output_add_column(row, sp_metrics_iou(matrix[i], n, c), width[i]);
    sp_log_info("%s %12lld%s",
                sp_text_cell(name, sizeof name, network->class_name[c], name_width),
                (long long)sp_metrics_truth(m->confusion, n, c), row);
}

void sp_output_table(const sp_network *network, const sp_metrics *m)
{
    const int n = m->n_classes, width = sp_text_width(n, network->class_name, 24);
    char row[128] = "";

    assert(n == network->n_classes);
    sp_log_info("%-*s %12s %8s %10s %8s%s%s%s", width, "class", "voxels", "IoU",
                "precision", "recall", m->point_confusion ? "  point IoU" : "",
                m->merged ? "     merged" : "",
                m->merged_points ? " merged point IoU" : "");
    for (int c = 0; c < n; c++)
        print_class(network, m, c, width);
    output_add_column(row, sp_metrics_miou(m->confusion, n), 8);
    if (m->point_confusion || m->merged || m->merged_points)
        snprintf(row + strlen(row), sizeof row - strlen(row), " %10s %8s", "", "");
    if (m->point_confusion)
        output_add_column(row, sp_metrics_miou(m->point_confusion, n), 10);
    if (m->merged)
        output_add_column(row, sp_metrics_miou(m->merged, n), 10);
    if (m->merged_points)
        output_add_column(row, sp_metrics_miou(m->merged_points, n), 16);
    sp_log_info("%-*s %12lld%s", width, "mean",
                (long long)sp_metrics_total(m->confusion, n), row);
}

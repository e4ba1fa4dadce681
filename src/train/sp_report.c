#include "train/sp_report.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/sp_file.h"
#include "base/sp_json.h"
#include "base/sp_log.h"
#include "base/sp_machine.h"
#include "config.h"
#include "h5/sp_h5.h"
#include "session/sp_resources.h"
#include "train/sp_init.h"

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

/* ---- header and start ---- */

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* Number of files of `val` that are files of `train` too, under any path. */
static int count_shared(const sp_dataset *train, const sp_dataset *val)
{
    struct stat *known = calloc((size_t)train->n_shards + 1, sizeof *known), one;
    int i, j, n = 0;

    for (i = 0; known && i < train->n_shards; i++)
        if (stat(train->shard[i].path, &known[i]) != 0)
            known[i].st_ino = 0;
    for (j = 0; known && j < val->n_shards; j++) {
        if (stat(val->shard[j].path, &one) != 0)
            continue;
        for (i = 0; i < train->n_shards; i++)
            if (known[i].st_ino == one.st_ino && known[i].st_dev == one.st_dev)
                break;
        n += i < train->n_shards;
    }
    free(known);
    return n;
}

/* Rank 0: warns where the validation data tell less than the user may think. */
static void print_val_notes(const sp_resources *r)
{
    int n_shared;

    if (r->session.comm->rank != 0 || !r->val.n_shards ||
        r->session.config->run.eval_every <= 0)
        return;
    if (!r->val.has_labels)
        sp_log_warn0("data.val has no /labels, so nothing is evaluated");
    n_shared = count_shared(&r->train, &r->val);
    if (n_shared > 0)
        sp_log_warn0("%d of the %d files of data.val are in data.train too: the "
                     "evaluation is in part of what was trained on",
                     n_shared, r->val.n_shards);
    sp_resources_warn_far(r, &r->val);
}

void sp_report_idle(const sp_resources *r, const sp_sampler *sampler)
{
    const int ranks = r->session.comm->size;
    const int n = (sampler->effective + sampler->accumulate - 1) / sampler->accumulate;

    if (n < ranks)
        sp_log_warn0("%d of the %d ranks have nothing to do in a %s of %d sample%s: "
                     "raise batch.size or take fewer ranks",
                     ranks - n, ranks, sampler->accumulate > 1 ? "micro-batch" : "step",
                     n, plural(n));
}

/* Warns of keys of the deck that the data cannot fulfil. */
static void print_notes(const sp_trainer *trainer)
{
    const sp_resources *r = trainer->resources;
    const sp_config *config = r->session.config;
    const bool is_scaled = config->augment.scale.n > 0;

    if (config->data.normalize && !r->norm.mean)
        sp_log_warn0("the shards have no feature_mean and feature_std, so features are "
                     "used as they are");
    if ((double)config->train.warmup_steps * trainer->step_samples * 2 >
        (double)trainer->total_samples)
        sp_log_warn0("train.warmup_steps = %lld of about %lld steps: the learning rate "
                     "rises for most of the training",
                     (long long)config->train.warmup_steps,
                     (long long)(trainer->total_samples / trainer->step_samples));
    if (!r->train.has_subvoxel && (config->augment.rotate_z || is_scaled))
        sp_log_info("the shards carry no /subvoxel: augmentation rotates by multiples "
                    "of 90 degrees and leaves scaling out");
    print_val_notes(r);
    sp_report_idle(r, &r->sampler);
}

void sp_report_machine(const sp_resources *r)
{
    const sp_comm *comm = r->session.comm;

    sp_log_info(PACKAGE_STRING
                ": %d rank%s on %d node%s, device %s, %s%s, all-reduce by "
                "%s",
                comm->size, plural(comm->size), comm->n_nodes, plural(comm->n_nodes),
                r->device, sp_precision_word[r->session.config->train.precision],
                r->session.config->run.wgmma ? " by wgmma" : "", r->transport.words);
    if (comm->is_oversubscribed)
        sp_log_info("more ranks than cores on a node: waiting ranks sleep");
    if (r->cores[0])
        sp_log_info("rank %d has cores %s", comm->rank, r->cores);
}

void sp_report_header(const sp_trainer *trainer)
{
    const sp_resources *r = trainer->resources;
    const sp_sampler *sampler = &r->sampler;
    const sp_comm *comm = r->session.comm;
    double world = sampler->effective;

    sp_log_info("data: %lld training samples (%lld voxels), %lld validation samples "
                "(%lld voxels), %d classes, %d feature columns%s",
                (long long)r->train.n_samples, (long long)r->train.n_voxels,
                (long long)r->val.n_samples, (long long)r->val.n_voxels, r->n_classes,
                r->n_columns, r->norm.mean ? ", normalized" : "");
    sp_log_info("batch: %g samples a step in the world, %.4g a node, %.4g a rank; "
                "%lld steps an epoch; effective learning rate %g",
                world, world / comm->n_nodes, world / comm->size,
                (long long)sp_sampler_steps_per_epoch(sampler),
                sp_optim_base_lr(r->session.config, sampler->effective));
    sp_log_info("network: %s, %lld parameters; run folder %s",
                r->session.config->net.n_layers
                    ? "from net.layers"
                    : sp_family_word[r->session.config->net.family],
                (long long)r->graph.n_weights, r->session.run.dir);
    sp_init_report(r);
    print_notes(trainer);
}

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

sp_status sp_report_start(sp_trainer *trainer)
{
    sp_resources *r = trainer->resources;
    const sp_config resolved = sp_session_resolved(&r->session);
    int64_t *bytes = &trainer->state.metrics_bytes;
    char *deck = NULL;
    sp_status rc = SP_OK;

    if (r->session.comm->rank == 0) {
        if (trainer->is_resumed)
            rc = sp_run_truncate_metrics(&r->session.run, trainer->state.metrics_bytes);
        if (rc == SP_OK)
            rc = sp_config_to_text(&resolved, &deck);
        if (rc == SP_OK)
            rc = sp_run_write_text(&r->session.run, "deck.resolved", deck);
        if (rc == SP_OK) {
            begin(trainer->is_resumed ? "resume" : "start");
            sp_json_int(&json, "step", trainer->state.step);
            write_start(r, deck);
            rc = append(&r->session.run, bytes);
        }
        if (rc == SP_OK)
            rc = sp_run_status(&r->session.run, "running", SP_OK, r->session.epoch,
                               r->session.step, "");
        free(deck);
    }
    return sp_session_agree(&r->session, rc);
}

/* ---- steps ---- */

/* Largest cost of a rank's share over the mean cost. */
static double imbalance(const sp_comm *comm, const sp_step_report *step)
{
    return step->result.cost_sum ? (double)step->result.cost_max * comm->size /
                                       (double)step->result.cost_sum
                                 : 1;
}

sp_status sp_report_step(sp_trainer *trainer, const sp_step_report *step)
{
    sp_session *s = trainer->session;
    const int64_t total = trainer->total_samples;

    if (s->comm->rank != 0)
        return SP_OK;
    begin("step");
    sp_json_int(&json, "step", step->step);
    sp_json_int(&json, "epoch", step->epoch + 1);
    sp_json_int(&json, "samples", step->samples);
    sp_json_double(&json, "loss", step->result.loss);
    sp_json_double(&json, "lr", step->lr);
    sp_json_double(&json, "grad_norm", step->result.grad_norm);
    sp_json_int(&json, "voxels", (int64_t)step->result.voxels);
    sp_json_double(&json, "step_s", step->step_s);
    sp_json_double(&json, "data_wait_s", step->result.data_wait_s);
    sp_json_double(&json, "comm_exposed_s", step->result.comm_exposed_s);
    sp_json_double(&json, "imbalance", imbalance(s->comm, step));
    sp_json_int(&json, "micro_batches", step->result.n_micro);
    if (step->result.is_skipped)
        sp_json_bool(&json, "skipped", true);
    SP_TRY(append(&s->run, &trainer->state.metrics_bytes));
    sp_log_progress("step=%lld epoch=%lld loss=%.5g lr=%.4g voxels=%.0f step_s=%.3f "
                    "data_wait_s=%.3f comm_exposed_s=%.3f done=%.0f%%",
                    (long long)step->step, (long long)step->epoch + 1,
                    step->result.loss, step->lr, step->result.voxels, step->step_s,
                    step->result.data_wait_s, step->result.comm_exposed_s,
                    total ? 100.0 * (double)step->samples / (double)total : 0);
    return SP_OK;
}

sp_status sp_report_epoch(sp_trainer *trainer, const sp_step_report *step)
{
    sp_session *s = trainer->session;
    double n = (double)(trainer->state.step - trainer->first_step);
    sp_status rc = SP_OK;

    sp_log_info("epoch=%lld step=%lld samples=%lld loss=%.5g mean_step_s=%.3f",
                (long long)step->epoch + 1, (long long)step->step,
                (long long)step->samples, step->result.loss,
                n > 0 ? trainer->train_s / n : 0);
    if (s->comm->rank == 0)
        rc = sp_run_status(&s->run, "running", SP_OK, step->epoch + 1, step->step, "");
    return sp_session_agree(s, rc);
}

/* ---- evaluation ---- */

static void write_iou(const sp_resources *r, const char *key, const int64_t *confusion)
{
    int c;

    sp_json_begin_object(&json, key);
    for (c = 0; c < r->n_classes; c++)
        sp_json_double(&json, r->class_name[c],
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

static void write_eval(const sp_resources *r, const sp_metrics *m)
{
    const int n = m->n_classes;
    const int64_t *points = m->point_confusion;

    sp_json_int(&json, "samples", m->n_samples);
    sp_json_int(&json, "voxels", sp_metrics_total(m->confusion, n));
    sp_json_double(&json, "loss",
                   m->weight_sum > 0 ? m->loss_sum / m->weight_sum : NAN);
    sp_json_double(&json, "accuracy", sp_metrics_accuracy(m->confusion, n));
    sp_json_double(&json, "miou", sp_metrics_miou(m->confusion, n));
    write_iou(r, "iou", m->confusion);
    write_confusion("confusion", m->confusion, n);
    if (!points)
        return;
    sp_json_int(&json, "points", sp_metrics_total(points, n));
    sp_json_double(&json, "point_miou", sp_metrics_miou(points, n));
    sp_json_double(&json, "point_accuracy", sp_metrics_accuracy(points, n));
    write_iou(r, "point_iou", points);
    write_confusion("point_confusion", points, n);
}

static void print_eval(const sp_metrics *m, int64_t epoch, int64_t step)
{
    const int n = m->n_classes;
    char points[96] = "";

    if (m->point_confusion)
        snprintf(points, sizeof points, " point_miou=%.4f point_accuracy=%.4f",
                 sp_metrics_miou(m->point_confusion, n),
                 sp_metrics_accuracy(m->point_confusion, n));
    sp_log_info("eval epoch=%lld step=%lld loss=%.5g accuracy=%.4f miou=%.4f%s",
                (long long)epoch, (long long)step,
                m->weight_sum > 0 ? m->loss_sum / m->weight_sum : NAN,
                sp_metrics_accuracy(m->confusion, n), sp_metrics_miou(m->confusion, n),
                points);
}

/* Rank 0: writes the event, prints the line and starts after_save. */
static sp_status report_eval(sp_trainer *trainer)
{
    sp_session *s = trainer->session;
    const sp_metrics *metrics = &trainer->metrics;
    char path[PATH_MAX];

    begin("eval");
    sp_json_int(&json, "step", s->step);
    sp_json_int(&json, "epoch", s->epoch);
    write_eval(trainer->resources, metrics);
    SP_TRY(append(&s->run, &trainer->state.metrics_bytes));
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
    const time_t now = time(NULL);
    struct tm utc;
    char text[32];
    int i;

    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    sp_json_text(&json, "time", text);
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
    write_eval(r, metrics);
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

static void print_share(char *to, size_t size, double share)
{
    if (isnan(share))
        snprintf(to, size, "absent");
    else
        snprintf(to, size, "%.4f", share);
}

void sp_report_table(const sp_resources *r, const sp_metrics *metrics)
{
    const int n = metrics->n_classes;
    const int64_t *points = metrics->point_confusion;
    int c, i;

    if (r->session.comm->rank != 0)
        return;
    sp_log_info("%-24s %12s %8s%s", "class", "voxels", "IoU",
                points ? "  point IoU" : "");
    for (c = 0; c <= n; c++) {
        char iou[16], point_iou[16] = "";
        int64_t voxels = 0;
        for (i = 0; i < n; i++)
            voxels += c < n ? metrics->confusion[c * n + i] : 0;
        print_share(iou, sizeof iou,
                    c < n ? sp_metrics_iou(metrics->confusion, n, c)
                          : sp_metrics_miou(metrics->confusion, n));
        if (points)
            print_share(point_iou, sizeof point_iou,
                        c < n ? sp_metrics_iou(points, n, c)
                              : sp_metrics_miou(points, n));
        if (c == n)
            voxels = sp_metrics_total(metrics->confusion, n);
        sp_log_info("%-24s %12lld %8s %10s", c < n ? r->class_name[c] : "mean",
                    (long long)voxels, iou, point_iou);
    }
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
    sp_log_info("%s: step=%lld%s total_s=%.1f train_s=%.1f eval_s=%.1f save_s=%.1f",
                state, (long long)trainer->state.step, best, total_s, trainer->train_s,
                trainer->eval_s, trainer->save_s + trainer->save_last_s);
    if (!is_done)
        sp_log_info("%s", message);
    return sp_run_status(&r->session.run, state, is_done ? SP_OK : SP_ELIMIT,
                         r->session.epoch, trainer->state.step, message);
}

sp_status sp_report_end(sp_trainer *trainer, const char *state, const char *message)
{
    sp_session *s = trainer->session;

    return sp_session_agree(s, s->comm->rank == 0 ? report_end(trainer, state, message)
                                                  : SP_OK);
}

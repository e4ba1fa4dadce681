#include "train/sp_evaluate.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/sp_evaluator.h"
#include "base/sp_log.h"
#include "base/sp_signal.h"
#include "report/sp_progress.h"
#include "train/sp_merging.h"
#include "train/sp_sample_pictures.h"
#include "train/sp_session.h"

/* A pass over a set on this rank. */
typedef struct pass {
    sp_session *session;
    sp_evaluator *evaluator;
    sp_evaluation *of;
    sp_metrics *metrics;
    sp_sample_pictures *pictures; /* NULL: no pictures are wanted */
    sp_merging merging;
    sp_arena scratch;                   /* predictions of a batch */
    sp_status (*check_stop)(void *arg); /* as of sp_evaluate_pass */
    void *arg;
    /* SP_ENUMERIC: a batch had numbers that are not finite; SP_ELIMIT: asked to stop.
     */
    sp_status found;
    sp_progress progress;
    int64_t n_done; /* samples of all ranks */
} pass;

/* Counts the samples of a batch, except those that data.on_error = "skip" left out,
 * which have no voxels. */
static int count_samples(const sp_dataset *set, const sp_batch *batch)
{
    int n = 0;

    for (int b = 0; b < batch->n_samples; b++)
        n += batch->sample[b].n == sp_dataset_voxels(set, batch->sample_id[b]);
    return n;
}

/* Counts the classes of the mean of the views: the voxels as stored, and their points.
 */
static void count_views(const pass *p, const sp_batch *batch)
{
    sp_metrics *metrics = p->metrics;
    const int c = metrics->n_classes;

    for (int b = 0; b < batch->n_samples; b++) {
        const int32_t *class = p->merging.label + batch->row_of_at[b];
        const sp_sample *s = &batch->sample[b];

        for (int64_t i = 0; i < s->n; i++)
            if (s->labels[i] >= 0)
                metrics->merged[(int64_t)s->labels[i] * c + class[i]]++;
        if (metrics->merged_points)
            sp_metrics_add_points(metrics->merged_points, c, s, NULL, class);
    }
}

/* Counts the merged points of a sample; their labels came along. */
static sp_status count_merged(void *arg, const sp_merger_sample *sample)
{
    const pass *p = arg;
    const int c = p->metrics->n_classes;
    const int32_t *label = sample->payload;
    const int64_t n = (int64_t)(sample->payload_bytes / sizeof *label);

    assert(n == 0 || n == sample->n_points); /* 0: the sample was left out */
    for (int64_t i = 0; i < n; i++)
        if (label[i] >= 0)
            p->metrics->merged_points[(int64_t)label[i] * c +
                                      sp_merge_class(sample->sum + i * c, c)]++;
    return SP_OK;
}

/* Counts or merges predictions after the last view of a batch. */
static sp_status end_views(pass *p, const sp_batch *batch)
{
    if (!p->merging.with_blocks)
        count_views(p, batch);
    for (int b = 0; p->merging.with_blocks && b < batch->n_samples; b++) {
        const sp_sample *s = &batch->sample[b];

        SP_TRY(sp_merging_add_sample(&p->merging, batch, b, s->point_labels,
                                     (size_t)s->n_points * sizeof *s->point_labels));
    }
    return SP_OK;
}

/* The first view of a batch is its plain evaluation. */
static sp_status train_evaluate_batch(void *arg, const sp_batch *batch)
{
    pass *p = arg;
    sp_network *network = p->evaluator->network;
    sp_metrics *metrics = p->metrics;
    const bool is_plain = batch->view == 0;
    sp_net_loss_out out = {.exact = is_plain ? metrics->exact : NULL};
    sp_tensor logits;
    int32_t *prediction;

    if (p->check_stop) /* a large sample may have been read for long */
        SP_TRY(p->check_stop(p->arg));
    sp_arena_reset(&p->scratch);
    SP_TRY(SP_ALLOC(&p->scratch, batch->n, &prediction));
    SP_TRY(sp_net_forward(&network->net, batch, false, &logits));
    SP_TRY(sp_net_loss(&network->net, batch, &out, is_plain ? metrics->confusion : NULL,
                       prediction));
    SP_TRY(sp_evaluator_check(network, p->of->set, batch, prediction));
    if (p->merging.is_on)
        SP_TRY(sp_merging_add(&p->merging, batch, logits));
    if (p->merging.is_on && sp_merging_is_last(&p->merging, batch))
        SP_TRY(end_views(p, batch));
    if (!is_plain)
        return SP_OK;
    metrics->n_samples += count_samples(p->of->set, batch);
    for (int b = 0; metrics->point_confusion && b < batch->n_samples; b++)
        sp_metrics_add_points(metrics->point_confusion, metrics->n_classes,
                              &batch->sample[b], batch->row_of + batch->row_of_at[b],
                              prediction);
    sp_sample_pictures_add(p->pictures, batch, prediction);
    return SP_OK;
}

/* Counts the samples of the batch, on all ranks, once the last view of its last
 * micro-batch is done. The mean IoU so far covers rank 0's share only. */
static void show(pass *p, const sp_batch *batch)
{
    const sp_metrics *m = p->metrics;

    if (batch->micro < batch->n_micro - 1 || batch->view < p->of->views.n - 1)
        return;
    p->n_done += batch->step_samples;
    sp_session_count(p->session, p->n_done, p->of->set->n_samples);
    if (sp_progress_is_due(&p->progress))
        sp_progress_at(&p->progress, p->n_done, "mIoU %.3f",
                       sp_metrics_miou(m->confusion, m->n_classes));
}

static void evaluate_beat(void *session, bool is_reading)
{
    sp_session_beat(session, is_reading ? SP_PHASE_READ : SP_PHASE_EVAL);
}

void sp_evaluate_watch(sp_evaluator *e, sp_session *session)
{
    e->on_part = evaluate_beat;
    e->arg = session;
}

static sp_status evaluate_and_show(void *arg, const sp_batch *batch)
{
    SP_TRY(train_evaluate_batch(arg, batch));
    show(arg, batch);
    return SP_OK;
}

/* Numbers that are not finite and requests to stop end this rank's pass, but are not a
 * failure of only this rank: at the end of the pass all ranks learn of them. */
static sp_status train_evaluate_all(void *arg)
{
    pass *p = arg;
    const sp_status rc = sp_evaluator_run(p->evaluator, p->of, evaluate_and_show, p);

    if (rc != SP_ENUMERIC && rc != SP_ELIMIT)
        return rc;
    p->found = rc;
    return SP_OK;
}

/* The pass that merges blocks: ranks meet after each micro-batch and agree on failures
 * there. All have the same number of micro-batches. */
static sp_status evaluate_merged(pass *p)
{
    sp_batch *batch = NULL;
    sp_status rc = sp_loader_seek(p->of->loader, (sp_position){0, 0});

    for (;;) {
        if (rc == SP_OK)
            rc = sp_evaluator_next(p->evaluator, p->of, &batch, evaluate_and_show, p);
        SP_TRY(sp_comm_agree(p->evaluator->comm, rc));
        if (!batch)
            return SP_OK;
        if (sp_merging_is_last(&p->merging, batch))
            SP_TRY(sp_merging_exchange(&p->merging, batch));
        rc = sp_loader_recycle(p->of->loader, batch);
    }
}

static sp_status run_pass(pass *p)
{
    SP_TRY(sp_merging_open(&p->merging, p->evaluator, p->of, count_merged, p));
    if (p->merging.with_blocks)
        return evaluate_merged(p);
    sp_session_run_or_abort(p->session, train_evaluate_all, p);
    return sp_comm_agree(p->evaluator->comm, p->found);
}

int sp_evaluate_parts(const sp_evaluator *e, const sp_evaluation *of)
{
    const bool is_merged = e->config->eval.merge;
    const int points = of->set->has_points ? SP_METRICS_POINTS : 0;

    if (!sp_merging_is_mean(e, of) && !is_merged)
        return points;
    return points | (points ? SP_METRICS_MERGED_POINTS : 0) |
           (is_merged ? 0 : SP_METRICS_MERGED);
}

sp_status sp_evaluate_pass(sp_session *session, sp_evaluator *e, sp_evaluation *of,
                           sp_metrics *metrics, sp_status (*check_stop)(void *arg),
                           void *arg, double *pictures_s)
{
    pass p = {.session = session,
              .evaluator = e,
              .of = of,
              .metrics = metrics,
              .check_stop = check_stop,
              .arg = arg};
    sp_network *network = e->network;
    sp_status rc;

    assert(of->set && metrics->n_classes == network->n_classes);
    SP_TRY(sp_evaluator_turn_to(e, of));
    sp_metrics_zero(metrics);
    SP_TRY(sp_arena_create(&p.scratch, 0, "predictions"));
    if (pictures_s)
        sp_sample_pictures_create(&p.pictures, network->n_classes, network->class_name);
    sp_net_lend(&network->net, e->buckets);
    sp_session_count(session, 0, of->set->n_samples);
    sp_progress_begin(&p.progress, "evaluating", "samples", of->set->n_samples);
    rc = run_pass(&p);
    sp_progress_end(&p.progress);
    sp_net_lend(&network->net, NULL);
    sp_merging_destroy(&p.merging);
    sp_arena_destroy(&p.scratch);
    if (rc == SP_OK)
        rc = sp_metrics_reduce(metrics, e->comm);
    /* Ranks that are done wait in the sums, and still report the pass meanwhile. */
    sp_session_count(session, 0, 0);
    if (rc == SP_OK && pictures_s) {
        const double begin_s = sp_now_s();

        rc = sp_sample_pictures_write(p.pictures, session, of->set);
        *pictures_s += sp_now_s() - begin_s;
    }
    sp_sample_pictures_destroy(p.pictures);
    return rc;
}

/* ---- data.val_sets ---- */

sp_status sp_evaluate_open_sets(const sp_evaluator *e, sp_metrics **sets)
{
    const int n = e->n_sets;
    sp_status rc = SP_OK;

    *sets = n > 0 ? calloc((size_t)n, sizeof **sets) : NULL;
    if (n > 0 && !*sets)
        rc = SP_FAIL(SP_EMEM, "no memory for the results of data.val_sets");
    for (int i = 0; i < n && rc == SP_OK; i++)
        rc = sp_metrics_create(&(*sets)[i], e->network->n_classes,
                               sp_evaluate_parts(e, &e->set[i]));
    return sp_comm_agree(e->comm, rc);
}

sp_status sp_evaluate_sets(sp_session *session, sp_evaluator *e, sp_metrics *sets,
                           sp_status (*check_stop)(void *arg), void *arg)
{
    for (int i = 0; i < e->n_sets; i++)
        SP_TRY(
            sp_evaluate_pass(session, e, &e->set[i], &sets[i], check_stop, arg, NULL));
    return SP_OK;
}

void sp_evaluate_close_sets(sp_metrics *sets, int n)
{
    for (int i = 0; sets && i < n; i++)
        sp_metrics_destroy(&sets[i]);
    free(sets);
}

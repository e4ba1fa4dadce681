#include "train/sp_evaluate.h"

#include <assert.h>
#include <stdio.h>

#include "base/sp_exact.h"
#include "session/sp_resources.h"
#include "show/sp_progress.h"
#include "train/sp_gallery.h"

/* Finds the batch's first stored voxel without a prediction; false: all have one. */
static bool find_unpredicted(const sp_batch *batch, const int32_t *prediction, int *b,
                             int64_t *voxel)
{
    for (*b = 0; *b < batch->n_samples; ++*b) {
        const int32_t *row = batch->row_of + batch->row_of_at[*b];

        for (*voxel = 0; *voxel < batch->sample[*b].n; ++*voxel)
            if (row[*voxel] >= 0 && prediction[row[*voxel]] == SP_IGNORE)
                return true;
    }
    return false;
}

/* Words a sample's place, as "a.h5: sample 3 (tile.las[0,0])". */
static const char *name_sample(const sp_dataset *set, int64_t sample, char *text,
                               size_t size)
{
    const sp_shard *shard = &set->shard[sp_dataset_shard_of(set, sample)];

    snprintf(text, size, "%s: sample %lld%s%s%s", shard->path,
             (long long)(sample - shard->first_sample), set->name ? " (" : "",
             set->name ? set->name[sample] : "", set->name ? ")" : "");
    return text;
}

enum { CAUSE = SP_CHECKPOINT_FAULT + 32 };

/* Says what made an output that is not finite, as far as that is known. */
static const char *blame(const sp_resources *r, char cause[CAUSE])
{
    if (!r->fault[0])
        return "the weights, or the features of this sample, are at fault";
    snprintf(cause, CAUSE, "the checkpoint's %s", r->fault);
    return cause;
}

sp_status sp_evaluate_check(const sp_resources *r, const sp_batch *batch,
                            const int32_t *prediction)
{
    const sp_graph *graph = &r->graph;
    char text[SP_ERROR_MESSAGE / 2], cause[CAUSE];
    int64_t voxel;
    int b;

    if (find_unpredicted(batch, prediction, &b, &voxel))
        return SP_FAIL(
            SP_ENUMERIC, "%s: voxel %lld: the output of layer `%s` is not finite: %s",
            name_sample(&r->val, batch->sample_id[b], text, sizeof text),
            (long long)voxel, graph->node[graph->n_nodes - 1].name, blame(r, cause));
    if (!r->fault[0] || batch->n_samples == 0)
        return SP_OK;
    return SP_FAIL(SP_ENUMERIC,
                   "%s: the output of layer `%s` is finite, but not the weights: %s",
                   name_sample(&r->val, batch->sample_id[0], text, sizeof text),
                   graph->node[graph->n_nodes - 1].name, blame(r, cause));
}

/* SP_ENUMERIC for finite logits so far apart that their loss is infinite or too large
 * for the exact sums. */
static sp_status check_loss(const sp_resources *r, const sp_batch *batch,
                            const sp_net_loss_out *out)
{
    const sp_graph *graph = &r->graph;
    char text[SP_ERROR_MESSAGE / 2], cause[CAUSE];

    if (out->unsummed < 0)
        return SP_OK;
    return SP_FAIL(
        SP_ENUMERIC,
        "%s: its loss is not finite or above %.2g: the output of layer `%s` "
        "is too large: %s",
        name_sample(&r->val, batch->sample_id[out->unsummed], text, sizeof text),
        SP_EXACT_TOP, graph->node[graph->n_nodes - 1].name, blame(r, cause));
}

static void count_points(const sp_batch *batch, const int32_t *prediction,
                         sp_metrics *metrics)
{
    int b;

    for (b = 0; b < batch->n_samples; b++) {
        const sp_sample *s = &batch->sample[b];
        sp_metrics_add_points(metrics, s->n_points, s->point_voxel, s->point_labels,
                              batch->row_of + batch->row_of_at[b], prediction);
    }
}

static sp_status evaluate_batch(sp_resources *r, const sp_batch *batch,
                                sp_metrics *metrics, sp_gallery *gallery,
                                sp_arena *scratch)
{
    sp_net_loss_out out = {.exact = metrics->exact};
    int32_t *prediction;

    sp_arena_reset(scratch);
    SP_TRY(SP_TAKE(scratch, batch->n, &prediction));
    SP_TRY(sp_net_forward(&r->net, batch, false, NULL));
    SP_TRY(sp_net_loss(&r->net, batch, &out, metrics->confusion, prediction));
    SP_TRY(sp_evaluate_check(r, batch, prediction));
    SP_TRY(check_loss(r, batch, &out));
    metrics->n_samples += batch->n_samples;
    if (metrics->point_confusion)
        count_points(batch, prediction, metrics);
    sp_gallery_add(gallery, batch, prediction);
    return SP_OK;
}

/* A pass over data.val on this rank. */
typedef struct pass {
    sp_resources *resources;
    sp_metrics *metrics;
    sp_gallery *gallery; /* NULL: no pictures are wanted */
    sp_arena scratch;    /* predictions of a batch */
    sp_status found;     /* SP_ENUMERIC: a batch had numbers that are not finite */
    sp_progress progress;
    int64_t n_done; /* samples of all ranks */
} pass;

/* Counts the samples of the batch, on all ranks, once its last micro-batch is done. The
 * mean IoU so far is that of rank 0's share. */
static void show(pass *p, const sp_batch *batch)
{
    const sp_metrics *m = p->metrics;

    if (batch->micro < batch->n_micro - 1)
        return;
    p->n_done += batch->step_samples;
    if (sp_progress_is_due(&p->progress))
        sp_progress_at(&p->progress, p->n_done, "mIoU %.3f",
                       sp_metrics_miou(m->confusion, m->n_classes));
}

static sp_status evaluate_next(pass *p, bool *is_end)
{
    sp_resources *r = p->resources;
    sp_session *s = &r->session;
    sp_batch *batch;
    sp_status rc;

    sp_run_beat(&s->run, SP_PHASE_READ, s->epoch, s->step);
    rc = sp_loader_next(r->val_loader, &batch, NULL);
    *is_end = rc == SP_OK && !batch;
    if (*is_end)
        return SP_OK;
    sp_run_beat(&s->run, SP_PHASE_EVAL, s->epoch, s->step);
    if (rc == SP_OK)
        rc = evaluate_batch(r, batch, p->metrics, p->gallery, &p->scratch);
    if (rc == SP_EMEM)
        rc = sp_cut_explain(&r->cut, &r->cut.eval, batch->sample_id, batch->n_samples);
    SP_TRY(rc);
    show(p, batch);
    return sp_loader_recycle(r->val_loader, batch);
}

/* Numbers that are not finite end this rank's pass, but are no failure of this rank
 * alone: at the end of the pass all ranks learn of them. */
static sp_status evaluate_all(void *arg)
{
    pass *p = arg;
    bool is_end = false;
    sp_status rc = sp_loader_seek(p->resources->val_loader, (sp_position){0, 0});

    while (rc == SP_OK && !is_end)
        rc = evaluate_next(p, &is_end);
    if (rc == SP_ENUMERIC) {
        p->found = rc;
        return SP_OK;
    }
    return rc;
}

sp_status sp_evaluate_pass(sp_resources *r, sp_metrics *metrics, sp_gallery *gallery)
{
    pass p = {.resources = r, .metrics = metrics, .gallery = gallery};

    assert(r->val_loader && metrics->n_classes == r->n_classes);
    sp_metrics_zero(metrics);
    SP_TRY(sp_arena_create(&p.scratch, 0, "predictions"));
    sp_progress_begin(&p.progress, "evaluating", "samples", r->val.n_samples);
    sp_session_run_alone(&r->session, evaluate_all, &p);
    sp_progress_end(&p.progress);
    sp_arena_destroy(&p.scratch);
    SP_TRY(sp_session_agree(&r->session, p.found));
    return sp_metrics_reduce(metrics, r->session.comm);
}

#include "train/sp_evaluate.h"

#include <stdio.h>

#include "base/sp_exact.h"
#include "base/sp_log.h"
#include "train/sp_train.h"
#include "train/sp_trainer.h"

sp_status sp_evaluate_open(sp_session *session, const sp_dataset *set,
                           sp_sampler *sampler, sp_loader **loader)
{
    const sp_loader_options options = {
        .set = set,
        .config = session->config,
        .graph = &session->graph,
        .backend = &session->backend,
        .sampler = sampler,
        .columns = session->columns,
        .n_columns = session->n_columns,
        .mean = session->norm.mean,
        .std = session->norm.std,
        .is_training = false,
        .with_points = set->has_points,
        .n_slots = SP_LOADER_SLOTS,
    };

    SP_TRY(sp_sampler_open(sampler, set, session->comm, session->config, false));
    return sp_loader_create(loader, &options);
}

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

sp_status sp_evaluate_check(const sp_session *session, const sp_dataset *set,
                            const sp_batch *batch, const int32_t *prediction)
{
    const sp_graph *graph = &session->graph;
    char text[SP_ERROR_MESSAGE / 2];
    int64_t voxel;
    int b;

    if (!find_unpredicted(batch, prediction, &b, &voxel))
        return SP_OK;
    return SP_FAIL(SP_ENUMERIC,
                   "%s: voxel %lld: the output of layer `%s` is not finite: the "
                   "weights, or the features of this sample, are at fault",
                   name_sample(set, batch->sample_id[b], text, sizeof text),
                   (long long)voxel, graph->node[graph->n_nodes - 1].name);
}

/* SP_ENUMERIC for finite logits so far apart that their loss is infinite or too large
 * for the exact sums. */
static sp_status check_loss(const sp_session *session, const sp_batch *batch,
                            const sp_net_loss_out *out)
{
    const sp_graph *graph = &session->graph;
    char text[SP_ERROR_MESSAGE / 2];

    if (out->unsummed < 0)
        return SP_OK;
    return SP_FAIL(
        SP_ENUMERIC,
        "%s: its loss is not finite or above %.2g: the output of layer `%s` "
        "is too large: the weights, or the features of this sample, are at "
        "fault",
        name_sample(&session->val, batch->sample_id[out->unsummed], text, sizeof text),
        SP_EXACT_TOP, graph->node[graph->n_nodes - 1].name);
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

static sp_status evaluate_batch(sp_session *session, const sp_batch *batch,
                                sp_metrics *metrics, sp_arena *scratch)
{
    sp_net_loss_out out = {.exact = metrics->exact};
    int32_t *prediction;

    sp_arena_reset(scratch);
    SP_TRY(SP_TAKE(scratch, batch->n, &prediction));
    SP_TRY(sp_net_forward(&session->net, batch, false, NULL));
    SP_TRY(sp_net_loss(&session->net, batch, &out, metrics->confusion, prediction));
    SP_TRY(sp_evaluate_check(session, &session->val, batch, prediction));
    SP_TRY(check_loss(session, batch, &out));
    metrics->n_samples += batch->n_samples;
    if (metrics->point_confusion)
        count_points(batch, prediction, metrics);
    return SP_OK;
}

static sp_status evaluate_all(sp_session *session, sp_loader *loader,
                              sp_metrics *metrics, sp_arena *scratch)
{
    const sp_position start = {0, 0};
    sp_batch *batch;
    sp_status rc;

    SP_TRY(sp_loader_seek(loader, start));
    for (;;) {
        sp_run_beat(&session->run, SP_PHASE_READ, session->epoch, session->step);
        rc = sp_loader_next(loader, &batch, NULL);
        if (rc == SP_OK && !batch)
            return SP_OK;
        sp_run_beat(&session->run, SP_PHASE_EVAL, session->epoch, session->step);
        if (rc == SP_OK)
            rc = evaluate_batch(session, batch, metrics, scratch);
        if (rc == SP_EMEM)
            rc = sp_cut_explain(&session->cut, &session->cut.eval, batch->sample_id,
                                batch->n_samples);
        SP_TRY(rc);
        SP_TRY(sp_loader_recycle(loader, batch));
    }
}

sp_status sp_evaluate_pass(sp_session *session, sp_loader *loader, sp_metrics *metrics)
{
    sp_arena scratch;
    sp_status rc;

    sp_metrics_zero(metrics);
    SP_TRY(sp_arena_create(&scratch, 0, "predictions"));
    /* Other ranks learn of a failure only at the end of their pass. */
    session->is_alone = true;
    rc = evaluate_all(session, loader, metrics, &scratch);
    sp_arena_destroy(&scratch);
    if (rc != SP_ENUMERIC)
        SP_TRY(rc);
    session->is_alone = false;
    SP_TRY(sp_session_agree(session, rc));
    return sp_metrics_reduce(metrics, session->comm);
}

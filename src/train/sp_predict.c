/* `sptrain predict`: one file per shard of data.val, rows in the shard's order. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_signal.h"
#include "checkpoint/sp_calibration.h"
#include "comm/sp_gather_buffer.h"
#include "report/sp_progress.h"
#include "train/sp_evaluate.h"
#include "train/sp_infer.h"
#include "train/sp_merging.h"
#include "train/sp_output.h"
#include "train/sp_predict_files.h"
#include "train/sp_train.h"

/* Each batch holds the samples that follow the previous batch's. Rank 0 sorts the
 * parcels of a batch, so that samples come in the order of the data set and no more
 * than one file is open, whatever the number of shards. With eval.merge a sample's
 * parcel goes by way of the rank that merges its points, which sends it on, with other
 * labels of points, once they are complete; samples keep their order. */
typedef struct sp_predictor {
    sp_infer infer;
    sp_predict_files files; /* their settings on every rank, the rest on rank 0 */
    sp_arena scratch;
    sp_merging merging;
    sp_gather_buffer parcels;
    char **arrived; /* rank 0: [samples of a batch] parcels, by sample; else NULL */
} sp_predictor;

/* ---- rank 0 ---- */

/* Makes room for the parcels of a batch, and the files' folder. */
static sp_status begin_files(sp_predictor *p)
{
    const sp_evaluation *of = &p->infer.evaluator.val;
    int64_t most = of->sampler.effective;

    if (of->set->n_samples < most || p->infer.session.config->eval.merge)
        most = of->set->n_samples;
    SP_TRY(SP_NEW(&p->arrived, most, "predictions"));
    return sp_predict_files_begin(&p->files);
}

/* Gives the files their names; the predict event is written after that. */
static sp_status finish_files(sp_predictor *p)
{
    SP_TRY(sp_predict_files_finish(&p->files));
    return sp_output_predict(&p->infer.session, p->infer.data.val.n_samples,
                             p->infer.path, &p->files);
}

static int by_sample(const void *a, const void *b)
{
    const int64_t x = (*(const sp_parcel *const *)a)->sample;
    const int64_t y = (*(const sp_parcel *const *)b)->sample;

    return (x > y) - (x < y);
}

/* Stores the parcels of a batch, which come rank by rank, by sample. */
static sp_status store_arrived(sp_predictor *p)
{
    char *parcel;
    size_t n = 0;

    while ((parcel = sp_gather_buffer_next(&p->parcels, NULL)))
        p->arrived[n++] = parcel;
    qsort(p->arrived, n, sizeof *p->arrived, by_sample);
    for (size_t i = 0; i < n; i++)
        SP_TRY(sp_predict_files_store(&p->files, p->arrived[i]));
    return SP_OK;
}

/* ---- every rank ---- */

/* The predictions of a batch. */
typedef struct predicted {
    const sp_batch *batch;
    const int32_t *class; /* [rows of the batch] */
    sp_tensor logits;     /* on the host, if they are wanted */
} predicted;

/* Divides logits by the temperature of a calibrated model. The first of the greatest
 * stays that, even if rounding makes others equal to it. */
static void soften_logits(const sp_predictor *p, float *z)
{
    const sp_calibration *calibration = p->infer.network.norm.calibration;
    const int c = p->infer.network.n_classes;
    int top = 0;

    if (!calibration || p->infer.members)
        return;
    for (int j = 1; j < c; j++)
        top = z[j] > z[top] ? j : top;
    for (int j = 0; j < c; j++)
        z[j] = (float)((double)z[j] / calibration->temperature);
    for (int j = 0; j < top; j++)
        if (z[j] >= z[top])
            z[top] = nextafterf(z[j], INFINITY);
}

/* Writes the logits of a sample's voxels; with several views or models the logarithms
 * of the mean probabilities: their softmax is the mean. Returns the end. */
static char *pack_logits(const sp_predictor *p, const predicted *of, int b, char *to)
{
    const sp_batch *batch = of->batch;
    const int32_t *row_of = batch->row_of + batch->row_of_at[b];
    const int64_t n = batch->sample[b].n;
    const int c = p->infer.network.n_classes;
    const int64_t at = batch->row_of_at[b];

    for (int64_t i = 0; i < n; i++, to += 4 * c) {
        if (p->merging.is_mean)
            sp_merge_logits(p->merging.sum + (at + i) * c, c, (float *)to);
        else
            memcpy(to, of->logits.data + (int64_t)row_of[i] * of->logits.ld,
                   4 * (size_t)c);
        soften_logits(p, (float *)to);
    }
    return to;
}

/* The class of a stored voxel of sample b. */
static uint16_t predict_class_of(const sp_predictor *p, const predicted *of, int b,
                                 int64_t voxel)
{
    const int64_t at = of->batch->row_of_at[b] + voxel;

    return (uint16_t)(p->merging.is_mean ? p->merging.label[at]
                                         : of->class[of->batch->row_of[at]]);
}

/* Writes sample b of the batch as a parcel. */
static void predict_pack(const sp_predictor *p, const predicted *of, int b,
                         const sp_parcel *head, char *to)
{
    const sp_sample *sample = &of->batch->sample[b];
    uint16_t *label;

    memcpy(to, head, sizeof *head);
    to += sizeof *head;
    if (p->files.with_logits)
        to = pack_logits(p, of, b, to);
    if (head->n_points)
        memcpy(to, sample->point_index, 8 * (size_t)head->n_points);
    label = (uint16_t *)(to + 8 * head->n_points);
    for (int64_t i = 0; i < head->n_points; i++)
        *label++ = predict_class_of(p, of, b, sample->point_voxel[i]);
    for (int64_t i = 0; i < head->n; i++)
        *label++ = predict_class_of(p, of, b, i);
}

/* Packs sample b for rank 0, or for the rank that merges its points. */
static sp_status predict_send(sp_predictor *p, const predicted *of, int b)
{
    const sp_sample *sample = &of->batch->sample[b];
    const bool with_points = p->infer.data.val.has_points;
    const int c = p->infer.network.n_classes;
    const sp_parcel head = {sample->id, sample->n, with_points ? sample->n_points : 0};
    const size_t row = 2 + (p->files.with_logits ? 4 * (size_t)c : 0);
    const size_t bytes =
        sizeof head + (size_t)head.n * row + (size_t)head.n_points * 10;
    void *parcel;

    if (p->merging.with_blocks)
        SP_TRY(sp_arena_alloc(&p->scratch, bytes, &parcel));
    else
        SP_TRY(sp_gather_buffer_add(&p->parcels, bytes, &parcel));
    predict_pack(p, of, b, &head, parcel);
    return p->merging.with_blocks
               ? sp_merging_add_sample(&p->merging, of->batch, b, parcel, bytes)
               : SP_OK;
}

/* Gives the points of a sample their merged classes, and its parcel to rank 0. */
static sp_status send_merged(void *arg, const sp_merger_sample *merged)
{
    sp_predictor *p = arg;
    const sp_parcel *head = merged->payload;
    const int c = p->infer.network.n_classes;
    const int64_t logits = p->files.with_logits ? 4 * head->n * c : 0;
    void *parcel;
    uint16_t *label;

    assert(head->sample == merged->id);
    assert(head->n_points == merged->n_points || head->n_points == 0);
    SP_TRY(sp_gather_buffer_add(&p->parcels, merged->payload_bytes, &parcel));
    memcpy(parcel, merged->payload, merged->payload_bytes);
    label = (uint16_t *)((char *)parcel + sizeof *head + logits + 8 * head->n_points);
    for (int64_t i = 0; i < head->n_points; i++)
        label[i] = (uint16_t)sp_merge_class(merged->sum + i * c, c);
    return SP_OK;
}

static sp_status predict_batch(void *arg, const sp_batch *batch)
{
    sp_predictor *p = arg;
    sp_network *network = &p->infer.network;
    predicted of = {.batch = batch};
    sp_net_loss_out out = {0};
    int32_t *prediction;

    SP_TRY(sp_signal_check()); /* a large sample may have been read for long */
    sp_arena_reset(&p->scratch);
    SP_TRY(SP_ALLOC(&p->scratch, batch->n, &prediction));
    SP_TRY(sp_net_forward(&network->net, batch, false, &of.logits));
    SP_TRY(sp_net_loss(&network->net, batch, &out, NULL, prediction));
    SP_TRY(sp_evaluator_check(network, &p->infer.data.val, batch, prediction));
    if (p->merging.is_on)
        SP_TRY(sp_merging_add(&p->merging, batch, of.logits));
    if (!sp_merging_is_last(&p->merging, batch))
        return SP_OK;
    of.class = prediction;
    if (p->files.with_logits && !p->merging.is_mean)
        SP_TRY(sp_merging_fetch(network->net.backend, &p->scratch, &of.logits));
    sp_gather_buffer_clear(&p->parcels);
    for (int b = 0; b < batch->n_samples; b++)
        SP_TRY(predict_send(p, &of, b));
    return SP_OK;
}

/* Every rank holds the same number of batches (some may be empty), so they meet in
 * each: a failure of one is known to all before the next, and rank 0 removes the files
 * that it began. */
static sp_status predict_batches(sp_predictor *p, sp_progress *progress)
{
    sp_session *s = &p->infer.session;
    const sp_evaluator *e = &p->infer.evaluator;
    const int64_t n_samples = e->val.set->n_samples;
    const sp_position start = {0, 0};
    sp_batch *batch = NULL;
    int64_t n_done = 0;
    sp_status rc = sp_loader_seek(e->val.loader, start);

    for (;;) {
        if (rc == SP_OK)
            rc = sp_signal_check();
        if (rc == SP_OK)
            rc = sp_evaluator_next(e, &e->val, &batch, predict_batch, p);
        SP_TRY(sp_comm_agree(s->comm, rc));
        if (!batch)
            return SP_OK;
        if (p->merging.with_blocks && sp_merging_is_last(&p->merging, batch))
            SP_TRY(sp_merging_exchange(&p->merging, batch));
        if (sp_merging_is_last(&p->merging, batch)) {
            SP_TRY(sp_gather_buffer_gather(&p->parcels, s->comm));
            if (s->comm->rank == 0)
                rc = store_arrived(p);
            if (batch->micro == batch->n_micro - 1)
                n_done += batch->step_samples;
            sp_run_count(&s->run, n_done, n_samples);
            sp_progress_at(progress, n_done, "%s", "");
        }
        if (rc == SP_OK)
            rc = sp_loader_recycle(e->val.loader, batch);
    }
}

static sp_status train_predict_all(sp_predictor *p)
{
    sp_run *run = &p->infer.session.run;
    const int64_t n = p->infer.data.val.n_samples;
    sp_progress progress;
    sp_status rc;

    sp_run_count(run, 0, n);
    sp_progress_begin(&progress, "predicting", "samples", n);
    rc = predict_batches(p, &progress);
    sp_progress_end(&progress);
    sp_run_count(run, 0, 0);
    return rc;
}

static sp_status train_predict_predict(sp_predictor *p)
{
    const sp_session *s = &p->infer.session;
    const sp_evaluator *e = &p->infer.evaluator;
    const int n_classes = p->infer.network.n_classes;
    const int ignore = p->infer.data.val.ignore_label;
    sp_status rc = SP_OK;

    p->files.infer = &p->infer;
    p->files.with_logits = s->config->run.logits;
    p->files.label_bytes = n_classes <= 255 ? 1 : 2;
    p->files.ignore_label = p->files.label_bytes == 1 ? UINT8_MAX : UINT16_MAX;
    if (ignore >= n_classes && ignore < p->files.ignore_label)
        p->files.ignore_label = ignore;
    if (s->comm->rank == 0)
        rc = begin_files(p);
    if (rc == SP_OK)
        rc = sp_arena_create(&p->scratch, 0, "predictions");
    SP_TRY(sp_comm_agree(s->comm, rc));
    SP_TRY(sp_merging_open(&p->merging, e, &e->val, send_merged, p));
    SP_TRY(train_predict_all(p));
    return sp_comm_agree(s->comm, s->comm->rank == 0 ? finish_files(p) : SP_OK);
}

static void log_end(const sp_predictor *p)
{
    const int64_t n_skipped = p->files.n_skipped;
    const int64_t n_written = p->infer.data.val.n_samples - n_skipped;
    char left_out[64] = "";

    if (n_skipped > 0)
        snprintf(left_out, sizeof left_out, " (%lld left out by data.on_error)",
                 (long long)n_skipped);
    sp_log_info("predictions of %lld sample%s%s in %s/predictions (%s, step %lld)",
                (long long)n_written, sp_plural(n_written), left_out,
                p->infer.session.run.dir, p->infer.path,
                (long long)p->infer.state.step);
}

sp_status sp_predict(const sp_command *command)
{
    sp_predictor p;
    sp_status rc;

    memset(&p, 0, sizeof p);
    rc = sp_infer_open(&p.infer, command, false);
    if (rc == SP_OK) {
        rc = train_predict_predict(&p);
        if (rc == SP_OK)
            log_end(&p);
    }
    if (rc != SP_OK && p.arrived)
        sp_predict_files_discard(&p.files);
    sp_merging_destroy(&p.merging);
    free(p.arrived);
    sp_arena_destroy(&p.scratch);
    sp_gather_buffer_destroy(&p.parcels);
    return sp_infer_close(&p.infer, rc);
}

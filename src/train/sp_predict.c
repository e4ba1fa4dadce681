/* `sptrain predict`: one file per shard of data.val, rows in the shard's order. */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "comm/sp_records.h"
#include "h5/sp_h5.h"
#include "show/sp_progress.h"
#include "train/sp_evaluate.h"
#include "train/sp_infer.h"
#include "train/sp_merging.h"
#include "train/sp_train.h"

#define TEMPORARY ".tmp"

/* A rank sends this head to rank 0 for each sample, then logits [n][C] if wanted, point
 * indexes [n_points] (uint64), point labels [n_points] and labels [n] (uint16). */
typedef struct sp_parcel {
    int64_t sample, n, n_points;
} sp_parcel;

/* Each batch holds the samples that follow those of the batch before it. Rank 0 sorts
 * the parcels of a batch, so that samples come in the order of the data set and no more
 * than one file is open, whatever the number of shards. With eval.merge a sample's
 * parcel goes by way of the rank that merges its points, which sends it on, with other
 * labels of points, once they are complete; samples keep their order. */
typedef struct sp_predictor {
    sp_infer infer;
    bool with_logits;
    int label_bytes;  /* 1 or 2 */
    int ignore_label; /* of samples that were left out: no class, and fits the bytes */
    sp_arena scratch;
    sp_merging merging;
    sp_records parcels;
    /* The members below are rank 0's. */
    char **arrived; /* [samples of a batch] parcels, by sample; NULL: other ranks */
    int n_begun;    /* files that have been created: of the first n_begun shards */
    sp_h5 *file;    /* of the last of them while it is written, else NULL */
} sp_predictor;

static size_t parcel_bytes(const sp_predictor *p, const sp_parcel *head)
{
    size_t logits = p->with_logits ? 4 * (size_t)p->infer.resources.n_classes : 0;

    return sizeof *head + (size_t)head->n * (2 + logits) + (size_t)head->n_points * 10;
}

/* ---- files (rank 0) ---- */

/* The code of class `name` in the scans that the shards were made of; NULL: not known.
 */
static char *code_of(const sp_dataset *set, const char *name)
{
    for (int i = 0; set->class_code && i < set->n_classes; i++)
        if (strcmp(set->class_name[i], name) == 0)
            return set->class_code[i];
    return NULL;
}

/* The scans' own codes where they have one for each class, else those of the training.
 */
static sp_status write_codes(const sp_predictor *p, sp_h5 *file)
{
    const sp_resources *r = &p->infer.resources;
    char **code = calloc((size_t)r->n_classes, sizeof *code);
    bool are_known = true;
    sp_status rc = SP_OK;

    if (!code)
        return SP_FAIL(SP_EMEM, "out of memory");
    for (int c = 0; c < r->n_classes; c++) {
        code[c] = code_of(&r->val, r->class_name[c]);
        are_known = are_known && code[c];
    }
    if (are_known || r->norm.class_code)
        rc = sp_h5_attr_write_texts(file, "/", "class_codes", r->n_classes,
                                    are_known ? code : r->norm.class_code);
    free(code);
    return rc;
}

static sp_status write_attributes(const sp_predictor *p, sp_h5 *file, int shard)
{
    const sp_resources *r = &p->infer.resources;
    const sp_dataset *set = &r->val;
    const int64_t n = set->shard[shard].n_samples;
    const int64_t version = 1, step = p->infer.state.step;
    const int64_t classes = r->n_classes, ignore = p->ignore_label;
    char *const format[] = {"sptrain-predictions"};
    char *const checkpoint[] = {(char *)(uintptr_t)p->infer.path};

    SP_TRY(sp_h5_attr_write_texts(file, "/", "format", -1, format));
    SP_TRY(sp_h5_attr_write(file, "/", "version", SP_H5_I64, -1, &version));
    SP_TRY(sp_h5_attr_write(file, "/", "voxel_size", SP_H5_F64, -1, &set->voxel_size));
    SP_TRY(sp_h5_attr_write(file, "/", "num_classes", SP_H5_I64, -1, &classes));
    SP_TRY(sp_h5_attr_write(file, "/", "ignore_label", SP_H5_I64, -1, &ignore));
    SP_TRY(
        sp_h5_attr_write_texts(file, "/", "class_names", r->n_classes, r->class_name));
    SP_TRY(write_codes(p, file));
    SP_TRY(sp_h5_attr_write_texts(file, "/", "feature_names", set->n_features,
                                  set->feature_name));
    SP_TRY(sp_h5_attr_write_texts(file, "/", "checkpoint", -1, checkpoint));
    SP_TRY(sp_h5_attr_write(file, "/", "step", SP_H5_I64, -1, &step));
    if (set->has_names)
        SP_TRY(sp_h5_write_texts(file, "/names", n,
                                 set->name + set->shard[shard].first_sample));
    return SP_OK;
}

static const char *base_name(const sp_shard *shard)
{
    const char *slash = strrchr(shard->path, '/');

    return slash ? slash + 1 : shard->path;
}

/* Forms the path of a shard's predictions. Until the predictions of all shards are
 * complete the name ends in TEMPORARY. Returns the length, as snprintf does. */
static int path_of(const sp_predictor *p, int shard, bool is_whole, char *path)
{
    return snprintf(
        path, PATH_MAX, "%s/predictions/%s%s", p->infer.resources.session.run.dir,
        base_name(&p->infer.resources.val.shard[shard]), is_whole ? "" : TEMPORARY);
}

/* Creates the file of a shard with its attributes and room for all rows. */
static sp_status create_file(sp_predictor *p, int shard)
{
    const sp_dataset *set = &p->infer.resources.val;
    const sp_shard *s = &set->shard[shard];
    const int64_t *offset = set->offset + s->first_sample + shard;
    sp_h5_type type = p->label_bytes == 1 ? SP_H5_U8 : SP_H5_U16;
    int64_t dim[2] = {s->n_samples + 1, p->infer.resources.n_classes};
    char path[PATH_MAX];
    sp_h5 *file;

    path_of(p, shard, false, path);
    SP_TRY(sp_h5_create(&p->file, path));
    file = p->file;
    SP_TRY(write_attributes(p, file, shard));
    SP_TRY(sp_h5_write(file, "/offsets", SP_H5_I64, 1, dim, offset));
    dim[0] = offset[s->n_samples];
    SP_TRY(sp_h5_write(file, "/labels", type, 1, dim, NULL));
    if (p->with_logits)
        SP_TRY(sp_h5_write(file, "/logits", SP_H5_F32, 2, dim, NULL));
    if (!set->has_points)
        return SP_OK;
    offset = set->point_offset + s->first_sample + shard;
    dim[0] = s->n_samples + 1;
    SP_TRY(sp_h5_write(file, "/point_offsets", SP_H5_I64, 1, dim, offset));
    dim[0] = offset[s->n_samples];
    SP_TRY(sp_h5_write(file, "/point_labels", type, 1, dim, NULL));
    return sp_h5_write(file, "/point_index", SP_H5_U64, 1, dim, NULL);
}

static sp_status close_file(sp_predictor *p)
{
    sp_h5 *file = p->file;

    p->file = NULL;
    return sp_h5_close(file);
}

/* Makes the shard's file the open one. Samples come in order, so the files of the
 * shards before it are complete, and shards without samples get their files here. */
static sp_status turn_to(sp_predictor *p, int shard)
{
    while (p->n_begun <= shard) {
        SP_TRY(close_file(p));
        SP_TRY(create_file(p, p->n_begun++));
    }
    return SP_OK;
}

static int by_base_name(const void *a, const void *b)
{
    return strcmp(base_name(*(const sp_shard *const *)a),
                  base_name(*(const sp_shard *const *)b));
}

static bool is_temporary(const char *name)
{
    const size_t n = strlen(name), end = strlen(TEMPORARY);

    return n >= end && strcmp(name + n - end, TEMPORARY) == 0;
}

/* Predictions are named by their shards, so no two shards may have the same name, nor
 * one of them that of an unfinished file. sorted: room for [n_shards]. */
static sp_status check_names(const sp_predictor *p, const sp_shard **sorted)
{
    const sp_dataset *set = &p->infer.resources.val;
    char path[PATH_MAX];

    for (int i = 0; i < set->n_shards; i++) {
        sorted[i] = &set->shard[i];
        if (path_of(p, i, false, path) >= PATH_MAX)
            return SP_FAIL(SP_EIO, "%.100s...: path of more than %d bytes", path,
                           PATH_MAX);
        if (is_temporary(base_name(sorted[i])))
            return SP_FAIL(SP_EUSAGE,
                           "data.val: %s: the name of its predictions would be that of "
                           "an unfinished file; name the shard without " TEMPORARY,
                           set->shard[i].path);
    }
    qsort(sorted, (size_t)set->n_shards, sizeof *sorted, by_base_name);
    for (int i = 1; i < set->n_shards; i++) {
        if (by_base_name(&sorted[i - 1], &sorted[i]) != 0)
            continue;
        path_of(p, (int)(sorted[i] - set->shard), true, path);
        return SP_FAIL(SP_EUSAGE,
                       "data.val: the predictions of %s and of %s would both be %s; "
                       "predict them into two run folders",
                       sorted[i - 1]->path, sorted[i]->path, path);
    }
    return SP_OK;
}

static sp_status begin_files(sp_predictor *p)
{
    const sp_resources *r = &p->infer.resources;
    const sp_shard **sorted = calloc((size_t)r->val.n_shards + 1, sizeof *sorted);
    int64_t most = r->val_sampler.effective;
    char dir[PATH_MAX];
    sp_status rc;

    if (r->val.n_samples < most || r->session.config->eval.merge)
        most = r->val.n_samples;
    p->arrived = calloc((size_t)most + 1, sizeof *p->arrived);
    if (!p->arrived || !sorted)
        rc = SP_FAIL(SP_EMEM, "out of memory");
    else
        rc = check_names(p, sorted);
    free(sorted);
    SP_TRY(rc);
    snprintf(dir, sizeof dir, "%s/predictions", r->session.run.dir);
    return sp_file_make_folder(dir);
}

/* Labels travel as uint16; narrow them in place where a byte is what the file has. */
static const void *as_stored(const sp_predictor *p, uint16_t *labels, int64_t n)
{
    uint8_t *narrow = (uint8_t *)labels;
    int64_t i;

    if (p->label_bytes == 1)
        for (i = 0; i < n; i++)
            narrow[i] = (uint8_t)labels[i];
    return labels;
}

/* A sample that data.on_error = "skip" left out has no class: ignore_label. */
static sp_status store_ignored(sp_h5 *file, const char *name, sp_h5_type type,
                               int64_t row, int64_t n, int ignore)
{
    uint16_t *label = malloc((size_t)n * sizeof *label + 1);
    sp_status rc;
    int64_t i;

    if (!label)
        return SP_FAIL(SP_EMEM, "out of memory");
    if (type.size == 1)
        memset(label, ignore, (size_t)n);
    else
        for (i = 0; i < n; i++)
            label[i] = (uint16_t)ignore;
    rc = sp_h5_write_rows(file, name, row, n, label);
    free(label);
    return rc;
}

static sp_status store_skipped(sp_predictor *p, int64_t sample, int shard)
{
    const sp_dataset *set = &p->infer.resources.val;
    const int64_t *row = set->offset + sample + shard;
    const int64_t *point = set->has_points ? set->point_offset + sample + shard : NULL;
    sp_h5_type type = p->label_bytes == 1 ? SP_H5_U8 : SP_H5_U16;

    SP_TRY(store_ignored(p->file, "/labels", type, row[0], row[1] - row[0],
                         p->ignore_label));
    if (!point)
        return SP_OK;
    return store_ignored(p->file, "/point_labels", type, point[0], point[1] - point[0],
                         p->ignore_label);
}

/* Writes the rows of one sample, whose shard has the open file. */
static sp_status store(sp_predictor *p, char *parcel)
{
    const sp_resources *r = &p->infer.resources;
    const sp_dataset *set = &r->val;
    const sp_parcel head = *(const sp_parcel *)parcel;
    int shard = sp_dataset_shard_of(set, head.sample);
    int64_t row = set->offset[head.sample + shard], point;
    char *at = parcel + sizeof head;
    sp_h5 *file;

    SP_TRY(turn_to(p, shard));
    file = p->file;
    if (head.n != sp_dataset_voxels(set, head.sample))
        return store_skipped(p, head.sample, shard);
    if (p->with_logits) {
        SP_TRY(sp_h5_write_rows(file, "/logits", row, head.n, at));
        at += (size_t)head.n * 4 * (size_t)r->n_classes;
    }
    if (set->has_points) {
        point = set->point_offset[head.sample + shard];
        SP_TRY(sp_h5_write_rows(file, "/point_index", point, head.n_points, at));
        at += head.n_points * 8;
        SP_TRY(sp_h5_write_rows(file, "/point_labels", point, head.n_points,
                                as_stored(p, (uint16_t *)at, head.n_points)));
        at += head.n_points * 2;
    }
    return sp_h5_write_rows(file, "/labels", row, head.n,
                            as_stored(p, (uint16_t *)at, head.n));
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

    while ((parcel = sp_records_next(&p->parcels, NULL)))
        p->arrived[n++] = parcel;
    qsort(p->arrived, n, sizeof *p->arrived, by_sample);
    for (size_t i = 0; i < n; i++)
        SP_TRY(store(p, p->arrived[i]));
    return SP_OK;
}

/* Completes the files and gives them their names. */
static sp_status finish_files(sp_predictor *p)
{
    char temporary[PATH_MAX], path[PATH_MAX];

    SP_TRY(turn_to(p, p->infer.resources.val.n_shards - 1));
    SP_TRY(close_file(p));
    for (int i = 0; i < p->n_begun; i++) {
        path_of(p, i, false, temporary);
        path_of(p, i, true, path);
        if (rename(temporary, path) != 0)
            return SP_FAIL(SP_EIO, "%s: cannot rename it to %s: %s", temporary, path,
                           strerror(errno));
    }
    return sp_file_sync_folder_of(path);
}

/* Deletes the files that were begun; the error record stays that of the failure. */
static void discard_files(sp_predictor *p)
{
    sp_error_record error;
    char path[PATH_MAX];

    sp_error_save(&error);
    close_file(p);
    for (int i = 0; i < p->n_begun; i++) {
        path_of(p, i, false, path);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/predictions", p->infer.resources.session.run.dir);
    rmdir(path); /* succeeds where nothing else is in it */
    sp_error_raise(&error);
}

/* ---- every rank ---- */

/* The predictions of a batch. */
typedef struct predicted {
    const sp_batch *batch;
    const int32_t *class; /* [rows of the batch] */
    sp_tensor logits;     /* on the host, where they are wanted */
} predicted;

/* Writes the logits of a sample's voxels; with several views the logarithms of the mean
 * probabilities, whose softmax is that mean. Returns the end. */
static char *pack_logits(const sp_predictor *p, const predicted *of, int b, char *to)
{
    const sp_batch *batch = of->batch;
    const int32_t *row_of = batch->row_of + batch->row_of_at[b];
    const int64_t n = batch->sample[b].n;
    const int c = p->infer.resources.n_classes;
    const int64_t at = batch->row_of_at[b];

    for (int64_t i = 0; i < n; i++, to += 4 * c)
        if (p->infer.resources.views.n > 1)
            sp_merge_logits(p->merging.sum + (at + i) * c, c, (float *)to);
        else
            memcpy(to, of->logits.data + (int64_t)row_of[i] * of->logits.ld,
                   4 * (size_t)c);
    return to;
}

/* The class of a stored voxel of sample b. */
static uint16_t class_of(const sp_predictor *p, const predicted *of, int b,
                         int64_t voxel)
{
    const int64_t at = of->batch->row_of_at[b] + voxel;

    return (uint16_t)(p->infer.resources.views.n > 1
                          ? p->merging.label[at]
                          : of->class[of->batch->row_of[at]]);
}

/* Writes sample b of the batch as a parcel. */
static void pack(const sp_predictor *p, const predicted *of, int b,
                 const sp_parcel *head, char *to)
{
    const sp_sample *sample = &of->batch->sample[b];
    uint16_t *label;

    memcpy(to, head, sizeof *head);
    to += sizeof *head;
    if (p->with_logits)
        to = pack_logits(p, of, b, to);
    if (head->n_points)
        memcpy(to, sample->point_index, 8 * (size_t)head->n_points);
    label = (uint16_t *)(to + 8 * head->n_points);
    for (int64_t i = 0; i < head->n_points; i++)
        *label++ = class_of(p, of, b, sample->point_voxel[i]);
    for (int64_t i = 0; i < head->n; i++)
        *label++ = class_of(p, of, b, i);
}

/* Packs sample b for rank 0, or for the rank that merges its points. */
static sp_status send(sp_predictor *p, const predicted *of, int b)
{
    const sp_sample *sample = &of->batch->sample[b];
    const bool with_points = p->infer.resources.val.has_points;
    const sp_parcel head = {sample->id, sample->n, with_points ? sample->n_points : 0};
    const size_t bytes = parcel_bytes(p, &head);
    void *parcel;

    if (p->merging.with_blocks)
        SP_TRY(sp_arena_take(&p->scratch, bytes, &parcel));
    else
        SP_TRY(sp_records_add(&p->parcels, bytes, &parcel));
    pack(p, of, b, &head, parcel);
    return p->merging.with_blocks
               ? sp_merging_add_sample(&p->merging, of->batch, b, parcel, bytes)
               : SP_OK;
}

/* Gives the points of a sample their merged classes, and its parcel to rank 0. */
static sp_status send_merged(void *arg, const sp_merger_sample *merged)
{
    sp_predictor *p = arg;
    const sp_parcel *head = merged->payload;
    const int c = p->infer.resources.n_classes;
    const int64_t logits = p->with_logits ? 4 * head->n * c : 0;
    void *parcel;
    uint16_t *label;

    assert(head->sample == merged->id);
    assert(head->n_points == merged->n_points || head->n_points == 0);
    SP_TRY(sp_records_add(&p->parcels, merged->payload_bytes, &parcel));
    memcpy(parcel, merged->payload, merged->payload_bytes);
    label = (uint16_t *)((char *)parcel + sizeof *head + logits + 8 * head->n_points);
    for (int64_t i = 0; i < head->n_points; i++)
        label[i] = (uint16_t)sp_merge_class(merged->sum + i * c, c);
    return SP_OK;
}

static bool is_last_view(const sp_predictor *p, const sp_batch *batch)
{
    return !p->merging.is_on || sp_merging_is_last(&p->merging, batch);
}

static sp_status predict_batch(sp_predictor *p, const sp_batch *batch)
{
    sp_resources *r = &p->infer.resources;
    predicted of = {.batch = batch};
    sp_net_loss_out out = {0};
    int32_t *prediction;
    int b;

    sp_arena_reset(&p->scratch);
    SP_TRY(SP_TAKE(&p->scratch, batch->n, &prediction));
    SP_TRY(sp_net_forward(&r->net, batch, false, &of.logits));
    SP_TRY(sp_net_loss(&r->net, batch, &out, NULL, prediction));
    SP_TRY(sp_evaluate_check(r, batch, prediction));
    if (p->merging.is_on)
        SP_TRY(sp_merging_add(&p->merging, batch, of.logits));
    if (!is_last_view(p, batch))
        return SP_OK;
    of.class = prediction;
    if (p->with_logits && r->views.n == 1)
        SP_TRY(sp_merging_fetch(&r->backend, &p->scratch, &of.logits));
    sp_records_clear(&p->parcels);
    for (b = 0; b < batch->n_samples; b++)
        SP_TRY(send(p, &of, b));
    return SP_OK;
}

/* The next batch and what the network says to it; *batch NULL: that was all. */
static sp_status predict_next(sp_predictor *p, sp_batch **batch)
{
    sp_resources *r = &p->infer.resources;
    sp_status rc = sp_loader_next(r->val_loader, batch, NULL);

    if (rc == SP_OK && !*batch)
        return SP_OK;
    sp_run_beat(&r->session.run, SP_PHASE_EVAL, r->session.epoch, r->session.step);
    if (rc == SP_OK)
        rc = predict_batch(p, *batch);
    if (rc == SP_EMEM)
        rc = sp_cut_explain(&r->cut, &r->cut.eval, (*batch)->sample_id,
                            (*batch)->n_samples);
    return rc;
}

/* Every rank holds the same number of batches (some may be empty), so they meet in
 * each: a failure of one is known to all before the next, and rank 0 removes what it
 * began. */
static sp_status predict_all(sp_predictor *p)
{
    sp_resources *r = &p->infer.resources;
    const sp_position start = {0, 0};
    sp_batch *batch = NULL;
    sp_progress progress;
    int64_t n_done = 0;
    sp_status rc = sp_loader_seek(r->val_loader, start);

    sp_progress_begin(&progress, "predicting", "samples", r->val.n_samples);
    for (;;) {
        if (rc == SP_OK)
            rc = predict_next(p, &batch);
        SP_TRY(sp_session_agree(&r->session, rc));
        if (!batch)
            break;
        if (p->merging.with_blocks && is_last_view(p, batch))
            SP_TRY(sp_merging_exchange(&p->merging, batch));
        if (is_last_view(p, batch)) {
            SP_TRY(sp_records_gather(&p->parcels, r->session.comm, 0));
            if (r->session.comm->rank == 0)
                rc = store_arrived(p);
            if (batch->micro == batch->n_micro - 1)
                n_done += batch->step_samples;
            sp_progress_at(&progress, n_done, "%s", "");
        }
        if (rc == SP_OK)
            rc = sp_loader_recycle(r->val_loader, batch);
    }
    sp_progress_end(&progress);
    return SP_OK;
}

static sp_status predict(sp_predictor *p)
{
    sp_resources *r = &p->infer.resources;
    const int ignore = r->val.ignore_label;
    sp_status rc = SP_OK;

    p->with_logits = r->session.config->run.logits;
    p->label_bytes = r->n_classes <= 255 ? 1 : 2;
    p->ignore_label = p->label_bytes == 1 ? UINT8_MAX : UINT16_MAX;
    if (ignore >= r->n_classes && ignore < p->ignore_label)
        p->ignore_label = ignore;
    if (r->session.comm->rank == 0)
        rc = begin_files(p);
    if (rc == SP_OK)
        rc = sp_arena_create(&p->scratch, 0, "predictions");
    SP_TRY(sp_session_agree(&r->session, rc));
    SP_TRY(sp_merging_open(&p->merging, r, send_merged, p));
    SP_TRY(predict_all(p));
    return sp_session_agree(&r->session,
                            r->session.comm->rank == 0 ? finish_files(p) : SP_OK);
}

sp_status sp_predict(const sp_command *command)
{
    sp_predictor p;
    sp_status rc;

    memset(&p, 0, sizeof p);
    rc = sp_infer_open(&p.infer, command);
    if (rc == SP_OK) {
        rc = predict(&p);
        if (rc == SP_OK)
            sp_log_info("predictions of %lld samples in %s/predictions (%s, step %lld)",
                        (long long)p.infer.resources.val.n_samples,
                        p.infer.resources.session.run.dir, p.infer.path,
                        (long long)p.infer.state.step);
    }
    if (rc != SP_OK && p.arrived)
        discard_files(&p);
    sp_merging_destroy(&p.merging);
    free(p.arrived);
    sp_arena_destroy(&p.scratch);
    sp_records_destroy(&p.parcels);
    return sp_infer_close(&p.infer, rc);
}

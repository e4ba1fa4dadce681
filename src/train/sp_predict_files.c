#include "train/sp_predict_files.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_text.h"
#include "h5/sp_h5.h"

/* The code of class `name` in the scans that the shards were made of; NULL: not known.
 */
static char *predict_code_of(const sp_dataset *set, const char *name)
{
    const int i =
        set->class_code ? sp_text_find(set->n_classes, set->class_name, name) : -1;

    return i < 0 ? NULL : set->class_code[i];
}

/* The scans' own codes if they have one for each class, else the training's codes.
 */
static sp_status write_codes(const sp_predict_files *f, sp_h5 *file)
{
    const sp_network *n = &f->infer->network;
    SP_FREED char **code = NULL;
    bool are_known = true;

    SP_TRY(SP_NEW(&code, n->n_classes, "the codes of the classes"));
    for (int c = 0; c < n->n_classes; c++) {
        code[c] = predict_code_of(&f->infer->data.val, n->class_name[c]);
        are_known = are_known && code[c];
    }
    return are_known || n->norm.class_code
               ? sp_h5_attr_write_texts(file, "/", "class_codes", n->n_classes,
                                        are_known ? code : n->norm.class_code)
               : SP_OK;
}

static sp_status predict_write_names(const sp_dataset *set, int shard, sp_h5 *file)
{
    const int64_t first = set->shard[shard].first_sample;
    const int64_t n = set->shard[shard].n_samples;
    SP_FREED char **name = NULL;

    SP_TRY(SP_NEW(&name, n, "the names of samples"));
    for (int64_t i = 0; i < n; i++)
        name[i] = (char *)(uintptr_t)sp_dataset_name(set, first + i);
    return sp_h5_write_texts(file, "/names", n, name);
}

static sp_status predict_write_attributes(const sp_predict_files *f, sp_h5 *file,
                                          int shard)
{
    const sp_network *n = &f->infer->network;
    const sp_dataset *set = &f->infer->data.val;
    const int64_t version = 1, step = f->infer->state.step;
    const int64_t classes = n->n_classes, ignore = f->ignore_label;
    char *const format[] = {"sptrain-predictions"};
    char *const checkpoint[] = {(char *)(uintptr_t)f->infer->path};

    SP_TRY(sp_h5_attr_write_texts(file, "/", "format", -1, format));
    SP_TRY(sp_h5_attr_write(file, "/", "version", SP_H5_I64, -1, &version));
    SP_TRY(sp_h5_attr_write(file, "/", "voxel_size", SP_H5_F64, -1, &set->voxel_size));
    SP_TRY(sp_h5_attr_write(file, "/", "num_classes", SP_H5_I64, -1, &classes));
    SP_TRY(sp_h5_attr_write(file, "/", "ignore_label", SP_H5_I64, -1, &ignore));
    SP_TRY(
        sp_h5_attr_write_texts(file, "/", "class_names", n->n_classes, n->class_name));
    SP_TRY(write_codes(f, file));
    SP_TRY(sp_h5_attr_write_texts(file, "/", "feature_names", set->n_features,
                                  set->feature_name));
    SP_TRY(sp_h5_attr_write_texts(file, "/", "checkpoint", -1, checkpoint));
    SP_TRY(sp_h5_attr_write(file, "/", "step", SP_H5_I64, -1, &step));
    return set->has_names ? predict_write_names(set, shard, file) : SP_OK;
}

/* Forms the path of a shard's predictions. Until the predictions of all shards are
 * complete the name ends in SP_FILE_UNFINISHED. Returns the length, as snprintf
 * does. */
static int predict_path_of(const sp_predict_files *f, int shard, bool is_whole,
                           char *path)
{
    return snprintf(path, PATH_MAX, "%s/predictions/%s%s", f->infer->session.run.dir,
                    sp_file_name(f->infer->data.val.shard[shard].path),
                    is_whole ? "" : SP_FILE_UNFINISHED);
}

/* Creates the file of a shard with its attributes and room for all rows. */
static sp_status predict_create_file(sp_predict_files *f, int shard)
{
    const sp_dataset *set = &f->infer->data.val;
    const sp_shard *s = &set->shard[shard];
    SP_FREED int64_t *offset = NULL;
    sp_h5_type type = f->label_bytes == 1 ? SP_H5_U8 : SP_H5_U16;
    int64_t dim[2] = {s->n_samples + 1, f->infer->network.n_classes};
    char path[PATH_MAX];
    sp_h5 *file;

    predict_path_of(f, shard, false, path);
    SP_TRY(sp_h5_create(&f->file, path));
    file = f->file;
    SP_TRY(predict_write_attributes(f, file, shard));
    SP_TRY(SP_NEW(&offset, dim[0], path));
    sp_spans_unpack(set->rows, s->first_sample, s->n_samples, offset);
    SP_TRY(sp_h5_write(file, "/offsets", SP_H5_I64, 1, dim, offset));
    dim[0] = offset[s->n_samples];
    SP_TRY(sp_h5_write(file, "/labels", type, 1, dim, NULL));
    if (f->with_logits)
        SP_TRY(sp_h5_write(file, "/logits", SP_H5_F32, 2, dim, NULL));
    if (!set->has_points)
        return SP_OK;
    sp_spans_unpack(set->point_rows, s->first_sample, s->n_samples, offset);
    dim[0] = s->n_samples + 1;
    SP_TRY(sp_h5_write(file, "/point_offsets", SP_H5_I64, 1, dim, offset));
    dim[0] = offset[s->n_samples];
    SP_TRY(sp_h5_write(file, "/point_labels", type, 1, dim, NULL));
    return sp_h5_write(file, "/point_index", SP_H5_U64, 1, dim, NULL);
}

static sp_status predict_close_file(sp_predict_files *f)
{
    sp_h5 *file = f->file;

    f->file = NULL;
    return sp_h5_close(file);
}

/* Makes the shard's file the open one. Samples come in order, so the files of the
 * shards before it are complete, and shards without samples get their files here. */
static sp_status turn_to(sp_predict_files *f, int shard)
{
    while (f->n_begun <= shard) {
        SP_TRY(predict_close_file(f));
        SP_TRY(predict_create_file(f, f->n_begun++));
    }
    return SP_OK;
}

static int by_base_name(const void *a, const void *b)
{
    return strcmp(sp_file_name((*(const sp_shard *const *)a)->path),
                  sp_file_name((*(const sp_shard *const *)b)->path));
}

/* Predictions are named by their shards, so no two shards may have the same name, and
 * no shard the name of an unfinished file. sorted: room for [n_shards]. */
static sp_status predict_check_names(const sp_predict_files *f, const sp_shard **sorted)
{
    const sp_dataset *set = &f->infer->data.val;
    char path[PATH_MAX];

    for (int i = 0; i < set->n_shards; i++) {
        sorted[i] = &set->shard[i];
        if (predict_path_of(f, i, false, path) >= PATH_MAX)
            return SP_FAIL(SP_EIO, "%.100s...: path of more than %d bytes", path,
                           PATH_MAX);
        if (sp_file_ends_in(sp_file_name(sorted[i]->path), SP_FILE_UNFINISHED))
            return SP_FAIL(
                SP_EUSAGE,
                "data.val: %s: its predictions would have the name of an unfinished "
                "file; name the shard without " SP_FILE_UNFINISHED,
                set->shard[i].path);
    }
    qsort(sorted, (size_t)set->n_shards, sizeof *sorted, by_base_name);
    for (int i = 1; i < set->n_shards; i++) {
        if (by_base_name(&sorted[i - 1], &sorted[i]) != 0)
            continue;
        predict_path_of(f, (int)(sorted[i] - set->shard), true, path);
        return SP_FAIL(SP_EUSAGE,
                       "data.val: the predictions of %s and of %s would both be %s; "
                       "predict them into two run folders",
                       sorted[i - 1]->path, sorted[i]->path, path);
    }
    return SP_OK;
}

sp_status sp_predict_files_begin(sp_predict_files *f)
{
    const sp_infer *infer = f->infer;
    SP_FREED const sp_shard **sorted = NULL;
    char dir[PATH_MAX];

    assert(f->n_begun == 0 && !f->file);
    SP_TRY(SP_NEW(&sorted, infer->data.val.n_shards, "the names of shards"));
    SP_TRY(predict_check_names(f, sorted));
    snprintf(dir, sizeof dir, "%s/predictions", infer->session.run.dir);
    return sp_file_make_folder(dir);
}

/* Labels travel as uint16; narrows them in place if the file has bytes. */
static const void *as_stored(const sp_predict_files *f, uint16_t *labels, int64_t n)
{
    uint8_t *narrow = (uint8_t *)labels;

    if (f->label_bytes == 1)
        for (int64_t i = 0; i < n; i++)
            narrow[i] = (uint8_t)labels[i];
    return labels;
}

/* Writes one value, of the given size, in all columns of the rows of a sample. */
static sp_status store_same(sp_h5 *file, const char *name, int64_t first, int64_t n,
                            int columns, const void *value, size_t bytes)
{
    const size_t all = (size_t)n * (size_t)columns * bytes;
    SP_FREED char *rows = NULL;

    SP_TRY(SP_NEW(&rows, all, name));
    for (size_t at = 0; at < all; at += bytes)
        memcpy(rows + at, value, bytes);
    return sp_h5_write_rows(file, name, first, n, rows);
}

/* A sample that data.on_error = "skip" left out has the label ignore_label, logits of
 * NaN, and points without a row in the scan. */
static sp_status store_skipped(sp_predict_files *f, int64_t sample)
{
    const sp_dataset *set = &f->infer->data.val;
    const int64_t row = sp_dataset_first_voxel(set, sample);
    const int64_t point = sp_dataset_first_point(set, sample);
    const int64_t n = sp_dataset_voxels(set, sample);
    const int64_t n_points = sp_dataset_points(set, sample);
    const uint64_t no_row = UINT64_MAX;
    const float no_logit = NAN;
    uint16_t label = (uint16_t)f->ignore_label;
    const void *ignore = as_stored(f, &label, 1);
    const size_t bytes = (size_t)f->label_bytes;

    f->n_skipped++;
    SP_TRY(store_same(f->file, "/labels", row, n, 1, ignore, bytes));
    if (f->with_logits)
        SP_TRY(store_same(f->file, "/logits", row, n, f->infer->network.n_classes,
                          &no_logit, sizeof no_logit));
    if (!set->has_points)
        return SP_OK;
    SP_TRY(store_same(f->file, "/point_labels", point, n_points, 1, ignore, bytes));
    return store_same(f->file, "/point_index", point, n_points, 1, &no_row,
                      sizeof no_row);
}

sp_status sp_predict_files_store(sp_predict_files *f, char *parcel)
{
    const sp_dataset *set = &f->infer->data.val;
    const sp_parcel head = *(const sp_parcel *)parcel;
    int shard = sp_dataset_shard_of(set, head.sample);
    const int64_t row = sp_dataset_first_voxel(set, head.sample);
    const int64_t point = sp_dataset_first_point(set, head.sample);
    char *at = parcel + sizeof head;
    sp_h5 *file;

    SP_TRY(turn_to(f, shard));
    file = f->file;
    if (head.n != sp_dataset_voxels(set, head.sample))
        return store_skipped(f, head.sample);
    f->n_voxels += head.n;
    f->n_points += head.n_points;
    if (f->with_logits) {
        SP_TRY(sp_h5_write_rows(file, "/logits", row, head.n, at));
        at += (size_t)head.n * 4 * (size_t)f->infer->network.n_classes;
    }
    if (set->has_points) {
        SP_TRY(sp_h5_write_rows(file, "/point_index", point, head.n_points, at));
        at += head.n_points * 8;
        SP_TRY(sp_h5_write_rows(file, "/point_labels", point, head.n_points,
                                as_stored(f, (uint16_t *)at, head.n_points)));
        at += head.n_points * 2;
    }
    return sp_h5_write_rows(file, "/labels", row, head.n,
                            as_stored(f, (uint16_t *)at, head.n));
}

sp_status sp_predict_files_finish(sp_predict_files *f)
{
    char temporary[PATH_MAX], path[PATH_MAX];

    SP_TRY(turn_to(f, f->infer->data.val.n_shards - 1));
    assert(f->n_begun > 0);
    SP_TRY(predict_close_file(f));
    for (int i = 0; i < f->n_begun; i++) {
        predict_path_of(f, i, false, temporary);
        predict_path_of(f, i, true, path);
        if (rename(temporary, path) != 0)
            return SP_FAIL(SP_EIO,
                           "%s: cannot rename it to %s: %s; of the %d files of "
                           "predictions the first %d are new, the others as they were: "
                           "run the same command again",
                           temporary, path, strerror(errno), f->n_begun, i);
    }
    return sp_file_sync_folder_of(path);
}

void sp_predict_files_discard(sp_predict_files *f)
{
    sp_error_record error;
    char path[PATH_MAX];

    sp_error_save(&error);
    predict_close_file(f);
    for (int i = 0; i < f->n_begun; i++) {
        predict_path_of(f, i, false, path);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/predictions", f->infer->session.run.dir);
    rmdir(path); /* succeeds if nothing else is in it */
    sp_error_raise(&error);
}

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/sp_crc.h"
#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "data/sp_shard_internal.h"

#define UNFINISHED      ".part" /* appended to the name of a shard until it is complete */
#define LOCK_PATIENCE_S 10.0    /* the sample data are made in less */

struct sp_shard_writer {
    sp_h5 *h5;
    char *path, *temporary;
    sp_shard_meta meta; /* without its lists, which belong to the caller */
    int label_bytes;    /* bytes of a stored label: 1 or 2 */
    int64_t n_samples;
    int64_t *offset, *point_offset; /* [n_samples + 1] rows of the samples */
    int64_t *context_offset;        /* the same; NULL: samples are no blocks */
    bool *is_written;               /* [n_samples] */
    char **scan;                    /* [n_samples] of the blocks */
    double *square;                 /* [n_samples][5] of the blocks, with the margin */
    int64_t *number;                /* [n_samples][3] */
    double *origin;                 /* [n_samples][3] */
    uint32_t *crc;                  /* [n_samples] */
    int64_t *cost;                  /* [n_samples][SP_COST_COLUMNS] */
    int64_t n_costs;
    char **name; /* [n_samples] */
    bool has_names;
    void *label; /* room for the labels of one sample as stored; it grows */
    size_t label_room;
};

static sp_status no_memory(const sp_shard_writer *w)
{
    return SP_FAIL(SP_EMEM, "%s: no memory to write it", w->path);
}

static void destroy(sp_shard_writer *w)
{
    sp_h5_list_free(w->name, w->n_samples);
    sp_h5_list_free(w->scan, w->n_samples);
    free(w->square);
    free(w->number);
    free(w->context_offset);
    free(w->path);
    free(w->temporary);
    free(w->offset);
    free(w->point_offset);
    free(w->is_written);
    free(w->origin);
    free(w->crc);
    free(w->cost);
    free(w->label);
    free(w);
}

/* ---- creating ---- */

static sp_status allocate(sp_shard_writer *w, int64_t n_samples)
{
    size_t n = (size_t)n_samples + 1, length = strlen(w->path) + 8;

    w->n_samples = n_samples;
    w->temporary = malloc(length);
    if (w->temporary) /* closing after a failure removes the file of this name */
        snprintf(w->temporary, length, "%s" UNFINISHED, w->path);
    w->offset = calloc(n, sizeof *w->offset);
    w->point_offset = calloc(n, sizeof *w->point_offset);
    w->is_written = calloc(n, sizeof *w->is_written);
    w->origin = calloc(n, 3 * sizeof *w->origin);
    w->crc = calloc(n, sizeof *w->crc);
    w->cost = calloc(n, SP_COST_COLUMNS * sizeof *w->cost);
    w->name = calloc(n, sizeof *w->name);
    if (!w->temporary || !w->offset || !w->point_offset || !w->is_written ||
        !w->origin || !w->crc || !w->cost || !w->name)
        return no_memory(w);
    return SP_OK;
}

static sp_status allocate_blocks(sp_shard_writer *w)
{
    size_t n = (size_t)w->n_samples + 1;

    w->context_offset = calloc(n, sizeof *w->context_offset);
    w->scan = calloc(n, sizeof *w->scan);
    w->square = calloc(n, 5 * sizeof *w->square);
    w->number = calloc(n, 3 * sizeof *w->number);
    if (!w->context_offset || !w->scan || !w->square || !w->number)
        return no_memory(w);
    for (int64_t i = 0; i < w->n_samples; i++)
        w->context_offset[i + 1] = w->context_offset[i] + w->meta.context[i];
    return SP_OK;
}

static sp_status check_meta(sp_shard_writer *w)
{
    const sp_shard_meta *m = &w->meta;

    if (m->n_classes < 1 || m->n_classes > 65536 || m->ignore_label < 0 ||
        m->ignore_label > 65535)
        return SP_FAIL(SP_EUSAGE,
                       "%s: %d classes and ignore_label %d do not fit the labels' type",
                       w->path, m->n_classes, m->ignore_label);
    if (m->n_features < 1 || !(m->voxel_size > 0 && m->voxel_size <= SP_VOXEL_LARGEST))
        return SP_FAIL(SP_EUSAGE,
                       "%s: %d feature columns, voxel_size %g: both must be > 0, and "
                       "the size at most %g",
                       w->path, m->n_features, m->voxel_size, SP_VOXEL_LARGEST);
    w->label_bytes = m->n_classes <= 256 && m->ignore_label <= 255 ? 1 : 2;
    return SP_OK;
}

static sp_status write_attributes(sp_shard_writer *w)
{
    const sp_shard_meta *m = &w->meta;
    char *format[] = {"sptrain-voxels"};
    int64_t version = 1, n_classes = m->n_classes, ignore = m->ignore_label;

    SP_TRY(sp_h5_attr_write_texts(w->h5, "/", "format", -1, format));
    SP_TRY(sp_h5_attr_write(w->h5, "/", "version", SP_H5_I64, -1, &version));
    SP_TRY(sp_h5_attr_write(w->h5, "/", "voxel_size", SP_H5_F64, -1, &m->voxel_size));
    SP_TRY(sp_h5_attr_write(w->h5, "/", "num_classes", SP_H5_I64, -1, &n_classes));
    SP_TRY(sp_h5_attr_write(w->h5, "/", "ignore_label", SP_H5_I64, -1, &ignore));
    SP_TRY(
        sp_h5_attr_write_texts(w->h5, "/", "class_names", m->n_classes, m->class_name));
    if (m->class_code)
        SP_TRY(sp_h5_attr_write_texts(w->h5, "/", "class_codes", m->n_classes,
                                      m->class_code));
    SP_TRY(sp_h5_attr_write_texts(w->h5, "/", "feature_names", m->n_features,
                                  m->feature_name));
    if (m->feature_mean)
        SP_TRY(sp_h5_attr_write(w->h5, "/", "feature_mean", SP_H5_F64, m->n_features,
                                m->feature_mean));
    if (m->feature_std)
        SP_TRY(sp_h5_attr_write(w->h5, "/", "feature_std", SP_H5_F64, m->n_features,
                                m->feature_std));
    return sp_recipe_write(w->h5, m->recipe);
}

static sp_h5_type label_type(const sp_shard_writer *w)
{
    return w->label_bytes == 1 ? SP_H5_U8 : SP_H5_U16;
}

static sp_status make_datasets(sp_shard_writer *w)
{
    int64_t S1 = w->n_samples + 1, M = w->offset[w->n_samples];
    int64_t P = w->point_offset[w->n_samples];
    int64_t three[2] = {M, 3}, features[2] = {M, w->meta.n_features};

    SP_TRY(sp_h5_write(w->h5, "/offsets", SP_H5_I64, 1, &S1, w->offset));
    SP_TRY(sp_h5_write(w->h5, "/coords", SP_H5_I32, 2, three, NULL));
    SP_TRY(sp_h5_write(w->h5, "/features", SP_H5_F32, 2, features, NULL));
    if (w->meta.has_labels)
        SP_TRY(sp_h5_write(w->h5, "/labels", label_type(w), 1, &M, NULL));
    if (w->meta.has_subvoxel)
        SP_TRY(sp_h5_write(w->h5, "/subvoxel", SP_H5_U8, 2, three, NULL));
    if (!w->meta.has_points)
        return SP_OK;
    SP_TRY(sp_h5_write(w->h5, "/point_offsets", SP_H5_I64, 1, &S1, w->point_offset));
    SP_TRY(sp_h5_write(w->h5, "/point_voxel", SP_H5_U32, 1, &P, NULL));
    if (w->meta.has_labels)
        SP_TRY(sp_h5_write(w->h5, "/point_labels", label_type(w), 1, &P, NULL));
    return sp_h5_write(w->h5, "/point_index", SP_H5_U64, 1, &P, NULL);
}

static sp_status make_context(sp_shard_writer *w)
{
    int64_t S1 = w->n_samples + 1, Q = w->context_offset[w->n_samples];

    SP_TRY(
        sp_h5_write(w->h5, "/context_offsets", SP_H5_I64, 1, &S1, w->context_offset));
    SP_TRY(sp_h5_write(w->h5, "/context_voxel", SP_H5_U32, 1, &Q, NULL));
    SP_TRY(sp_h5_write(w->h5, "/context_block", SP_H5_U32, 1, &Q, NULL));
    return sp_h5_write(w->h5, "/context_point", SP_H5_U32, 1, &Q, NULL);
}

static sp_status begin(sp_shard_writer *w, int64_t n_samples, const int64_t *voxels,
                       const int64_t *points)
{
    SP_TRY(check_meta(w));
    SP_TRY(allocate(w, n_samples));
    for (int64_t i = 0; i < n_samples; i++) {
        w->offset[i + 1] = w->offset[i] + voxels[i];
        w->point_offset[i + 1] =
            w->point_offset[i] + (w->meta.has_points ? points[i] : 0);
    }
    if (w->meta.context)
        SP_TRY(allocate_blocks(w));
    SP_TRY(sp_h5_create(&w->h5, w->temporary));
    SP_TRY(write_attributes(w));
    SP_TRY(make_datasets(w));
    return w->meta.context ? make_context(w) : SP_OK;
}

sp_status sp_shard_create(sp_shard_writer **writer, const char *path,
                          const sp_shard_meta *meta, int64_t n_samples,
                          const int64_t *voxels, const int64_t *points)
{
    sp_shard_writer *w = calloc(1, sizeof *w);
    sp_status rc;

    assert(path && meta && n_samples >= 0);
    assert(voxels || n_samples == 0);
    assert(points || !meta->has_points || n_samples == 0);
    assert(meta->has_points || !meta->context);
    *writer = NULL;
    if (!w || !(w->path = strdup(path))) {
        free(w);
        return SP_FAIL(SP_EMEM, "%s: no memory to write it", path);
    }
    w->meta = *meta;
    rc = begin(w, n_samples, voxels, points);
    w->meta.class_name = w->meta.class_code = w->meta.feature_name = NULL;
    w->meta.feature_mean = w->meta.feature_std = NULL;
    w->meta.recipe = NULL;
    w->meta.context = NULL;
    *writer = w;
    if (rc != SP_OK) {
        rc = sp_shard_close(w, rc);
        *writer = NULL;
    }
    return rc;
}

/* ---- samples ---- */

/* Converts labels to the stored type, in w->label. */
static sp_status pack_labels(sp_shard_writer *w, const int32_t *label, int64_t n)
{
    size_t bytes = (size_t)n * (size_t)w->label_bytes;
    uint8_t *narrow;
    uint16_t *wide;

    if (!sp_list_reserve(&w->label, &w->label_room, bytes))
        return no_memory(w);
    narrow = w->label;
    wide = w->label;
    for (int64_t i = 0; i < n; i++) {
        int32_t value = label[i] == SP_IGNORE ? w->meta.ignore_label : label[i];

        if (label[i] != SP_IGNORE && (label[i] < 0 || label[i] >= w->meta.n_classes))
            return SP_FAIL(SP_EDATA,
                           "%s: label %d of row %lld is not one of %d classes", w->path,
                           label[i], (long long)i, w->meta.n_classes);
        if (w->label_bytes == 1)
            narrow[i] = (uint8_t)value;
        else
            wide[i] = (uint16_t)value;
    }
    return SP_OK;
}

static sp_status write_voxels(sp_shard_writer *w, int64_t index, const sp_sample *s)
{
    int64_t first = w->offset[index], n = s->n;
    uint32_t crc;

    SP_TRY(sp_h5_write_rows(w->h5, "/coords", first, n, s->coords));
    SP_TRY(sp_h5_write_rows(w->h5, "/features", first, n, s->features));
    crc = sp_crc32c(0, s->coords, (size_t)n * 3 * sizeof *s->coords);
    crc = sp_crc32c(crc, s->features,
                    (size_t)n * (size_t)w->meta.n_features * sizeof *s->features);
    if (w->meta.has_labels) {
        SP_TRY(pack_labels(w, s->labels, n));
        SP_TRY(sp_h5_write_rows(w->h5, "/labels", first, n, w->label));
        crc = sp_crc32c(crc, w->label, (size_t)n * (size_t)w->label_bytes);
    }
    w->crc[index] = crc;
    if (w->meta.has_subvoxel)
        SP_TRY(sp_h5_write_rows(w->h5, "/subvoxel", first, n, s->subvoxel));
    return SP_OK;
}

static sp_status write_points(sp_shard_writer *w, int64_t index, const sp_sample *s)
{
    int64_t first = w->point_offset[index], n = s->n_points;

    if (!w->meta.has_points)
        return SP_OK;
    SP_TRY(sp_h5_write_rows(w->h5, "/point_voxel", first, n, s->point_voxel));
    SP_TRY(sp_h5_write_rows(w->h5, "/point_index", first, n, s->point_index));
    if (!w->meta.has_labels)
        return SP_OK;
    SP_TRY(pack_labels(w, s->point_labels, n));
    return sp_h5_write_rows(w->h5, "/point_labels", first, n, w->label);
}

static sp_status write_context(sp_shard_writer *w, int64_t index, const sp_sample *s)
{
    int64_t first, n = s->n_context;

    if (!w->context_offset)
        return SP_OK;
    first = w->context_offset[index];
    if (n != w->context_offset[index + 1] - first)
        return SP_FAIL_INTERNAL(
            SP_EUSAGE,
            "%s: sample %lld has %lld points in its margin, another number "
            "was declared",
            w->path, (long long)index, (long long)n);
    SP_TRY(sp_h5_write_rows(w->h5, "/context_voxel", first, n, s->context_voxel));
    SP_TRY(sp_h5_write_rows(w->h5, "/context_block", first, n, s->context_block));
    return sp_h5_write_rows(w->h5, "/context_point", first, n, s->context_point);
}

static sp_status check_sample(const sp_shard_writer *w, int64_t index,
                              const sp_sample *s)
{
    if (index < 0 || index >= w->n_samples || w->is_written[index])
        return SP_FAIL_INTERNAL(
            SP_EUSAGE, "%s: sample %lld of %lld is written twice or not its own",
            w->path, (long long)index, (long long)w->n_samples);
    if (s->n != w->offset[index + 1] - w->offset[index] ||
        (w->meta.has_points &&
         s->n_points != w->point_offset[index + 1] - w->point_offset[index]))
        return SP_FAIL_INTERNAL(
            SP_EUSAGE,
            "%s: sample %lld has %lld voxels and %lld points, other numbers were "
            "declared",
            w->path, (long long)index, (long long)s->n, (long long)s->n_points);
    return SP_OK;
}

sp_status sp_shard_write_sample(sp_shard_writer *w, int64_t index,
                                const sp_sample *sample, const char *name,
                                const int64_t cost[SP_COST_COLUMNS])
{
    assert(sample && (sample->n == 0 || (sample->coords && sample->features)));
    SP_TRY(check_sample(w, index, sample));
    SP_TRY(write_voxels(w, index, sample));
    SP_TRY(write_points(w, index, sample));
    SP_TRY(write_context(w, index, sample));
    memcpy(w->origin + 3 * index, sample->origin, sizeof sample->origin);
    if (cost) {
        memcpy(w->cost + index * SP_COST_COLUMNS, cost, SP_COST_COLUMNS * sizeof *cost);
        w->n_costs++;
    }
    if (name && !(w->name[index] = strdup(name)))
        return no_memory(w);
    w->has_names |= name != NULL;
    w->is_written[index] = true;
    return SP_OK;
}

sp_status sp_shard_write_block(sp_shard_writer *w, int64_t index, const char *scan,
                               const sp_block *block)
{
    const double square[5] = {block->low[0], block->low[1], block->high[0],
                              block->high[1], block->margin};
    const int64_t number[3] = {block->number, block->first, block->last};

    assert(w->context_offset && 0 <= index && index < w->n_samples);
    assert(!w->scan[index]);
    memcpy(w->square + 5 * index, square, sizeof square);
    memcpy(w->number + 3 * index, number, sizeof number);
    w->scan[index] = strdup(scan);
    return w->scan[index] ? SP_OK : no_memory(w);
}

/* ---- closing ---- */

static sp_status write_blocks(sp_shard_writer *w)
{
    int64_t S = w->n_samples, square[2] = {S, 5}, number[2] = {S, 3};

    if (!w->context_offset)
        return SP_OK;
    for (int64_t i = 0; i < S; i++)
        if (!w->scan[i])
            return SP_FAIL_INTERNAL(SP_EUSAGE, "%s: block of sample %lld was not told",
                                    w->path, (long long)i);
    SP_TRY(sp_h5_write(w->h5, "/block", SP_H5_F64, 2, square, w->square));
    SP_TRY(sp_h5_write(w->h5, "/block_number", SP_H5_I64, 2, number, w->number));
    return sp_h5_write_texts(w->h5, "/scan", S, w->scan);
}

static sp_status write_rest(sp_shard_writer *w)
{
    int64_t S = w->n_samples, origin[2] = {S, 3}, cost[2] = {S, SP_COST_COLUMNS};

    for (int64_t i = 0; i < S; i++) {
        if (!w->is_written[i])
            return SP_FAIL_INTERNAL(SP_EUSAGE, "%s: sample %lld was not written",
                                    w->path, (long long)i);
        if (w->has_names && !w->name[i] && !(w->name[i] = strdup("")))
            return no_memory(w);
    }
    SP_TRY(sp_h5_write(w->h5, "/origin", SP_H5_F64, 2, origin, w->origin));
    SP_TRY(sp_h5_write(w->h5, "/crc32c", SP_H5_U32, 1, &S, w->crc));
    if (S > 0 && w->n_costs == S)
        SP_TRY(sp_h5_write(w->h5, "/cost", SP_H5_I64, 2, cost, w->cost));
    SP_TRY(write_blocks(w));
    return w->has_names ? sp_h5_write_texts(w->h5, "/names", S, w->name) : SP_OK;
}

sp_status sp_shard_close(sp_shard_writer *w, sp_status rc)
{
    sp_error_record first;
    sp_status closed;

    if (!w)
        return rc;
    if (rc == SP_OK)
        rc = write_rest(w);
    sp_error_save(&first);
    closed = sp_h5_close(w->h5);
    if (rc != SP_OK)
        sp_error_raise(&first);
    else if (closed != SP_OK)
        rc = closed;
    else if (!w->meta.is_of_set)
        rc = sp_file_rename(w->temporary, w->path);
    if (rc != SP_OK && w->temporary)
        unlink(w->temporary);
    destroy(w);
    return rc;
}

/* ---- the shards of a set ---- */

sp_status sp_shard_path(const char *prefix, int s, int n, char *path, size_t size)
{
    assert(prefix && 0 <= s && s < n && path);
    if (!*sp_file_name(prefix))
        return SP_FAIL(SP_EUSAGE,
                       "--out %s: expected PREFIX, the beginning of the "
                       "shards' names, such as %strain",
                       prefix, prefix);
    if (snprintf(path, size, "%s-%05d-of-%05d.h5", prefix, s, n) >= (int)size)
        return SP_FAIL(SP_EUSAGE, "%s: the name is too long", prefix);
    return SP_OK;
}

/* The file is opened again if its owner has removed it meanwhile. */
sp_status sp_shards_lock(const char *prefix, int *lock)
{
    const double begin_s = sp_now_s();
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s.lock", prefix);
    do {
        SP_TRY(sp_file_open(path, O_RDWR | O_CREAT | O_NOFOLLOW, lock));
        if (flock(*lock, LOCK_EX | LOCK_NB) == 0 ? sp_file_is_at(path, *lock)
                                                 : errno != EWOULDBLOCK)
            return SP_OK;
        sp_file_done(lock);
        *lock = -1;
        sp_sleep_s(0.05);
    } while (sp_now_s() - begin_s < LOCK_PATIENCE_S);
    return SP_FAIL(
        SP_EIO,
        "%s: another process is making shards of this name; wait for its end, "
        "or choose another name",
        prefix);
}

void sp_shards_unlock(const char *prefix, int *lock)
{
    char path[PATH_MAX];

    if (*lock < 0)
        return;
    snprintf(path, sizeof path, "%s.lock", prefix);
    unlink(path);
    sp_file_done(lock);
    *lock = -1;
}

sp_status sp_shards_end(const char *prefix, int n, int rank, int size, sp_status rc)
{
    char path[PATH_MAX], temporary[PATH_MAX + sizeof UNFINISHED];

    assert(prefix && n >= 1 && 0 <= rank && rank < size);
    for (int s = rank; s < n; s += size) {
        if (sp_shard_path(prefix, s, n, path, sizeof path) != SP_OK)
            return SP_EUSAGE; /* no shard of such a set was made */
        snprintf(temporary, sizeof temporary, "%s" UNFINISHED, path);
        if (rc == SP_OK)
            rc = sp_file_rename(temporary, path);
        else
            unlink(temporary);
    }
    return rc;
}

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_crc.h"
#include "data/sp_shard_internal.h"

struct sp_shard_writer {
    sp_h5 *h5;
    char *path, *temporary;
    sp_shard_meta meta; /* without its lists, which belong to the caller */
    int label_bytes;    /* bytes of a stored label: 1 or 2 */
    int64_t n_samples;
    int64_t *offset, *point_offset; /* [n_samples + 1] rows of the samples */
    bool *is_written;               /* [n_samples] */
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
    for (int64_t i = 0; w->name && i < w->n_samples; i++)
        free(w->name[i]);
    free(w->name);
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
    snprintf(w->temporary, length, "%s.part", w->path);
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
    if (m->n_features < 1 || !(m->voxel_size > 0))
        return SP_FAIL(SP_EUSAGE,
                       "%s: %d feature columns, voxel_size %g: both must be > 0",
                       w->path, m->n_features, m->voxel_size);
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
    SP_TRY(sp_h5_create(&w->h5, w->temporary));
    SP_TRY(write_attributes(w));
    return make_datasets(w);
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

    if (bytes > w->label_room) {
        free(w->label);
        w->label_room = 0;
        if (!(w->label = malloc(bytes)))
            return no_memory(w);
        w->label_room = bytes;
    }
    narrow = w->label;
    wide = w->label;
    for (int64_t i = 0; i < n; i++) {
        int32_t value = label[i] == SP_IGNORE ? w->meta.ignore_label : label[i];

        if (label[i] != SP_IGNORE && (label[i] < 0 || label[i] >= w->meta.n_classes))
            return SP_FAIL(SP_EDATA, "%s: label %d of row %lld is none of %d classes",
                           w->path, label[i], (long long)i, w->meta.n_classes);
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

sp_status sp_shard_write_sample(sp_shard_writer *writer, int64_t index,
                                const sp_sample *sample, const char *name,
                                const int64_t cost[SP_COST_COLUMNS])
{
    sp_shard_writer *w = writer;

    assert(sample && (sample->n == 0 || (sample->coords && sample->features)));
    SP_TRY(check_sample(w, index, sample));
    SP_TRY(write_voxels(w, index, sample));
    SP_TRY(write_points(w, index, sample));
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

/* ---- closing ---- */

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
    return w->has_names ? sp_h5_write_texts(w->h5, "/names", S, w->name) : SP_OK;
}

static sp_status move_into_place(sp_shard_writer *w)
{
    int folder;

    if (rename(w->temporary, w->path) != 0)
        return SP_FAIL(SP_EIO, "%s: cannot be renamed: %s", w->temporary,
                       strerror(errno));
    /* The name of the file must reach the disk too. Some file systems cannot flush
     * folders. */
    folder = open(dirname(w->temporary), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        fsync(folder);
        close(folder);
    }
    return SP_OK;
}

sp_status sp_shard_close(sp_shard_writer *writer, sp_status rc)
{
    sp_shard_writer *w = writer;
    sp_error_record first;
    sp_status closed;

    if (!w)
        return rc;
    if (rc == SP_OK)
        rc = write_rest(w);
    sp_error_save(&first);
    closed = sp_h5_close(w->h5);
    if (rc == SP_OK)
        rc = closed == SP_OK ? move_into_place(w) : closed;
    else
        sp_error_raise(&first);
    if (rc != SP_OK && w->temporary)
        unlink(w->temporary);
    destroy(w);
    return rc;
}

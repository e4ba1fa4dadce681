/* Samples of shards, and predictions of them, for spvox view. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_text.h"
#include "compute/sp_backend.h"
#include "data/sp_shard.h"
#include "h5/sp_h5.h"
#include "vox/vox_view.h"

/* ---- predictions ---- */

/* Reads the bounds of a sample's rows out of /offsets. */
static sp_status view_read_bounds(sp_h5 *file, const char *path, int64_t sample,
                                  int64_t bounds[2])
{
    sp_h5_shape shape;

    SP_TRY(sp_h5_shape_of(file, "/offsets", &shape));
    if (shape.rank != 1 || shape.type.kind != 'i' || shape.type.size != 8 ||
        shape.type.is_swapped || shape.dim[0] < sample + 2)
        return SP_FAIL(SP_EDATA,
                       "%s:/offsets: expected int64 [%" PRId64 "] or more, as sptrain "
                       "predict writes it",
                       path, sample + 2);
    return sp_h5_read_rows(file, "/offsets", sample, 2, bounds);
}

/* Reads a sample's predicted classes, of one byte or two, into points->prediction. */
static sp_status view_read_labels(vox_view_points *points, sp_h5 *file,
                                  const char *path, int64_t sample)
{
    int64_t bounds[2], ignore = VOX_IGNORE_LABEL;
    sp_h5_shape shape;
    SP_FREED uint8_t *raw = NULL;

    SP_TRY(view_read_bounds(file, path, sample, bounds));
    SP_TRY(sp_h5_shape_of(file, "/labels", &shape));
    if (bounds[1] - bounds[0] != points->n || bounds[0] < 0 || shape.rank != 1 ||
        bounds[1] > shape.dim[0])
        return SP_FAIL(SP_EDATA,
                       "%s: sample %" PRId64 " has %" PRId64 " rows, the shard's has "
                       "%" PRId64 ": are these predictions of another shard?",
                       path, sample, bounds[1] - bounds[0], points->n);
    if (shape.type.kind != 'u' || shape.type.size > 2 || shape.type.is_swapped)
        return SP_FAIL(SP_EDATA, "%s:/labels: expected uint8 or uint16", path);
    if (sp_h5_attr_has(file, "/", "ignore_label"))
        SP_TRY(sp_h5_attr_read_int(file, "/", "ignore_label", &ignore));
    SP_TRY(SP_NEW(&points->prediction, points->n, "points"));
    SP_TRY(SP_NEW(&raw, 2 * points->n, "points"));
    if (points->n)
        SP_TRY(sp_h5_read_rows(file, "/labels", bounds[0], points->n, raw));
    for (int64_t i = 0; i < points->n; i++) {
        const int label =
            shape.type.size == 1 ? raw[i] : raw[2 * i] | raw[2 * i + 1] << 8;

        points->prediction[i] =
            label == ignore || label >= points->n_classes ? SP_IGNORE : label;
    }
    return SP_OK;
}

/* Uses the names of the predicted classes for a shard without labels; its own say
 * nothing. */
static sp_status view_rename_classes(vox_view_points *points, sp_h5 *file)
{
    char **name = NULL;
    int n = 0;

    if (!sp_h5_attr_has(file, "/", "class_names"))
        return SP_OK;
    SP_TRY(sp_h5_attr_read_texts(file, "/", "class_names", &name, &n));
    sp_h5_list_free(points->class_name, points->n_classes);
    points->class_name = name;
    points->n_classes = n;
    return SP_OK;
}

/* Renumbers predicted classes as the shard numbers them: a model's classes may have
 * another order. */
static sp_status match_classes(vox_view_points *points, sp_h5 *file, const char *path)
{
    char **name = NULL;
    int n = 0;
    int32_t of[VOX_MAX_CODE + 1];

    if (!sp_h5_attr_has(file, "/", "class_names"))
        return SP_OK;
    SP_TRY(sp_h5_attr_read_texts(file, "/", "class_names", &name, &n));
    for (int c = 0; c < n && c <= VOX_MAX_CODE; c++) {
        of[c] = sp_text_find(points->n_classes, points->class_name, name[c]);
        if (of[c] < 0) {
            sp_status rc = SP_FAIL(
                SP_EDATA, "%s: class \"%s\" is no class of the shard", path, name[c]);

            sp_h5_list_free(name, n);
            return rc;
        }
    }
    sp_h5_list_free(name, n);
    for (int64_t i = 0; i < points->n; i++)
        if (points->prediction[i] >= 0)
            points->prediction[i] =
                points->prediction[i] < n ? of[points->prediction[i]] : SP_IGNORE;
    return SP_OK;
}

static sp_status load_prediction(vox_view_points *points, const char *path,
                                 int64_t sample, bool has_labels)
{
    SP_CLOSED_BY(sp_h5_done) sp_h5 *file = NULL;

    SP_TRY(sp_h5_open(&file, path));
    if (!sp_h5_has(file, "/offsets") || !sp_h5_has(file, "/labels") ||
        sp_h5_has(file, "/coords"))
        return SP_FAIL(SP_EDATA,
                       "%s: no predictions: expected /offsets and /labels, and no "
                       "/coords, which a shard has",
                       path);
    if (!has_labels)
        SP_TRY(view_rename_classes(points, file));
    SP_TRY(view_read_labels(points, file, path, sample));
    return has_labels ? match_classes(points, file, path) : SP_OK;
}

/* ---- shards ---- */

static sp_status view_find_column(const sp_dataset *set, const char *name, int *column)
{
    char names[400];

    *column = sp_text_find(set->n_features, set->feature_name, name);
    if (*column >= 0)
        return SP_OK;
    sp_dataset_print_names(names, sizeof names, set->n_features, set->feature_name,
                           NULL);
    return SP_FAIL(SP_EUSAGE, "--feature %s: %s has %s, and z", name,
                   set->shard[0].path, names);
}

static sp_status view_copy_features(vox_view_points *points, const sp_sample *s,
                                    int column)
{
    SP_TRY(SP_NEW(&points->value, s->n, "points"));
    for (int64_t i = 0; i < s->n; i++)
        points->value[i] =
            column < 0 ? points->xyz[3 * i + 2] + (float)s->origin[2] : s->features[i];
    return SP_OK;
}

/* Copies the places of the voxels' centres. */
static sp_status view_copy_centres(vox_view_points *points, const sp_sample *s,
                                   bool is_from_sensor)
{
    SP_TRY(SP_NEW(&points->xyz, 3 * s->n, "points"));
    points->n = s->n;
    for (int64_t i = 0; i < s->n; i++)
        for (int k = 0; k < 3; k++)
            points->xyz[3 * i + k] =
                (float)(((double)s->coords[3 * i + k] + 0.5) * points->cell +
                        (is_from_sensor ? s->origin[k] : 0));
    return SP_OK;
}

static sp_status view_copy_names(vox_view_points *points, const sp_dataset *set,
                                 int64_t sample)
{
    enum { LONG = 4200 };

    SP_TRY(SP_NEW(&points->class_name, set->n_classes, "names of classes"));
    SP_TRY(SP_NEW(&points->sample_name, LONG, "the name of a sample"));
    snprintf(points->sample_name, LONG, "sample %" PRId64 "%s%s%s", sample,
             set->has_names ? " (" : "", sp_dataset_name(set, sample),
             set->has_names ? ")" : "");
    for (; points->n_classes < set->n_classes; points->n_classes++) {
        const int c = points->n_classes;
        char number[24];

        snprintf(number, sizeof number, "class %d", c);
        points->class_name[c] = strdup(set->class_name ? set->class_name[c] : number);
        if (!points->class_name[c])
            return SP_FAIL(SP_EMEM, "no memory for names of classes");
    }
    return SP_OK;
}

/* Chooses the values to draw: a named feature or predictions, else labels, else
 * heights. */
static sp_status view_shard_choose_values(vox_view_points *points,
                                          const vox_view_request *request,
                                          bool has_labels)
{
    points->by = request->by;
    if (points->by == VOX_BY_DEFAULT)
        points->by = request->feature      ? VOX_BY_FEATURE
                     : request->prediction ? VOX_BY_PREDICTION
                     : has_labels          ? VOX_BY_LABELS
                                           : VOX_BY_FEATURE;
    if ((points->by == VOX_BY_LABELS || points->by == VOX_BY_ERROR) && !has_labels)
        return SP_FAIL(SP_EUSAGE, "%s: no labels, so --by %s is not possible",
                       request->path, points->by == VOX_BY_LABELS ? "labels" : "error");
    if ((points->by == VOX_BY_PREDICTION || points->by == VOX_BY_ERROR) &&
        !request->prediction)
        return SP_FAIL(SP_EUSAGE,
                       "--by prediction and --by error need the predictions too: spvox "
                       "view %s RUN/predictions/FILE (sptrain predict writes it)",
                       request->path);
    return SP_OK;
}

static sp_status load_sample(vox_view_points *points, const vox_view_request *request,
                             const sp_dataset *set, int64_t sample, sp_sample *s)
{
    const bool is_height = !request->feature || strcmp(request->feature, "z") == 0;
    int column = -1;
    sp_sample_request asked = {.columns = &column, .n_columns = 1, .verify = true};

    SP_TRY(view_shard_choose_values(points, request, set->has_labels));
    if (points->by == VOX_BY_FEATURE && !is_height)
        SP_TRY(view_find_column(set, request->feature, &column));
    if (column < 0)
        asked.columns = NULL;
    asked.n_columns = column < 0 ? 0 : 1;
    SP_TRY(sp_sample_read(set, sample, &asked, s));
    points->cell = set->voxel_size;
    points->unit = "voxels";
    SP_TRY(view_copy_names(points, set, sample));
    SP_TRY(view_copy_centres(points, s, request->from == SP_FROM_SENSOR));
    if (points->by == VOX_BY_FEATURE)
        return view_copy_features(points, s, column);
    if (set->has_labels) {
        SP_TRY(SP_NEW(&points->label, s->n, "points"));
        memcpy(points->label, s->labels, (size_t)s->n * sizeof *points->label);
    }
    return points->by == VOX_BY_LABELS
               ? SP_OK
               : load_prediction(points, request->prediction, sample, set->has_labels);
}

sp_status vox_view_load_shard(vox_view_points *points, const vox_view_request *request)
{
    char *path = (char *)(uintptr_t)request->path;
    const sp_strings patterns = {1, &path};
    const int64_t sample = request->sample < 0 ? 0 : request->sample;
    SP_CLOSED_BY(sp_dataset_close) sp_dataset set = {0};
    SP_CLOSED_BY(sp_sample_destroy) sp_sample s = {0};

    assert(!points->xyz && "the points are zeroed");
    assert(request->sample >= -1);
    SP_TRY(sp_dataset_open(&set, &patterns, NULL));
    if (sample >= set.n_samples)
        return SP_FAIL(SP_EUSAGE,
                       "%s: sample %" PRId64 ": the file has %" PRId64
                       " samples, numbered from 0",
                       path, sample, set.n_samples);
    return load_sample(points, request, &set, sample, &s);
}

void vox_view_destroy(vox_view_points *points)
{
    sp_h5_list_free(points->class_name, points->n_classes);
    free(points->class_colour);
    free(points->sample_name);
    free(points->xyz);
    free(points->label);
    free(points->prediction);
    free(points->value);
    *points = (vox_view_points){0};
}

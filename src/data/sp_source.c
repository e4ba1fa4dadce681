#include "data/sp_source.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_text.h"
#include "data/sp_sample_internal.h"

/* No memory has room for the index of more. */
static const int64_t MOST_SAMPLES = INT64_C(1) << 40;

/* ---- opening ---- */

/* Copies n names, or makes them of `stem` and a number. */
static char **copy_names(int n, const char *const *from, const char *stem)
{
    char **name = calloc((size_t)n + 1, sizeof *name), made[32];

    for (int i = 0; name && i < n; i++) {
        snprintf(made, sizeof made, "%s%d", stem, i);
        name[i] = strdup(from ? from[i] : made);
        if (!name[i]) {
            sp_h5_list_free(name, n);
            return NULL;
        }
    }
    return name;
}

/* Refuses what a shard of these names could not be read with. */
static sp_status check_names(int n, const char *const *name, const char *of)
{
    const char *twice;

    for (int i = 0; name && i < n; i++)
        if (!name[i])
            return SP_FAIL(SP_EUSAGE, "%s_names[%d] is NULL", of, i);
    if (!name)
        return SP_OK;
    if (!sp_text_twice(n, (char *const *)(uintptr_t)name, &twice))
        return SP_FAIL(SP_EMEM, "no memory for a data set");
    if (twice)
        return SP_FAIL(SP_EUSAGE,
                       "%s_names has \"%s\" twice, expected another name for each", of,
                       twice);
    return SP_OK;
}

static double *copy_numbers(int n, const double *from)
{
    double *copy = malloc((size_t)n * sizeof *copy);

    if (copy)
        memcpy(copy, from, (size_t)n * sizeof *copy);
    return copy;
}

static sp_status check_about(const sp_source_about *about, int64_t n_samples)
{
    if (!(about->voxel_size > 0 && about->voxel_size <= SP_VOXEL_LARGEST))
        return SP_FAIL(SP_EUSAGE,
                       "voxel_size is %g, expected a length above 0 in metre, at most "
                       "%g",
                       about->voxel_size, SP_VOXEL_LARGEST);
    if (about->n_features < 1 || about->n_features > 4096)
        return SP_FAIL(SP_EUSAGE, "n_features is %d, expected 1 to 4096",
                       about->n_features);
    if (about->n_classes < 1 || about->n_classes > 65535)
        return SP_FAIL(SP_EUSAGE, "n_classes is %d, expected 1 to 65535",
                       about->n_classes);
    SP_TRY(check_names(about->n_features, about->feature_name, "feature"));
    SP_TRY(check_names(about->n_classes, about->class_name, "class"));
    if (!about->mean != !about->std)
        return SP_FAIL(SP_EUSAGE,
                       "feature_mean and feature_std: expected both or neither");
    for (int c = 0; about->mean && c < about->n_features; c++)
        if (!isfinite(about->mean[c]) || !isfinite(about->std[c]) || about->std[c] < 0)
            return SP_FAIL(SP_EUSAGE,
                           "feature %d has mean %g and standard deviation %g, expected "
                           "finite numbers, the second not below 0",
                           c, about->mean[c], about->std[c]);
    if (n_samples < 0 || n_samples > MOST_SAMPLES)
        return SP_FAIL(SP_EUSAGE, "n_samples is %lld, expected 0 to %lld",
                       (long long)n_samples, (long long)MOST_SAMPLES);
    return SP_OK;
}

/* Makes the index: all samples are of one file, which is the calling program. */
static sp_status make_index(sp_dataset *set, int64_t n_samples, const int64_t *voxels)
{
    SP_FREED int64_t *offset = NULL;

    SP_TRY(SP_NEW(&set->shard, 1, "the index of the samples"));
    SP_TRY(SP_NEW(&offset, n_samples + 1, "the index of the samples"));
    set->n_shards = 1;
    set->shard->path = strdup("data of the program");
    set->shard->n_samples = set->n_samples = n_samples;
    for (int64_t i = 0; i < n_samples; i++) {
        if (voxels[i] < 0 || voxels[i] > INT32_MAX)
            return SP_FAIL(SP_EUSAGE, "sample %lld has %lld voxels, expected 0 to %d",
                           (long long)i, (long long)voxels[i], INT32_MAX);
        offset[i + 1] = offset[i] + voxels[i];
    }
    set->n_voxels = offset[n_samples];
    SP_TRY(sp_spans_pack(&set->rows, offset, n_samples));
    return set->shard->path ? SP_OK : SP_FAIL(SP_EMEM, "no memory for a data set");
}

sp_status sp_source_open(sp_dataset *set, const sp_source_about *about,
                         int64_t n_samples, const int64_t *voxels, sp_source source)
{
    *set = (sp_dataset){.voxel_size = about->voxel_size, .has_labels = true};
    SP_TRY(check_about(about, n_samples));
    set->ignore_label = SP_IGNORE;
    set->n_features = about->n_features;
    set->n_classes = about->n_classes;
    set->source = malloc(sizeof *set->source);
    set->class_name = copy_names(about->n_classes, about->class_name, "class");
    set->feature_name = copy_names(about->n_features, about->feature_name, "f");
    if (!set->source || !set->class_name || !set->feature_name)
        return SP_FAIL(SP_EMEM, "no memory for a data set");
    *set->source = source;
    if (about->mean) {
        set->feature_mean = copy_numbers(about->n_features, about->mean);
        set->feature_std = copy_numbers(about->n_features, about->std);
        if (!set->feature_mean || !set->feature_std)
            return SP_FAIL(SP_EMEM, "no memory for a data set");
    }
    SP_TRY(make_index(set, n_samples, voxels));
    set->hash = sp_dataset_hash(set);
    return SP_OK;
}

/* ---- samples ---- */

static sp_status check_rows(const sp_dataset *set, int64_t i, int64_t n,
                            const int32_t *coords, const float *features,
                            const int32_t *labels)
{
    const int n_features = set->n_features;

    for (int64_t k = 0; k < 3 * n; k++)
        if (coords[k] < -SP_COORD_LIMIT || coords[k] >= SP_COORD_LIMIT)
            return SP_FAIL(SP_EDATA,
                           "sample %lld: row %lld: %c = %d, expected -524288 to 524287",
                           (long long)i, (long long)(k / 3), "xyz"[k % 3], coords[k]);
    for (int64_t k = 0; k < n * n_features; k++)
        if (!isfinite(features[k]))
            return SP_FAIL(SP_EDATA,
                           "sample %lld: row %lld: %s is %g, expected a finite number",
                           (long long)i, (long long)(k / n_features),
                           set->feature_name[k % n_features], (double)features[k]);
    for (int64_t k = 0; k < n; k++)
        if (labels[k] != SP_IGNORE && (labels[k] < 0 || labels[k] >= set->n_classes))
            return SP_FAIL(SP_EDATA,
                           "sample %lld: row %lld: label %d, expected 0 to %d, or %d "
                           "for no label",
                           (long long)i, (long long)k, labels[k], set->n_classes - 1,
                           SP_IGNORE);
    return SP_OK;
}

sp_status sp_source_check(const sp_dataset *set, int64_t i, int64_t n,
                          const int32_t *coords, const float *features,
                          const int32_t *labels, uint64_t *keys, size_t slots)
{
    int64_t second = -1;

    SP_TRY(check_rows(set, i, n, coords, features, labels));
    if (keys && !sp_unique_by_order(coords, n))
        second = sp_unique_find(coords, n, keys, slots);
    if (second < 0)
        return SP_OK;
    return SP_FAIL(SP_EDATA,
                   "sample %lld: row %lld repeats the coordinates (%d, %d, %d) of an "
                   "earlier row, expected unique coordinates",
                   (long long)i, (long long)second, coords[3 * second],
                   coords[3 * second + 1], coords[3 * second + 2]);
}

/* Copies the wanted columns of all rows. */
static void gather_columns(const sample_reader *r, const float *all)
{
    const int c = r->n_columns, n_features = r->set->n_features;

    for (int64_t i = 0; i < r->out->n; i++)
        for (int k = 0; k < c; k++) {
            const int wanted = r->request->columns ? r->request->columns[k] : k;

            r->out->features[i * c + k] =
                all[i * n_features +
                    (r->set->column_of ? r->set->column_of[wanted] : wanted)];
        }
}

sp_status sp_source_sample(sample_reader *r)
{
    const sp_dataset *set = r->set;
    const size_t n = (size_t)r->out->n;
    const size_t slots = r->request->verify ? sp_unique_slots((int64_t)n) : 0;
    struct sp_sample_buffers *own = r->own;
    float *all = r->out->features;

    if (!r->has_all_columns) {
        SP_TRY(sp_sample_grow(&own->gathered, &own->gather,
                              n * (size_t)set->n_features * sizeof *all, 1));
        all = own->gathered;
    }
    if (slots)
        SP_TRY(sp_sample_grow(&own->keys, &own->table, slots, sizeof *own->keys));
    if (n && set->source->read(set->source->arg, r->sample, r->out->coords, all,
                               r->out->labels) != 0)
        return SP_FAIL(SP_EDATA, "sample %lld: the program's source of data has failed",
                       (long long)r->sample);
    SP_TRY(sp_source_check(set, r->sample, (int64_t)n, r->out->coords, all,
                           r->out->labels, slots ? own->keys : NULL, slots));
    if (!r->has_all_columns)
        gather_columns(r, all);
    for (size_t i = 0; set->class_of && i < n; i++)
        if (r->out->labels[i] != SP_IGNORE)
            r->out->labels[i] = set->class_of[r->out->labels[i]];
    return SP_OK;
}

#include "data/sp_shard.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_word_table.h"
#include "data/sp_shard_internal.h"

sp_index_array sp_index_array_of(sp_dataset *set, int i)
{
    const int64_t n = set->n_samples, rows = sp_spans_size(n);
    const int64_t named = set->has_names ? rows : 0, cut = set->has_blocks ? rows : 0;
    const sp_index_array all[SP_INDEX_ARRAYS] = {
        {(void **)&set->rows, rows, sizeof *set->rows},
        {(void **)&set->point_rows, set->has_points ? rows : 0, sizeof *set->rows},
        {(void **)&set->context_rows, cut, sizeof *set->rows},
        {(void **)&set->name.row, named, sizeof *set->rows},
        {(void **)&set->scan.row, cut, sizeof *set->rows},
        {(void **)&set->costs.word, set->has_cost ? sp_costs_words(&set->costs, n) : 0,
         sizeof *set->costs.word},
        {(void **)&set->block, set->has_blocks ? n : 0, sizeof *set->block},
        {(void **)&set->name.bytes, named ? set->name.n_bytes : 0, 1},
        {(void **)&set->scan.bytes, cut ? set->scan.n_bytes : 0, 1}};

    return all[i];
}

int64_t sp_dataset_index_bytes(const sp_dataset *set)
{
    enum { STATE_BYTES = 48, MOST_STATES = 1 << 17 };
    sp_dataset copy = *set;
    int64_t bytes = 0;

    for (int i = 0; i < SP_INDEX_ARRAYS; i++) {
        const sp_index_array array = sp_index_array_of(&copy, i);

        bytes += array.n * (int64_t)array.size;
    }
    return bytes / (set->common.mapped ? set->n_sharing : 1) +
           STATE_BYTES * sp_least(set->n_samples, MOST_STATES);
}

void sp_dataset_close(sp_dataset *set)
{
    sp_shard_files_destroy(set->files);
    sp_h5_cache_destroy(set->cache);
    for (int i = 0; i < set->n_shards && !set->paths; i++)
        free(set->shard[i].path);
    free(set->paths);
    free(set->shard);
    sp_h5_list_free(set->class_name, set->n_classes);
    sp_h5_list_free(set->class_code, set->n_classes);
    free(set->class_of);
    free(set->column_of);
    sp_h5_list_free(set->feature_name, set->n_features);
    sp_recipe_destroy(set->recipe);
    free(set->feature_mean);
    free(set->feature_std);
    for (int i = 0; i < SP_INDEX_ARRAYS && !set->common.data; i++)
        free(*sp_index_array_of(set, i).at);
    sp_comm_common_free(&set->common);
    free(set->source);
    *set = (sp_dataset){0};
}

int sp_dataset_shard_of(const sp_dataset *set, int64_t sample)
{
    int lo = 0, hi = set->n_shards;

    assert(0 <= sample && sample < set->n_samples);
    while (hi - lo > 1) { /* finds the last shard that begins at or before the sample */
        int mid = lo + (hi - lo) / 2;

        if (set->shard[mid].first_sample <= sample)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

const char *sp_dataset_print_sample(const sp_dataset *set, int64_t sample, char *text,
                                    size_t size)
{
    const sp_shard *shard = &set->shard[sp_dataset_shard_of(set, sample)];

    snprintf(text, size, "%s: sample %lld%s%s%s", shard->path,
             (long long)(sample - shard->first_sample), set->has_names ? " (" : "",
             sp_dataset_name(set, sample), set->has_names ? ")" : "");
    return text;
}

/* The first row of a sample in its file. */
static int64_t first_row_of(const sp_dataset *set, const sp_spans *rows, int64_t sample)
{
    const sp_shard *shard = &set->shard[sp_dataset_shard_of(set, sample)];

    return rows ? sp_spans_first(rows, sample) -
                      sp_spans_first(rows, shard->first_sample)
                : 0;
}

const char *sp_dataset_name(const sp_dataset *set, int64_t sample)
{
    assert(0 <= sample && sample < set->n_samples);
    return set->has_names ? set->name.bytes + sp_spans_first(set->name.row, sample)
                          : "";
}

const char *sp_dataset_scan(const sp_dataset *set, int64_t sample)
{
    assert(set->has_blocks && 0 <= sample && sample < set->n_samples);
    return set->scan.bytes + sp_spans_first(set->scan.row, sample);
}

int64_t sp_dataset_voxels(const sp_dataset *set, int64_t sample)
{
    assert(0 <= sample && sample < set->n_samples);
    return sp_spans_count(set->rows, sample);
}

int64_t sp_dataset_first_voxel(const sp_dataset *set, int64_t sample)
{
    return first_row_of(set, set->rows, sample);
}

int64_t sp_dataset_first_point(const sp_dataset *set, int64_t sample)
{
    return first_row_of(set, set->point_rows, sample);
}

int64_t sp_dataset_first_context(const sp_dataset *set, int64_t sample)
{
    return first_row_of(set, set->context_rows, sample);
}

int64_t sp_dataset_points(const sp_dataset *set, int64_t sample)
{
    assert(0 <= sample && sample < set->n_samples);
    return set->point_rows ? sp_spans_count(set->point_rows, sample) : 0;
}

int64_t sp_dataset_context(const sp_dataset *set, int64_t sample)
{
    assert(0 <= sample && sample < set->n_samples);
    return set->context_rows ? sp_spans_count(set->context_rows, sample) : 0;
}

int64_t sp_dataset_cost(const sp_dataset *set, int64_t sample)
{
    assert(0 <= sample && sample < set->n_samples);
    if (set->has_cost)
        return sp_costs_get(&set->costs, sample, SP_COST_COLUMNS - 1);
    return sp_dataset_voxels(set, sample);
}

int64_t sp_dataset_cost_column(const sp_dataset *set, int64_t sample, int column)
{
    assert(set->has_cost && 0 <= sample && sample < set->n_samples);
    return column ? sp_costs_get(&set->costs, sample, column)
                  : sp_dataset_voxels(set, sample);
}

/* ---- columns ---- */

static sp_status find_column(const sp_dataset *set, const char *name, const char *where,
                             int *column)
{
    int best = 0;

    for (int i = 0; i < set->n_features; i++) {
        if (strcmp(set->feature_name[i], name) == 0) {
            *column = i;
            return SP_OK;
        }
        if (sp_word_distance(name, set->feature_name[i]) <
            sp_word_distance(name, set->feature_name[best]))
            best = i;
    }
    return SP_FAIL(SP_EDATA,
                   "%sdata.features: %s has no column \"%s\"; did you mean \"%s\"?",
                   where, set->shard[0].path, name, set->feature_name[best]);
}

sp_status sp_dataset_columns(const sp_dataset *set, const sp_strings *features,
                             const char *where, int **columns, int *n_columns)
{
    int n = features->n ? features->n : set->n_features;
    sp_status rc;

    assert(set->n_features > 0);
    assert(columns && n_columns);
    *n_columns = 0;
    SP_TRY(SP_NEW(columns, n, "feature columns"));
    for (int i = 0; i < n; i++) {
        (*columns)[i] = i;
        rc = features->n ? find_column(set, features->at[i], where, &(*columns)[i])
                         : SP_OK;
        if (rc != SP_OK) {
            free(*columns);
            *columns = NULL;
            SP_TRY(rc);
        }
    }
    *n_columns = n;
    return SP_OK;
}

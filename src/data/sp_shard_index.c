/* Makes one index of all files on all ranks. Rank 0 reads the headers and broadcasts
 * them, checked, as bytes; every rank makes the same index of these. The values of each
 * sample are in memory that the ranks of a node share, so that a large set needs it
 * once. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_machine.h"
#include "data/sp_index_file.h"
#include "data/sp_shard_internal.h"

/* ---- rank 0 ---- */

typedef struct collection {
    sp_serial index;
    sp_rounding rounding;
    int n_files;
    sp_dataset *part; /* [n_files] the files' indices, with their arrays */
    int *file_of;     /* the file of each that is opened */
} collection;

/* Keeps the index of one file. */
static sp_status add_file(sp_h5 *file, int i, void *context)
{
    collection *c = context;
    sp_dataset *part = &c->part[c->file_of[i]];

    SP_TRY(sp_shard_header(file, part));
    return sp_rounding_add(&c->rounding, file, part, c->n_files);
}

/* Reads the index files of the folders, and opens the files that these do not have. */
static sp_status read_files(collection *c, const sp_strings *paths)
{
    SP_CLOSED_BY(sp_index_reader_end) sp_index_reader reader = {0};
    SP_FREED char **opened = NULL;
    SP_FREED int *file_of = NULL;
    int n = 0;

    SP_TRY(SP_NEW(&opened, paths->n, "the index of the files"));
    SP_TRY(SP_NEW(&file_of, paths->n, "the index of the files"));
    for (int i = 0; i < paths->n; i++)
        if (!sp_index_reader_read(&reader, paths->at[i], &c->part[i])) {
            opened[n] = paths->at[i];
            file_of[n++] = i;
        }
    c->file_of = file_of;
    return n > 0 ? sp_h5_open_each(opened, n, add_file, c) : SP_OK;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* The place of path i among all of them, by base name and then by path. */
static int rank_of(const sp_strings *paths, int i)
{
    const char *base = base_name(paths->at[i]);
    int rank = 0;

    for (int j = 0; j < paths->n; j++) {
        const int order = strcmp(base_name(paths->at[j]), base);

        rank += order < 0 || (order == 0 && strcmp(paths->at[j], paths->at[i]) < 0);
    }
    return rank;
}

/* Leaves the paths of one part of a cross-validation, in their order. */
static sp_status keep_fold(sp_strings *paths, const sp_fold *fold)
{
    SP_FREED bool *is_kept = NULL;
    const int n = paths->n;

    SP_TRY(SP_NEW(&is_kept, n, "the files of a fold"));
    for (int i = 0; i < n; i++)
        is_kept[i] = (rank_of(paths, i) % fold->n == fold->fold) == fold->is_held_out;
    paths->n = 0;
    for (int i = 0; i < n; i++)
        if (is_kept[i])
            paths->at[paths->n++] = paths->at[i];
        else
            free(paths->at[i]);
    return SP_OK;
}

static sp_status list_files(const sp_strings *patterns, const sp_fold *fold,
                            sp_strings *paths)
{
    SP_TRY(sp_shard_glob(patterns, paths));
    if (!fold)
        return SP_OK;
    if (paths->n < fold->n)
        return SP_FAIL(
            SP_EDATA,
            "data.folds = %d: data.train has %d file%s, expected one at "
            "least for each fold: convert each scan, or each group of scans, "
            "with an --out of its own",
            fold->n, paths->n, sp_plural(paths->n));
    return keep_fold(paths, fold);
}

/* Collects the indices of the files, and in c->index the number of files and what all
 * ranks need of each. */
static sp_status collect(const sp_strings *patterns, const sp_fold *fold, collection *c)
{
    SP_CLOSED_BY(sp_strings_free) sp_strings paths = {0};
    int64_t n;

    SP_TRY(list_files(patterns, fold, &paths));
    n = paths.n;
    sp_serial_bytes(&c->index, &n, sizeof n);
    SP_TRY(SP_NEW(&c->part, n, "the index of the files"));
    c->n_files = paths.n;
    SP_TRY(read_files(c, &paths));
    for (int i = 0; i < c->n_files; i++)
        sp_shard_serialize(&c->index, &c->part[i]);
    sp_rounding_warn(&c->rounding);
    return c->index.rc;
}

static void parts_close(sp_dataset *part, int64_t n)
{
    for (int64_t i = 0; part && i < n; i++)
        sp_dataset_close(&part[i]);
    free(part);
}

/* ---- one index of all shards ---- */

static sp_status differ_value(const sp_dataset *a, const sp_dataset *b,
                              const char *what, double x, double y)
{
    return SP_FAIL(SP_EDATA,
                   "%s has %s %.9g, but %s has %.9g: files of one data set must agree",
                   b->shard->path, what, y, a->shard->path, x);
}

static sp_status differ_name(const sp_dataset *a, const sp_dataset *b, const char *what,
                             int i, const char *x, const char *y)
{
    return SP_FAIL(SP_EDATA,
                   "%s has %s %d \"%s\", but %s has \"%s\": files of one data set must "
                   "agree",
                   b->shard->path, what, i, y, a->shard->path, x);
}

static sp_status differ_part(const sp_dataset *a, const sp_dataset *b, bool is_in_a,
                             const char *part)
{
    return SP_FAIL(
        SP_EDATA, "%s has %s, but %s has not: files of one data set must agree",
        (is_in_a ? a : b)->shard->path, part, (is_in_a ? b : a)->shard->path);
}

static sp_status agree(const sp_dataset *a, const sp_dataset *b)
{
    if (fabs(a->voxel_size - b->voxel_size) > 1e-6 * a->voxel_size)
        return differ_value(a, b, "voxel_size", a->voxel_size, b->voxel_size);
    if (a->n_classes != b->n_classes)
        return differ_value(a, b, "num_classes", a->n_classes, b->n_classes);
    if (a->ignore_label != b->ignore_label)
        return differ_value(a, b, "ignore_label", a->ignore_label, b->ignore_label);
    if (a->n_features != b->n_features)
        return differ_value(a, b, "feature columns", a->n_features, b->n_features);
    for (int i = 0; i < a->n_classes; i++)
        if (strcmp(a->class_name[i], b->class_name[i]) != 0)
            return differ_name(a, b, "class", i, a->class_name[i], b->class_name[i]);
    for (int i = 0; i < a->n_features; i++)
        if (strcmp(a->feature_name[i], b->feature_name[i]) != 0)
            return differ_name(a, b, "feature", i, a->feature_name[i],
                               b->feature_name[i]);
    if (a->has_labels != b->has_labels)
        return differ_part(a, b, a->has_labels, "/labels");
    if (a->has_subvoxel != b->has_subvoxel)
        return differ_part(a, b, a->has_subvoxel, "/subvoxel");
    if (a->has_points != b->has_points)
        return differ_part(a, b, a->has_points, "/point_offsets");
    if (!a->feature_mean != !b->feature_mean)
        return differ_part(a, b, a->feature_mean != NULL, "feature_mean");
    return SP_OK;
}

static sp_status read_parts(sp_serial *index, sp_dataset *part, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        sp_shard_serialize(index, &part[i]);
        SP_TRY(index->rc);
        SP_TRY(agree(&part[0], &part[i]));
    }
    return SP_OK;
}

/* The parts that a file may lack for itself, because the others are complete without
 * them: bit i is optional[i]. */
static const char *const optional[] = {"/cost",   "/names",       "/origin",
                                       "/crc32c", "/point_index", "/scan"};
enum { OPTIONAL = sizeof optional / sizeof *optional };

static unsigned optional_parts(const sp_dataset *part)
{
    const sp_shard *shard = part->shard;
    const bool has[OPTIONAL] = {part->has_cost,
                                part->has_names,
                                shard->origin.type_size > 0,
                                shard->crc.type_size > 0,
                                shard->point_index.type_size > 0,
                                part->has_blocks};
    unsigned bits = 0;

    for (int i = 0; i < OPTIONAL; i++)
        bits |= (unsigned)has[i] << i;
    return bits;
}

/* Warns of the first file that has less than another one: a tool that rewrites files
 * may have lost it. */
static void warn_lacking(const sp_dataset *part, int64_t n)
{
    unsigned all = 0, lacking = 0;
    int64_t less = -1, other = 0;
    char list[128] = "";

    for (int64_t i = 0; i < n; i++)
        all |= optional_parts(&part[i]);
    for (int64_t i = 0; i < n && less < 0; i++)
        if ((lacking = all & ~optional_parts(&part[i])) != 0)
            less = i;
    if (less < 0)
        return;
    while (!(optional_parts(&part[other]) & lacking))
        other++;
    lacking &= optional_parts(&part[other]);
    for (int i = 0; i < OPTIONAL; i++)
        if (lacking >> i & 1)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s",
                     *list ? ", " : "", optional[i]);
    sp_log_warn0("%s has no %s, which %s has: was it lost when the file was rewritten?",
                 part[less].shard->path, list, part[other].shard->path);
}

/* Merges means and standard deviations over the voxels of all files. */
static void merge_moments(sp_dataset *set, const sp_dataset *part, int64_t n)
{
    for (int c = 0; c < set->n_features; c++) {
        double mean = 0, square = 0, total = (double)set->n_voxels;

        for (int64_t i = 0; i < n; i++)
            if (part[i].n_voxels > 0)
                mean += part[i].feature_mean[c] * ((double)part[i].n_voxels / total);
        for (int64_t i = 0; i < n; i++) {
            double away = part[i].n_voxels > 0 ? part[i].feature_mean[c] - mean : 0;
            double std = part[i].n_voxels > 0 ? part[i].feature_std[c] : 0;

            if (part[i].n_voxels > 0)
                square +=
                    (std * std + away * away) * ((double)part[i].n_voxels / total);
        }
        set->feature_mean[c] = n == 1 ? part[0].feature_mean[c] : mean;
        set->feature_std[c] = n == 1 ? part[0].feature_std[c] : sqrt(square);
    }
}

static void count(sp_dataset *set, sp_dataset *part, int64_t n)
{
    set->has_cost = set->has_names = set->has_blocks = true;
    for (int64_t i = 0; i < n; i++) {
        set->has_cost &= part[i].has_cost;
        sp_costs_widen(&set->costs, &part[i].costs);
        set->has_names &= part[i].has_names;
        set->has_blocks &= part[i].has_blocks;
        part[i].shard->first_sample = set->n_samples;
        set->n_samples += part[i].n_samples;
        set->n_voxels += part[i].n_voxels;
        set->n_points += part[i].n_points;
        set->name.n_bytes += part[i].name.n_bytes;
        set->scan.n_bytes += part[i].scan.n_bytes;
    }
}

/* ---- the arrays of all samples ---- */

/* Finds the places of the arrays in set->common, if it is allocated, and returns its
 * bytes. It begins with the hash of the set, so that only rank 0 computes it. */
static size_t place_arrays(sp_dataset *set)
{
    size_t bytes = sizeof(sp_spans);

    for (int i = 0; i < SP_INDEX_ARRAYS; i++) {
        const sp_index_array array = sp_index_array_of(set, i);

        if (array.n > 0 && set->common.data)
            *array.at = (char *)set->common.data + bytes;
        bytes += (size_t)array.n * array.size;
    }
    return bytes;
}

/* Moves array k of the files into the set's, which is zeroed. The rows of a file follow
 * those of the file before, and its costs have another width. What is freed goes back to
 * the system, so that no array is in memory twice. */
static void fill_array(sp_dataset *set, sp_dataset *part, int k)
{
    enum { TRIM_BYTES = 8 << 20 };
    size_t freed = 0;
    const sp_index_array whole = sp_index_array_of(set, k);
    char *to = whole.n > 0 ? *whole.at : NULL;

    for (int i = 0; i < set->n_shards; i++) {
        const sp_index_array from = sp_index_array_of(&part[i], k);
        const int64_t at = set->shard[i].first_sample, n = part[i].n_samples;

        if (to && k < SP_INDEX_COSTS)
            sp_spans_append(*whole.at, at, *from.at, n);
        else if (to && k == SP_INDEX_COSTS)
            sp_costs_copy(&set->costs, at, &part[i].costs, n);
        else if (to && from.n > 0)
            to = mempcpy(to, *from.at, (size_t)from.n * from.size);
        free(*from.at);
        *from.at = NULL;
        freed += (size_t)from.n * from.size;
        if (freed >= TRIM_BYTES) {
            sp_machine_trim();
            freed = 0;
        }
    }
}

/* Gives all ranks the arrays of `part`, which rank 0 has. Collective, agreed. */
static sp_status share_arrays(sp_dataset *set, sp_dataset *part, sp_comm *comm)
{
    const size_t bytes = place_arrays(set);

    set->n_sharing = comm ? comm->local_size : 0;
    SP_TRY(sp_comm_common_alloc(comm, bytes, &set->common));
    place_arrays(set);
    for (int k = 0; part && k < SP_INDEX_ARRAYS; k++)
        fill_array(set, part, k);
    if (part)
        *(uint64_t *)set->common.data = sp_dataset_hash(set);
    SP_TRY(sp_comm_common_send(comm, bytes, &set->common));
    set->hash = *(const uint64_t *)set->common.data;
    return SP_OK;
}

/* ---- one index, continued ---- */

/* Copies the codes of the classes if all parts have the same. NULL: the scans have
 * several sources, or the codes are not stored. */
static char **merge_codes(sp_dataset *part, int64_t n)
{
    char **code = part[0].class_code;
    bool is_same = code != NULL;

    for (int64_t i = 1; is_same && i < n; i++) {
        is_same = part[i].class_code != NULL;
        for (int c = 0; is_same && c < part[0].n_classes; c++)
            is_same = strcmp(code[c], part[i].class_code[c]) == 0;
    }
    if (!is_same)
        return NULL;
    part[0].class_code = NULL;
    return code;
}

/* The match of a part's recipe to the first part's that has one. */
typedef struct recipe_gap {
    sp_recipe_match match;
    const sp_dataset *first, *other;
    char text[SP_RECIPE_DIFFERENCE];
} recipe_gap;

/* Finds the gravest difference between the recipes of the parts. */
static void find_gap(const sp_dataset *part, int64_t n, recipe_gap *gap)
{
    *gap = (recipe_gap){.match = SP_RECIPE_SAME};
    for (int64_t i = 0; i < n; i++) {
        char text[SP_RECIPE_DIFFERENCE];
        sp_recipe_match match;

        if (part[i].recipe && !gap->first)
            gap->first = &part[i];
        if (!gap->first)
            continue;
        match = sp_recipe_compare(gap->first->recipe, part[i].recipe, text);
        if (match <= gap->match)
            continue;
        gap->match = match;
        gap->other = &part[i];
        memcpy(gap->text, text, sizeof text);
    }
}

/* Joins the recipes of all parts, and warns once if they differ. If a column means
 * other values in another file, the set has no recipe: no scan could be treated as all
 * of them were. `set` has taken the paths from the parts. */
static sp_status merge_recipes(sp_dataset *set, const sp_dataset *part, int64_t n)
{
    const char *first, *other;
    recipe_gap gap;

    find_gap(part, n, &gap);
    first = gap.first ? set->shard[gap.first - part].path : "";
    other = gap.other ? set->shard[gap.other - part].path : "";
    switch (gap.match) {
    case SP_RECIPE_OTHER_UNIT:
        return SP_FAIL(SP_EDATA, "%s and %s: %s: files of one data set must agree",
                       first, other, gap.text);
    case SP_RECIPE_OTHER_VALUES:
        sp_log_warn0("%s and %s: %s; a model that is trained on both cannot tell how "
                     "scans become samples",
                     first, other, gap.text);
        return SP_OK;
    case SP_RECIPE_OTHER_CUT:
        sp_log_warn0("%s and %s: %s; a model that is trained on both keeps the first",
                     first, other, gap.text);
        break;
    case SP_RECIPE_SAME:
        break;
    }
    for (int64_t i = 0; i < n; i++)
        SP_TRY(sp_recipe_merge(&set->recipe, part[i].recipe));
    return SP_OK;
}

/* Copies the shards of the parts. Their paths become one piece of memory: ten thousand
 * small ones would keep the memory of all that is freed between them. */
static sp_status merge_shards(sp_dataset *set, const sp_dataset *part, int64_t n)
{
    size_t bytes = 0;
    char *at;

    for (int64_t i = 0; i < n; i++)
        bytes += strlen(part[i].shard->path) + 1;
    SP_TRY(SP_NEW(&set->paths, bytes, "the names of files"));
    at = set->paths;
    for (int64_t i = 0; i < n; i++) {
        set->shard[i] = *part[i].shard;
        set->shard[i].path = at;
        at = stpcpy(at, part[i].shard->path) + 1;
    }
    return SP_OK;
}

/* Merges the parts, which have no arrays. What they own moves if possible. */
static sp_status merge(sp_dataset *set, sp_dataset *part, int64_t n)
{
    set->voxel_size = part[0].voxel_size;
    set->n_classes = part[0].n_classes;
    set->ignore_label = part[0].ignore_label;
    set->n_features = part[0].n_features;
    set->has_labels = part[0].has_labels;
    set->has_subvoxel = part[0].has_subvoxel;
    set->has_points = part[0].has_points;
    count(set, part, n);
    set->shard = n > 0 ? calloc((size_t)n, sizeof *set->shard) : NULL;
    if (!set->shard)
        return SP_FAIL(SP_EMEM, "no memory for the index of %lld files", (long long)n);
    set->n_shards = (int)n;
    SP_TRY(merge_shards(set, part, n));
    if (part[0].feature_mean) {
        SP_TRY(SP_NEW(&set->feature_mean, set->n_features, "the index of the data"));
        SP_TRY(SP_NEW(&set->feature_std, set->n_features, "the index of the data"));
        merge_moments(set, part, n);
    }
    set->class_name = part[0].class_name;
    set->feature_name = part[0].feature_name;
    part[0].class_name = part[0].feature_name = NULL;
    set->class_code = merge_codes(part, n);
    SP_TRY(merge_recipes(set, part, n));
    return sp_shard_files_create(&set->files, set->n_shards, set->n_samples);
}

/* Adds the offsets of all files, as they are stored. */
static void hash_rows(XXH64_state_t *hash, const sp_dataset *set, const sp_spans *rows)
{
    enum { PIECE = 1024 };
    int64_t offset[PIECE + 1];

    for (int s = 0; s < set->n_shards; s++) {
        const sp_shard *shard = &set->shard[s];
        int64_t before = 0, n;

        XXH64_update(hash, &before, sizeof before);
        for (int64_t i = 0; i < shard->n_samples; i += n) {
            n = sp_least(PIECE, shard->n_samples - i);
            sp_spans_unpack(rows, shard->first_sample + i, n, offset);
            for (int64_t k = 1; k <= n; k++)
                offset[k] += before;
            XXH64_update(hash, offset + 1, (size_t)n * sizeof *offset);
            before = offset[n];
        }
    }
}

uint64_t sp_dataset_hash(const sp_dataset *set)
{
    XXH64_state_t hash;

    XXH64_reset(&hash, 0);
    for (int i = 0; i < set->n_shards; i++) {
        const char *base = sp_file_name(set->shard[i].path);

        XXH64_update(&hash, base, strlen(base) + 1);
        XXH64_update(&hash, &set->shard[i].n_samples, sizeof set->shard[i].n_samples);
    }
    XXH64_update(&hash, &set->voxel_size, sizeof set->voxel_size);
    XXH64_update(&hash, &set->n_classes, sizeof set->n_classes);
    XXH64_update(&hash, &set->ignore_label, sizeof set->ignore_label);
    XXH64_update(&hash, &set->n_features, sizeof set->n_features);
    for (int i = 0; i < set->n_classes; i++)
        XXH64_update(&hash, set->class_name[i], strlen(set->class_name[i]) + 1);
    for (int i = 0; i < set->n_features; i++)
        XXH64_update(&hash, set->feature_name[i], strlen(set->feature_name[i]) + 1);
    if (set->feature_mean) {
        XXH64_update(&hash, set->feature_mean,
                     (size_t)set->n_features * sizeof(double));
        XXH64_update(&hash, set->feature_std, (size_t)set->n_features * sizeof(double));
    }
    hash_rows(&hash, set, set->rows);
    if (set->has_points)
        hash_rows(&hash, set, set->point_rows);
    return XXH64_digest(&hash);
}

static sp_status build(sp_dataset *set, sp_serial *index)
{
    sp_dataset *part;
    sp_status rc;
    int64_t n;

    sp_serial_count(index, &n, 1);
    SP_TRY(index->rc);
    SP_TRY(SP_NEW(&part, n, "the index of the files"));
    rc = read_parts(index, part, n);
    if (rc == SP_OK) {
        warn_lacking(part, n);
        rc = merge(set, part, n);
    }
    parts_close(part, n);
    return rc;
}

sp_status sp_dataset_open(sp_dataset *set, const sp_strings *patterns, sp_comm *comm)
{
    return sp_dataset_open_fold(set, patterns, NULL, comm);
}

sp_status sp_dataset_open_fold(sp_dataset *set, const sp_strings *patterns,
                               const sp_fold *fold, sp_comm *comm)
{
    collection c = {0};
    sp_status rc = SP_OK;

    assert(set && patterns->n >= 0);
    *set = (sp_dataset){0};
    if (!comm || comm->rank == 0)
        rc = c.index.rc = collect(patterns, fold, &c);
    if (comm)
        rc = sp_comm_bcast_serial(comm, &c.index);
    if (rc == SP_OK) {
        c.index.is_reading = true;
        rc = build(set, &c.index);
        if (rc == SP_OK)
            rc = sp_shard_open_cache(set, comm ? comm->local_size : 1);
        if (comm)
            rc = sp_comm_agree(comm, rc);
        if (rc == SP_OK)
            rc = share_arrays(set, c.part, comm);
        if (rc == SP_OK && comm && comm->n_nodes > 1)
            rc = sp_shard_compare_copies(set, comm);
    }
    sp_rounding_free(&c.rounding);
    parts_close(c.part, c.n_files);
    free(c.index.data);
    sp_machine_trim();
    SP_TRY(rc);
    return SP_OK;
}

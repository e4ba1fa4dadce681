/* Reads the headers of a shard and its small datasets, checks them, and makes the index
 * of one shard of them. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_text.h"
#include "data/sp_shard_internal.h"

enum { MOST_COLUMNS = 65536 };

typedef struct header {
    sp_h5 *h5;
    const char *path;
    sp_dataset *set;
    sp_shard *shard;
} header;

static sp_status no_memory(const header *h)
{
    return SP_FAIL(SP_EMEM, "%s: no memory for its index", h->path);
}

/* ---- attributes ---- */

static sp_status check_format(const header *h)
{
    SP_FREED char *text = NULL;
    int64_t version;

    if (!sp_h5_attr_has(h->h5, "/", "format"))
        return SP_FAIL(
            SP_EDATA,
            "%s: no attribute format, expected \"sptrain-voxels\": not a voxel "
            "shard",
            h->path);
    SP_TRY(sp_h5_attr_read_text(h->h5, "/", "format", &text));
    if (strcmp(text, "sptrain-voxels") != 0)
        return SP_FAIL(SP_EDATA, "%s: format is \"%s\", expected \"sptrain-voxels\"",
                       h->path, text);
    SP_TRY(sp_h5_attr_read_int(h->h5, "/", "version", &version));
    if (version != 1)
        return SP_FAIL(SP_EDATA, "%s: version is %lld, expected 1", h->path,
                       (long long)version);
    return SP_OK;
}

static sp_status read_int(const header *h, const char *name, int64_t lo, int64_t hi,
                          int *out)
{
    int64_t value;

    SP_TRY(sp_h5_attr_read_int(h->h5, "/", name, &value));
    if (value < lo || value > hi)
        return SP_FAIL(SP_EDATA, "%s: %s is %lld, expected %lld to %lld", h->path, name,
                       (long long)value, (long long)lo, (long long)hi);
    *out = (int)value;
    return SP_OK;
}

static sp_status read_names(const header *h, const char *name, int expected,
                            char ***out)
{
    char **texts;
    int n;

    SP_TRY(sp_h5_attr_read_texts(h->h5, "/", name, &texts, &n));
    if (n == expected) {
        *out = texts;
        return SP_OK;
    }
    sp_h5_list_free(texts, n);
    return SP_FAIL(SP_EDATA, "%s: %s has %d name%s, expected %d", h->path, name, n,
                   sp_plural(n), expected);
}

/* Two classes or two columns of one name are refused: results are reported by the name
 * of the class, and a model finds its classes and columns in other data by name. */
static sp_status read_distinct(const header *h, const char *attribute, int n,
                               const char *of, char ***names)
{
    const char *twice;

    SP_TRY(read_names(h, attribute, n, names));
    if (!sp_text_twice(n, *names, &twice))
        return no_memory(h);
    if (twice)
        return SP_FAIL(SP_EDATA,
                       "%s: %s has \"%s\" twice, expected another name for each %s",
                       h->path, attribute, twice, of);
    return SP_OK;
}

static sp_status read_moment(const header *h, const char *name, bool is_std,
                             double **out)
{
    int n = h->set->n_features;

    *out = malloc((size_t)n * sizeof **out);
    if (!*out)
        return no_memory(h);
    SP_TRY(sp_h5_attr_read(h->h5, "/", name, SP_H5_F64, n, *out));
    for (int i = 0; h->set->n_voxels > 0 && i < n; i++)
        if (!isfinite((*out)[i]) || (is_std && (*out)[i] < 0))
            return SP_FAIL(SP_EDATA,
                           "%s: %s of column %s is %g, expected a finite number%s",
                           h->path, name, h->set->feature_name[i], (*out)[i],
                           is_std ? ", not negative" : "");
    return SP_OK;
}

static sp_status read_moments(const header *h)
{
    bool has_mean = sp_h5_attr_has(h->h5, "/", "feature_mean");
    bool has_std = sp_h5_attr_has(h->h5, "/", "feature_std");

    if (has_mean != has_std)
        return SP_FAIL(SP_EDATA, "%s: has %s but no %s, expected both or neither",
                       h->path, has_mean ? "feature_mean" : "feature_std",
                       has_mean ? "feature_std" : "feature_mean");
    if (!has_mean)
        return SP_OK;
    SP_TRY(read_moment(h, "feature_mean", false, &h->set->feature_mean));
    return read_moment(h, "feature_std", true, &h->set->feature_std);
}

static sp_status read_attributes(const header *h)
{
    sp_dataset *set = h->set;

    SP_TRY(sp_h5_attr_read(h->h5, "/", "voxel_size", SP_H5_F64, 1, &set->voxel_size));
    if (!(set->voxel_size > 0 && set->voxel_size <= SP_VOXEL_LARGEST))
        return SP_FAIL(SP_EDATA,
                       "%s: voxel_size is %g, expected a length above 0 in metre, at "
                       "most %g",
                       h->path, set->voxel_size, SP_VOXEL_LARGEST);
    SP_TRY(read_int(h, "num_classes", 1, 65536, &set->n_classes));
    SP_TRY(read_int(h, "ignore_label", INT32_MIN, INT32_MAX, &set->ignore_label));
    SP_TRY(read_distinct(h, "class_names", set->n_classes, "class", &set->class_name));
    if (sp_h5_attr_has(h->h5, "/", "class_codes"))
        SP_TRY(read_names(h, "class_codes", set->n_classes, &set->class_code));
    return read_distinct(h, "feature_names", set->n_features, "column",
                         &set->feature_name);
}

/* ---- datasets ---- */

static void print_shape(char *text, size_t size, int rank, int64_t rows, int64_t cols)
{
    if (rank == 2)
        snprintf(text, size, "[%lld,%lld]", (long long)rows, (long long)cols);
    else
        snprintf(text, size, "[%lld]", (long long)rows);
}

/* Would the shape fit if its dimensions were exchanged? MATLAB, Octave and Julia store
 * the first index fastest, so that HDF5 sees their arrays so. */
static bool is_exchanged(const sp_h5_shape *shape, int rank, int64_t rows, int64_t cols)
{
    return rank == 2 && (rows < 0 || shape->dim[1] == rows) &&
           (cols < 0 || shape->dim[0] == cols);
}

/* Checks the shape of a dataset; rows or cols < 0: any number. */
static sp_status check_shape(const header *h, const char *name,
                             const sp_h5_shape *shape, int rank, int64_t rows,
                             int64_t cols)
{
    char found[64], want[64];

    if (shape->rank != rank)
        return SP_FAIL(SP_EDATA, "%s:%s: %d dimension%s, expected %d", h->path, name,
                       shape->rank < 0 ? 0 : shape->rank, sp_plural(shape->rank), rank);
    if ((rows < 0 || shape->dim[0] == rows) &&
        (rank == 1 || cols < 0 || shape->dim[1] == cols))
        return SP_OK;
    print_shape(found, sizeof found, rank, shape->dim[0], shape->dim[1]);
    print_shape(want, sizeof want, rank, rows < 0 ? shape->dim[0] : rows,
                cols < 0 ? shape->dim[1] : cols);
    return SP_FAIL(SP_EDATA, "%s:%s: shape %s, expected %s%s", h->path, name, found,
                   want,
                   is_exchanged(shape, rank, rows, cols)
                       ? ": rows and columns are exchanged, as MATLAB and Julia store "
                         "arrays; write the transposed array"
                       : "");
}

static sp_status find(const header *h, const char *name, int rank, int64_t rows,
                      int64_t cols, sp_extent *out)
{
    sp_h5_shape shape;

    SP_TRY(sp_h5_shape_of(h->h5, name, &shape));
    SP_TRY(check_shape(h, name, &shape, rank, rows, cols));
    if (rank == 2 && shape.dim[1] > MOST_COLUMNS)
        return SP_FAIL(SP_EDATA, "%s:%s: %lld columns, expected at most %d", h->path,
                       name, (long long)shape.dim[1], MOST_COLUMNS);
    if (shape.type.kind == '?' || shape.type.kind == 's')
        return SP_FAIL(SP_EDATA, "%s:%s: not of an integer or float type", h->path,
                       name);
    memset(out, 0, sizeof *out);
    out->name = name;
    out->at = shape.at;
    out->rows = shape.dim[0];
    out->cols = rank == 2 ? (int)shape.dim[1] : 1;
    out->type_size = shape.type.size;
    out->kind = shape.type.kind;
    out->is_swapped = shape.type.is_swapped;
    out->chunks = shape.chunks;
    return SP_OK;
}

/* Finds a dataset that may be absent; its type_size is then 0. */
static sp_status find_optional(const header *h, const char *name, int rank,
                               int64_t rows, int64_t cols, sp_extent *out)
{
    return sp_h5_has(h->h5, name) ? find(h, name, rank, rows, cols, out) : SP_OK;
}

/* Reads a whole dataset of integers into *out, malloc'd. */
static sp_status read_integers(const header *h, const sp_extent *extent, int64_t **out)
{
    const int64_t dim[2] = {extent->rows, extent->cols};

    *out = malloc((size_t)(dim[0] * dim[1] + 1) * sizeof **out);
    if (!*out)
        return no_memory(h);
    return sp_h5_read(h->h5, extent->name, SP_H5_I64, extent->cols > 1 ? 2 : 1, dim,
                      *out);
}

/* Reads the offsets of all samples in the rows of a dataset; the last one must be their
 * number. */
static sp_status read_offsets(const header *h, const sp_extent *extent,
                              const sp_extent *of, sp_spans **out)
{
    const char *name = extent->name;
    const int64_t n = extent->rows - 1;
    SP_FREED int64_t *offset = NULL;

    SP_TRY(read_integers(h, extent, &offset));
    if (offset[0] != 0)
        return SP_FAIL(SP_EDATA, "%s:%s: the first is %lld, expected 0", h->path, name,
                       (long long)offset[0]);
    for (int64_t i = 0; i < n; i++) {
        if (offset[i + 1] < offset[i])
            return SP_FAIL(
                SP_EDATA, "%s:%s: sample %lld: offset falls from %lld to %lld", h->path,
                name, (long long)i, (long long)offset[i], (long long)offset[i + 1]);
        if (offset[i + 1] - offset[i] > INT32_MAX)
            return SP_FAIL(
                SP_EDATA, "%s:%s: sample %lld has %lld rows, expected below 2^31",
                h->path, name, (long long)i, (long long)(offset[i + 1] - offset[i]));
    }
    if (offset[n] != of->rows)
        return SP_FAIL(SP_EDATA, "%s:%s: the last is %lld, expected %lld (rows of %s)",
                       h->path, name, (long long)offset[n], (long long)of->rows,
                       of->name);
    return sp_spans_pack(out, offset, n);
}

/* Checks one number of /cost: no level has more voxels than the finest one, nor fewer
 * than one for each cell that eight voxels of the level before fill, and a kernel of 27
 * offsets has 1 to 27 pairs for each voxel. */
static sp_status check_cost(const header *h, int64_t sample, int column, int64_t cost)
{
    const int64_t voxels = sp_spans_count(h->set->rows, sample);
    const bool is_pairs = column == SP_COST_COLUMNS - 1;
    const int64_t cell = is_pairs ? 1 : INT64_C(1) << 3 * column;
    const int64_t least = (voxels + cell - 1) / cell;
    const int64_t most = is_pairs ? 27 * voxels : voxels;

    if (cost >= least && cost <= most)
        return SP_OK;
    return SP_FAIL(
        SP_EDATA,
        "%s:/cost: sample %lld: column %d is %lld, expected %lld to %lld for "
        "%lld voxels",
        h->path, (long long)sample, column, (long long)cost, (long long)least,
        (long long)most, (long long)voxels);
}

static sp_status read_cost(const header *h)
{
    sp_dataset *set = h->set;
    const int64_t n = set->n_samples;
    sp_extent extent = {0};
    SP_FREED int64_t *cost = NULL;

    SP_TRY(find_optional(h, "/cost", 2, n, SP_COST_COLUMNS, &extent));
    set->has_cost = extent.type_size > 0;
    if (!set->has_cost)
        return SP_OK;
    SP_TRY(read_integers(h, &extent, &cost));
    for (int64_t i = 0; i < n * SP_COST_COLUMNS; i++)
        SP_TRY(check_cost(h, i / SP_COST_COLUMNS, (int)(i % SP_COST_COLUMNS), cost[i]));
    return sp_costs_pack(&set->costs, cost, n);
}

/* Joins a text of each sample. */
static sp_status read_sample_texts(const header *h, const char *name, sp_texts *texts)
{
    const int64_t n = h->set->n_samples;
    char *const *from;
    SP_FREED int64_t *begin = NULL;

    SP_TRY(sp_h5_find_texts(h->h5, name, n, &from));
    SP_TRY(SP_NEW(&begin, n + 1, h->path));
    for (int64_t i = 0; i < n; i++)
        begin[i + 1] = begin[i] + (int64_t)strlen(from[i]) + 1;
    texts->n_bytes = begin[n];
    SP_TRY(SP_NEW(&texts->bytes, texts->n_bytes, h->path));
    for (int64_t i = 0; i < n; i++)
        strcpy(texts->bytes + begin[i], from[i]);
    return sp_spans_pack(&texts->row, begin, n);
}

static sp_status read_sample_names(const header *h)
{
    sp_dataset *set = h->set;

    set->has_names = sp_h5_has(h->h5, "/names");
    if (!set->has_names)
        return SP_OK;
    return read_sample_texts(h, "/names", &set->name);
}

static sp_status read_points(const header *h)
{
    static const char *const part[] = {"/point_voxel", "/point_labels", "/point_index"};
    sp_dataset *set = h->set;
    sp_shard *shard = h->shard;
    sp_extent offsets = {0};

    set->has_points = sp_h5_has(h->h5, "/point_offsets");
    for (int i = 0; !set->has_points && i < 3; i++)
        if (sp_h5_has(h->h5, part[i]))
            return SP_FAIL(SP_EDATA, "%s: %s without /point_offsets", h->path, part[i]);
    if (!set->has_points)
        return SP_OK;
    SP_TRY(find(h, "/point_offsets", 1, set->n_samples + 1, 1, &offsets));
    SP_TRY(find(h, "/point_voxel", 1, -1, 1, &shard->point_voxel));
    set->n_points = shard->point_voxel.rows;
    SP_TRY(read_offsets(h, &offsets, &shard->point_voxel, &set->point_rows));
    if (set->has_labels)
        SP_TRY(find(h, "/point_labels", 1, set->n_points, 1, &shard->point_labels));
    SP_TRY(find_optional(h, "/point_index", 1, set->n_points, 1, &shard->point_index));
    return SP_OK;
}

/* Checks one row of /block and of /block_number. */
static sp_status check_block(const header *h, int64_t sample, const double *square,
                             const int64_t *number)
{
    bool is_sound = square[0] < square[2] && square[1] < square[3] && square[4] >= 0;

    for (int i = 0; i < 5; i++)
        is_sound = is_sound && isfinite(square[i]);
    if (!is_sound)
        return SP_FAIL(SP_EDATA,
                       "%s:/block: sample %lld: %g %g %g %g %g, expected x0 < x1, y0 < "
                       "y1 and a margin, 0 or more",
                       h->path, (long long)sample, square[0], square[1], square[2],
                       square[3], square[4]);
    if (number[1] < 0 || number[1] > number[0] || number[0] > number[2] ||
        number[2] > UINT32_MAX)
        return SP_FAIL(SP_EDATA,
                       "%s:/block_number: sample %lld: block %lld, of %lld to %lld: "
                       "expected a number within that range, below 2^32",
                       h->path, (long long)sample, (long long)number[0],
                       (long long)number[1], (long long)number[2]);
    return SP_OK;
}

static sp_status read_block_table(const header *h)
{
    sp_dataset *set = h->set;
    const int64_t n = set->n_samples, squares[2] = {n, 5}, numbers[2] = {n, 3};
    SP_FREED double *square = NULL;
    SP_FREED int64_t *number = NULL;

    SP_TRY(SP_NEW(&square, 5 * n, "the blocks of samples"));
    SP_TRY(SP_NEW(&number, 3 * n, "the blocks of samples"));
    SP_TRY(SP_NEW(&set->block, n, "the blocks of samples"));
    SP_TRY(sp_h5_read(h->h5, "/block", SP_H5_F64, 2, squares, square));
    SP_TRY(sp_h5_read(h->h5, "/block_number", SP_H5_I64, 2, numbers, number));
    for (int64_t i = 0; i < n; i++) {
        const double *s = square + 5 * i;
        const int64_t *k = number + 3 * i;

        SP_TRY(check_block(h, i, s, k));
        set->block[i] = (sp_block){.low = {s[0], s[1]},
                                   .high = {s[2], s[3]},
                                   .margin = s[4],
                                   .number = k[0],
                                   .first = k[1],
                                   .last = k[2]};
    }
    return read_sample_texts(h, "/scan", &set->scan);
}

/* The datasets with each sample's scan and block are all present or all absent. */
static sp_status read_blocks(const header *h)
{
    static const char *const part[] = {
        "/scan",          "/block",         "/block_number", "/context_offsets",
        "/context_voxel", "/context_block", "/context_point"};
    enum { PARTS = sizeof part / sizeof *part };
    sp_dataset *set = h->set;
    sp_shard *shard = h->shard;
    sp_extent offsets = {0};
    const char *present = NULL, *absent = set->has_points ? NULL : "/point_offsets";

    for (int i = 0; i < PARTS; i++)
        *(sp_h5_has(h->h5, part[i]) ? &present : &absent) = part[i];
    if (present && absent)
        return SP_FAIL(SP_EDATA, "%s: %s without %s", h->path, present, absent);
    set->has_blocks = present != NULL;
    if (!present)
        return SP_OK;
    SP_TRY(find(h, "/context_offsets", 1, set->n_samples + 1, 1, &offsets));
    SP_TRY(find(h, "/context_voxel", 1, -1, 1, &shard->context_voxel));
    SP_TRY(read_offsets(h, &offsets, &shard->context_voxel, &set->context_rows));
    SP_TRY(find(h, "/context_block", 1, shard->context_voxel.rows, 1,
                &shard->context_block));
    SP_TRY(find(h, "/context_point", 1, shard->context_voxel.rows, 1,
                &shard->context_point));
    return read_block_table(h);
}

static sp_status read_datasets(const header *h)
{
    sp_dataset *set = h->set;
    sp_shard *shard = h->shard;
    sp_extent offsets = {0};

    SP_TRY(find(h, "/offsets", 1, -1, 1, &offsets));
    if (offsets.rows < 1)
        return SP_FAIL(SP_EDATA, "%s:/offsets: is empty, expected samples + 1 numbers",
                       h->path);
    set->n_samples = shard->n_samples = offsets.rows - 1;
    SP_TRY(find(h, "/coords", 2, -1, 3, &shard->coords));
    set->n_voxels = shard->coords.rows;
    SP_TRY(read_offsets(h, &offsets, &shard->coords, &set->rows));
    SP_TRY(find(h, "/features", 2, set->n_voxels, -1, &shard->features));
    if (shard->features.cols < 1)
        return SP_FAIL(SP_EDATA, "%s:/features: %d columns, expected 1 or more",
                       h->path, shard->features.cols);
    set->n_features = shard->features.cols;
    SP_TRY(find_optional(h, "/labels", 1, set->n_voxels, 1, &shard->labels));
    set->has_labels = shard->labels.type_size > 0;
    SP_TRY(find_optional(h, "/origin", 2, set->n_samples, 3, &shard->origin));
    SP_TRY(find_optional(h, "/subvoxel", 2, set->n_voxels, 3, &shard->subvoxel));
    set->has_subvoxel = shard->subvoxel.type_size > 0;
    SP_TRY(find_optional(h, "/crc32c", 1, set->n_samples, 1, &shard->crc));
    SP_TRY(read_points(h));
    SP_TRY(read_blocks(h));
    SP_TRY(read_cost(h));
    return read_sample_names(h);
}

static sp_status read_recipe(const header *h)
{
    const sp_dataset *set = h->set;
    const sp_recipe *recipe;

    SP_TRY(sp_recipe_read(h->h5, &h->set->recipe));
    recipe = set->recipe;
    if (recipe && fabs(recipe->voxel_size - set->voxel_size) > 1e-6 * set->voxel_size)
        return SP_FAIL(SP_EDATA,
                       "%s:/recipe: voxel_size is %.9g, expected %.9g as in the "
                       "attribute of the file",
                       h->path, recipe->voxel_size, set->voxel_size);
    return sp_recipe_check_columns(recipe, h->path, set->n_features, set->feature_name,
                                   false);
}

static sp_status read_file(const header *h)
{
    SP_TRY(check_format(h));
    SP_TRY(read_datasets(h));
    SP_TRY(read_attributes(h));
    SP_TRY(read_moments(h));
    return read_recipe(h);
}

sp_status sp_shard_header(sp_h5 *file, sp_dataset *set)
{
    header h = {.h5 = file, .path = sp_h5_path(file), .set = set};

    assert(set->n_shards == 0 && !set->shard);
    set->shard = calloc(1, sizeof *set->shard);
    if (!set->shard || !(set->shard->path = strdup(h.path)))
        return no_memory(&h);
    set->n_shards = 1;
    h.shard = set->shard;
    h.shard->file_bytes = sp_h5_bytes(file);
    return read_file(&h);
}

/* Reads one sample. Each dataset passes in pieces, which stay in the cache while they
 * are checksummed, converted and checked. If the stored type is the requested one, a
 * piece is read directly to its final place. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_crc.h"
#include "base/sp_file.h"
#include "base/sp_liveness.h"
#include "base/sp_number.h"
#include "data/sp_sample_internal.h"

enum { NO_WORD = -1 }; /* in addition to the kinds of sp_word */

/* Writes "FILE:/dataset: sample 183 (name)", the begin of every message. */
static const char *place(const sample_reader *r, const sp_extent *extent, char *text,
                         size_t size)
{
    const char *name = sp_dataset_name(r->set, r->out->id);

    snprintf(text, size, "%s:%s: sample %lld%s%s%s", r->shard->path, extent->name,
             (long long)r->sample, *name ? " (" : "", name, *name ? ")" : "");
    return text;
}

#define BAD(r, extent, ...)                                                            \
    do {                                                                               \
        char place_[512], text_[400];                                                  \
        snprintf(text_, sizeof text_, __VA_ARGS__);                                    \
        return SP_FAIL(SP_EDATA, "%s: %s", place(r, extent, place_, sizeof place_),    \
                       text_);                                                         \
    } while (0)

/* ---- bytes ---- */

/* Reads n rows from `row` on, as the file has them, from chunks. */
static sp_status read_packed(sample_reader *r, const sp_extent *extent, int64_t row,
                             int64_t n, void *to)
{
    char where[512];
    const sp_h5_packed packed = {.key = extent,
                                 .path = r->shard->path,
                                 .fd = r->file.fd,
                                 .name = extent->name,
                                 .where = place(r, extent, where, sizeof where),
                                 .rows = extent->rows,
                                 .row_bytes = sp_extent_row_bytes(extent),
                                 .chunks = extent->chunks};

    return sp_h5_cache_read(r->set->cache, &packed, row, n, to);
}

/* Reads n rows from `row` on as stored. Wording the place needs the time of reading
 * several kB, so only a second try after a failure has it. */
static sp_status read_rows(sample_reader *r, const sp_extent *extent, int64_t row,
                           int64_t n, void *to)
{
    const int64_t row_bytes = sp_extent_row_bytes(extent);
    const size_t bytes = (size_t)(n * row_bytes);
    const int64_t at = extent->at + row * row_bytes;
    char where[512];

    sp_liveness_count();
    if (extent->chunks.rows)
        return read_packed(r, extent, row, n, to);
    if (sp_file_read_at(r->file.fd, r->shard->path, to, bytes, at) == SP_OK)
        return SP_OK;
    return sp_file_read_at(r->file.fd, place(r, extent, where, sizeof where), to, bytes,
                           at);
}

/* Reads a piece of a dataset that counts in the checksum. Unless kind is NO_WORD,
 * *is_invalid becomes true if any word of it is outside that kind's range; checksum and
 * check are one pass. */
static sp_status read_summed(sample_reader *r, const sp_extent *extent, int64_t row,
                             int64_t n, void *to, int kind, bool *is_invalid)
{
    size_t bytes = (size_t)(n * sp_extent_row_bytes(extent));

    SP_TRY(read_rows(r, extent, row, n, to));
    if (r->is_summed && kind != NO_WORD)
        r->crc = sp_crc32c_checked(r->crc, to, bytes, (sp_word)kind, is_invalid);
    else if (r->is_summed)
        r->crc = sp_crc32c(r->crc, to, bytes);
    else if (kind != NO_WORD)
        *is_invalid = sp_words_invalid(to, bytes, (sp_word)kind);
    return SP_OK;
}

static bool is_type(const sp_extent *extent, char kind, int size)
{
    return extent->kind == kind && extent->type_size == size && !extent->is_swapped;
}

/* The number of rows of a dataset that make a piece. */
static int64_t piece_rows(const sp_extent *extent)
{
    int64_t rows = SAMPLE_PIECE / sp_extent_row_bytes(extent);

    return rows > 0 ? rows : 1;
}

/* ---- coordinates ---- */

static sp_status fail_outside(const sample_reader *r, const int32_t *coords,
                              int64_t row0)
{
    int64_t i = 0;

    while (coords[i] >= -SP_COORD_LIMIT && coords[i] < SP_COORD_LIMIT)
        i++;
    BAD(r, &r->shard->coords, "row %lld: %c = %d, expected -524288 to 524287",
        (long long)(row0 + i / 3), "xyz"[i % 3], coords[i]);
}

static sp_status read_coords(sample_reader *r)
{
    const sp_extent *extent = &r->shard->coords;
    bool is_direct = is_type(extent, 'i', 4), is_outside;
    int64_t step = piece_rows(extent), n = r->out->n, m, bad;

    for (int64_t done = 0; done < n; done += m) {
        int32_t *to = r->out->coords + 3 * done;
        void *raw = is_direct ? to : r->own->raw;

        m = sp_least(step, n - done);
        SP_TRY(read_summed(r, extent, r->first + done, m, raw,
                           is_direct ? SP_COORD : NO_WORD, &is_outside));
        if (!is_direct && (bad = sp_h5_convert(sp_extent_type(extent), raw, 3 * m,
                                               SP_H5_I32, to)) >= 0)
            BAD(r, extent,
                "row %lld: %c = %.17g, expected an integer, -524288 to 524287",
                (long long)(done + bad / 3), "xyz"[bad % 3],
                sp_h5_value(sp_extent_type(extent), raw, bad));
        if (!is_direct)
            is_outside = sp_words_invalid(to, 3 * (size_t)m * sizeof *to, SP_COORD);
        if (is_outside)
            return fail_outside(r, to, done);
    }
    r->coords_crc = r->crc;
    return SP_OK;
}

static sp_status fail_duplicate(const sample_reader *r, int64_t second)
{
    const int32_t *c = r->out->coords, *d = c + 3 * second;
    int64_t first = 0;

    while (memcmp(c + 3 * first, d, 3 * sizeof *c) != 0)
        first++;
    BAD(r, &r->shard->coords,
        "rows %lld and %lld are both (%d, %d, %d), expected unique coordinates",
        (long long)first, (long long)second, d[0], d[1], d[2]);
}

static sp_status check_unique(sample_reader *r)
{
    struct sp_sample_buffers *own = r->own;
    size_t slots = sp_unique_slots(r->out->n);
    int64_t second;

    if (sp_shard_is_unique(r->set, r->out->id, r->coords_crc))
        return SP_OK;
    if (!sp_unique_by_order(r->out->coords, r->out->n)) {
        SP_TRY(sp_sample_grow(&own->keys, &own->table, slots, sizeof *own->keys));
        second = sp_unique_find(r->out->coords, r->out->n, own->keys, slots);
        if (second >= 0)
            return fail_duplicate(r, second);
    }
    sp_shard_set_unique(r->set, r->out->id, r->coords_crc);
    return SP_OK;
}

/* ---- features ---- */

static const char *column_name(const sample_reader *r, int64_t c)
{
    return r->set->feature_name[r->request->columns ? r->request->columns[c] : c];
}

/* The column of the file that is the sample's column c. */
static int stored_column(const sample_reader *r, int c)
{
    const int wanted = r->request->columns ? r->request->columns[c] : c;

    return r->set->column_of ? r->set->column_of[wanted] : wanted;
}

static sp_status fail_non_finite(const sample_reader *r, const float *x, int64_t row0)
{
    int64_t i = 0;

    while (isfinite(x[i]))
        i++;
    BAD(r, &r->shard->features, "row %lld: %s is %g, expected a finite number",
        (long long)(row0 + i / r->n_columns), column_name(r, i % r->n_columns),
        (double)x[i]);
}

/* Copies the wanted columns of n rows as stored. */
static void gather(const sample_reader *r, const sp_extent *extent, const void *raw,
                   int64_t n, void *to)
{
    size_t size = (size_t)extent->type_size;
    const char *from = raw;
    char *at = to;

    for (int64_t i = 0; i < n; i++, from += (size_t)extent->cols * size)
        for (int c = 0; c < r->n_columns; c++, at += size) {
            const char *value = from + (size_t)stored_column(r, c) * size;

            if (size == 4)
                memcpy(at, value, 4);
            else
                memcpy(at, value, size);
        }
}

static sp_status fail_beyond(const sample_reader *r, const sp_extent *extent,
                             const void *raw, int64_t bad, int64_t row0)
{
    int c = r->n_columns;

    BAD(r, extent, "row %lld: %s is %.17g, beyond the range of float32 (3.4e38)",
        (long long)(row0 + bad / c), column_name(r, bad % c),
        sp_h5_value(sp_extent_type(extent), raw, bad));
}

static sp_status read_features(sample_reader *r)
{
    const sp_extent *extent = &r->shard->features;
    bool is_native = is_type(extent, 'f', 4);
    bool is_direct = is_native && r->has_all_columns, is_invalid;
    struct sp_sample_buffers *own = r->own;
    int64_t step = piece_rows(extent), n = r->out->n, c = r->n_columns, m, bad;

    for (int64_t done = 0; done < n; done += m) {
        float *to = r->out->features + c * done;
        void *raw = is_direct ? to : own->raw, *wanted = raw;

        m = sp_least(step, n - done);
        SP_TRY(read_summed(r, extent, r->first + done, m, raw,
                           is_direct ? SP_FLOAT : NO_WORD, &is_invalid));
        if (!r->has_all_columns) {
            wanted = is_native ? (void *)to : own->gathered;
            gather(r, extent, raw, m, wanted);
        }
        if (!is_native && (bad = sp_h5_convert(sp_extent_type(extent), wanted, m * c,
                                               SP_H5_F32, to)) >= 0)
            return fail_beyond(r, extent, wanted, bad, done);
        if (!is_direct)
            is_invalid = sp_words_invalid(to, (size_t)(m * c) * sizeof *to, SP_FLOAT);
        if (is_invalid)
            return fail_non_finite(r, to, done);
    }
    return SP_OK;
}

/* ---- labels ---- */

SP_WIDE static int64_t labels_from_bytes(const uint8_t *raw, int64_t n, int n_classes,
                                         int ignore, int32_t *to)
{
    const uint8_t most = (uint8_t)sp_least(n_classes - 1, UINT8_MAX);
    const uint8_t other = 0 <= ignore && ignore <= UINT8_MAX ? (uint8_t)ignore : most;
    uint8_t is_bad = 0;

    for (int64_t i = 0; i < n; i++) /* bytes: four times as many in a register */
        is_bad |= (uint8_t)((raw[i] > most) & (raw[i] != other));
    for (int64_t i = 0; i < n; i++)
        to[i] = raw[i] == ignore ? SP_IGNORE : raw[i];
    for (int64_t i = 0; is_bad && i < n; i++)
        if (raw[i] != ignore && raw[i] >= n_classes)
            return i;
    return -1;
}

static int64_t labels_from_any(const sp_extent *extent, void *raw, int64_t n,
                               int n_classes, int ignore, int32_t *to)
{
    int64_t bad = sp_h5_convert(sp_extent_type(extent), raw, n, SP_H5_I32, to);

    for (int64_t i = 0; bad < 0 && i < n; i++) {
        if (to[i] == ignore)
            to[i] = SP_IGNORE;
        else if (to[i] < 0 || to[i] >= n_classes)
            return i;
    }
    return bad;
}

/* Reads labels of voxels or of points, from row `first` of the file on. */
static sp_status read_labels(sample_reader *r, const sp_extent *extent, int64_t first,
                             int64_t n, int32_t *to)
{
    int n_classes = r->set->n_classes, ignore = r->set->ignore_label;
    void *raw = r->own->raw;
    int64_t m, bad;

    if (extent->type_size == 0) {
        for (int64_t i = 0; i < n; i++)
            to[i] = SP_IGNORE;
        return SP_OK;
    }
    for (int64_t done = 0; done < n; done += m) {
        m = sp_least(piece_rows(extent), n - done);
        if (extent == &r->shard->labels)
            SP_TRY(read_summed(r, extent, first + done, m, raw, NO_WORD, NULL));
        else
            SP_TRY(read_rows(r, extent, first + done, m, raw));
        bad = is_type(extent, 'u', 1)
                  ? labels_from_bytes(raw, m, n_classes, ignore, to + done)
                  : labels_from_any(extent, raw, m, n_classes, ignore, to + done);
        if (bad >= 0)
            BAD(r, extent, "row %lld: label %.17g, expected 0 to %d or ignore_label %d",
                (long long)(done + bad), sp_h5_value(sp_extent_type(extent), raw, bad),
                n_classes - 1, ignore);
    }
    /* The classes may have another order. */
    for (int64_t i = 0; r->set->class_of && i < n; i++)
        if (to[i] != SP_IGNORE)
            to[i] = r->set->class_of[to[i]];
    return SP_OK;
}

/* ---- the rest ---- */

/* The unsigned type that whole numbers are read into, and the greatest valid one. */
typedef struct whole {
    int size; /* bytes: 1, 4 or 8 */
    int64_t most;
} whole;

static int64_t first_above(const uint32_t *value, int64_t n, int64_t most)
{
    for (int64_t i = 0; i < n; i++)
        if (value[i] > most)
            return i;
    return -1;
}

/* Reads n rows of whole numbers from row `first` of the file on. Numbers of 1 and of 8
 * bytes are all valid if they are stored in the requested type. */
static sp_status read_whole(sample_reader *r, const sp_extent *extent, int64_t first,
                            int64_t n, whole type, void *to)
{
    const sp_h5_type stored = sp_extent_type(extent);
    const bool is_direct = is_type(extent, 'u', type.size);
    const int64_t cols = extent->cols;
    int64_t m, bad = -1;
    char text[48] = "an integer, 0 or more";

    if (is_direct && type.size != 4)
        return read_rows(r, extent, first, n, to);
    for (int64_t done = 0; done < n; done += m) {
        char *at = (char *)to + done * cols * type.size;
        void *raw = is_direct ? at : r->own->raw;

        m = sp_least(piece_rows(extent), n - done);
        SP_TRY(read_rows(r, extent, first + done, m, raw));
        if (!is_direct)
            bad = sp_h5_convert(stored, raw, m * cols,
                                (sp_h5_type){'u', type.size, false}, at);
        if (bad < 0 && type.size == 4)
            bad = first_above((uint32_t *)(void *)at, m * cols, type.most);
        if (bad < 0)
            continue;
        if (type.most < 0)
            snprintf(text, sizeof text, "no point in a sample without a voxel");
        else if (type.most < INT64_MAX)
            snprintf(text, sizeof text, "0 to %lld", (long long)type.most);
        BAD(r, extent, "%s %lld: %.17g, expected %s", cols > 1 ? "row" : "point",
            (long long)(done + bad / cols), sp_h5_value(stored, raw, bad), text);
    }
    return SP_OK;
}

static sp_status read_subvoxel(sample_reader *r)
{
    if (!r->set->has_subvoxel)
        return SP_OK;
    return read_whole(r, &r->shard->subvoxel, r->first, r->out->n,
                      (whole){1, UINT8_MAX}, r->out->subvoxel);
}

static sp_status read_origin(sample_reader *r)
{
    const sp_extent *extent = &r->shard->origin;
    void *raw = r->own->raw;

    memset(r->out->origin, 0, sizeof r->out->origin);
    if (extent->type_size == 0)
        return SP_OK;
    SP_TRY(read_rows(r, extent, r->sample, 1, raw));
    sp_h5_to_native(sp_extent_type(extent), raw, 3);
    for (int i = 0; i < 3; i++) {
        r->out->origin[i] = sp_h5_value(sp_extent_type(extent), raw, i);
        if (!isfinite(r->out->origin[i]))
            BAD(r, extent, "%c is %g, expected a finite number", "xyz"[i],
                r -> out -> origin[i]);
    }
    return SP_OK;
}

static sp_status read_point_index(sample_reader *r)
{
    const sp_extent *extent = &r->shard->point_index;
    const int64_t n = r->out->n_points;

    for (int64_t i = 0; extent->type_size == 0 && i < n; i++)
        r->out->point_index[i] = (uint64_t)i;
    if (extent->type_size == 0)
        return SP_OK;
    return read_whole(r, extent, r->first_point, n, (whole){8, INT64_MAX},
                      r->out->point_index);
}

/* The points of the margin. They belong to the sample of another block, which is not at
 * hand, so context_point is compared with it when they are merged. */
static sp_status read_context(sample_reader *r)
{
    const sp_shard *shard = r->shard;
    sp_sample *out = r->out;
    const int64_t first = r->first_context, n = out->n_context;

    if (!r->request->with_context)
        return SP_OK;
    SP_TRY(read_whole(r, &shard->context_voxel, first, n, (whole){4, out->n - 1},
                      out->context_voxel));
    SP_TRY(read_whole(r, &shard->context_block, first, n, (whole){4, UINT32_MAX},
                      out->context_block));
    return read_whole(r, &shard->context_point, first, n, (whole){4, INT32_MAX},
                      out->context_point);
}

static sp_status read_points(sample_reader *r)
{
    if (!r->request->with_points || !r->set->has_points)
        return SP_OK;
    SP_TRY(read_whole(r, &r->shard->point_voxel, r->first_point, r->out->n_points,
                      (whole){4, r->out->n - 1}, r->out->point_voxel));
    SP_TRY(read_point_index(r));
    return read_labels(r, &r->shard->point_labels, r->first_point, r->out->n_points,
                       r->out->point_labels);
}

static sp_status check_crc(sample_reader *r)
{
    const sp_extent *extent = &r->shard->crc;
    int64_t stored;

    SP_TRY(read_rows(r, extent, r->sample, 1, r->own->raw));
    if (sp_h5_convert(sp_extent_type(extent), r->own->raw, 1, SP_H5_I64, &stored) >=
            0 ||
        (uint32_t)stored != r->crc)
        BAD(r, extent,
            "checksum of coords, features, labels is %08x, expected %08x: "
            "damaged data",
            r->crc, (unsigned)(uint32_t)stored);
    return SP_OK;
}

static sp_status read_voxels(sample_reader *r)
{
    sp_status rc;

    /* The checksum of the coordinates is computed even if the file has no checksum:
     * check_unique uses it to skip coordinates that it has checked before. */
    r->is_summed = r->request->verify;
    rc = read_coords(r);
    r->is_summed = r->has_crc;
    if (rc == SP_OK)
        rc = read_features(r);
    if (rc == SP_OK)
        rc = read_labels(r, &r->shard->labels, r->first, r->out->n, r->out->labels);
    SP_TRY(rc);
    if (r->has_crc)
        SP_TRY(check_crc(r));
    return r->request->verify ? check_unique(r) : SP_OK;
}

static sp_status read_all(sample_reader *r)
{
    SP_TRY(read_voxels(r));
    SP_TRY(read_subvoxel(r));
    SP_TRY(read_origin(r));
    SP_TRY(read_points(r));
    return read_context(r);
}

static sp_status begin(sample_reader *r)
{
    const sp_sample_request *q = r->request;
    sp_sample *of;

    r->n_columns = q->columns ? q->n_columns : r->set->n_features;
    r->has_all_columns = r->n_columns == r->set->n_features;
    for (int c = 0; c < r->n_columns; c++)
        r->has_all_columns &= stored_column(r, c) == c;
    r->has_crc = q->verify && r->shard->crc.type_size > 0;
    of = q->reading ? q->reading : r->out;
    if (!of->own)
        of->own = calloc(1, sizeof *of->own);
    r->own = of->own;
    if (!r->own)
        return SP_FAIL(SP_EMEM, "no memory for a sample");
    return sp_sample_grow_all(r);
}

sp_status sp_sample_read_once(const sp_dataset *set, int64_t sample,
                              const sp_sample_request *request, sp_sample *out)
{
    int shard = sp_dataset_shard_of(set, sample);
    sample_reader r = {
        .set = set, .shard = &set->shard[shard], .request = request, .out = out};
    sp_status rc;

    assert(0 <= sample && sample < set->n_samples);
    assert(!request->columns || request->n_columns > 0);
    assert(set->has_blocks || !request->with_context);
    r.sample = sample - r.shard->first_sample;
    r.first = sp_dataset_first_voxel(set, sample);
    sp_sample_measure(set, sample, request, out);
    if (out->n_points)
        r.first_point = sp_dataset_first_point(set, sample);
    if (out->n_context)
        r.first_context = sp_dataset_first_context(set, sample);
    SP_TRY(begin(&r));
    if (set->source)
        return sp_source_sample(&r);
    SP_TRY(sp_shard_acquire(set, shard, &r.file));
    rc = read_all(&r);
    sp_shard_release(set, &r.file);
    SP_TRY(rc);
    return SP_OK;
}

sp_status sp_shard_read_labels(const sp_dataset *set, int shard, int64_t first,
                               int64_t n, sp_sample *out)
{
    const int column = 0;
    const sp_sample_request request = {.columns = &column, .n_columns = 1};
    sample_reader r = {
        .set = set, .shard = &set->shard[shard], .request = &request, .out = out};
    sp_status rc;

    assert(0 <= shard && shard < set->n_shards && !set->source);
    out->id = r.shard->first_sample;
    out->n = n;
    SP_TRY(begin(&r));
    SP_TRY(sp_shard_acquire(set, shard, &r.file));
    rc = read_labels(&r, &r.shard->labels, first, n, out->labels);
    sp_shard_release(set, &r.file);
    SP_TRY(rc);
    return SP_OK;
}

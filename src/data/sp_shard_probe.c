/* The child that reads headers: if HDF5 crashes, hangs or eats memory, only it dies. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "process/sp_probe.h"
#include "data/sp_shard_internal.h"

enum { MOST_COLUMNS = 65536 };

typedef struct probe {
    sp_h5 *h5;
    const char *path;
    sp_dataset *set;
    sp_shard *shard;
} probe;

static sp_status no_memory(const probe *p)
{
    return SP_FAIL(SP_EMEM, "%s: no memory for its index", p->path);
}

/* ---- attributes ---- */

static sp_status check_format(const probe *p)
{
    int64_t version;
    char **text;
    int n;
    sp_status rc = SP_OK;

    if (!sp_h5_attr_has(p->h5, "/", "format"))
        return SP_FAIL(
            SP_EDATA,
            "%s: no attribute format, expected \"sptrain-voxels\": not a voxel "
            "shard",
            p->path);
    SP_TRY(sp_h5_attr_read_texts(p->h5, "/", "format", &text, &n));
    if (n != 1 || strcmp(text[0], "sptrain-voxels") != 0)
        rc = SP_FAIL(SP_EDATA, "%s: format is \"%s\", expected \"sptrain-voxels\"",
                     p->path, n > 0 ? text[0] : "");
    sp_h5_list_free(text, n);
    if (rc != SP_OK)
        return rc;
    SP_TRY(sp_h5_attr_read_int(p->h5, "/", "version", &version));
    if (version != 1)
        return SP_FAIL(SP_EDATA, "%s: version is %lld, expected 1", p->path,
                       (long long)version);
    return SP_OK;
}

static sp_status read_int(const probe *p, const char *name, int64_t lo, int64_t hi,
                          int *out)
{
    int64_t value;

    SP_TRY(sp_h5_attr_read_int(p->h5, "/", name, &value));
    if (value < lo || value > hi)
        return SP_FAIL(SP_EDATA, "%s: %s is %lld, expected %lld to %lld", p->path, name,
                       (long long)value, (long long)lo, (long long)hi);
    *out = (int)value;
    return SP_OK;
}

static sp_status read_names(const probe *p, const char *name, int expected, char ***out)
{
    char **texts;
    int n;

    SP_TRY(sp_h5_attr_read_texts(p->h5, "/", name, &texts, &n));
    if (n == expected) {
        *out = texts;
        return SP_OK;
    }
    sp_h5_list_free(texts, n);
    return SP_FAIL(SP_EDATA, "%s: %s has %d names, expected %d", p->path, name, n,
                   expected);
}

static sp_status read_moment(const probe *p, const char *name, bool is_std,
                             double **out)
{
    int n = p->set->n_features;

    *out = malloc((size_t)n * sizeof **out);
    if (!*out)
        return no_memory(p);
    SP_TRY(sp_h5_attr_read(p->h5, "/", name, SP_H5_F64, n, *out));
    for (int i = 0; p->set->n_voxels > 0 && i < n; i++)
        if (!isfinite((*out)[i]) || (is_std && (*out)[i] < 0))
            return SP_FAIL(SP_EDATA,
                           "%s: %s of column %s is %g, expected a finite number%s",
                           p->path, name, p->set->feature_name[i], (*out)[i],
                           is_std ? ", not negative" : "");
    return SP_OK;
}

static sp_status read_moments(const probe *p)
{
    bool has_mean = sp_h5_attr_has(p->h5, "/", "feature_mean");
    bool has_std = sp_h5_attr_has(p->h5, "/", "feature_std");

    if (has_mean != has_std)
        return SP_FAIL(SP_EDATA, "%s: %s without %s", p->path,
                       has_mean ? "feature_mean" : "feature_std",
                       has_mean ? "feature_std" : "feature_mean");
    if (!has_mean)
        return SP_OK;
    SP_TRY(read_moment(p, "feature_mean", false, &p->set->feature_mean));
    return read_moment(p, "feature_std", true, &p->set->feature_std);
}

static sp_status read_attributes(const probe *p)
{
    sp_dataset *set = p->set;

    SP_TRY(sp_h5_attr_read(p->h5, "/", "voxel_size", SP_H5_F64, 1, &set->voxel_size));
    if (!(set->voxel_size > 0) || !isfinite(set->voxel_size))
        return SP_FAIL(SP_EDATA,
                       "%s: voxel_size is %g, expected a length above 0 in metre",
                       p->path, set->voxel_size);
    SP_TRY(read_int(p, "num_classes", 1, 65536, &set->n_classes));
    SP_TRY(read_int(p, "ignore_label", INT32_MIN, INT32_MAX, &set->ignore_label));
    SP_TRY(read_names(p, "class_names", set->n_classes, &set->class_name));
    if (sp_h5_attr_has(p->h5, "/", "class_codes"))
        SP_TRY(read_names(p, "class_codes", set->n_classes, &set->class_code));
    return read_names(p, "feature_names", set->n_features, &set->feature_name);
}

/* ---- datasets ---- */

static void print_shape(char *text, size_t size, int rank, int64_t rows, int64_t cols)
{
    if (rank == 2)
        snprintf(text, size, "[%lld,%lld]", (long long)rows, (long long)cols);
    else
        snprintf(text, size, "[%lld]", (long long)rows);
}

/* rows or cols < 0: any. */
static sp_status check_shape(const probe *p, const char *name, const sp_h5_shape *shape,
                             int rank, int64_t rows, int64_t cols)
{
    char found[64], want[64];

    if (shape->rank != rank)
        return SP_FAIL(SP_EDATA, "%s:%s: %d dimensions, expected %d", p->path, name,
                       shape->rank < 0 ? 0 : shape->rank, rank);
    if ((rows < 0 || shape->dim[0] == rows) &&
        (rank == 1 || cols < 0 || shape->dim[1] == cols))
        return SP_OK;
    print_shape(found, sizeof found, rank, shape->dim[0], shape->dim[1]);
    print_shape(want, sizeof want, rank, rows < 0 ? shape->dim[0] : rows,
                cols < 0 ? shape->dim[1] : cols);
    return SP_FAIL(SP_EDATA, "%s:%s: shape %s, expected %s", p->path, name, found,
                   want);
}

/* All bytes of it must lie in the file; compressed ones may not claim more than
 * compression can give. */
static sp_status check_bytes(const probe *p, const char *name, const sp_h5_shape *shape)
{
    int64_t bytes = shape->type.size, limit = sp_h5_bytes(p->h5);
    bool is_over = false;

    for (int i = 0; i < shape->rank; i++)
        is_over |= __builtin_mul_overflow(bytes, shape->dim[i], &bytes);
    if (!is_over && bytes == 0)
        return SP_OK;
    if (shape->is_contiguous)
        is_over |= shape->at < 0 || shape->at > limit || bytes > limit - shape->at;
    else
        is_over |= __builtin_mul_overflow(limit, (int64_t)SP_SHARD_EXPANSION, &limit) ||
                   bytes > limit || shape->chunk_bytes > limit;
    if (is_over)
        return SP_FAIL(
            SP_EDATA,
            "%s:%s: reaches beyond the end of the file (%lld bytes): truncated "
            "or damaged",
            p->path, name, (long long)sp_h5_bytes(p->h5));
    return SP_OK;
}

static sp_status find(const probe *p, const char *name, int rank, int64_t rows,
                      int64_t cols, sp_extent *out)
{
    sp_h5_shape shape;

    SP_TRY(sp_h5_shape_of(p->h5, name, &shape));
    SP_TRY(check_shape(p, name, &shape, rank, rows, cols));
    if (rank == 2 && shape.dim[1] > MOST_COLUMNS)
        return SP_FAIL(SP_EDATA, "%s:%s: %lld columns, expected at most %d", p->path,
                       name, (long long)shape.dim[1], MOST_COLUMNS);
    if (shape.type.kind == '?' || shape.type.kind == 's')
        return SP_FAIL(SP_EDATA, "%s:%s: not of an integer or float type", p->path,
                       name);
    if (*shape.missing_filter)
        return SP_FAIL(SP_EDATA,
                       "%s:%s: compressed by the filter \"%s\", which the HDF5 library "
                       "lacks; write it contiguous, or with gzip",
                       p->path, name, shape.missing_filter);
    if (!shape.is_complete)
        return SP_FAIL(SP_EDATA, "%s:%s: its values were not all written", p->path,
                       name);
    SP_TRY(check_bytes(p, name, &shape));
    memset(out, 0, sizeof *out);
    out->at = shape.at;
    out->rows = shape.dim[0];
    out->cols = rank == 2 ? (int)shape.dim[1] : 1;
    out->type_size = shape.type.size;
    out->kind = shape.type.kind;
    out->is_swapped = shape.type.is_swapped;
    out->is_chunked = !shape.is_contiguous;
    return SP_OK;
}

/* As find, but may be absent (type_size 0). */
static sp_status find_optional(const probe *p, const char *name, int rank, int64_t rows,
                               int64_t cols, sp_extent *out)
{
    return sp_h5_has(p->h5, name) ? find(p, name, rank, rows, cols, out) : SP_OK;
}

/* A whole dataset of integers; *out malloc'd. */
static sp_status read_integers(const probe *p, const char *name,
                               const sp_extent *extent, int64_t **out)
{
    int64_t n = extent->rows * extent->cols, bad;
    void *raw = malloc((size_t)n * (size_t)extent->type_size + 1);
    sp_status rc = SP_OK;

    *out = malloc(((size_t)n + 1) * sizeof **out);
    if (!raw || !*out)
        rc = no_memory(p);
    else
        rc = sp_h5_read_rows(p->h5, name, 0, extent->rows, raw);
    if (rc == SP_OK && (bad = sp_convert_i64(extent, raw, n, *out)) >= 0)
        rc = SP_FAIL(SP_EDATA, "%s:%s: element %lld is %.17g, expected an integer",
                     p->path, name, (long long)bad, sp_convert_value(extent, raw, bad));
    free(raw);
    return rc;
}

/* Offsets of n samples that end at `rows` rows; rows < 0: any. */
static sp_status read_offsets(const probe *p, const char *name, const sp_extent *extent,
                              int64_t rows, const char *rows_of, int64_t **out)
{
    int64_t n = extent->rows - 1, *offset;

    SP_TRY(read_integers(p, name, extent, out));
    offset = *out;
    if (offset[0] != 0)
        return SP_FAIL(SP_EDATA, "%s:%s: the first is %lld, expected 0", p->path, name,
                       (long long)offset[0]);
    for (int64_t i = 0; i < n; i++) {
        if (offset[i + 1] < offset[i])
            return SP_FAIL(
                SP_EDATA, "%s:%s: sample %lld: offset falls from %lld to %lld", p->path,
                name, (long long)i, (long long)offset[i], (long long)offset[i + 1]);
        if (offset[i + 1] - offset[i] > INT32_MAX)
            return SP_FAIL(
                SP_EDATA, "%s:%s: sample %lld has %lld rows, expected below 2^31",
                p->path, name, (long long)i, (long long)(offset[i + 1] - offset[i]));
    }
    if (offset[n] != rows)
        return SP_FAIL(SP_EDATA, "%s:%s: the last is %lld, expected %lld (rows of %s)",
                       p->path, name, (long long)offset[n], (long long)rows, rows_of);
    return SP_OK;
}

static sp_status read_cost(const probe *p)
{
    sp_dataset *set = p->set;
    sp_extent extent = {0};

    SP_TRY(find_optional(p, "/cost", 2, set->n_samples, SP_COST_COLUMNS, &extent));
    set->has_cost = extent.type_size > 0;
    if (!set->has_cost)
        return SP_OK;
    SP_TRY(read_integers(p, "/cost", &extent, &set->cost));
    for (int64_t i = 0; i < set->n_samples * SP_COST_COLUMNS; i++)
        if (set->cost[i] < 0)
            return SP_FAIL(SP_EDATA, "%s:/cost: sample %lld: %lld, expected 0 or more",
                           p->path, (long long)(i / SP_COST_COLUMNS),
                           (long long)set->cost[i]);
    return SP_OK;
}

static sp_status read_sample_names(const probe *p)
{
    sp_dataset *set = p->set;

    set->has_names = sp_h5_has(p->h5, "/names");
    if (!set->has_names)
        return SP_OK;
    set->name = calloc((size_t)set->n_samples + 1, sizeof *set->name);
    if (!set->name)
        return no_memory(p);
    return sp_h5_read_texts(p->h5, "/names", set->n_samples, set->name);
}

static sp_status read_points(const probe *p)
{
    static const char *const part[] = {"/point_voxel", "/point_labels", "/point_index"};
    sp_dataset *set = p->set;
    sp_shard *shard = p->shard;
    sp_extent offsets = {0};

    set->has_points = sp_h5_has(p->h5, "/point_offsets");
    for (int i = 0; !set->has_points && i < 3; i++)
        if (sp_h5_has(p->h5, part[i]))
            return SP_FAIL(SP_EDATA, "%s: %s without /point_offsets", p->path, part[i]);
    if (!set->has_points)
        return SP_OK;
    SP_TRY(find(p, "/point_offsets", 1, set->n_samples + 1, 1, &offsets));
    SP_TRY(find(p, "/point_voxel", 1, -1, 1, &shard->point_voxel));
    set->n_points = shard->point_voxel.rows;
    SP_TRY(read_offsets(p, "/point_offsets", &offsets, set->n_points, "/point_voxel",
                        &set->point_offset));
    if (set->has_labels)
        SP_TRY(find(p, "/point_labels", 1, set->n_points, 1, &shard->point_labels));
    SP_TRY(find_optional(p, "/point_index", 1, set->n_points, 1, &shard->point_index));
    return SP_OK;
}

static sp_status read_datasets(const probe *p)
{
    sp_dataset *set = p->set;
    sp_shard *shard = p->shard;
    sp_extent offsets = {0};

    SP_TRY(find(p, "/offsets", 1, -1, 1, &offsets));
    if (offsets.rows < 1)
        return SP_FAIL(SP_EDATA, "%s:/offsets: is empty, expected samples + 1 numbers",
                       p->path);
    set->n_samples = shard->n_samples = offsets.rows - 1;
    SP_TRY(find(p, "/coords", 2, -1, 3, &shard->coords));
    set->n_voxels = shard->coords.rows;
    SP_TRY(
        read_offsets(p, "/offsets", &offsets, set->n_voxels, "/coords", &set->offset));
    SP_TRY(find(p, "/features", 2, set->n_voxels, -1, &shard->features));
    if (shard->features.cols < 1)
        return SP_FAIL(SP_EDATA, "%s:/features: %d columns, expected 1 or more",
                       p->path, shard->features.cols);
    set->n_features = shard->features.cols;
    SP_TRY(find_optional(p, "/labels", 1, set->n_voxels, 1, &shard->labels));
    set->has_labels = shard->labels.type_size > 0;
    SP_TRY(find_optional(p, "/origin", 2, set->n_samples, 3, &shard->origin));
    SP_TRY(find_optional(p, "/subvoxel", 2, set->n_voxels, 3, &shard->subvoxel));
    set->has_subvoxel = shard->subvoxel.type_size > 0;
    SP_TRY(find_optional(p, "/crc32c", 1, set->n_samples, 1, &shard->crc));
    SP_TRY(read_points(p));
    SP_TRY(read_cost(p));
    return read_sample_names(p);
}

static sp_status read_file(const probe *p)
{
    SP_TRY(check_format(p));
    SP_TRY(read_datasets(p));
    SP_TRY(read_attributes(p));
    return read_moments(p);
}

sp_status sp_shard_probe(const char *path, sp_dataset *set)
{
    probe p = {.path = path, .set = set};
    sp_status rc;

    set->shard = calloc(1, sizeof *set->shard);
    if (!set->shard || !(set->shard->path = strdup(path)))
        return no_memory(&p);
    set->n_shards = 1;
    p.shard = set->shard;
    SP_TRY(sp_h5_open(&p.h5, path));
    p.shard->file_bytes = sp_h5_bytes(p.h5);
    rc = read_file(&p);
    sp_h5_close(p.h5);
    return rc;
}

/* ---- the process ---- */

static void put_all(const void *data, size_t bytes)
{
    const char *at = data;
    ssize_t n;

    for (; bytes > 0; bytes -= (size_t)n, at += n) {
        n = write(STDOUT_FILENO, at, bytes);
        if (n < 0 && errno == EINTR)
            n = 0;
        else if (n < 0)
            _exit(1); /* the parent is gone */
    }
}

static void put_frame(uint64_t tag, const void *data, size_t bytes)
{
    sp_probe_frame frame = {tag, bytes};

    put_all(&frame, sizeof frame);
    put_all(data, bytes);
}

static void put_error(sp_status code, const char *message)
{
    char data[sizeof(int64_t) + SP_ERROR_MESSAGE];
    int64_t status = code;
    size_t length = strlen(message);

    memcpy(data, &status, sizeof status);
    memcpy(data + sizeof status, message, length);
    put_frame(SP_PROBE_ERROR, data, sizeof status + length);
}

/* The parent names the file after whatever ends this process. */
static void limit_file(void)
{
    const struct itimerval work = {.it_value.tv_sec = SP_PROBE_WORK_S};

    alarm(SP_PROBE_WALL_S);
    setitimer(ITIMER_PROF, &work, NULL);
}

static char *read_list(size_t *bytes)
{
    size_t room = 1 << 16;
    char *list = malloc(room), *more;
    ssize_t n;

    *bytes = 0;
    while (list && (n = read(STDIN_FILENO, list + *bytes, room - *bytes)) != 0) {
        if (n < 0 && errno != EINTR)
            _exit(1);
        *bytes += n > 0 ? (size_t)n : 0;
        if (*bytes < room)
            continue;
        more = realloc(list, room *= 2);
        list = more;
    }
    return list;
}

/* For tests of the parent: the child crashes at, or hangs in, a file whose path has the
 * value of this variable in it. */
static void misbehave(const char *path)
{
    const char *crash = getenv("SP_SHARD_PROBE_CRASH");
    const char *hang = getenv("SP_SHARD_PROBE_HANG");

    if (crash && strstr(path, crash))
        raise(SIGSEGV);
    if (!hang || !strstr(path, hang))
        return;
    alarm(1); /* in place of SP_PROBE_WALL_S */
    for (;;)
        pause();
}

static bool put_shard(const char *path, XXH64_state_t *hash)
{
    sp_dataset set = {0};
    sp_wire wire = {0};
    sp_status rc = sp_shard_probe(path, &set);

    if (rc == SP_OK) {
        sp_wire_shard(&wire, &set);
        rc = wire.rc;
    }
    if (rc == SP_OK) {
        XXH64_update(hash, wire.data, wire.size);
        put_frame(SP_PROBE_SHARD, wire.data, wire.size);
    } else {
        put_error(rc, sp_error_last()->message);
    }
    free(wire.data);
    sp_dataset_close(&set);
    return rc == SP_OK;
}

/* Paths come on standard input, each ended by a zero byte; frames go to standard
 * output. */
void sp_shard_probe_main(int argc, char **argv)
{
    XXH64_state_t *hash;
    size_t bytes;
    char *list;
    uint64_t sum;
    int64_t i = 0;

    if (argc < 2 || strcmp(argv[1], SP_SHARD_PROBE) != 0)
        return;
    sp_probe_limit((int64_t)4 << 30);
    list = read_list(&bytes);
    hash = XXH64_createState();
    if (!list || !hash)
        _exit(SP_EMEM);
    XXH64_reset(hash, 0);
    for (const char *path = list; path < list + bytes; path += strlen(path) + 1, i++) {
        limit_file();
        put_frame(SP_PROBE_FILE, &i, sizeof i);
        misbehave(path);
        if (!put_shard(path, hash))
            _exit(0);
    }
    sum = XXH64_digest(hash);
    put_frame(SP_PROBE_END, &sum, sizeof sum);
    _exit(0);
}

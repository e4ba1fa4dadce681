/* Shards as other programs might write them: directly with HDF5, in any type and
 * layout. */
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_crc.h"
#include "torture/random/random.h"

/* A shard that is being written. */
typedef struct shard {
    rnd_case *c;
    const rnd_set *set;
    int number;
    bool is_plain; /* as spvox writes */
    hid_t file;
    bool is_good;
} shard;

static void check(shard *s, bool is_good, const char *what)
{
    if (!is_good)
        s->is_good = rnd_fault(s->c, '-', "cannot write %s of %s shard %d", what,
                               s->set->name, s->number);
}

/* ---- types ---- */

static hid_t file_type(rnd_type t)
{
    static const int i[9] = {[1] = 0, [2] = 1, [4] = 2, [8] = 3};
    const hid_t whole[2][4] = {
        {H5T_STD_I8LE, H5T_STD_I16LE, H5T_STD_I32LE, H5T_STD_I64LE},
        {H5T_STD_U8LE, H5T_STD_U16LE, H5T_STD_U32LE, H5T_STD_U64LE}};
    hid_t type;

    if (t.kind != 'f')
        type = H5Tcopy(whole[t.kind == 'u'][i[t.size]]);
    else
        type = H5Tcopy(t.size == 8 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE);
    if (t.kind == 'f' && t.size == 2) {
        H5Tset_fields(type, 15, 10, 5, 0, 10);
        H5Tset_size(type, 2);
        H5Tset_ebias(type, 15);
    }
    if (t.is_big_endian)
        H5Tset_order(type, H5T_ORDER_BE);
    return type;
}

/* Draws one of the types in the list "i4 u1 f8 ..."; the first is the plain one. */
static rnd_type draw_type(shard *s, const char *list, const char *name)
{
    const char *set = s->set->name;
    const int n = ((int)strlen(list) + 1) / 3;
    const char *at = list;
    rnd_type t = {.layout = LAYOUT_CONTIGUOUS};

    if (!s->is_plain) {
        at += 3 * rnd_pick(s->c, n, "%s.%d%s.type", set, s->number, name);
        t.is_big_endian = rnd_chance(s->c, 15, "%s.%d%s.big", set, s->number, name);
        if (*name == '/' &&
            rnd_chance(s->c, 40, "%s.%d%s.stored", set, s->number, name))
            t.layout =
                rnd_pick(s->c, N_LAYOUTS, "%s.%d%s.layout", set, s->number, name);
    }
    t.kind = at[0];
    t.size = at[1] - '0';
    return t;
}

/* ---- datasets ---- */

static hid_t creation(rnd_type t, int rank, const hsize_t *dim)
{
    hid_t p = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk[2] = {dim[0] < 7 ? dim[0] : 1 + dim[0] / 3, rank > 1 ? dim[1] : 1};

    if (dim[0] == 0 || t.layout == LAYOUT_CONTIGUOUS)
        return p;
    if (t.layout == LAYOUT_COMPACT) {
        if (dim[0] * (rank > 1 ? dim[1] : 1) * (hsize_t)t.size < 32768)
            H5Pset_layout(p, H5D_COMPACT);
        return p;
    }
    H5Pset_chunk(p, rank, chunk);
    if (t.layout == LAYOUT_SHUFFLED)
        H5Pset_shuffle(p);
    if (t.layout != LAYOUT_CHUNKED)
        H5Pset_deflate(p, 4);
    return p;
}

/* Writes `value` of a native type; *stored, malloc'd, has the bytes as they are in the
 * file, for the checksum. */
static void write_dataset(shard *s, const char *name, rnd_type t, int rank,
                          const hsize_t *dim, hid_t native, const void *value,
                          void **stored)
{
    const size_t n = (size_t)(dim[0] * (rank > 1 ? dim[1] : 1));
    hid_t type = file_type(t), space = H5Screate_simple(rank, dim, NULL);
    hid_t made = creation(t, rank, dim);
    hid_t data = H5Dcreate2(s->file, name, type, space, H5P_DEFAULT, made, H5P_DEFAULT);
    void *bytes = malloc(n * 8 + 1);
    bool is_good = data >= 0 && bytes;

    if (is_good) {
        memcpy(bytes, value, n * 8);
        is_good = H5Tconvert(native, type, n, bytes, NULL, H5P_DEFAULT) >= 0;
    }
    if (is_good && n > 0)
        is_good = H5Dwrite(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes) >= 0;
    check(s, is_good, name);
    if (data >= 0)
        H5Dclose(data);
    H5Pclose(made);
    H5Sclose(space);
    H5Tclose(type);
    if (stored)
        *stored = bytes;
    else
        free(bytes);
}

static void write_texts(shard *s, const char *name, bool is_attribute, int n,
                        char (*text)[NAME_SIZE], bool is_variable)
{
    hsize_t dim = (hsize_t)n;
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &dim, NULL), at;
    const char *pointer[64];
    const void *value = is_variable ? (const void *)pointer : (const void *)text;

    for (int i = 0; i < n && i < 64; i++)
        pointer[i] = text[i];
    H5Tset_size(type, is_variable ? H5T_VARIABLE : NAME_SIZE);
    at = is_attribute ? H5Acreate2(s->file, name, type, space, H5P_DEFAULT, H5P_DEFAULT)
                      : H5Dcreate2(s->file, name, type, space, H5P_DEFAULT, H5P_DEFAULT,
                                   H5P_DEFAULT);
    if (is_attribute)
        check(s, at >= 0 && H5Awrite(at, type, value) >= 0, name);
    else
        check(s,
              at >= 0 && (n == 0 || H5Dwrite(at, type, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                                             value) >= 0),
              name);
    is_attribute ? H5Aclose(at) : H5Dclose(at);
    H5Sclose(space);
    H5Tclose(type);
}

/* ---- attributes ---- */

/* n < 0: a scalar. */
static void write_numbers(shard *s, const char *name, rnd_type t, int n, double *value)
{
    hsize_t dim = (hsize_t)n;
    hid_t type = file_type(t);
    hid_t space = n < 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &dim, NULL);
    hid_t at = H5Acreate2(s->file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    double bytes[16];

    memcpy(bytes, value, (size_t)(n < 0 ? 1 : n) * sizeof *value);
    check(s,
          at >= 0 &&
              H5Tconvert(H5T_NATIVE_DOUBLE, type, (size_t)(n < 0 ? 1 : n), bytes, NULL,
                         H5P_DEFAULT) >= 0 &&
              H5Awrite(at, type, bytes) >= 0,
          name);
    H5Aclose(at);
    H5Sclose(space);
    H5Tclose(type);
}

static void write_number(shard *s, const char *name, const char *types, double value)
{
    const bool is_row = !s->is_plain && rnd_chance(s->c, 25, "%s.%d%s.row",
                                                   s->set->name, s->number, name);

    write_numbers(s, name, draw_type(s, types, name), is_row ? 1 : -1, &value);
}

static void write_moments(shard *s)
{
    double mean[MOST_COLUMNS], std[MOST_COLUMNS];
    const bool is_whole = s->c->feature_kind == VALUES_INTEGERS;
    uint64_t stream = rnd_stream(s->c, "moments", 0);

    for (int k = 0; k < s->c->n_features; k++) {
        mean[k] =
            is_whole ? 30 + rnd_below(&stream, 20) : rnd_below(&stream, 16) / 16.0;
        std[k] =
            is_whole ? 10 + rnd_below(&stream, 9) : (4 + rnd_below(&stream, 16)) / 8.0;
    }
    if (rnd_chance(s->c, 10, "moments.constant"))
        std[0] = 0;
    write_numbers(s, "feature_mean", draw_type(s, "f8 f4", "feature_mean"),
                  s->c->n_features, mean);
    write_numbers(s, "feature_std", draw_type(s, "f8 f4", "feature_std"),
                  s->c->n_features, std);
}

static void write_attributes(shard *s)
{
    static const char whole[] = "i8 i4 u1 u2 i2 u8 f8 f4";
    const bool is_variable =
        !s->is_plain && rnd_chance(s->c, 50, "%s.%d.texts", s->set->name, s->number);
    char text[MOST_COLUMNS + 16][NAME_SIZE] = {"sptrain-voxels"};

    write_texts(s, "format", true, 1, text, is_variable);
    write_number(s, "version", whole, 1);
    write_number(s, "voxel_size", "f8", s->c->voxel_size);
    write_number(s, "num_classes", whole, s->c->n_classes);
    write_number(s, "ignore_label", s->c->ignore_label < 0 ? "i8 i1 i2 f4" : whole,
                 s->c->ignore_label);
    for (int i = 0; i < s->c->n_classes; i++)
        snprintf(text[i], NAME_SIZE, "class %c", 'a' + i);
    write_texts(s, "class_names", true, s->c->n_classes, text, is_variable);
    for (int i = 0; i < s->c->n_features; i++)
        snprintf(text[i], NAME_SIZE, "f%d", i);
    write_texts(s, "feature_names", true, s->c->n_features, text, is_variable);
    if (s->set->has_moments)
        write_moments(s);
}

/* ---- rows ---- */

/* Iterates over the samples of a shard, one after the other. */
typedef struct rows {
    int n_samples;
    int64_t *offset, *point_offset; /* [n_samples + 1] */
    rnd_cloud all;                  /* of all samples */
    double *origin;                 /* [n_samples,3] */
    int64_t *cost;                  /* [n_samples,6] */
} rows;

static void append(void *to, int64_t at, const void *from, int64_t n)
{
    memcpy((char *)to + 8 * at, from, (size_t)(8 * n));
}

static rows gather(const rnd_case *c, const rnd_set *set, int number)
{
    const int first = set->first[number], n = set->first[number + 1] - first;
    rows r = {.n_samples = n};
    int64_t n_voxels = 0;

    for (int i = 0; i < n; i++)
        n_voxels += set->n[first + i];
    r.offset = calloc((size_t)n + 1, 8);
    r.point_offset = calloc((size_t)n + 1, 8);
    r.origin = calloc((size_t)n + 1, 24);
    r.cost = calloc((size_t)n + 1, 48);
    r.all = rnd_cloud_room(c, n_voxels);
    for (int i = 0; i < n; i++) {
        const int64_t at = r.offset[i], p = r.point_offset[i];
        CLOSED_BY(rnd_cloud_free) rnd_cloud one;

        rnd_cloud_make(c, set, first + i, &one);
        append(r.all.coords, 3 * at, one.coords, 3 * one.n);
        append(r.all.features, at * c->n_features, one.features, one.n * c->n_features);
        append(r.all.labels, at, one.labels, one.n);
        append(r.all.subvoxel, 3 * at, one.subvoxel, 3 * one.n);
        append(r.all.point_voxel, p, one.point_voxel, one.n_points);
        append(r.all.point_labels, p, one.point_labels, one.n_points);
        append(r.all.point_index, p, one.point_index, one.n_points);
        memcpy(r.origin + 3 * i, one.origin, sizeof one.origin);
        rnd_cloud_cost(&one, r.cost + 6 * i);
        r.offset[i + 1] = at + one.n;
        r.point_offset[i + 1] = p + one.n_points;
    }
    return r;
}

static void free_rows(rows *r)
{
    rnd_cloud_free(&r->all);
    free(r->offset);
    free(r->point_offset);
    free(r->origin);
    free(r->cost);
}

static bool has(shard *s, int percent, const char *part)
{
    return rnd_chance(s->c, percent, "%s.%d%s", s->set->name, s->number, part);
}

static void write_integers(shard *s, const char *name, const char *types, int rank,
                           int64_t n, int cols, const int64_t *value)
{
    const hsize_t dim[2] = {(hsize_t)n, (hsize_t)cols};

    write_dataset(s, name, draw_type(s, types, name), rank, dim, H5T_NATIVE_INT64,
                  value, NULL);
}

static void write_checksums(shard *s, const rows *r, const rnd_type type[3],
                            void *const stored[3])
{
    const int cols[3] = {3, s->c->n_features, 1};
    FREED int64_t *sum = calloc((size_t)r->n_samples + 1, sizeof *sum);

    for (int i = 0; i < r->n_samples; i++) {
        uint32_t crc = 0;

        for (int k = 0; k < 3; k++) {
            const size_t row = (size_t)(cols[k] * type[k].size);

            if (stored[k])
                crc = sp_crc32c(crc, (char *)stored[k] + (size_t)r->offset[i] * row,
                                (size_t)(r->offset[i + 1] - r->offset[i]) * row);
        }
        sum[i] = crc;
    }
    write_integers(s, "/crc32c", "u4 i8 u8", 1, r->n_samples, 1, sum);
}

/* Writes coordinates, features and labels, which the checksum covers. */
static void write_voxels(shard *s, const rows *r)
{
    static const char *const features[] = {"f4 f2 f8",
                                           "f4 u1 u2 u4 u8 i1 i2 i4 i8 f2 f8", "f8"};
    const int64_t n = r->offset[r->n_samples];
    const bool is_unsigned = s->c->index % 3 == 0 && rnd_first_way(s->c) != 'f';
    const bool is_float = s->is_plain;
    const char *of_features = is_float ? "f4" : features[s->c->feature_kind];
    const char *of_labels =
        s->c->ignore_label < 0 ? "i1 i2 i4 i8 f4" : "u1 u2 u4 u8 i2 i4 i8 f4 f8 f2";
    const rnd_type type[3] = {
        draw_type(s,
                  is_unsigned ? "i4 i1 i2 i8 u1 u2 u4 u8 f4 f8 f2" : "i4 i2 i8 f4 f8",
                  "/coords"),
        draw_type(s, of_features, "/features"), draw_type(s, of_labels, "/labels")};
    const hsize_t dim[3][2] = {
        {(hsize_t)n, 3}, {(hsize_t)n, (hsize_t)s->c->n_features}, {(hsize_t)n, 1}};
    void *stored[3] = {0};

    write_dataset(s, "/coords", type[0], 2, dim[0], H5T_NATIVE_INT64, r->all.coords,
                  &stored[0]);
    write_dataset(s, "/features", type[1], 2, dim[1], H5T_NATIVE_DOUBLE,
                  r->all.features, &stored[1]);
    if (s->set->has_labels)
        write_dataset(s, "/labels", type[2], 1, dim[2], H5T_NATIVE_INT64, r->all.labels,
                      &stored[2]);
    if (has(s, 50, "/crc32c") && !s->is_plain)
        write_checksums(s, r, type, stored);
    for (int k = 0; k < 3; k++)
        free(stored[k]);
}

static void write_points(shard *s, const rows *r)
{
    const int64_t m = r->point_offset[r->n_samples];

    write_integers(s, "/point_offsets", "i8 i4 u8 u4 f8", 1, r->n_samples + 1, 1,
                   r->point_offset);
    write_integers(s, "/point_voxel", "u4 i8 i4 u8 f4", 1, m, 1, r->all.point_voxel);
    if (s->set->has_labels)
        write_integers(s, "/point_labels",
                       s->c->ignore_label < 0 ? "i1 i2 i8" : "u1 u2 i2 i8 f4", 1, m, 1,
                       r->all.point_labels);
    if (has(s, 50, "/point_index"))
        write_integers(s, "/point_index", "u8 u4 i8 i4 f8", 1, m, 1,
                       r->all.point_index);
}

static void write_optional(shard *s, const rows *r)
{
    const hsize_t dim[2] = {(hsize_t)r->n_samples, 3};
    char name[MOST_SAMPLES][NAME_SIZE] = {{0}};

    if (has(s, 50, "/origin"))
        write_dataset(s, "/origin", draw_type(s, "f8 f4 i8 i2", "/origin"), 2, dim,
                      H5T_NATIVE_DOUBLE, r->origin, NULL);
    if (s->set->has_subvoxel)
        write_integers(s, "/subvoxel", "u1 u2 i2 i8 f4", 2, r->offset[r->n_samples], 3,
                       r->all.subvoxel);
    if (has(s, 50, "/cost"))
        write_integers(s, "/cost", "i8 i4 u4 u8 f8", 2, r->n_samples, 6, r->cost);
    for (int i = 0; i < r->n_samples; i++)
        snprintf(name[i], NAME_SIZE, "scan %d of %s", i, s->set->name);
    if (has(s, 50, "/names"))
        write_texts(s, "/names", false, r->n_samples, name,
                    !s->is_plain && has(s, 50, "/names.texts"));
    if (s->set->has_points)
        write_points(s, r);
}

char *rnd_shard_name(rnd_case *c, const rnd_set *set, int number)
{
    char *name;
    const int n =
        rnd_chance(c, 50, "%s.family", set->name)
            ? asprintf(&name, "%s-%05d-of-%05d.h5", set->name, number, set->n_shards)
            : asprintf(&name, "%s-%c.h5", set->name, 'a' + number);

    if (n < 0)
        abort();
    return name;
}

static bool write_shard(rnd_case *c, const rnd_set *set, int number, bool is_plain)
{
    shard s = {
        .c = c, .set = set, .number = number, .is_plain = is_plain, .is_good = true};
    FREED char *name = rnd_shard_name(c, set, number);
    FREED char *path = rnd_path(c, "%s%s", is_plain ? "plain/" : "", name);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    CLOSED_BY(free_rows) rows r = gather(c, set, number);

    if (is_plain || has(&s, 50, ".latest"))
        H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    s.file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    check(&s, s.file >= 0, "the file");
    if (s.file >= 0) {
        write_attributes(&s);
        write_integers(&s, "/offsets", "i8 i4 u8 u4 f8", 1, r.n_samples + 1, 1,
                       r.offset);
        write_voxels(&s, &r);
        write_optional(&s, &r);
        check(&s, H5Fclose(s.file) >= 0, "the end");
    }
    H5Pclose(access);
    return s.is_good;
}

bool rnd_shards_write(rnd_case *c, bool is_plain)
{
    const rnd_set *set[2] = {&c->train, &c->val};
    FREED char *path = rnd_path(c, "plain");
    bool is_good = true;

    if (is_plain && !rnd_make_folder(path))
        return rnd_fault(c, '-', "cannot make %s", path);
    for (int k = 0; k < 2; k++)
        for (int i = 0; is_good && i < set[k]->n_shards; i++)
            is_good = write_shard(c, set[k], i, is_plain);
    return is_good;
}

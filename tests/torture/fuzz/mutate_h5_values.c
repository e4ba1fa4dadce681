/* Changes values of an HDF5 file in place, with or without the checksums that cover
 * them. */
/* H5Ovisit2 has H5O_info_t in HDF5 1.10; later ones have it so with this only. */
#define H5_USE_110_API
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_crc.h"
#include "torture/fuzz/mutate_h5.h"

static hid_t open_file(const char *path)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);

    mutate_check(file >= 0, path);
    return file;
}

/* ---- names ---- */

static char *names[200];

static herr_t add_name(hid_t from, const char *name, const H5O_info_t *info, void *to)
{
    int *n = to;

    (void)from;
    if (info->type != H5O_TYPE_DATASET || *n == sizeof names / sizeof *names)
        return 0;
    free(names[*n]);
    mutate_check(asprintf(&names[*n], "/%s", name) > 0, "out of memory");
    ++*n;
    return 0;
}

char *const *h5_list(const char *path, int *n)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);

    mutate_check(file >= 0, path);
    *n = 0;
    H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_INC, add_name, n, H5O_INFO_BASIC);
    H5Fclose(file);
    return names;
}

/* Gives one of the names. */
static const char *any_name(const char *path, uint64_t *rng)
{
    int n;

    h5_list(path, &n);
    return names[mutate_below(rng, (size_t)n)];
}

/* ---- a whole dataset, as stored ---- */

typedef struct values {
    hid_t set, type;
    size_t n, size;
    unsigned char *at; /* [n * size] */
} values;

static values values_read(hid_t file, const char *name)
{
    values v = {.set = H5Dopen2(file, name, H5P_DEFAULT)};
    hid_t space;

    mutate_check(v.set >= 0, name);
    space = H5Dget_space(v.set);
    v.type = H5Dget_type(v.set);
    v.n = (size_t)H5Sget_simple_extent_npoints(space);
    v.size = H5Tget_size(v.type);
    v.at = calloc(v.n + 1, v.size);
    mutate_check(
        v.at && H5Dread(v.set, v.type, H5S_ALL, H5S_ALL, H5P_DEFAULT, v.at) >= 0, name);
    H5Sclose(space);
    return v;
}

static void values_write(const values *v)
{
    mutate_check(H5Dwrite(v->set, v->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, v->at) >= 0,
                 "cannot write values");
}

static void values_close(values *v)
{
    free(v->at);
    H5Tclose(v->type);
    H5Dclose(v->set);
}

static char kind_of(hid_t type)
{
    H5T_class_t class = H5Tget_class(type);

    return class == H5T_FLOAT ? 'f' : class == H5T_INTEGER ? 'u' : 's';
}

/* ---- changes ---- */

static void change_dataset(hid_t file, const char *name, uint64_t *rng)
{
    values v = values_read(file, name);
    const char kind = kind_of(v.type);

    for (size_t k = 1 + mutate_below(rng, 3); v.n > 0 && k > 0; k--) {
        unsigned char *at = v.at + mutate_below(rng, v.n) * v.size;

        if (kind != 's')
            mutate_number(at, kind, (int)v.size, rng);
        else
            at[mutate_below(rng, v.size)] = (unsigned char)mutate_next(rng);
    }
    values_write(&v);
    values_close(&v);
}

/* Changes a number of the root, or of its recipe; false where the one that was chosen
 * is a text. */
static bool change_attribute(hid_t root, uint64_t *rng, char *which)
{
    const bool is_recipe =
        H5Lexists(root, "recipe", H5P_DEFAULT) > 0 && mutate_below(rng, 2) > 0;
    hid_t file = H5Gopen2(root, is_recipe ? "/recipe" : "/", H5P_DEFAULT);
    H5O_info_t info;
    hid_t attribute, type, space;
    unsigned char *data;
    size_t n;
    char kind;

    H5Oget_info2(file, &info, H5O_INFO_NUM_ATTRS);
    attribute = H5Aopen_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_INC,
                               mutate_below(rng, (size_t)info.num_attrs), H5P_DEFAULT,
                               H5P_DEFAULT);
    if (attribute < 0) {
        H5Gclose(file);
        return false;
    }
    H5Aget_name(attribute, 64, which);
    type = H5Aget_type(attribute);
    space = H5Aget_space(attribute);
    n = (size_t)H5Sget_simple_extent_npoints(space);
    kind = kind_of(type);
    data = calloc(n + 1, H5Tget_size(type));
    mutate_check(data, "out of memory");
    if (kind != 's' && H5Aread(attribute, type, data) >= 0) {
        mutate_number(data + mutate_below(rng, n) * H5Tget_size(type), kind,
                      (int)H5Tget_size(type), rng);
        mutate_check(H5Awrite(attribute, type, data) >= 0, which);
    }
    free(data);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attribute);
    H5Gclose(file);
    return kind != 's';
}

/* Changes a value of one dataset or, with attributes, of a root attribute. */
static const char *change(const char *path, bool with_attributes, uint64_t *rng)
{
    static char attribute[64];
    const char *which = any_name(path, rng);
    hid_t file = open_file(path);

    if (with_attributes && !mutate_below(rng, 2) &&
        change_attribute(file, rng, attribute))
        which = attribute;
    else
        change_dataset(file, which, rng);
    mutate_check(H5Fclose(file) >= 0, path);
    return which;
}

const char *h5_change_value(const char *path, uint64_t *rng)
{
    return change(path, true, rng);
}

void h5_change_dataset(const char *path, uint64_t *rng)
{
    change(path, false, rng);
}

/* ---- checksums ---- */

static herr_t add_attribute(hid_t file, const char *name, const H5A_info_t *info,
                            void *to)
{
    hid_t attribute = H5Aopen(file, name, H5P_DEFAULT), type = H5Aget_type(attribute);
    hid_t space = H5Aget_space(attribute);
    bool is_scalar = H5Sget_simple_extent_type(space) == H5S_SCALAR;
    size_t n = (size_t)H5Sget_simple_extent_npoints(space);
    uint32_t crc = *(uint32_t *)to;

    (void)info;
    if (strcmp(name, "crc32c") == 0) {
        n = 0;
    } else if (kind_of(type) == 's') {
        char **text = calloc(n + 1, sizeof *text);

        mutate_check(text && H5Aread(attribute, type, text) >= 0, name);
        crc = sp_crc32c(crc, name, strlen(name));
        for (size_t i = 0; i < n; i++)
            crc = sp_crc32c(crc, text[i], strlen(text[i]) + !is_scalar);
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, text);
        free(text);
    } else {
        uint64_t number = 0;

        H5Aread(attribute, type, &number);
        crc = sp_crc32c(sp_crc32c(crc, name, strlen(name)), &number, 8);
    }
    *(uint32_t *)to = crc;
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attribute);
    return 0;
}

static void put_sum(hid_t object, uint32_t crc)
{
    hid_t attribute = H5Aopen(object, "crc32c", H5P_DEFAULT);

    mutate_check(attribute >= 0 && H5Awrite(attribute, H5T_NATIVE_UINT32, &crc) >= 0,
                 "crc32c");
    H5Aclose(attribute);
}

void h5_mend_checkpoint_sums(const char *path)
{
    int n;
    hid_t file;
    uint32_t crc = 0;

    h5_list(path, &n);
    file = open_file(path);
    for (int i = 0; i < n; i++) {
        values v = values_read(file, names[i]);

        put_sum(v.set, sp_crc32c(0, v.at, v.n * v.size));
        values_close(&v);
    }
    H5Aiterate2(file, H5_INDEX_NAME, H5_ITER_INC, NULL, add_attribute, &crc);
    put_sum(file, crc);
    mutate_check(H5Fclose(file) >= 0, path);
}

/* Adds rows first .. last - 1 of one part of a shard to the sum; a part that is absent
 * adds nothing. */
static uint32_t add_rows(uint32_t crc, const values *v, size_t rows, int64_t first,
                         int64_t last)
{
    size_t row = rows ? v->n * v->size / rows : 0;

    if (first < 0 || last < first || (size_t)last > rows)
        return crc;
    return sp_crc32c(crc, v->at + (size_t)first * row, (size_t)(last - first) * row);
}

void h5_mend_shard_sums(const char *path)
{
    hid_t file = open_file(path);
    values offsets = values_read(file, "/offsets"), sums = values_read(file, "/crc32c");
    values part[3] = {values_read(file, "/coords"), values_read(file, "/features"),
                      values_read(file, "/labels")};
    const int64_t *at = (const int64_t *)(const void *)offsets.at;

    for (size_t s = 0; s < sums.n && s + 1 < offsets.n; s++) {
        uint32_t crc = 0;

        for (int k = 0; k < 3; k++)
            crc = add_rows(crc, &part[k], part[2].n, at[s], at[s + 1]);
        memcpy(sums.at + s * sums.size, &crc, sizeof crc);
    }
    values_write(&sums);
    for (int k = 0; k < 3; k++)
        values_close(&part[k]);
    values_close(&sums);
    values_close(&offsets);
    mutate_check(H5Fclose(file) >= 0, path);
}

/* ---- stored bytes ---- */

/* Flips a few bits of stored values. Their number stays, since libhdf5 relies on it:
 * 1.10.8 reads on beyond a chunk that is shorter than it was. */
static void flip_some(unsigned char *at, size_t n, uint64_t *rng)
{
    for (size_t k = 1 + mutate_below(rng, 8); n > 0 && k > 0; k--)
        at[mutate_below(rng, n)] ^= (unsigned char)(1u << mutate_below(rng, 8));
}

static bool damage_one(hid_t set, uint64_t *rng)
{
    hid_t space = H5Dget_space(set);
    hsize_t n = 0, size = 0, at[4] = {0};
    haddr_t address;
    uint32_t mask = 0;
    unsigned skipped;
    unsigned char *data;
    bool is_done = false;

    if (H5Dget_num_chunks(set, space, &n) >= 0 && n > 0 &&
        H5Dget_chunk_info(set, space, mutate_below(rng, n), at, &skipped, &address,
                          &size) >= 0) {
        data = malloc((size_t)size + 1);
        mutate_check(data && H5Dread_chunk(set, H5P_DEFAULT, at, &mask, data) >= 0,
                     "chunk");
        flip_some(data, (size_t)size, rng);
        is_done = H5Dwrite_chunk(set, H5P_DEFAULT, mask, at, (size_t)size, data) >= 0;
        free(data);
    }
    H5Sclose(space);
    return is_done;
}

/* Damages the values of one dataset that is contiguous. */
static void damage_contiguous(const char *path, haddr_t at, hsize_t bytes,
                              uint64_t *rng)
{
    blob b = blob_read(path);

    if (at != HADDR_UNDEF && at + bytes <= b.n)
        flip_some(b.at + at, (size_t)bytes, rng);
    blob_write(path, b);
    free(b.at);
}

static const char *damage_values(const char *path, bool with_contiguous, uint64_t *rng)
{
    const char *name = any_name(path, rng);
    hid_t file = open_file(path);
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT), list = H5Dget_create_plist(set);
    const H5D_layout_t layout = H5Pget_layout(list);
    const haddr_t at = layout == H5D_CONTIGUOUS ? H5Dget_offset(set) : HADDR_UNDEF;
    const hsize_t bytes = H5Dget_storage_size(set);
    const bool is_done = layout == H5D_CHUNKED && damage_one(set, rng);

    H5Pclose(list);
    H5Dclose(set);
    mutate_check(H5Fclose(file) >= 0, path);
    if (with_contiguous && layout == H5D_CONTIGUOUS)
        damage_contiguous(path, at, bytes, rng);
    return is_done ? name : "";
}

const char *h5_damage_chunk(const char *path, uint64_t *rng)
{
    return damage_values(path, false, rng);
}

void h5_damage(const char *path, uint64_t *rng)
{
    const char *base = strrchr(path, '/');
    blob b;

    switch (mutate_below(rng, 8)) {
    case 0:
        b = blob_read(path);
        b.n = mutate_below(rng, b.n);
        blob_write(path, b);
        free(b.at);
        break;
    case 1:
        setenv("SP_H5_CHILD_CRASH", base ? base + 1 : path, 1);
        break;
    default:
        damage_values(path, true, rng);
    }
}

bool h5_is_file(blob b)
{
    return b.n > 8 && memcmp(b.at, "\x89HDF\r\n\x1a\n", 8) == 0;
}

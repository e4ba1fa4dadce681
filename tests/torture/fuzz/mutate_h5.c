/* H5Ovisit2 has H5O_info_t in HDF5 1.10; later ones have it so with this only. */
#define H5_USE_110_API
#include "torture/fuzz/mutate_h5.h"

#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the same content in the oldest format ---- */

static herr_t copy_attribute(hid_t from, const char *name, const H5A_info_t *info,
                             void *to)
{
    hid_t old = H5Aopen(from, name, H5P_DEFAULT), type = H5Aget_type(old);
    hid_t space = H5Aget_space(old);
    hid_t made = H5Acreate2(*(hid_t *)to, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    size_t n = (size_t)H5Sget_simple_extent_npoints(space);
    void *data = calloc(n + 1, H5Tget_size(type));

    (void)info;
    mutate_check(
        data && H5Aread(old, type, data) >= 0 && H5Awrite(made, type, data) >= 0, name);
    if (H5Tis_variable_str(type) > 0)
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, data);
    free(data);
    H5Aclose(made);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(old);
    return 0;
}

/* The destination of copies, and how they are stored. */
typedef struct target {
    hid_t file;
    h5_store store;
} target;

static hid_t chunks_of(const target *t, int rank, const hsize_t *dim)
{
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk[4] = {1, 1, 1, 1};

    for (int i = 0; i < rank; i++)
        chunk[i] = dim[i] + !dim[i];
    chunk[0] = chunk[0] > 8 ? 8 : chunk[0];
    H5Pset_chunk(list, rank, chunk);
    if (t->store == H5_STORE_SHUFFLED || t->store == H5_STORE_LATEST)
        H5Pset_shuffle(list);
    if (t->store != H5_STORE_PLAIN)
        H5Pset_deflate(list, 4);
    if (t->store == H5_STORE_SHUFFLED)
        H5Pset_fletcher32(list);
    return list;
}

/* Copies a group with its attributes; its members follow. */
static void copy_group(hid_t from, const char *name, const target *t)
{
    hid_t old = H5Gopen2(from, name, H5P_DEFAULT);
    hid_t made = H5Gcreate2(t->file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);

    mutate_check(old >= 0 && made >= 0, name);
    H5Aiterate2(old, H5_INDEX_NAME, H5_ITER_INC, NULL, copy_attribute, &made);
    H5Gclose(made);
    H5Gclose(old);
}

static herr_t copy_object(hid_t from, const char *name, const H5O_info_t *info,
                          void *to)
{
    const target *t = to;
    hsize_t dim[4] = {0}, most[4];
    hid_t old, type, space, list, made;
    void *data;
    int rank;

    if (info->type == H5O_TYPE_GROUP && strcmp(name, ".") != 0)
        copy_group(from, name, t);
    if (info->type != H5O_TYPE_DATASET)
        return 0;
    old = H5Dopen2(from, name, H5P_DEFAULT);
    type = H5Dget_type(old);
    space = H5Dget_space(old);
    rank = H5Sget_simple_extent_dims(space, dim, most);
    if (t->store == H5_STORE_LATEST && dim[0] > 0) {
        most[0] = H5S_UNLIMITED;
        H5Sset_extent_simple(space, rank, dim, most);
    }
    list = chunks_of(t, rank, dim);
    made = H5Dcreate2(t->file, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    data = calloc((size_t)H5Sget_simple_extent_npoints(space) + 1, H5Tget_size(type));
    mutate_check(data && H5Dread(old, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0 &&
                     H5Dwrite(made, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0,
                 name);
    free(data);
    H5Aiterate2(old, H5_INDEX_NAME, H5_ITER_INC, NULL, copy_attribute, &made);
    H5Dclose(made);
    H5Pclose(list);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(old);
    return 0;
}

void h5_repack(const char *path, h5_store store)
{
    hid_t list = H5Pcreate(H5P_FILE_CREATE), access = H5Pcreate(H5P_FILE_ACCESS), from;
    target to = {.store = store};
    char other[256];

    snprintf(other, sizeof other, "%s.tmp", path);
    H5Pset_obj_track_times(list, false);
    if (store == H5_STORE_LATEST || store == H5_STORE_PLAIN)
        H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    from = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    to.file = H5Fcreate(other, H5F_ACC_TRUNC, list, access);
    mutate_check(from >= 0 && to.file >= 0, path);
    H5Aiterate2(from, H5_INDEX_NAME, H5_ITER_INC, NULL, copy_attribute, &to.file);
    H5Ovisit2(from, H5_INDEX_NAME, H5_ITER_INC, copy_object, &to, H5O_INFO_BASIC);
    H5Pclose(list);
    H5Pclose(access);
    mutate_check(H5Fclose(from) >= 0 && H5Fclose(to.file) >= 0 &&
                     rename(other, path) == 0,
                 path);
}

void h5_store_all(const char *path, blob made[H5_N_STORES + 1])
{
    made[H5_N_STORES] = blob_read(path);
    for (int k = 0; k < H5_N_STORES; k++) {
        blob_write(path, made[H5_N_STORES]);
        h5_repack(path, (h5_store)k);
        made[k] = blob_read(path);
    }
}

/* ---- hostile HDF5 ---- */

static hid_t open_file(const char *path)
{
    hid_t list = H5Pcreate(H5P_FILE_ACCESS), file;

    H5Pset_libver_bounds(list, H5F_LIBVER_V110, H5F_LIBVER_V110);
    H5Pset_file_locking(list, false, true);
    file = H5Fopen(path, H5F_ACC_RDWR, list);
    H5Pclose(list);
    mutate_check(file >= 0, path);
    return file;
}

/* How the elements of an impostor are stored. */
typedef enum storage { CONTIGUOUS, CHUNKED, COMPACT, ELSEWHERE } storage;

static hid_t storage_of(storage kind, int rank, hsize_t bytes)
{
    const hsize_t chunk[4] = {1024, 3, 2, 2};
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);

    if (kind == CHUNKED)
        H5Pset_chunk(list, rank, chunk);
    else if (kind == COMPACT)
        H5Pset_layout(list, H5D_COMPACT);
    else if (kind == ELSEWHERE)
        H5Pset_external(list, "neighbour.h5", 0, bytes);
    if (kind != COMPACT)
        H5Pset_alloc_time(list, H5D_ALLOC_TIME_LATE);
    return list;
}

/* No value is written, so that its size costs nothing. */
static void put(hid_t file, const char *name, hid_t type, int rank, hsize_t n,
                storage kind)
{
    hsize_t dim[4] = {n, rank > 1 ? 3 : 1, 2, 2};
    hid_t space = rank < 0    ? H5Screate(H5S_NULL)
                  : rank == 0 ? H5Screate(H5S_SCALAR)
                              : H5Screate_simple(rank, dim, NULL);
    hid_t list = storage_of(kind, rank > 0 ? rank : 1, n * H5Tget_size(type) * 3);
    hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);

    mutate_check(set >= 0, name);
    H5Dclose(set);
    H5Pclose(list);
    H5Sclose(space);
}

static hid_t odd_type(int which)
{
    const int seven = 7;
    hid_t type;

    switch (which) {
    case 0:
        type = H5Tcreate(H5T_COMPOUND, 16);
        H5Tinsert(type, "a", 0, H5T_NATIVE_DOUBLE);
        H5Tinsert(type, "b", 8, H5T_NATIVE_INT64);
        return type;
    case 1:
        return H5Tvlen_create(H5T_NATIVE_INT);
    case 2:
        return H5Tcreate(H5T_OPAQUE, 4);
    case 3:
        return H5Tcopy(H5T_STD_REF_OBJ);
    case 4:
        return H5Tcopy(H5T_STD_B32LE);
    case 5:
        type = H5Tenum_create(H5T_NATIVE_INT);
        H5Tenum_insert(type, "seven", &seven);
        return type;
    case 6: { /* a float of 3 bytes */
        type = H5Tcopy(H5T_IEEE_F32LE);
        H5Tset_fields(type, 23, 15, 8, 0, 15);
        return type;
    }
    default: { /* an integer of 5 bits in 4 bytes */
        type = H5Tcopy(H5T_STD_I32LE);
        H5Tset_precision(type, 5);
        H5Tset_offset(type, 3);
        return type;
    }
    }
}

enum {
    ABSENT,
    NOWHERE,
    ITSELF,
    OTHER_FILE,
    NEIGHBOUR,
    OTHER_DATASET,
    VIRTUAL,
    GROUP,
    FIXED_TEXT,
    VARYING_TEXT,
    FIRST_ODD,
    LAST_ODD = FIRST_ODD + 7,
    SCALAR,
    NO_SPACE,
    OF_RANK_4,
    EMPTY,
    HUGE_CONTIGUOUS,
    HUGE_CHUNKED,
    HUGEST_CHUNKED,
    STORED_COMPACT,
    STORED_ELSEWHERE,
    N_DATASETS
};

int h5_any_impostor(uint64_t *rng)
{
    return (int)mutate_below(rng, N_DATASETS);
}

bool h5_is_absent(int variant)
{
    return variant == ABSENT;
}

bool h5_is_linked(int variant)
{
    return variant == NEIGHBOUR || variant == OTHER_DATASET || variant == VIRTUAL;
}

bool h5_is_text(int variant)
{
    return variant == FIXED_TEXT || variant == VARYING_TEXT;
}

/* Makes a view of the same dataset in another file of the folder. */
static void put_virtual(hid_t file, const char *name)
{
    const hsize_t dim[2] = {51, 3};
    hid_t space = H5Screate_simple(2, dim, NULL), list = H5Pcreate(H5P_DATASET_CREATE);
    hid_t set;

    H5Pset_virtual(list, space, "neighbour.h5", name, space);
    set =
        H5Dcreate2(file, name, H5T_NATIVE_FLOAT, space, H5P_DEFAULT, list, H5P_DEFAULT);
    mutate_check(set >= 0, name);
    H5Dclose(set);
    H5Pclose(list);
    H5Sclose(space);
}

static void put_link(hid_t file, const char *name, int variant)
{
    if (variant == NOWHERE)
        H5Lcreate_soft("/nowhere/at/all", file, name, H5P_DEFAULT, H5P_DEFAULT);
    else if (variant == ITSELF)
        H5Lcreate_soft(name, file, name, H5P_DEFAULT, H5P_DEFAULT);
    else if (variant == OTHER_DATASET)
        H5Lcreate_soft(strcmp(name, "/coords") == 0 ? "/features" : "/coords", file,
                       name, H5P_DEFAULT, H5P_DEFAULT);
    else if (variant == NEIGHBOUR)
        H5Lcreate_external("neighbour.h5", name, file, name, H5P_DEFAULT, H5P_DEFAULT);
    else
        H5Lcreate_external("elsewhere.h5", "/x", file, name, H5P_DEFAULT, H5P_DEFAULT);
}

static void put_text(hid_t file, const char *name, size_t size)
{
    hid_t type = H5Tcopy(H5T_C_S1);

    H5Tset_size(type, size);
    put(file, name, type, 1, 3, CONTIGUOUS);
    H5Tclose(type);
}

static void put_odd(hid_t file, const char *name, int which)
{
    hid_t type = odd_type(which);

    put(file, name, type, 1, 4, CONTIGUOUS);
    H5Tclose(type);
}

/* The integers from SCALAR on. */
static const struct {
    int rank;
    hsize_t n;
    storage kind;
} shapes[N_DATASETS - SCALAR] = {
    {0, 1, CONTIGUOUS},          {-1, 1, CONTIGUOUS},
    {4, 4, CONTIGUOUS},          {1, 0, CONTIGUOUS},
    {1, 1ull << 40, CONTIGUOUS}, {1, 1ull << 33, CHUNKED},
    {2, 1ull << 60, CHUNKED},    {1, 4, COMPACT},
    {1, 4, ELSEWHERE},
};

static void put_shape(hid_t file, const char *name, int which)
{
    put(file, name, H5T_NATIVE_INT, shapes[which].rank, shapes[which].n,
        shapes[which].kind);
}

void h5_put_impostor(const char *path, const char *name, int variant)
{
    hid_t file = open_file(path);

    H5Ldelete(file, name, H5P_DEFAULT);
    if (variant == GROUP)
        H5Gclose(H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    else if (variant >= NOWHERE && variant <= OTHER_DATASET)
        put_link(file, name, variant);
    else if (variant == VIRTUAL)
        put_virtual(file, name);
    else if (h5_is_text(variant))
        put_text(file, name, variant == FIXED_TEXT ? 8 : H5T_VARIABLE);
    else if (variant >= FIRST_ODD && variant <= LAST_ODD)
        put_odd(file, name, variant - FIRST_ODD);
    else if (variant != ABSENT)
        put_shape(file, name, variant - SCALAR);
    mutate_check(H5Fclose(file) >= 0, path);
}

/* ---- attributes ---- */

static void put_attribute(hid_t file, const char *name, hid_t type, int n,
                          const void *data)
{
    hsize_t dim = (hsize_t)(n > 0 ? n : 0);
    hid_t space = n < 0    ? H5Screate(H5S_NULL)
                  : n == 1 ? H5Screate(H5S_SCALAR)
                           : H5Screate_simple(1, &dim, NULL);
    hid_t attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);

    mutate_check(attribute >= 0, name);
    if (data)
        mutate_check(H5Awrite(attribute, type, data) >= 0, name);
    H5Aclose(attribute);
    H5Sclose(space);
}

static const double numbers[] = {
    NAN,          INFINITY, -INFINITY, -1, 0, 0.5, 1e-320, 1e300, 9223372036854775808.0,
    4294967296.0,
};
enum {
    N_NUMBERS = sizeof numbers / sizeof *numbers,
    LONG_TEXT = N_NUMBERS,
    UNENDED_TEXT,
    NULL_TEXT,
    NO_ELEMENTS,
    NO_SPACE_AT_ALL,
    MANY_ELEMENTS,
    ODD_ELEMENTS,
    LEFT_OUT = ODD_ELEMENTS + 8,
    N_ATTRIBUTES
};

int h5_any_attribute(uint64_t *rng)
{
    return (int)mutate_below(rng, N_ATTRIBUTES);
}

static void put_text_attribute(hid_t file, const char *name, int variant)
{
    enum { LONG = 60000 };
    hid_t type = H5Tcopy(H5T_C_S1);
    char *text = malloc(LONG), *none = NULL;

    mutate_check(text, "out of memory");
    memset(text, '%', LONG);
    H5Tset_size(type, variant == LONG_TEXT   ? LONG
                      : variant == NULL_TEXT ? H5T_VARIABLE
                                             : 7);
    if (variant == UNENDED_TEXT)
        H5Tset_strpad(type, H5T_STR_SPACEPAD);
    put_attribute(file, name, type, 1, variant == NULL_TEXT ? (void *)&none : text);
    H5Tclose(type);
    free(text);
}

void h5_put_attribute(const char *path, const char *name, int variant)
{
    static const double many[4096];
    const char *slash = strchr(name, '/');
    char group[64] = "/";
    hid_t all = open_file(path), file, type;

    if (slash)
        snprintf(group, sizeof group, "%.*s", (int)(slash - name), name);
    name = slash ? slash + 1 : name;
    file = H5Gopen2(all, group, H5P_DEFAULT);
    mutate_check(file >= 0, group);
    H5Adelete(file, name);
    if (variant < N_NUMBERS) {
        put_attribute(file, name, H5T_NATIVE_DOUBLE, 1, &numbers[variant]);
    } else if (variant <= NULL_TEXT) {
        put_text_attribute(file, name, variant);
    } else if (variant == NO_ELEMENTS || variant == NO_SPACE_AT_ALL) {
        put_attribute(file, name, H5T_NATIVE_INT, variant == NO_ELEMENTS ? 0 : -1,
                      NULL);
    } else if (variant == MANY_ELEMENTS) {
        put_attribute(file, name, H5T_NATIVE_DOUBLE, 4096, many);
    } else if (variant != LEFT_OUT) {
        type = odd_type(variant - ODD_ELEMENTS);
        put_attribute(file, name, type, 3, NULL);
        H5Tclose(type);
    }
    H5Gclose(file);
    mutate_check(H5Fclose(all) >= 0, path);
}

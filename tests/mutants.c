#include "mutants.h"

#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The libraries lose some bytes of what they cannot read. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5\nleak:libconfig\n";
}

/* ---- bytes ---- */

static void check(bool is_good, const char *what)
{
    if (is_good)
        return;
    fprintf(stderr, "mutants: %s\n", what);
    H5Eprint2(H5E_DEFAULT, stderr);
    abort();
}

blob blob_read(const char *path)
{
    FILE *from = fopen(path, "rb");
    blob all;
    long end;

    check(from && fseek(from, 0, SEEK_END) == 0, path);
    end = ftell(from);
    rewind(from);
    all = (blob){malloc((size_t)end + 1), (size_t)end};
    check(all.at && fread(all.at, 1, all.n, from) == all.n, path);
    fclose(from);
    return all;
}

void blob_write(const char *path, blob data)
{
    FILE *to = fopen(path, "wb");

    check(to && fwrite(data.at, 1, data.n, to) == data.n && fclose(to) == 0, path);
}

uint64_t mutant_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

size_t mutant_below(uint64_t *state, size_t n)
{
    return n ? (size_t)(mutant_next(state) % n) : 0;
}

static void flip_bits(blob *m, uint64_t *rng)
{
    for (size_t k = 1 + mutant_below(rng, 8); k > 0; k--)
        m->at[mutant_below(rng, m->n)] ^= (unsigned char)(1u << mutant_below(rng, 8));
}

static void replace_bytes(blob *m, uint64_t *rng)
{
    for (size_t k = 1 + mutant_below(rng, 8); k > 0; k--)
        m->at[mutant_below(rng, m->n)] = (unsigned char)mutant_next(rng);
}

/* A lost sector, or a part of one: zeros, ones, anything. */
static void replace_run(blob *m, uint64_t *rng)
{
    size_t n = 1 + mutant_below(rng, 512), from = mutant_below(rng, m->n);
    int kind = (int)mutant_below(rng, 3);

    for (size_t i = from; i < from + n && i < m->n; i++)
        m->at[i] = kind == 0 ? 0 : kind == 1 ? 255 : (unsigned char)mutant_next(rng);
}

static void copy_run(blob *m, uint64_t *rng)
{
    size_t n = 1 + mutant_below(rng, 64);

    if (m->n > n)
        memmove(m->at + mutant_below(rng, m->n - n),
                m->at + mutant_below(rng, m->n - n), n);
}

static void write_number(blob *m, uint64_t *rng)
{
    static const uint64_t hostile[] = {0,         1,          UINT32_MAX, INT32_MAX,
                                       INT64_MAX, UINT64_MAX, 1ull << 31, 1ull << 40};
    uint64_t value = hostile[mutant_below(rng, 8)];
    size_t n = 1u << mutant_below(rng, 4);

    if (m->n > n)
        memcpy(m->at + mutant_below(rng, m->n - n), &value, n);
}

static void append(blob *m, uint64_t *rng)
{
    size_t more = 1 + mutant_below(rng, 2048);

    m->at = realloc(m->at, m->n + more + 1);
    for (; more > 0; more--)
        m->at[m->n++] = (unsigned char)mutant_next(rng);
}

blob mutant_of(blob whole, uint64_t number)
{
    uint64_t rng = number * 7919 + 1;
    blob m = {malloc(whole.n + 1), whole.n};

    check(m.at, "out of memory");
    memcpy(m.at, whole.at, whole.n);
    switch (mutant_below(&rng, 8)) {
    case 0:
        flip_bits(&m, &rng);
        break;
    case 1:
        m.at[mutant_below(&rng, m.n)] ^= 1u << mutant_below(&rng, 8);
        break;
    case 2:
        replace_bytes(&m, &rng);
        break;
    case 3:
        replace_run(&m, &rng);
        break;
    case 4:
        copy_run(&m, &rng);
        break;
    case 5:
        write_number(&m, &rng);
        break;
    case 6:
        m.n = mutant_below(&rng, m.n);
        break;
    default:
        append(&m, &rng);
        break;
    }
    return m;
}

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
    check(data && H5Aread(old, type, data) >= 0 && H5Awrite(made, type, data) >= 0,
          name);
    free(data);
    H5Aclose(made);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(old);
    return 0;
}

static herr_t copy_dataset(hid_t from, const char *name, const H5O_info_t *info,
                           void *to)
{
    hid_t old, type, space, list, above, made;
    hsize_t dim[4] = {0};
    void *data;
    int rank;

    if (info->type != H5O_TYPE_DATASET)
        return 0;
    old = H5Dopen2(from, name, H5P_DEFAULT);
    type = H5Dget_type(old);
    space = H5Dget_space(old);
    rank = H5Sget_simple_extent_dims(space, dim, NULL);
    list = H5Pcreate(H5P_DATASET_CREATE);
    above = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(above, 1);
    dim[0] = dim[0] > 8 ? 8 : dim[0] + !dim[0];
    H5Pset_chunk(list, rank, dim);
    H5Pset_deflate(list, 4);
    made = H5Dcreate2(*(hid_t *)to, name, type, space, above, list, H5P_DEFAULT);
    data = calloc((size_t)H5Sget_simple_extent_npoints(space) + 1, H5Tget_size(type));
    check(data && H5Dread(old, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0 &&
              H5Dwrite(made, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0,
          name);
    free(data);
    H5Dclose(made);
    H5Pclose(above);
    H5Pclose(list);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(old);
    return 0;
}

void mutant_repack(const char *path)
{
    hid_t list = H5Pcreate(H5P_FILE_CREATE), from, to;
    char other[256];

    snprintf(other, sizeof other, "%s.tmp", path);
    H5Pset_obj_track_times(list, false);
    from = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    to = H5Fcreate(other, H5F_ACC_TRUNC, list, H5P_DEFAULT);
    H5Aiterate2(from, H5_INDEX_NAME, H5_ITER_INC, NULL, copy_attribute, &to);
    H5Ovisit2(from, H5_INDEX_NAME, H5_ITER_INC, copy_dataset, &to, H5O_INFO_BASIC);
    H5Pclose(list);
    check(H5Fclose(from) >= 0 && H5Fclose(to) >= 0 && rename(other, path) == 0, path);
}

/* ---- hostile HDF5 ---- */

static hid_t open_file(const char *path)
{
    hid_t list = H5Pcreate(H5P_FILE_ACCESS), file;

    H5Pset_libver_bounds(list, H5F_LIBVER_V110, H5F_LIBVER_V110);
    H5Pset_file_locking(list, false, true);
    file = H5Fopen(path, H5F_ACC_RDWR, list);
    H5Pclose(list);
    check(file >= 0, path);
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
        H5Pset_external(list, "/dev/zero", 0, bytes);
    if (kind != COMPACT)
        H5Pset_alloc_time(list, H5D_ALLOC_TIME_LATE);
    return list;
}

/* Without any value written, so that its size costs nothing. */
static void put(hid_t file, const char *name, hid_t type, int rank, hsize_t n,
                storage kind)
{
    hsize_t dim[4] = {n, rank > 1 ? 3 : 1, 2, 2};
    hid_t space = rank < 0    ? H5Screate(H5S_NULL)
                  : rank == 0 ? H5Screate(H5S_SCALAR)
                              : H5Screate_simple(rank, dim, NULL);
    hid_t list = storage_of(kind, rank > 0 ? rank : 1, n * H5Tget_size(type) * 3);
    hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);

    check(set >= 0, name);
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
    GROUP,
    OTHER_FILE,
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

int mutant_n_datasets(void)
{
    return N_DATASETS;
}

bool mutant_is_absent(int variant)
{
    return variant == ABSENT;
}

bool mutant_is_text(int variant)
{
    return variant == FIXED_TEXT || variant == VARYING_TEXT;
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

static void put_impostor(hid_t file, const char *name, int variant)
{
    const hid_t number = H5T_NATIVE_INT;

    switch (variant) {
    case SCALAR:
        put(file, name, number, 0, 1, CONTIGUOUS);
        break;
    case NO_SPACE:
        put(file, name, number, -1, 1, CONTIGUOUS);
        break;
    case OF_RANK_4:
        put(file, name, number, 4, 4, CONTIGUOUS);
        break;
    case EMPTY:
        put(file, name, number, 1, 0, CONTIGUOUS);
        break;
    case HUGE_CONTIGUOUS:
        put(file, name, number, 1, 1ull << 40, CONTIGUOUS);
        break;
    case HUGE_CHUNKED:
        put(file, name, number, 1, 1ull << 33, CHUNKED);
        break;
    case HUGEST_CHUNKED:
        put(file, name, number, 2, 1ull << 60, CHUNKED);
        break;
    case STORED_COMPACT:
        put(file, name, number, 1, 4, COMPACT);
        break;
    default:
        put(file, name, number, 1, 4, ELSEWHERE);
        break;
    }
}

void mutant_dataset(const char *path, const char *name, int variant)
{
    hid_t file = open_file(path);

    H5Ldelete(file, name, H5P_DEFAULT);
    if (variant == NOWHERE)
        H5Lcreate_soft("/nowhere/at/all", file, name, H5P_DEFAULT, H5P_DEFAULT);
    else if (variant == ITSELF)
        H5Lcreate_soft(name, file, name, H5P_DEFAULT, H5P_DEFAULT);
    else if (variant == GROUP)
        H5Gclose(H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    else if (variant == OTHER_FILE)
        H5Lcreate_external("/dev/zero", "/x", file, name, H5P_DEFAULT, H5P_DEFAULT);
    else if (mutant_is_text(variant))
        put_text(file, name, variant == FIXED_TEXT ? 8 : H5T_VARIABLE);
    else if (variant >= FIRST_ODD && variant <= LAST_ODD)
        put_odd(file, name, variant - FIRST_ODD);
    else if (variant != ABSENT)
        put_impostor(file, name, variant);
    check(H5Fclose(file) >= 0, path);
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

    check(attribute >= 0, name);
    if (data)
        check(H5Awrite(attribute, type, data) >= 0, name);
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

int mutant_n_attributes(void)
{
    return N_ATTRIBUTES;
}

static void put_text_attribute(hid_t file, const char *name, int variant)
{
    enum { LONG = 60000 };
    hid_t type = H5Tcopy(H5T_C_S1);
    char *text = malloc(LONG), *none = NULL;

    check(text, "out of memory");
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

void mutant_attribute(const char *path, const char *name, int variant)
{
    static const double many[4096];
    hid_t file = open_file(path), type;

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
    check(H5Fclose(file) >= 0, path);
}

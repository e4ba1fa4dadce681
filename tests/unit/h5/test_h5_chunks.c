/* Chunks are read by HDF5 in a limited child: every kind of index, chunks at the edge,
 * both byte orders. Datasets that cannot be read are refused by name, and damage is
 * reported with its rows. A chunk is unpacked once. */
#include "fixtures/test.h"

#include <fcntl.h>
#include <hdf5.h>
#include <unistd.h>

#include "h5/sp_h5.h"
#include "h5/sp_h5_rows.h"

static const char path[] = "test_h5_chunks.h5";

/* The properties of a dataset that is written. */
typedef struct layout {
    int rank;
    hsize_t dim[3], chunk[3];
    int n_unlimited; /* of the first dimensions */
    /* s shuffle, d deflate, f fletcher32, in this order */
    const char *filters;
    bool is_early;      /* storage allocated with the dataset */
    bool is_edge_plain; /* chunks at the edge are not filtered */
} layout;

static const layout layouts[] = {
    {1, {1000}, {1000}, 0, "", false, false},
    {1, {1000}, {77}, 0, "d", false, false},
    {1, {1000}, {77}, 1, "sd", false, false},
    {1, {1000}, {77}, 0, "", true, false},
    {1, {9}, {64}, 1, "dsf", false, false},
    {2, {37, 5}, {8, 3}, 0, "sdf", false, false},
    {2, {37, 5}, {8, 3}, 1, "fsd", false, false},
    {2, {37, 5}, {8, 3}, 2, "d", false, false},
    {2, {37, 5}, {37, 1}, 0, "s", false, false},
    {2, {37, 5}, {8, 5}, 0, "sd", false, true},
    {2, {64, 3}, {16, 3}, 0, "f", true, false},
    {3, {5, 6, 7}, {2, 4, 7}, 0, "sd", false, false},
    {3, {5, 6, 7}, {1, 6, 3}, 2, "fd", false, false},
    {3, {5, 6, 7}, {5, 1, 1}, 0, "", false, false},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts, MOST = 1024 };

static hid_t create(H5F_libver_t format, bool is_paged)
{
    hid_t list = H5Pcreate(H5P_FILE_ACCESS), make = H5Pcreate(H5P_FILE_CREATE), file;

    H5Pset_libver_bounds(list, format, H5F_LIBVER_LATEST);
    if (is_paged)
        H5Pset_file_space_strategy(make, H5F_FSPACE_STRATEGY_PAGE, false, 1);
    file = H5Fcreate(path, H5F_ACC_TRUNC, make, list);
    assert_true(file >= 0);
    H5Pclose(make);
    H5Pclose(list);
    return file;
}

static hid_t creation_of(const layout *l)
{
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);

    H5Pset_chunk(list, l->rank, l->chunk);
    for (const char *f = l->filters; *f; f++) {
        if (*f == 's')
            H5Pset_shuffle(list);
        else if (*f == 'd')
            H5Pset_deflate(list, 5);
        else
            H5Pset_fletcher32(list);
    }
    if (l->is_early)
        H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY);
    if (l->is_edge_plain)
        H5Pset_chunk_opts(list, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
    return list;
}

static size_t count_of(const layout *l)
{
    size_t n = 1;

    for (int d = 0; d < l->rank; d++)
        n *= (size_t)l->dim[d];
    return n;
}

static int value(size_t i)
{
    return (int)(i * 37 % 1009 % 200);
}

static void write_set(hid_t file, const layout *l, hid_t stored)
{
    hsize_t most[3];
    int data[MOST];
    hid_t space, list = creation_of(l), set;

    for (int d = 0; d < l->rank; d++)
        most[d] = d < l->n_unlimited ? H5S_UNLIMITED : l->dim[d];
    for (size_t i = 0; i < count_of(l); i++)
        data[i] = value(i);
    space = H5Screate_simple(l->rank, l->dim, most);
    set = H5Dcreate2(file, "x", stored, space, H5P_DEFAULT, list, H5P_DEFAULT);
    assert_true(set >= 0);
    assert_true(H5Dwrite(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >=
                0);
    H5Dclose(set);
    H5Sclose(space);
    H5Pclose(list);
}

/* Reads all of it converted, and rows from within as they are stored. */
static void reads_back(const layout *l, size_t size)
{
    int64_t dim[3] = {(int64_t)l->dim[0], (int64_t)l->dim[1], (int64_t)l->dim[2]};
    size_t n = count_of(l), row = n / (size_t)dim[0] * size;
    int64_t first = dim[0] / 3, rows = dim[0] - first - 1;
    unsigned char all[MOST * 8], part[MOST * 8];
    int32_t got[MOST];
    sp_h5 *file;

    OK(sp_h5_open(&file, path));
    OK(sp_h5_read(file, "/x", SP_H5_I32, l->rank, dim, got));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(got[i], value(i));
    OK(sp_h5_read_rows(file, "/x", 0, dim[0], all));
    OK(sp_h5_read_rows(file, "/x", first, rows, part));
    assert_memory_equal(part, all + (size_t)first * row, (size_t)rows * row);
    OK(sp_h5_close(file));
}

TEST(every_layout_reads_back)
{
    for (int i = 0; i < 2 * LAYOUTS; i++) {
        const hid_t types[] = {H5T_STD_I32LE, H5T_IEEE_F64BE, H5T_STD_U8LE,
                               H5T_STD_U16BE, H5T_IEEE_F32LE, H5T_STD_I64BE};
        const hid_t type = types[i % 6];
        const layout *l = &layouts[i / 2];
        hid_t file = create(i % 2 ? H5F_LIBVER_V110 : H5F_LIBVER_EARLIEST, i % 3 == 0);

        write_set(file, l, type);
        H5Fclose(file);
        reads_back(l, H5Tget_size(type));
    }
}

/* Makes a dataset of n integers; with data NULL none is written. */
static void make(hid_t file, const char *name, hid_t list, hsize_t n, const int *data)
{
    hid_t space = H5Screate_simple(1, &n, NULL);
    hid_t set =
        H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, list, H5P_DEFAULT);

    assert_true(set >= 0);
    if (data)
        H5Dwrite(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
    H5Dclose(set);
    H5Sclose(space);
    H5Pclose(list);
}

TEST(compact_values_and_links_inside_are_read)
{
    hid_t file = create(H5F_LIBVER_V110, false);
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    const int64_t n = 5;
    int32_t data[] = {1, 2, 3, 4, 5}, got[5];
    sp_h5 *in;

    H5Pset_layout(list, H5D_COMPACT);
    make(file, "x", list, 5, data);
    H5Lcreate_soft("/x", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_hard(file, "x", file, "hard", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    OK(sp_h5_open(&in, path));
    OK(sp_h5_read(in, "/x", SP_H5_I32, 1, &n, got));
    assert_memory_equal(got, data, sizeof data);
    OK(sp_h5_read(in, "/soft", SP_H5_I32, 1, &n, got));
    OK(sp_h5_read(in, "/hard", SP_H5_I32, 1, &n, got));
    assert_memory_equal(got, data, sizeof data);
    OK(sp_h5_close(in));
}

/* ---- what is refused ---- */

static void refused(const char *name, const char *words)
{
    sp_h5_shape shape;
    sp_h5 *file;

    OK(sp_h5_open(&file, path));
    assert_true(sp_h5_has(file, name));
    FAILS(sp_h5_shape_of(file, name, &shape), SP_EDATA, words);
    SAYS(path);
    OK(sp_h5_close(file));
}

static void put_links(hid_t file)
{
    hid_t group = H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);

    H5Lcreate_external("other.h5", "/there", file, "outer", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/outer", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/outer/below", file, "deep", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/g", file, "alias", H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(group);
}

static hid_t external(void)
{
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);

    H5Pset_external(list, "other.bin", 0, 1000);
    return list;
}

static hid_t virtual(void)
{
    const hsize_t n = 10;
    hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &n, NULL);

    H5Pset_virtual(list, space, "other.h5", "/there", space);
    H5Sclose(space);
    return list;
}

/* A filter that no library and no plugin has. */
static size_t pass_on(unsigned flags, size_t n, const unsigned value[], size_t bytes,
                      size_t *size, void **buffer)
{
    (void)flags;
    (void)n;
    (void)value;
    (void)size;
    (void)buffer;
    return bytes;
}

static hid_t chunked(hsize_t chunk, int filter, const char *name)
{
    const H5Z_class2_t class = {H5Z_CLASS_T_VERS, filter, 1, 1, name, NULL, NULL,
                                pass_on};
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);

    H5Pset_chunk(list, 1, &chunk);
    if (filter)
        assert_true(H5Zregister(&class) >= 0 &&
                    H5Pset_filter(list, filter, 0, 0, NULL) >= 0);
    return list;
}

TEST(other_places_and_filters_are_refused)
{
    static const char other[] = "other.h5";
    static const int data[10] = {1};
    hid_t file = H5Fcreate(other, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);

    make(file, "there", H5Pcreate(H5P_DATASET_CREATE), 10, NULL);
    H5Fclose(file);
    file = create(H5F_LIBVER_V110, false);
    put_links(file);
    make(file, "external", external(), 10, NULL);
    make(file, "virtual", virtual(), 10, NULL);
    make(file, "own", chunked(10, 300, "own"), 10, data);
    make(file, "lzf", chunked(10, 32000, "lzf"), 10, data);
    make(file, "unwritten", chunked(10, 0, NULL), 100, NULL);
    make(file, "g/set", H5Pcreate(H5P_DATASET_CREATE), 10, NULL);
    H5Fclose(file);
    refused("/outer", "is a link to another file (other.h5:/there)");
    refused("/soft", "leads to nothing in this file");
    refused("/deep", "leads to nothing in this file");
    refused("/outer/x", "/outer: is a link to another file");
    refused("/alias/set", "/alias: is a link to a group");
    refused("/external", "external storage");
    refused("/virtual", "is a virtual dataset");
    refused("/own", "compressed by the filter \"own\" (number 300)");
    refused("/lzf", "compressed by the filter \"lzf\" (number 32000)");
    SAYS("HDF5_PLUGIN_PATH");
    SAYS("(h5py)");
    refused("/unwritten", "not all written");
    refused("/g", "is no dataset");
}

/* A chunk of 128 MiB, twice of what is unpacked of a small file: nothing is allocated
 * for it. */
TEST(large_chunks_are_refused)
{
    const layout l = {1, {1000}, {(hsize_t)1 << 25}, 1, "d", false, false};
    hid_t file = create(H5F_LIBVER_V110, false);

    write_set(file, &l, H5T_STD_I32LE);
    H5Fclose(file);
    refused("/x", "too large to unpack");
}

/* ---- unpacking once ---- */

/* Rows in any order are unpacked once as long as the cache holds the chunks; a cache
 * that holds one chunk unpacks again. */
TEST(a_chunk_is_unpacked_once)
{
    enum { ROWS = 200000, CHUNK = 70000 };
    const hsize_t n = ROWS, size = CHUNK;
    const int64_t most[] = {ROWS * 4, CHUNK * 4}, unpacked[] = {ROWS * 4, ROWS * 4 * 3};
    hid_t file = create(H5F_LIBVER_V110, false), list = chunked(size, 0, NULL);
    int *data = test_alloc(ROWS * sizeof *data);
    sp_h5_packed packed = {.key = data,
                           .path = path,
                           .name = "/x",
                           .where = "x",
                           .rows = ROWS,
                           .row_bytes = 4};
    sp_h5_shape shape;
    sp_h5 *in;
    int got[100];

    for (int i = 0; i < ROWS; i++)
        data[i] = i / 3;
    H5Pset_deflate(list, 4);
    make(file, "x", list, n, data);
    H5Fclose(file);
    OK(sp_h5_open(&in, path));
    OK(sp_h5_shape_of(in, "/x", &shape));
    OK(sp_h5_close(in));
    packed.fd = open(path, O_RDONLY);
    packed.chunks = shape.chunks;
    for (int k = 0; k < 2; k++) {
        sp_h5_cache *cache;

        OK(sp_h5_cache_create(&cache, most[k]));
        for (int i = 0; i < 9; i++) {
            const int first = i % 3 * CHUNK + 500 * i;

            OK(sp_h5_cache_read(cache, &packed, first, 100, got));
            assert_memory_equal(got, data + first, sizeof got);
        }
        assert_int_equal(sp_h5_cache_unpacked(cache), unpacked[k]);
        sp_h5_cache_destroy(cache);
    }
    close(packed.fd);
}

/* ---- damage ---- */

/* Flips a bit in the middle of chunk `number` as stored. */
static void flip(int number)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t set = H5Dopen2(file, "x", H5P_DEFAULT), space = H5Dget_space(set);
    unsigned char data[MOST * 8];
    hsize_t at, bytes;
    haddr_t address;
    unsigned skipped;
    uint32_t mask;

    assert_true(H5Dget_chunk_info(set, space, (hsize_t)number, &at, &skipped, &address,
                                  &bytes) >= 0 &&
                bytes <= sizeof data &&
                H5Dread_chunk(set, H5P_DEFAULT, &at, &mask, data) >= 0);
    data[bytes / 2] ^= 0x40;
    assert_true(H5Dwrite_chunk(set, H5P_DEFAULT, mask, &at, bytes, data) >= 0);
    H5Sclose(space);
    H5Dclose(set);
    H5Fclose(file);
}

TEST(damage_is_said_with_its_rows)
{
    static const char *const filters[] = {"f", "d", "sd", "fd", "sdf"};

    for (int i = 0; i < 5; i++) {
        const layout l = {1, {1000}, {300}, 0, filters[i], false, false};
        hid_t made = create(H5F_LIBVER_EARLIEST, false);
        int32_t got[1000];
        sp_h5 *file;

        write_set(made, &l, H5T_STD_I32LE);
        H5Fclose(made);
        flip(2);
        OK(sp_h5_open(&file, path));
        FAILS(sp_h5_read_rows(file, "/x", 500, 200, got), SP_EDATA, path);
        SAYS("/x: rows 0 to 999 cannot be unpacked: damaged: HDF5: ");
        OK(sp_h5_close(file));
    }
}

/* The library crashes, hangs or is killed while it unpacks: the child's fault switch
 * stands for files that did it. The next request starts another child. */
TEST(a_child_that_fails_is_an_error_and_is_replaced)
{
    static const struct {
        const char *variable, *words;
        sp_status rc;
    } faults[] = {
        {"SP_H5_CHILD_CRASH", "damaged file (reader ended by signal 11)", SP_EDATA},
        {"SP_H5_CHILD_HANG", "no progress", SP_EIO},
        {"SP_H5_CHILD_KILL", "was killed from outside", SP_EMEM}};
    const layout l = {1, {1000}, {300}, 0, "sd", false, false};
    hid_t made = create(H5F_LIBVER_EARLIEST, false);
    int32_t got[1000];
    sp_h5 *file;

    write_set(made, &l, H5T_STD_I32LE);
    H5Fclose(made);
    OK(sp_h5_open(&file, path));
    for (int i = 0; i < 3; i++) {
        setenv(faults[i].variable, "test_h5_chunks.h5:/x", 1);
        FAILS(sp_h5_read_rows(file, "/x", 0, 1000, got), faults[i].rc, path);
        SAYS(faults[i].words);
        unsetenv(faults[i].variable);
    }
    OK(sp_h5_read_rows(file, "/x", 0, 1000, got));
    for (int i = 0; i < 1000; i++)
        assert_int_equal(got[i], value((size_t)i));
    OK(sp_h5_close(file));
}

TEST(a_file_that_was_replaced_is_not_mixed_with_the_open_one)
{
    const layout l = {1, {1000}, {300}, 0, "sd", false, false};
    int32_t got[1000];
    sp_h5 *file;

    for (int i = 0; i < 2; i++) {
        hid_t made = create(H5F_LIBVER_EARLIEST, false);

        write_set(made, &l, H5T_STD_I32LE);
        H5Fclose(made);
        if (i == 0)
            assert_int_equal(rename(path, "first.h5"), 0);
    }
    OK(sp_h5_open(&file, path));
    assert_int_equal(rename("first.h5", path), 0);
    FAILS(sp_h5_read_rows(file, "/x", 0, 1000, got), SP_EIO, "replaced or changed");
    OK(sp_h5_close(file));
}

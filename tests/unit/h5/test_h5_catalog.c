/* A child process whose memory a damaged file has overwritten may answer anything: a
 * catalog of changed bytes is refused or is safe to read with. The changes are a pure
 * function of the mutant's number. */
#include "fixtures/test.h"

#include <fcntl.h>
#include <unistd.h>

#include "h5/sp_h5_internal.h"
#include "torture/fuzz/mutate.h"

enum { MUTANTS = 3000, ROWS = 120, MOST_BYTES = 1 << 24 };

static const char path[] = "test_h5_catalog.h5";

static void write_file(void)
{
    const hsize_t dim[] = {ROWS, 3}, chunk[] = {16, 2};
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(2, dim, NULL);
    hid_t set;
    int data[ROWS * 3];

    for (int i = 0; i < ROWS * 3; i++)
        data[i] = i % 7;
    set =
        H5Dcreate2(file, "plain", H5T_STD_I32LE, space, H5P_DEFAULT, list, H5P_DEFAULT);
    H5Dwrite(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
    H5Dclose(set);
    H5Pset_chunk(list, 2, chunk);
    H5Pset_shuffle(list);
    H5Pset_deflate(list, 4);
    set = H5Dcreate2(file, "packed", H5T_STD_I32LE, space, H5P_DEFAULT, list,
                     H5P_DEFAULT);
    assert_true(H5Dwrite(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >=
                0);
    H5Dclose(set);
    H5Sclose(space);
    H5Pclose(list);
    H5Fclose(file);
}

static void change(unsigned char *data, size_t n, uint64_t *rng)
{
    static const uint64_t numbers[] = {0,         1,          5,          UINT32_MAX,
                                       INT64_MAX, UINT64_MAX, 1ull << 31, 1ull << 40};
    size_t at = mutate_next(rng) % n, bytes = mutate_next(rng) % 2 ? 8 : 4;

    if (mutate_next(rng) % 2)
        data[at] = (unsigned char)mutate_next(rng);
    else if (at + bytes <= n)
        memcpy(data + at, &numbers[mutate_next(rng) % 8], bytes);
}

/* Reads all rows of every dataset that may be read, unless they are many. */
static void read_all(const sp_h5_catalog *c, int fd, sp_h5_cache *cache)
{
    for (int64_t i = 0; i < c->n; i++) {
        const sp_h5_entry *entry = &c->entry[i];
        const sp_h5_shape *shape = &entry->shape;
        int64_t bytes = shape->type.size;
        sp_status rc;
        void *to;

        if (entry->kind != SP_H5_DATASET || entry->why || !shape->chunks.rows ||
            shape->rank < 1 || shape->dim[0] < 1 || !strchr("iuf", shape->type.kind))
            continue;
        for (int d = 0; d < shape->rank && bytes <= MOST_BYTES; d++)
            if (__builtin_mul_overflow(bytes, shape->dim[d], &bytes))
                bytes = INT64_MAX;
        if (bytes > MOST_BYTES)
            continue;
        to = malloc((size_t)bytes + 1);
        assert_non_null(to);
        rc = sp_h5_cache_read(cache,
                              &(sp_h5_packed){.key = to,
                                              .path = path,
                                              .fd = fd,
                                              .name = entry->name,
                                              .where = path,
                                              .rows = shape->dim[0],
                                              .row_bytes = bytes / shape->dim[0],
                                              .chunks = shape->chunks},
                              0, shape->dim[0], to);
        assert_true(rc == SP_OK || rc == SP_EDATA);
        free(to);
    }
}

static void use(unsigned char *data, size_t n, int64_t file_bytes, int fd,
                sp_h5_cache *cache, int *n_good)
{
    sp_serial serial = {.data = data, .size = n, .is_reading = true};
    CLOSED_BY(sp_h5_catalog_free) sp_h5_catalog catalog = {0};

    sp_h5_catalog_serialize(&serial, &catalog);
    catalog.bytes = file_bytes; /* the parent knows it */
    if (serial.rc == SP_OK && sp_h5_catalog_check(&catalog) == SP_OK) {
        read_all(&catalog, fd, cache);
        ++*n_good;
    }
}

TEST(changed_answers_are_safe)
{
    CLOSED_BY(sp_h5_catalog_free) sp_h5_catalog good = {0};
    sp_serial serial = {0};
    sp_h5_cache *cache;
    int fd, n_good = 0;

    write_file();
    OK(sp_h5_describe(path, &good));
    sp_h5_catalog_serialize(&serial, &good);
    OK(serial.rc);
    fd = open(path, O_RDONLY);
    OK(sp_h5_cache_create(&cache, MOST_BYTES));
    use(serial.data, serial.size, good.bytes, fd, cache, &n_good);
    assert_int_equal(n_good, 1);
    for (int i = 0; i < MUTANTS; i++) {
        uint64_t rng = (uint64_t)i * 7919;
        FREED unsigned char *data = malloc(serial.size);
        size_t n =
            mutate_next(&rng) % 20 ? serial.size : mutate_next(&rng) % serial.size;

        assert_non_null(data);
        memcpy(data, serial.data, serial.size);
        for (uint64_t k = 1 + mutate_next(&rng) % 4; k > 0; k--)
            change(data, serial.size, &rng);
        use(data, n, good.bytes, fd, cache, &n_good);
    }
    assert_true(n_good > MUTANTS / 10 && n_good < MUTANTS);
    close(fd);
    sp_h5_cache_destroy(cache);
    free(serial.data);
}

/* The reason why a dataset of this shape in chunks is not read; "" if it may be. */
static const char *why_not(sp_h5_shape shape)
{
    static char why[256];
    CLOSED_BY(sp_h5_catalog_free) sp_h5_catalog catalog = {.bytes = 1000, .n = 1};

    catalog.entry = calloc(1, sizeof *catalog.entry);
    assert_non_null(catalog.entry);
    *catalog.entry =
        (sp_h5_entry){.name = strdup("/x"), .kind = SP_H5_DATASET, .shape = shape};
    OK(sp_h5_catalog_check(&catalog));
    snprintf(why, sizeof why, "%s", catalog.entry->why ? catalog.entry->why : "");
    return why;
}

TEST(impossible_chunks_are_refused)
{
    const sp_h5_shape good = {
        .type = SP_H5_I32, .rank = 1, .dim = {20}, .at = -1, .chunks = {8, 32}};
    sp_h5_shape s = good;

    assert_string_equal(why_not(s), "");
    s.chunks.rows = 0;
    assert_string_equal(why_not(s), "its chunks do not make up its shape");
    s = good;
    s.chunks.bytes = 0;
    assert_string_equal(why_not(s), "its chunks do not make up its shape");
    s = good;
    s.is_contiguous = true;
    assert_string_equal(why_not(s), "its shape makes no sense: damaged");
    s = good;
    s.rank = -2; /* fewer dimensions than no values have */
    assert_string_equal(why_not(s), "its shape makes no sense: damaged");
    s.rank = SP_H5_RANK + 1;
    assert_string_equal(why_not(s), "its shape makes no sense: damaged");
    s = good;
    s.dim[0] = INT64_MAX / 8;
    assert_string_equal(
        why_not(s), "larger than the file (1000 bytes) can hold: truncated or damaged");
}

/* Whatever is wrong with a shard is answered by one message with file, dataset and
 * sample. */
#include "fixtures/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "data/sp_index_file.h"
#include "data/sp_shard_internal.h"
#include "fixtures/shard_fixture.h"
#include "h5/sp_h5.h"
#include "torture/fuzz/mutate_h5.h"

enum { M = 4, S = 2 };

static const char *path = "damage.h5";

/* A dataset or attribute of the example that a case replaces. */
typedef struct part {
    const char *name; /* datasets begin with '/' */
    sp_h5_type type;
    int rank; /* attributes have 0 */
    int64_t dim[2];
    const void *data;
} part;

#define U8  SP_H5_U8
#define U32 SP_H5_U32
#define U64 SP_H5_U64
#define I32 SP_H5_I32
#define I64 SP_H5_I64
#define F32 SP_H5_F32
#define F64 SP_H5_F64

static const int64_t offsets[] = {0, 3, 4};
static const int32_t coords[] = {0, 0, 0, 1, 0, 0, 0, 2, 0, 5, 5, 5};
static const float features[12] = {1, 2, 3, 4, 5, 6, 7, 8};
static const uint8_t labels[] = {0, 1, 255, 1};
static const int64_t point_offsets[] = {0, 2, 3};
static const uint32_t point_voxel[] = {0, 2, 0};
static const uint8_t point_labels[] = {0, 1, 1};
static const uint64_t point_index[] = {10, 11, 12};
static const int64_t version = 1, n_classes = 2, ignore = 255;
static const double voxel_size = 0.5;

static const part parts[] = {
    {"/offsets", I64, 1, {S + 1}, offsets},
    {"/coords", I32, 2, {M, 3}, coords},
    {"/features", F32, 2, {M, 2}, features},
    {"/labels", U8, 1, {M}, labels},
    {"/point_offsets", I64, 1, {S + 1}, point_offsets},
    {"/point_voxel", U32, 1, {3}, point_voxel},
    {"/point_labels", U8, 1, {3}, point_labels},
    {"/point_index", U64, 1, {3}, point_index},
    {"version", I64, 0, {0}, &version},
    {"num_classes", I64, 0, {0}, &n_classes},
    {"ignore_label", I64, 0, {0}, &ignore},
    {"voxel_size", F64, 0, {0}, &voxel_size},
};

static void put(sp_h5 *file, const part *p)
{
    if (p->name[0] == '/')
        OK(sp_h5_write(file, p->name, p->type, p->rank, p->dim, p->data));
    else
        OK(sp_h5_attr_write(file, "/", p->name, p->type, -1, p->data));
}

/* Writes the example with one part replaced (where data and rank are given) or left
 * out. */
static void write_example(const char *to, const part *other, const char *format)
{
    char *texts[] = {"ground", "tree", (char *)format};
    sp_h5 *file;
    bool is_skipped;

    OK(sp_h5_create(&file, to));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        is_skipped = other && strcmp(other->name, parts[i].name) == 0;
        if (!is_skipped)
            put(file, &parts[i]);
    }
    if (other && other->type.size > 0)
        put(file, other);
    if (!other || strcmp(other->name, "class_names") != 0)
        OK(sp_h5_attr_write_texts(file, "/", "class_names", 2, texts));
    else
        OK(sp_h5_attr_write_texts(file, "/", "class_names", 1, texts));
    OK(sp_h5_attr_write_texts(file, "/", "feature_names", 2, texts));
    if (format)
        OK(sp_h5_attr_write_texts(file, "/", "format", -1, texts + 2));
    OK(sp_h5_close(file));
}

static void refused(const char *pattern, const char *a, const char *b)
{
    CLOSED_BY(sp_dataset_close) sp_dataset set;

    FAILS(fixture_open(&set, pattern), SP_EDATA, a);
    SAYS(b);
}

static void sample_refused(int64_t sample, const char *a, const char *b)
{
    sp_sample_request all = {.verify = true, .with_points = true};
    CLOSED_BY(sp_dataset_close) sp_dataset set;
    CLOSED_BY(sp_sample_destroy) sp_sample got = {0};

    OK(fixture_open(&set, path));
    FAILS(sp_sample_read(&set, sample, &all, &got), SP_EDATA, a);
    SAYS(b);
}

TEST(example_is_good)
{
    sp_sample_request all = {.verify = true, .with_points = true};
    CLOSED_BY(sp_dataset_close) sp_dataset set;
    CLOSED_BY(sp_sample_destroy) sp_sample got = {0};

    write_example(path, NULL, "sptrain-voxels");
    OK(fixture_open(&set, path));
    OK(sp_sample_read(&set, 0, &all, &got));
    assert_int_equal(got.labels[2], -1);
    assert_int_equal(got.point_index[1], 11);
    OK(sp_sample_read(&set, 1, &all, &got));
    assert_int_equal(got.coords[0], 5);
}

TEST(headers_are_checked)
{
    static const int64_t falls[] = {0, 5, 4}, over[] = {0, 3, 5}, late[] = {1, 3, 4};
    static const double halves[] = {0, 2.5, 4}, minus = -1, none = NAN, vast = 1e10;
    static const int64_t two = 2, zero = 0;
    static const struct {
        part with;
        const char *a, *b;
    } cases[] = {
        {{.name = "/offsets"}, "damage.h5: missing dataset /offsets", ""},
        {{.name = "/coords"}, "missing dataset /coords", ""},
        {{.name = "/features"}, "missing dataset /features", ""},
        {{.name = "/point_offsets"}, "/point_voxel without /point_offsets", ""},
        {{.name = "/point_voxel"}, "missing dataset /point_voxel", ""},
        {{.name = "/point_labels"}, "missing dataset /point_labels", ""},
        {{.name = "version"}, "missing attribute version", "damage.h5"},
        {{.name = "voxel_size"}, "missing attribute voxel_size", ""},
        {{.name = "num_classes"}, "missing attribute num_classes", ""},
        {{.name = "ignore_label"}, "missing attribute ignore_label", ""},
        {{.name = "class_names"}, "class_names has 1 name, expected 2", ""},
        {{"/offsets", I64, 1, {3}, falls}, "sample 1: offset falls from 5 to 4", ""},
        {{"/offsets", I64, 1, {3}, over}, "the last is 5, expected 4", "/coords"},
        {{"/offsets", I64, 1, {3}, late}, "the first is 1, expected 0", ""},
        {{"/offsets", F64, 1, {3}, halves}, "element 1 is 2.5", "an integer"},
        {{"/offsets", I64, 1, {0}, NULL}, "is empty", "/offsets"},
        {{"/coords", I32, 2, {6, 2}, coords}, "shape [6,2], expected [6,3]", ""},
        {{"/coords", I32, 2, {3, 4}, coords},
         "shape [3,4], expected [3,3]: rows and columns are exchanged, as MATLAB",
         ""},
        {{"/features", F32, 2, {3, 4}, features}, "expected [4,4]: rows and", ""},
        {{"/coords", I32, 1, {12}, coords}, "1 dimension, expected 2", "/coords"},
        {{"/features", F32, 2, {2, 4}, features}, "shape [2,4], expected [4,4]", ""},
        {{"/features", F32, 2, {4, 0}, NULL}, "/features: 0 columns", ""},
        {{"/labels", U8, 1, {3}, labels}, "shape [3], expected [4]", "/labels"},
        {{"/cost", I64, 2, {2, 3}, NULL}, "shape [2,3], expected [2,6]", "/cost"},
        {{"version", I64, 0, {0}, &two}, "version is 2, expected 1", ""},
        {{"voxel_size", F64, 0, {0}, &minus}, "voxel_size is -1", ""},
        {{"voxel_size", F64, 0, {0}, &none}, "voxel_size is nan", ""},
        {{"voxel_size", F64, 0, {0}, &vast}, "voxel_size is 1e+10", "at most 1e+09"},
        {{"num_classes", I64, 0, {0}, &zero}, "num_classes is 0", ""},
        {{"num_classes", F64, 0, {0}, halves + 1}, "num_classes is 2.5", "integer"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_example(path, &cases[i].with, "sptrain-voxels");
        refused(path, cases[i].a, cases[i].b);
    }
    write_example(path, NULL, "something");
    refused(path, "format is \"something\"", "expected \"sptrain-voxels\"");
    write_example(path, NULL, NULL);
    refused(path, "no attribute format", "not a voxel shard");
}

TEST(samples_are_checked)
{
    static const int32_t far[] = {0, 0, 0, 1, 0, 0, 0, 2, 0, 5, 5, 524288};
    static const int32_t twice[] = {7, 0, 0, 1, 0, 0, 7, 0, 0, 5, 5, 5};
    static const double part_cell[] = {0, 0, 0, 1, 0, 0, 0, 2.5, 0, 5, 5, 5};
    static const float infinite[] = {1, 2, 3, 4, 5, INFINITY, 7, 8};
    static const double beyond[] = {1, 2, 3, 1e39, 5, 6, 7, 8};
    static const double endless[] = {1, 2, 3, 4, 5, INFINITY, 7, 8};
    static const uint8_t wrong[] = {0, 2, 255, 1};
    static const int64_t negative[] = {0, 1, 255, -1};
    static const uint32_t outside[] = {0, 2, 1};
    static const uint32_t crc[] = {1, 2};
    static const int64_t late[12] = {[11] = 256}, early[12] = {[4] = -1};
    static const int64_t before[] = {10, -1, 12}, hollow[] = {0, 4, 4};
    static const double nowhere[] = {0, 0, 0, 0, INFINITY, 0};
    static const struct {
        part with;
        int sample;
        const char *a, *b;
    } cases[] = {
        {{"/coords", I32, 2, {4, 3}, far},
         1,
         "damage.h5:/coords: sample 1: row 0: z = 524288",
         "expected -524288 to 524287"},
        {{"/coords", I32, 2, {4, 3}, twice},
         0,
         "/coords: sample 0: rows 0 and 2 are both (7, 0, 0)",
         "unique"},
        {{"/coords", F64, 2, {4, 3}, part_cell}, 0, "row 2: y = 2.5", "an integer"},
        {{"/features", F32, 2, {4, 2}, infinite}, 0, "row 2: tree is inf", "finite"},
        {{"/features", F64, 2, {4, 2}, beyond},
         0,
         "row 1: tree is 9.99999999999999",
         "beyond the range of float32"},
        {{"/features", F64, 2, {4, 2}, endless}, 0, "row 2: tree is inf", "finite"},
        {{"/labels", U8, 1, {4}, wrong},
         0,
         "/labels: sample 0: row 1: label 2, expected 0 to 1 or ignore_label 255",
         ""},
        {{"/labels", I64, 1, {4}, negative}, 1, "row 0: label -1", "expected 0 to 1"},
        {{"/point_voxel", U32, 1, {3}, outside},
         1,
         "/point_voxel: sample 1: point 0: 1, expected 0 to 0",
         ""},
        {{"/offsets", I64, 1, {3}, hollow},
         1,
         "/point_voxel: sample 1: point 0: 0, expected no point in a sample without a "
         "voxel",
         ""},
        {{"/point_labels", U8, 1, {3}, wrong}, 0, "/point_labels", "label 2"},
        {{"/crc32c", U32, 1, {2}, crc}, 1, "/crc32c: sample 1", "expected 00000002"},
        {{"/subvoxel", I64, 2, {4, 3}, late}, 1, "row 0: 256", "expected 0 to 255"},
        {{"/subvoxel", I64, 2, {4, 3}, early}, 0, "row 1: -1", "expected 0 to 255"},
        {{"/point_index", I64, 1, {3}, before}, 0, "point 1: -1", "0 or more"},
        {{"/origin", F64, 2, {2, 3}, nowhere}, 1, "/origin: sample 1: y", "is inf"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_example(path, &cases[i].with, "sptrain-voxels");
        sample_refused(cases[i].sample, cases[i].a, cases[i].b);
    }
}

TEST(other_files_are_refused)
{
    CLOSED_BY(sp_dataset_close) sp_dataset set;
    struct stat about;

    OK(sp_file_replace(path, "no HDF5", 7, 0));
    refused(path, "damage.h5: not an HDF5 file", "");
    refused("none-*.h5", "none-*.h5: no such file", "no match");
    refused("none.h5", "none.h5: no such file", "");
    refused("", "\"\": no such file", "");
    assert_int_equal(symlink("loop", "loop"), 0); /* its files cannot be listed */
    FAILS(fixture_open(&set, "{damage,loop/}*.h5"), SP_EIO, "a folder cannot be read");
    SAYS("Too many levels");
    assert_int_equal(symlink("ring-0-of-2.h5", "ring-0-of-2.h5"), 0); /* not missing */
    write_example("ring-1-of-2.h5", NULL, "sptrain-voxels");
    refused("ring-*.h5", "ring-0-of-2.h5", "Too many levels");
    refused("/", "/: not a regular file", "");
    write_example(path, NULL, "sptrain-voxels");
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(truncate(path, about.st_size - 40), 0);
    refused(path, "damage.h5", "truncated");
}

TEST(files_of_a_set_agree)
{
    static const double other = 0.25;
    static const int64_t three = 254;
    static const part size = {"voxel_size", F64, 0, {0}, &other};
    static const part label = {"ignore_label", I64, 0, {0}, &three};
    static const part bare = {.name = "/labels"};

    write_example("agree-a.h5", NULL, "sptrain-voxels");
    write_example("agree-b.h5", &size, "sptrain-voxels");
    refused("agree-?.h5", "agree-b.h5 has voxel_size 0.25", "agree-a.h5 has 0.5");
    write_example("agree-b.h5", &label, "sptrain-voxels");
    refused("agree-?.h5", "ignore_label 254", "255");
    write_example("agree-b.h5", &bare, "sptrain-voxels");
    refused("agree-?.h5", "agree-a.h5 has /labels", "agree-b.h5 has not");
}

/* A tool that rewrites files may lose what the others of the set have. */
TEST(a_file_that_lacks_a_part_is_named)
{
    static const part bare = {.name = "/point_index"};
    CLOSED_BY(sp_dataset_close) sp_dataset set;
    const char *said;

    write_example("agree-a.h5", NULL, "sptrain-voxels");
    write_example("agree-b.h5", &bare, "sptrain-voxels");
    test_capture(STDERR_FILENO);
    OK(fixture_open(&set, "agree-?.h5"));
    said = test_captured(STDERR_FILENO);
    assert_non_null(
        strstr(said, "agree-b.h5 has no /point_index, which agree-a.h5 has"));
}

/* A set of numbered files is complete, and no other of its name is listed, even where
 * another set stands between the two. */
TEST(numbered_sets_are_whole)
{
    char *names[] = {"set-0-of-1.h5", "other-0-of-1.h5", "set-?-of-2.h5"};
    const sp_strings list = {3, names}, one = {1, names + 2};
    CLOSED_BY(sp_strings_free) sp_strings paths;

    write_example("set-0-of-1.h5", NULL, "sptrain-voxels");
    write_example("other-0-of-1.h5", NULL, "sptrain-voxels");
    write_example("set-1-of-2.h5", NULL, "sptrain-voxels");
    refused("set-1-of-2.h5", "set-0-of-2.h5: missing; it is one of the 2 files", "");
    write_example("set-0-of-2.h5", NULL, "sptrain-voxels");
    OK(sp_shard_glob(&one, &paths));
    assert_int_equal(paths.n, 2);
    sp_strings_free(&paths);
    FAILS(sp_shard_glob(&list, &paths), SP_EDATA,
          "set-0-of-1.h5 and set-0-of-2.h5 belong to two data sets");
}

TEST(change_while_in_use)
{
    sp_sample_request all = {.verify = true};
    CLOSED_BY(sp_dataset_close) sp_dataset set;
    CLOSED_BY(sp_sample_destroy) sp_sample got = {0};
    struct stat about;
    int fd;

    write_example(path, NULL, "sptrain-voxels");
    OK(fixture_open(&set, path));
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(truncate(path, about.st_size - 1), 0);
    FAILS(sp_sample_read(&set, 0, &all, &got), SP_EDATA, "changed while in use");
    SAYS("damage.h5");
    assert_int_equal(truncate(path, about.st_size), 0);
    OK(sp_sample_read(&set, 0, &all, &got));
    /* Coordinates that were found unique before are looked through again. */
    fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, coords, 12, set.shard[0].coords.at + 12), 12);
    close(fd);
    FAILS(sp_sample_read(&set, 0, &all, &got), SP_EDATA, "rows 0 and 1 are both");
    assert_int_equal(truncate(path, 100), 0);
    FAILS(sp_sample_read(&set, 0, &all, &got), SP_EDATA, "shrank while in use");
    SAYS("sample 0");
}

/* ---- the index file ---- */

/* Numbers of the index file that lead beyond an array are refused, even with checksums
 * that fit, and the shard is read instead. The part begins with a path, its length and a
 * flag, and three numbers; then each dataset has 8 bytes of place, 8 of rows, 4 of
 * columns, 4 of bytes of a number, 2 of its kind and 16 of chunks. */
TEST(impossible_numbers_of_an_index_file_are_refused)
{
    enum { HEAD = 64, COLS = 16, TYPE = 20, EXTENT = 42 };
    static const int64_t sizes[] = {30, 20};
    static const fixture f = {.n_samples = 2, .voxels = sizes, .seed = 3};
    static char shard[] = "indexed.h5", *paths[] = {shard};
    const size_t coords_at = HEAD + 8 + 1 + strlen(shard) + 3 * 8;
    const size_t at[] = {coords_at + TYPE, coords_at + COLS,
                         coords_at + EXTENT + COLS};
    const sp_sample_request all = {.verify = true};
    sp_indexed indexed;

    OK(fixture_write(&f, shard));
    OK(sp_index_file_write(paths, 1, &indexed));
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        for (int32_t value = -1; value < 16; value += 7) {
            CLOSED_BY(sp_dataset_close) sp_dataset set = {0};
            CLOSED_BY(sp_sample_destroy) sp_sample got = {0};
            sp_index_reader reader = {0};
            blob b = blob_read(SP_INDEX_FILE);

            memcpy(b.at + at[i], &value, sizeof value);
            fixture_mend_index(b.at, b.n);
            blob_write(SP_INDEX_FILE, b);
            free(b.at);
            assert_false(sp_index_reader_read(&reader, shard, &set));
            SAYS("impossible numbers in the part of indexed.h5");
            sp_index_reader_end(&reader);
            OK(fixture_open(&set, shard));
            OK(sp_sample_read(&set, 1, &all, &got));
            OK(sp_index_file_write(paths, 1, &indexed));
        }
    unlink(SP_INDEX_FILE);
}

/* ---- a library that fails ---- */

/* libhdf5 1.10.8 crashes on, or reads beyond, some headers and chunks that are damaged.
 * The fault switch of the child stands for them: while it reads headers, and while it
 * unpacks the values of one dataset. */
TEST(a_crash_of_the_library_is_a_damaged_file)
{
    static const int64_t sizes[] = {30, 0, 20, 1};
    static const fixture f = {.n_samples = 4, .voxels = sizes, .seed = 3};
    const sp_sample_request all = {.verify = true};
    CLOSED_BY(sp_dataset_close) sp_dataset set;
    CLOSED_BY(sp_sample_destroy) sp_sample sample = {0};

    OK(fixture_write(&f, "liar.h5"));
    h5_repack("liar.h5", H5_STORE_OLD);
    setenv("SP_H5_CHILD_CRASH", "liar.h5", 1);
    refused("liar.h5", "liar.h5: damaged file (reader ended by signal 11)", "");
    setenv("SP_H5_CHILD_CRASH", "liar.h5:/features", 1);
    OK(fixture_open(&set, "liar.h5"));
    FAILS(sp_sample_read(&set, 2, &all, &sample), SP_EDATA,
          "liar.h5:/features: sample 2 (sample2): damaged file (reader ended by signal "
          "11)");
    unsetenv("SP_H5_CHILD_CRASH");
    OK(sp_sample_read(&set, 2, &all, &sample));
    assert_int_equal(sample.n, 20);
}

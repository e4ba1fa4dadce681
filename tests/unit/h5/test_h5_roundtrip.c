/* sp_h5 reads back what it wrote, and the same calls give the same bytes. */
#include "fixtures/test.h"

#include <float.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "h5/sp_h5.h"
#include "h5/sp_h5_number.h"

static const char *path = "test_h5_roundtrip.h5";

static void write_example(const char *to)
{
    char *names[] = {"ground", "t\xc3\xbcr", ""};
    float weight[6] = {1, 2, 3, 4, 5, 6};
    int64_t dim[2] = {3, 2}, rows = 4, version = 1;
    int32_t values[4] = {-1, 2, -3, 4};
    sp_h5 *file;

    OK(sp_h5_create(&file, to));
    OK(sp_h5_write(file, "/params/conv1/weight", SP_H5_F32, 2, dim, weight));
    OK(sp_h5_write(file, "/rows", SP_H5_I32, 1, &rows, NULL));
    OK(sp_h5_write_rows(file, "/rows", 2, 2, values + 2));
    OK(sp_h5_write_rows(file, "/rows", 0, 2, values));
    OK(sp_h5_write_texts(file, "/names", 3, names));
    OK(sp_h5_attr_write(file, "/", "version", SP_H5_I64, -1, &version));
    OK(sp_h5_attr_write(file, "/params/conv1/weight", "mean", SP_H5_F32, 3, weight));
    OK(sp_h5_attr_write_texts(file, "/", "class_names", 3, names));
    OK(sp_h5_attr_write_texts(file, "/", "format", -1, (char *[]){"example"}));
    OK(sp_h5_close(file));
}

static sp_h5 *open_example(void)
{
    sp_h5 *file;

    write_example(path);
    OK(sp_h5_open(&file, path));
    return file;
}

TEST(numbers_at_the_ends_of_their_types)
{
    uint16_t halves[] = {0x0001, 0x83ff, 0x0400, 0x7bff, 0xfc00};
    const float singles[] = {0x1p-24f, -0x1.ff8p-15f, 0x1p-14f, 65504, -INFINITY};
    int64_t wholes[] = {INT32_MIN, INT32_MAX, (int64_t)INT32_MAX + 1};
    double reals[] = {FLT_MAX, HUGE_VAL, 2 * (double)FLT_MAX};
    int32_t i32[3];
    float f32[5];

    assert_int_equal(
        sp_h5_convert((sp_h5_type){'f', 2, false}, halves, 5, SP_H5_F32, f32), -1);
    assert_memory_equal(f32, singles, sizeof singles);
    assert_int_equal(sp_h5_convert(SP_H5_I64, wholes, 3, SP_H5_I32, i32), 2);
    assert_int_equal(sp_h5_convert(SP_H5_F64, reals, 3, SP_H5_F32, f32), 2);
}

TEST(datasets_read_back)
{
    int64_t dim[2] = {3, 2}, wrong[2] = {2, 3};
    double weight[6];
    int32_t rows[2];
    char *names[3];
    sp_h5_shape shape;
    sp_h5 *file = open_example();

    OK(sp_h5_read(file, "/params/conv1/weight", SP_H5_F64, 2, dim, weight));
    assert_true(weight[5] == 6);
    OK(sp_h5_read_rows(file, "/rows", 1, 2, rows));
    assert_int_equal(rows[0], 2);
    assert_int_equal(rows[1], -3);
    OK(sp_h5_read_texts(file, "/names", 3, names));
    assert_string_equal(names[1], "t\xc3\xbcr");
    for (int i = 0; i < 3; i++)
        free(names[i]);
    OK(sp_h5_shape_of(file, "rows", &shape));
    assert_true(shape.is_contiguous && shape.at > 0);
    assert_true(shape.type.kind == 'i' && shape.type.size == 4 &&
                !shape.type.is_swapped);
    FAILS(sp_h5_read(file, "/params/conv1/weight", SP_H5_F32, 2, wrong, weight),
          SP_EDATA, "shape [3,2], expected [2,3]");
    FAILS(sp_h5_read_rows(file, "/none/x", 0, 1, rows), SP_EDATA,
          "missing dataset /none/x");
    OK(sp_h5_close(file));
}

TEST(attributes_read_back)
{
    int64_t version, n;
    float mean[3];
    char **names;
    int count;
    sp_h5 *file = open_example();

    OK(sp_h5_attr_read_int(file, "/", "version", &version));
    assert_int_equal(version, 1);
    OK(sp_h5_attr_count(file, "/params/conv1/weight", "mean", &n));
    assert_int_equal(n, 3);
    OK(sp_h5_attr_read(file, "/params/conv1/weight", "mean", SP_H5_F32, 3, mean));
    assert_true(mean[2] == 3);
    OK(sp_h5_attr_read_texts(file, "/", "class_names", &names, &count));
    assert_int_equal(count, 3);
    assert_string_equal(names[0], "ground");
    sp_h5_list_free(names, count);
    assert_true(sp_h5_attr_has(file, "/", "format"));
    assert_false(sp_h5_attr_has(file, "/none", "format"));
    assert_int_equal(sp_h5_attr_read_int(file, "/", "format", &n), SP_EDATA);
    OK(sp_h5_close(file));
}

TEST(list_has_paths_in_order)
{
    char **names;
    int n;
    sp_h5 *file = open_example();

    OK(sp_h5_list(file, &names, &n));
    assert_int_equal(n, 3);
    assert_string_equal(names[0], "/names");
    assert_string_equal(names[1], "/params/conv1/weight");
    sp_h5_list_free(names, n);
    OK(sp_h5_close(file));
}

TEST(same_calls_same_bytes)
{
    const char *second = "test_h5_roundtrip2.h5";

    write_example(path);
    sleep(1); /* a time stamp would differ */
    write_example(second);
    test_same_files(path, second);
}

TEST(failures_name_the_file)
{
    sp_h5 *file;

    OK(sp_file_replace(path, "plain text", 10, 0));
    FAILS(sp_h5_open(&file, path), SP_EDATA, "not an HDF5 file");
    FAILS(sp_h5_open(&file, "none.h5"), SP_EDATA, "none.h5: No such file");
    assert_int_equal(sp_h5_create(&file, "no/such/folder.h5"), SP_EIO);
    assert_string_equal(sp_error_last()->message,
                        "no/such/folder.h5: cannot be created: No such file or "
                        "directory");
    assert_null(file);
}

/* The process that reads headers for this one; 0: there is none. -1: the system does
 * not tell. */
static int reader(void)
{
    char name[64];
    FILE *file;
    int pid = 0;

    snprintf(name, sizeof name, "/proc/self/task/%d/children", getpid());
    file = fopen(name, "r");
    if (!file)
        return -1;
    if (fscanf(file, "%d", &pid) != 1)
        pid = 0;
    fclose(file);
    return pid;
}

/* The reader after the file has been opened and closed. */
static int next_reader(void)
{
    sp_h5 *file;

    OK(sp_h5_open(&file, path));
    OK(sp_h5_close(file));
    return reader();
}

TEST(a_kept_child_reads_the_next_file)
{
    int first;

    if (reader() < 0)
        skip();
    write_example(path);
    assert_int_equal(next_reader(), 0);
    sp_h5_keep_child(true);
    first = next_reader();
    assert_true(first > 0);
    assert_int_equal(next_reader(), first);
    sp_h5_keep_child(false);
    assert_int_equal(reader(), 0);
}

/* A batch system sends a request to stop to all processes of a job. */
TEST(requests_to_stop_leave_the_child_alone)
{
    static const int requests[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    int first;

    if (reader() < 0)
        skip();
    write_example(path);
    sp_h5_keep_child(true);
    first = next_reader();
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        assert_int_equal(kill(first, requests[i]), 0);
        assert_int_equal(next_reader(), first);
    }
    sp_h5_keep_child(false);
}

/* A damaged file may have harmed the child, and a child may be killed while it
 * waits. */
TEST(a_kept_child_that_is_not_as_new_is_replaced)
{
    siginfo_t ended;
    sp_h5 *none;

    if (reader() < 0)
        skip();
    OK(sp_file_replace(path, "plain text", 10, 0));
    sp_h5_keep_child(true);
    assert_int_equal(sp_h5_open(&none, path), SP_EDATA);
    assert_int_equal(reader(), 0);
    assert_int_equal(sp_h5_open(&none, "none.h5"), SP_EDATA);
    assert_int_equal(reader(), 0);
    write_example(path);
    kill(next_reader(), SIGKILL);
    waitid(P_PID, (id_t)reader(), &ended, WEXITED | WNOWAIT);
    assert_true(next_reader() > 0);
    sp_h5_keep_child(false);
}

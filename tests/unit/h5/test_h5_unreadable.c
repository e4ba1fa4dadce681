/* A file that the system cannot read is told from a damaged one, whichever of its parts
 * is read at that time. */
#include "fixtures/test.h"

#include "fixtures/failing_reads.h"
#include "h5/sp_h5.h"

enum { ROWS = 1000 };
static const char *path = "test_h5_unreadable.h5";
static double values[ROWS];

/* HDF5 1.10 does not free all it has allocated for a header that it could not read. */
const char *__lsan_default_suppressions(void); /* NOLINT: a name of the sanitizer */
const char *__lsan_default_suppressions(void)  /* NOLINT */
{
    return "leak:libhdf5\n";
}

static void write_file(void)
{
    const int64_t n = ROWS;
    sp_h5 *file;

    for (int i = 0; i < ROWS; i++)
        values[i] = i;
    OK(sp_h5_create(&file, path));
    OK(sp_h5_attr_write_texts(file, "/", "format", -1, (char *[]){"example"}));
    OK(sp_h5_write(file, "/group/values", SP_H5_F64, 1, &n, values));
    OK(sp_h5_write_texts(file, "/names", 2, (char *[]){"one", "two"}));
    OK(sp_h5_close(file));
}

/* Opens the file and reads all its values, some converted, after `good` reads in each
 * process. */
static sp_status read_after(int good, sp_status (*open_file)(sp_h5 **, const char *))
{
    const int64_t n = ROWS;
    static float converted[ROWS];
    static double stored[ROWS];
    char text[16];
    sp_h5 *file;
    sp_status rc;

    snprintf(text, sizeof text, "%d", good);
    setenv("FAIL_READS_AFTER", text, 1);
    n_chosen_reads = 0;
    SP_TRY(open_file(&file, path));
    rc = sp_h5_read(file, "/group/values", SP_H5_F64, 1, &n, stored);
    if (rc == SP_OK)
        rc = sp_h5_read(file, "/group/values", SP_H5_F32, 1, &n, converted);
    sp_h5_close(file);
    if (rc == SP_OK)
        assert_memory_equal(stored, values, sizeof values);
    return rc;
}

/* Fails one read after another; returns how many there are. */
static int fail_each(sp_status (*open_file)(sp_h5 **, const char *))
{
    int good = 0;

    while (read_after(good, open_file) != SP_OK) {
        FAILS(sp_error_last()->code, SP_EIO, path);
        SAYS("Input/output error");
        assert_true(++good < 1000);
    }
    return good;
}

TEST(no_read_that_fails_is_taken_for_damage)
{
    write_file();
    setenv("FAIL_READS", path, 1);
    /* The first read is that of the signature and the last two are those of the values;
     * the child, or HDF5 in this process, reads the headers. */
    assert_true(fail_each(sp_h5_open) > 4);
    assert_true(fail_each(sp_h5_open_own) > 4);
    unsetenv("FAIL_READS");
}

TEST(a_path_that_names_no_file_is_wrong_input)
{
    sp_h5 *file;

    assert_int_equal(sp_h5_open(&file, "none.h5"), SP_EDATA);
    assert_int_equal(sp_h5_open(&file, "/dev/null/none.h5"), SP_EDATA);
}

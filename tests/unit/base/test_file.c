/* Folders are made with their parents, and the message tells why one could not be.
 * Lines are appended whole. No output takes the place of a pipe or device. */
#include "fixtures/test.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"

TEST(a_folder_is_made_with_its_parents)
{
    const char *path = "a/b";
    struct stat st;

    OK(sp_file_make_folder(path));
    OK(sp_file_make_folder(path));
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISDIR(st.st_mode));
}

/* The folder itself is only missing its parent, which has no permission to be made. */
TEST(the_reason_is_that_of_the_first_folder_that_cannot_be_made)
{
    const bool is_root = geteuid() == 0;
    sp_status rc;

    assert_int_equal(chmod(test_folder(), 0755), 0);
    assert_int_equal(mkdir("closed", 0555), 0);
    if (is_root)
        assert_int_equal(seteuid(65534), 0);
    rc = sp_file_make_folder("closed/a/b");
    if (is_root)
        assert_int_equal(seteuid(0), 0);
    FAILS(rc, SP_EIO, "cannot make the folder: Permission denied");
}

/* The limit on file sizes stands in for a full disk. */
TEST(a_line_that_a_full_disk_takes_in_part_is_cut_off)
{
    const char *path = "lines";
    struct rlimit before, small;
    sp_status rc;

    OK(sp_file_append_line(path, "first"));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 9;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    rc = sp_file_append_line(path, "second");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    FAILS(rc, SP_EIO, "lines: cannot write: ");
    OK(sp_file_append_line(path, "third"));
    assert_string_equal(test_content(path, NULL), "first\nthird\n");
}

TEST(a_pipe_is_not_replaced)
{
    struct stat st;

    assert_int_equal(mkfifo("pipe", 0600), 0);
    OK(sp_file_append_line("new", "text"));
    FAILS(sp_file_rename("new", "pipe"), SP_EIO, "pipe: is no regular file");
    assert_int_equal(lstat("pipe", &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
}

/* Folders are made with their parents, and the message tells why one could not be. */
#include "config.h"

#include "fixtures/test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"

TEST(a_folder_is_made_with_its_parents)
{
    const char *path = test_path("a/b");
    struct stat st;

    OK(sp_file_make_folder(path));
    OK(sp_file_make_folder(path));
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISDIR(st.st_mode));
}

/* The folder itself is only missing its parent, which has no permission to be made. */
TEST(the_reason_is_that_of_the_first_folder_that_cannot_be_made)
{
    const char *path;
    const bool is_root = geteuid() == 0;
    sp_status rc;

    assert_int_equal(chmod(test_folder(), 0755), 0);
    assert_int_equal(mkdir(test_path("closed"), 0555), 0);
    path = test_path("closed/a/b");
    if (is_root)
        assert_int_equal(seteuid(65534), 0);
    rc = sp_file_make_folder(path);
    if (is_root)
        assert_int_equal(seteuid(0), 0);
    FAILS(rc, SP_EIO, "cannot make the folder: Permission denied");
}

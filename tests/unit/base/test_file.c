/* Folders are made with their parents, and the message tells why one could not be. */
#include "config.h"

#include "fixtures/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_file.h"

TEST(a_folder_is_made_with_its_parents)
{
    char top[] = "/tmp/sp_file_XXXXXX", part[64], path[80];
    struct stat st;

    assert_non_null(mkdtemp(top));
    snprintf(part, sizeof part, "%s/a", top);
    snprintf(path, sizeof path, "%s/b", part);
    OK(sp_file_make_folder(path));
    OK(sp_file_make_folder(path));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(rmdir(path) + rmdir(part) + rmdir(top), 0);
}

/* The folder itself is only missing its parent, which has no permission to be made. */
TEST(the_reason_is_that_of_the_first_folder_that_cannot_be_made)
{
    char top[] = "/tmp/sp_file_XXXXXX", path[64];
    const bool is_root = geteuid() == 0;
    sp_status rc;

    assert_non_null(mkdtemp(top));
    assert_int_equal(chmod(top, 0555), 0);
    snprintf(path, sizeof path, "%s/a/b", top);
    if (is_root)
        assert_int_equal(seteuid(65534), 0);
    rc = sp_file_make_folder(path);
    if (is_root)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(rc, SP_EIO);
    assert_non_null(
        strstr(sp_error_last()->message, "cannot make the folder: Permission denied"));
    assert_int_equal(rmdir(top), 0);
}

/* Writing of files, datasets and attributes. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "h5/sp_h5_internal.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void sp_h5_enter(void)
{
    static bool is_quiet;

    pthread_mutex_lock(&lock);
    if (!is_quiet)
        is_quiet = H5Eset_auto2(H5E_DEFAULT, NULL, NULL) >= 0;
    H5Eclear2(H5E_DEFAULT);
}

sp_status sp_h5_leave(sp_status rc)
{
    pthread_mutex_unlock(&lock);
    sp_liveness_count();
    return rc;
}

/* ---- failures ---- */

enum { LIBRARY_TEXT = 256 };

/* Writes the innermost line of the stack to text. If a call of the system failed, that
 * line has addresses and sizes around the system's message: only that is written. */
static herr_t append_text(unsigned n, const H5E_error2_t *error, void *text)
{
    static const char before[] = "error message = '";
    const char *words = error->desc ? strstr(error->desc, before) : NULL;

    if (n > 0 || !error->desc)
        return 0;
    if (words)
        words += strlen(before);
    snprintf(text, LIBRARY_TEXT, "%s%.*s",
             words ? "" : "HDF5: ", words ? (int)strcspn(words, "'") : LIBRARY_TEXT,
             words ? words : error->desc);
    return 0;
}

void sp_h5_library_text(char *text, size_t size)
{
    char all[LIBRARY_TEXT] = "";

    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, append_text, all);
    H5Eclear2(H5E_DEFAULT);
    snprintf(text, size, "%s", all);
}

sp_status sp_h5_fail(const sp_h5 *file, const char *object, const char *what)
{
    char text[LIBRARY_TEXT];

    sp_h5_library_text(text, sizeof text);
    return SP_FAIL(SP_EIO, "%s%s%s: %s%s%s", file->path, *object ? ":" : "", object,
                   what, *text ? ": " : "", text);
}

sp_status sp_h5_fail_write(const sp_h5 *file, const char *object, int error)
{
    return SP_FAIL(SP_EIO, "%s%s%s: cannot be written: %s%s", file->path,
                   *object ? ":" : "", object, strerror(error),
                   error == EFBIG ? " (ulimit -f)" : "");
}

/* Leaves HDF5 after a call that writes, with the error of the disk if there is one. */
static sp_status h5_leave_written(const sp_h5 *file, const char *object, sp_status rc)
{
    int *error;

    if (rc == SP_OK && H5Fget_vfd_handle(file->id, H5P_DEFAULT, (void **)&error) >= 0 &&
        *error)
        rc = sp_h5_fail_write(file, object, *error);
    return sp_h5_leave(rc);
}

const char *sp_h5_library(void)
{
    static char text[32];
    unsigned major, minor, release;

    if (H5get_libversion(&major, &minor, &release) < 0)
        return "unknown";
    snprintf(text, sizeof text, "%u.%u.%u", major, minor, release);
    return text;
}

/* ---- files ---- */

/* Opens a new file. A file or a link in its place is removed first, so that nothing is
 * written through a link. */
static sp_status open_new(sp_h5 *file)
{
    hid_t list, make;
    struct stat about;
    sp_status rc = SP_OK;

    if (lstat(file->path, &about) == 0 &&
        (S_ISREG(about.st_mode) || S_ISLNK(about.st_mode)))
        unlink(file->path);
    list = sp_h5_writing_list();
    H5Pset_libver_bounds(list, H5F_LIBVER_V110, H5F_LIBVER_V110);
    /* Small writes go to the disk immediately, so that their error has their name. */
    H5Pset_sieve_buf_size(list, 0);
    make = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_obj_track_times(make, false);
    file->id = H5Fcreate(file->path, H5F_ACC_EXCL, make, list);
    if (file->id < 0 && sp_h5_driver_error())
        rc = SP_FAIL(SP_EIO, "%s: cannot be created: %s", file->path,
                     strerror(sp_h5_driver_error()));
    else if (file->id < 0)
        rc = sp_h5_fail(file, "", "cannot be created");
    H5Pclose(list);
    H5Pclose(make);
    return rc;
}

sp_status sp_h5_create(sp_h5 **file, const char *path)
{
    sp_status rc;

    assert(file && path);
    SP_TRY(sp_h5_begin(file, path));
    (*file)->is_written = true;
    sp_h5_enter();
    rc = sp_h5_leave(open_new(*file));
    if (rc != SP_OK) {
        free((*file)->path);
        free(*file);
        *file = NULL;
    }
    return rc;
}

/* ---- datasets ---- */

/* Makes the groups above a dataset one by one: those that the library makes itself
 * carry the time. A failure shows when the dataset is made. */
static void make_groups(const sp_h5 *file, const char *name)
{
    hid_t made = H5Pcreate(H5P_GROUP_CREATE), group;
    char part[1024];

    H5Pset_obj_track_times(made, false);
    for (size_t i = 1; name[i] && i < sizeof part; i++) {
        if (name[i] != '/')
            continue;
        memcpy(part, name, i);
        part[i] = 0;
        if (H5Lexists(file->id, part, H5P_DEFAULT) > 0)
            continue;
        group = H5Gcreate2(file->id, part, H5P_DEFAULT, made, H5P_DEFAULT);
        if (group >= 0)
            H5Gclose(group);
    }
    H5Pclose(made);
}

sp_status sp_h5_write_group(sp_h5 *file, const char *name)
{
    char below[1024];
    sp_status rc = SP_OK;

    assert(file->is_written);
    assert(name[0] == '/' && strlen(name) < sizeof below - 1);
    snprintf(below, sizeof below, "%s/", name);
    sp_h5_enter();
    make_groups(file, below);
    if (H5Lexists(file->id, name, H5P_DEFAULT) <= 0)
        rc = sp_h5_fail(file, name, "cannot be created");
    return h5_leave_written(file, name, rc);
}

/* Makes a dataset and fills it if data is not NULL. */
static sp_status make_set(sp_h5 *file, const char *name, hid_t type, int rank,
                          const int64_t *dim, hid_t mem, const void *data)
{
    hsize_t size[SP_H5_RANK] = {0};
    hid_t space, set, made;
    sp_status rc = SP_OK;

    for (int i = 0; i < rank; i++)
        size[i] = (hsize_t)dim[i];
    made = H5Pcreate(H5P_DATASET_CREATE);
    make_groups(file, name);
    space = rank ? H5Screate_simple(rank, size, NULL) : H5Screate(H5S_SCALAR);
    H5Pset_obj_track_times(made, false);
    H5Pset_layout(made, H5D_CONTIGUOUS);
    H5Pset_alloc_time(made, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(made, H5D_FILL_TIME_NEVER);
    set = H5Dcreate2(file->id, name, type, space, H5P_DEFAULT, made, H5P_DEFAULT);
    if (set < 0)
        rc = sp_h5_fail(file, name, "cannot be created");
    else if (data && H5Dwrite(set, mem, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        rc = sp_h5_fail(file, name, "cannot be written");
    if (set >= 0)
        H5Dclose(set);
    H5Sclose(space);
    H5Pclose(made);
    return rc;
}

sp_status sp_h5_write(sp_h5 *file, const char *name, sp_h5_type type, int rank,
                      const int64_t *dim, const void *data)
{
    assert(file->is_written);
    assert(0 <= rank && rank <= SP_H5_RANK);
    sp_h5_enter();
    return h5_leave_written(
        file, name,
        make_set(file, name, sp_h5_native(type), rank, dim, sp_h5_native(type), data));
}

/* Writes rows: selects them in the file, and a block of the same size in memory. */
static sp_status h5_write_rows(sp_h5 *file, const char *name, hid_t set, int64_t first,
                               int64_t n, const void *data)
{
    hid_t type = H5Dget_type(set), space = H5Dget_space(set), block = H5I_INVALID_HID;
    hsize_t from[H5S_MAX_RANK] = {0}, size[H5S_MAX_RANK] = {0};
    int rank = H5Sget_simple_extent_dims(space, size, NULL);
    herr_t moved = -1;
    sp_status rc = SP_OK;

    if (rank > 0) {
        from[0] = (hsize_t)first;
        size[0] = (hsize_t)n;
        block = H5Screate_simple(rank, size, NULL);
        moved = H5Sselect_hyperslab(space, H5S_SELECT_SET, from, NULL, size, NULL);
        if (moved >= 0)
            moved = H5Dwrite(set, sp_h5_native(sp_h5_type_of(type)), block, space,
                             H5P_DEFAULT, data);
    }
    if (moved < 0)
        rc = sp_h5_fail(file, name, "cannot be written");
    if (block >= 0)
        H5Sclose(block);
    H5Tclose(type);
    H5Sclose(space);
    return rc;
}

sp_status sp_h5_write_rows(sp_h5 *file, const char *name, int64_t first, int64_t n,
                           const void *data)
{
    sp_status rc;
    hid_t set;

    assert(file->is_written);
    assert(first >= 0 && n >= 0 && (data || n == 0));
    if (n == 0)
        return SP_OK;
    sp_h5_enter();
    set = H5Dopen2(file->id, name, H5P_DEFAULT);
    if (set >= 0) {
        rc = h5_write_rows(file, name, set, first, n, data);
        H5Dclose(set);
    } else {
        rc = sp_h5_fail(file, name, "cannot be written");
    }
    return h5_leave_written(file, name, rc);
}

sp_status sp_h5_write_texts(sp_h5 *file, const char *name, int64_t n,
                            char *const *texts)
{
    SP_FREED char *block = NULL;
    size_t size = 1;
    hid_t type;
    sp_status rc;

    assert(file->is_written);
    assert(n >= 0 && (texts || n == 0));
    for (int64_t i = 0; i < n; i++)
        size = strlen(texts[i]) > size ? strlen(texts[i]) : size;
    SP_TRY(SP_NEW(&block, ((size_t)n + 1) * size, name));
    for (int64_t i = 0; i < n; i++)
        memcpy(block + (size_t)i * size, texts[i], strlen(texts[i]));
    sp_h5_enter();
    type = sp_h5_text_type(size, H5T_CSET_UTF8);
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    rc = make_set(file, name, type, 1, &n, type, block);
    H5Tclose(type);
    return h5_leave_written(file, name, rc);
}

/* ---- attributes ---- */

static sp_status make_attr(sp_h5 *file, const char *object, const char *name,
                           hid_t type, int n, const void *data)
{
    hsize_t size = n < 0 ? 1 : (hsize_t)n;
    hid_t space = n < 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &size, NULL);
    hid_t attr = H5Acreate_by_name(file->id, object, name, type, space, H5P_DEFAULT,
                                   H5P_DEFAULT, H5P_DEFAULT);
    sp_status rc = SP_OK;

    if (attr < 0 || H5Awrite(attr, type, data) < 0)
        rc = sp_h5_fail(file, name, "attribute cannot be written");
    if (attr >= 0)
        H5Aclose(attr);
    H5Sclose(space);
    return rc;
}

sp_status sp_h5_attr_write(sp_h5 *file, const char *object, const char *name,
                           sp_h5_type type, int n, const void *data)
{
    assert(file->is_written && data);
    sp_h5_enter();
    return h5_leave_written(file, name,
                            make_attr(file, object, name, sp_h5_native(type), n, data));
}

sp_status sp_h5_attr_write_texts(sp_h5 *file, const char *object, const char *name,
                                 int n, char *const *texts)
{
    hid_t type;
    sp_status rc;

    assert(file->is_written && texts);
    sp_h5_enter();
    type = sp_h5_text_type(0, H5T_CSET_UTF8);
    rc = make_attr(file, object, name, type, n, texts);
    H5Tclose(type);
    return h5_leave_written(file, name, rc);
}

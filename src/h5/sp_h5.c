#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "h5/sp_h5_internal.h"
#include "process/sp_pulse.h"

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
    sp_pulse_beat();
    return rc;
}

/* ---- failures ---- */

static herr_t take_text(unsigned n, const H5E_error2_t *error, void *text)
{
    if (n == 0 && error->desc)
        snprintf(text, 256, "%s", error->desc);
    return 0;
}

sp_status sp_h5_fail(const sp_h5 *file, const char *object, const char *what)
{
    char text[256] = "";
    sp_status code = file->is_written ? SP_EIO : SP_EDATA;

    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_text, text);
    H5Eclear2(H5E_DEFAULT);
    return SP_FAIL(code, "%s%s%s: %s%s%s", file->path, *object ? ":" : "", object, what,
                   *text ? ": HDF5: " : "", text);
}

/* ---- files ---- */

static hid_t access_list(void)
{
    hid_t list = H5Pcreate(H5P_FILE_ACCESS);

    H5Pset_libver_bounds(list, H5F_LIBVER_V110, H5F_LIBVER_V110);
    H5Pset_fclose_degree(list, H5F_CLOSE_STRONG);
    /* Parallel file systems are often mounted without flock; names are ours alone
     * anyway. */
    H5Pset_file_locking(list, false, true);
    /* Small writes go to the disk at once, so that they and not H5Dclose fail. */
    H5Pset_sieve_buf_size(list, 0);
    return list;
}

static sp_status make_handle(sp_h5 **file, const char *path, bool is_written)
{
    *file = calloc(1, sizeof **file);
    if (*file)
        (*file)->path = strdup(path);
    if (!*file || !(*file)->path) {
        free(*file);
        *file = NULL;
        return SP_FAIL(SP_EMEM, "%s: no memory", path);
    }
    (*file)->id = H5I_INVALID_HID;
    (*file)->is_written = is_written;
    return SP_OK;
}

void sp_h5_free(sp_h5 **file)
{
    free((*file)->path);
    free(*file);
    *file = NULL;
}

static sp_status open_read(sp_h5 *file)
{
    struct stat about;
    hid_t list;
    htri_t is_hdf5;
    sp_status rc = SP_OK;

    if (stat(file->path, &about) != 0)
        return SP_FAIL(SP_EDATA, "%s: %s", file->path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        return SP_FAIL(SP_EDATA, "%s: not a regular file", file->path);
    if (access(file->path, R_OK) != 0)
        return SP_FAIL(SP_EDATA, "%s: %s", file->path, strerror(errno));
    file->bytes = about.st_size;
    is_hdf5 = H5Fis_hdf5(file->path);
    if (is_hdf5 == 0)
        return SP_FAIL(SP_EDATA, "%s: not an HDF5 file", file->path);
    if (is_hdf5 < 0)
        return sp_h5_fail(file, "", "cannot be read");
    list = access_list();
    file->id = H5Fopen(file->path, H5F_ACC_RDONLY, list);
    if (file->id < 0) /* at once: the next call wipes the library's text */
        rc = sp_h5_fail(file, "", "cannot be opened");
    H5Pclose(list);
    return rc;
}

sp_status sp_h5_open(sp_h5 **file, const char *path)
{
    sp_status rc;

    SP_TRY(make_handle(file, path, false));
    sp_h5_enter();
    rc = sp_h5_leave(open_read(*file));
    if (rc != SP_OK)
        sp_h5_free(file);
    return rc;
}

/* A file or a link in its place is removed, so that nothing is written through a link.
 */
static sp_status open_new(sp_h5 *file)
{
    hid_t list, make;
    struct stat about;
    sp_status rc = SP_OK;

    SP_TRY(sp_h5_may_grow(file, 0));
    if (lstat(file->path, &about) == 0 &&
        (S_ISREG(about.st_mode) || S_ISLNK(about.st_mode)))
        unlink(file->path);
    list = access_list();
    make = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_obj_track_times(make, false);
    file->id = H5Fcreate(file->path, H5F_ACC_EXCL, make, list);
    if (file->id < 0)
        rc = sp_h5_fail(file, "", "cannot be created");
    H5Pclose(list);
    H5Pclose(make);
    return rc;
}

sp_status sp_h5_create(sp_h5 **file, const char *path)
{
    sp_status rc;

    SP_TRY(make_handle(file, path, true));
    sp_h5_enter();
    rc = sp_h5_leave(open_new(*file));
    if (rc != SP_OK)
        sp_h5_free(file);
    return rc;
}

const char *sp_h5_path(const sp_h5 *file)
{
    return file->path;
}

int64_t sp_h5_bytes(const sp_h5 *file)
{
    return file->bytes;
}

/* ---- names ---- */

/* Step by step, since the library fails where a group on the way is missing. */
bool sp_h5_exists(const sp_h5 *file, const char *name)
{
    char part[1024];
    size_t i = 0, n = strlen(name);

    if (strcmp(name, "/") == 0)
        return true;
    if (n >= sizeof part)
        return false;
    do {
        i++;
        if (i < n && name[i] != '/')
            continue;
        memcpy(part, name, i);
        part[i] = 0;
        if (H5Lexists(file->id, part, H5P_DEFAULT) <= 0)
            return false;
    } while (i < n);
    return true;
}

bool sp_h5_has(sp_h5 *file, const char *name)
{
    bool is_there;

    sp_h5_enter();
    is_there = sp_h5_exists(file, name);
    sp_h5_leave(SP_OK);
    return is_there;
}

typedef struct name_list {
    const char *group;
    char **at;
    int n, room;
} name_list;

static herr_t take_name(hid_t id, const char *name, const H5O_info_t *info,
                        void *context)
{
    name_list *list = context;
    size_t bytes = strlen(list->group) + strlen(name) + 2;
    char **more;

    (void)id;
    if (info->type != H5O_TYPE_DATASET)
        return 0;
    if (list->n == list->room) {
        more =
            realloc(list->at, sizeof *more * (size_t)(list->room += list->room + 64));
        if (!more)
            return -1;
        list->at = more;
    }
    list->at[list->n] = malloc(bytes);
    if (!list->at[list->n])
        return -1;
    snprintf(list->at[list->n++], bytes, "%s/%s",
             strcmp(list->group, "/") ? list->group : "", name);
    return 0;
}

sp_status sp_h5_list(sp_h5 *file, const char *group, char ***names, int *n)
{
    name_list list = {.group = group};
    sp_status rc = SP_OK;

    sp_h5_enter();
    if (sp_h5_exists(file, group) &&
        H5Ovisit_by_name2(file->id, group, H5_INDEX_NAME, H5_ITER_INC, take_name, &list,
                          H5O_INFO_BASIC, H5P_DEFAULT) < 0)
        rc = sp_h5_fail(file, group, "cannot be listed");
    sp_h5_leave(rc);
    if (rc != SP_OK) {
        sp_h5_list_free(list.at, list.n);
        list.at = NULL;
        list.n = 0;
    }
    *names = list.at;
    *n = list.n;
    return rc;
}

void sp_h5_list_free(char **names, int n)
{
    for (int i = 0; names && i < n; i++)
        free(names[i]);
    free(names);
}

/* ---- datasets ---- */

hid_t sp_h5_open_set(const sp_h5 *file, const char *name, sp_status *rc)
{
    hid_t set = H5I_INVALID_HID;

    if (!sp_h5_exists(file, name))
        *rc = SP_FAIL(SP_EDATA, "%s: missing dataset %s", file->path, name);
    else if ((set = H5Dopen2(file->id, name, H5P_DEFAULT)) < 0)
        *rc = sp_h5_fail(file, name, "not a readable dataset");
    else
        *rc = SP_OK;
    return set;
}

/* Chunks that were never written would read as zeros. */
static bool has_all_chunks(hid_t set, hid_t space, hid_t made, const sp_h5_shape *shape,
                           int64_t *chunk_bytes)
{
    hsize_t chunk[H5S_MAX_RANK], found = 0, expected = 1;

    *chunk_bytes = shape->type.size;
    if (shape->rank > SP_H5_RANK ||
        H5Pget_chunk(made, shape->rank, chunk) != shape->rank)
        return false;
    for (int i = 0; i < shape->rank; i++) {
        if (chunk[i] == 0 ||
            __builtin_mul_overflow(*chunk_bytes, (int64_t)chunk[i], chunk_bytes))
            return false;
        expected *= ((hsize_t)shape->dim[i] + chunk[i] - 1) / chunk[i];
    }
    if (expected == 0)
        return true;
    return H5Dget_num_chunks(set, space, &found) >= 0 && found == expected;
}

static void describe_layout(hid_t set, hid_t space, sp_h5_shape *shape)
{
    hid_t made = H5Dget_create_plist(set);
    haddr_t at;
    int64_t n = 1;

    shape->at = -1;
    for (int i = 0; i < shape->rank && i < SP_H5_RANK; i++)
        n = shape->dim[i] ? n : 0;
    switch (H5Pget_layout(made)) {
    case H5D_CONTIGUOUS:
        at = H5Dget_offset(set);
        shape->is_contiguous = H5Pget_external_count(made) == 0;
        if (n > 0 && at != HADDR_UNDEF && at <= INT64_MAX && shape->is_contiguous)
            shape->at = (int64_t)at;
        shape->is_complete = n == 0 || shape->at >= 0;
        break;
    case H5D_CHUNKED:
        sp_h5_missing_filter(made, shape->missing_filter);
        shape->is_complete =
            has_all_chunks(set, space, made, shape, &shape->chunk_bytes);
        break;
    case H5D_COMPACT:
        shape->is_complete = true;
        break;
    default:
        break;
    }
    H5Pclose(made);
}

static sp_status shape_of(const sp_h5 *file, const char *name, hid_t set,
                          sp_h5_shape *shape)
{
    hid_t type = H5Dget_type(set), space = H5Dget_space(set);
    hsize_t dim[H5S_MAX_RANK];
    sp_status rc = SP_OK;

    *shape = (sp_h5_shape){.rank = -1};
    if (type < 0 || space < 0) {
        rc = sp_h5_fail(file, name, "cannot be read");
    } else {
        shape->type = sp_h5_describe(type);
        if (H5Sget_simple_extent_type(space) != H5S_NULL)
            shape->rank = H5Sget_simple_extent_dims(space, dim, NULL);
        for (int i = 0; i < shape->rank && i < SP_H5_RANK; i++)
            shape->dim[i] = dim[i] > INT64_MAX ? INT64_MAX : (int64_t)dim[i];
        describe_layout(set, space, shape);
    }
    if (type >= 0)
        H5Tclose(type);
    if (space >= 0)
        H5Sclose(space);
    return rc;
}

sp_status sp_h5_shape_of(sp_h5 *file, const char *name, sp_h5_shape *shape)
{
    sp_status rc;
    hid_t set;

    sp_h5_enter();
    set = sp_h5_open_set(file, name, &rc);
    if (set >= 0) {
        rc = shape_of(file, name, set, shape);
        H5Dclose(set);
    }
    return sp_h5_leave(rc);
}

/* The groups above a dataset, by hand: those that the library makes on the way carry
 * the time. A failure shows when the dataset is made. */
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
        if (sp_h5_exists(file, part))
            continue;
        group = H5Gcreate2(file->id, part, H5P_DEFAULT, made, H5P_DEFAULT);
        if (group >= 0)
            H5Gclose(group);
    }
    H5Pclose(made);
}

sp_status sp_h5_make_set(sp_h5 *file, const char *name, hid_t type, int rank,
                         const int64_t *dim, hid_t mem, const void *data)
{
    hsize_t size[SP_H5_RANK] = {0};
    int64_t bytes = (int64_t)H5Tget_size(type);
    hid_t space, set, made;
    sp_status rc = SP_OK;

    for (int i = 0; i < rank; i++) {
        size[i] = (hsize_t)dim[i];
        bytes *= dim[i];
    }
    SP_TRY(sp_h5_may_grow(file, bytes));
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
    sp_h5_enter();
    return sp_h5_leave(sp_h5_make_set(file, name, sp_h5_native(type), rank, dim,
                                      sp_h5_native(type), data));
}

/* Select rows in the file and a block of the same size in memory. */
static sp_status move_rows(sp_h5 *file, const char *name, hid_t set, int64_t first,
                           int64_t n, void *read, const void *written)
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
        if (moved >= 0 && read)
            moved = H5Dread(set, type, block, space, H5P_DEFAULT, read);
        else if (moved >= 0)
            moved = H5Dwrite(set, sp_h5_native(sp_h5_describe(type)), block, space,
                             H5P_DEFAULT, written);
    }
    if (moved < 0)
        rc = sp_h5_fail(file, name, read ? "cannot be read" : "cannot be written");
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

    if (n == 0)
        return SP_OK;
    sp_h5_enter();
    set = sp_h5_open_set(file, name, &rc);
    if (set >= 0) {
        rc = move_rows(file, name, set, first, n, NULL, data);
        H5Dclose(set);
    }
    return sp_h5_leave(rc);
}

sp_status sp_h5_read_rows(sp_h5 *file, const char *name, int64_t first, int64_t n,
                          void *data)
{
    sp_status rc;
    hid_t set;

    if (n == 0)
        return SP_OK;
    sp_h5_enter();
    set = sp_h5_open_set(file, name, &rc);
    if (set >= 0) {
        rc = move_rows(file, name, set, first, n, data, NULL);
        H5Dclose(set);
    }
    return sp_h5_leave(rc);
}

static void print_shape(char *text, size_t size, int rank, const int64_t *dim)
{
    size_t used = (size_t)snprintf(text, size, "[");

    for (int i = 0; i < rank && i < SP_H5_RANK && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? "," : "",
                                 (long long)dim[i]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

static sp_status check_shape(const sp_h5 *file, const char *name,
                             const sp_h5_shape *have, int rank, const int64_t *dim)
{
    char want[96], found[96];
    bool is_same = have->rank == rank;

    for (int i = 0; is_same && i < rank; i++)
        is_same = have->dim[i] == dim[i];
    if (is_same)
        return have->type.kind == '?' || have->type.kind == 's'
                   ? SP_FAIL(SP_EDATA, "%s:%s: not of a number type", file->path, name)
                   : SP_OK;
    print_shape(want, sizeof want, rank, dim);
    print_shape(found, sizeof found, have->rank, have->dim);
    return SP_FAIL(SP_EDATA, "%s:%s: shape %s, expected %s", file->path, name, found,
                   want);
}

static sp_status read_set(sp_h5 *file, const char *name, hid_t set, sp_h5_type type,
                          int rank, const int64_t *dim, void *data)
{
    sp_h5_shape shape;

    SP_TRY(shape_of(file, name, set, &shape));
    SP_TRY(check_shape(file, name, &shape, rank, dim));
    if (H5Dread(set, sp_h5_native(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        return sp_h5_fail(file, name, "cannot be read");
    return SP_OK;
}

sp_status sp_h5_read(sp_h5 *file, const char *name, sp_h5_type type, int rank,
                     const int64_t *dim, void *data)
{
    sp_status rc;
    hid_t set;

    sp_h5_enter();
    set = sp_h5_open_set(file, name, &rc);
    if (set >= 0) {
        rc = read_set(file, name, set, type, rank, dim, data);
        H5Dclose(set);
    }
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

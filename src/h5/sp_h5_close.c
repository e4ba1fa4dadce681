/* Closing of files: a written file is on the disk afterwards, or there is an error and
 * HDF5 is nevertheless in order. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "h5/sp_h5_internal.h"

/* The bytes that HDF5 may add to a file while it closes it. */
enum { MARGIN = 1 << 16 };

/* Cuts off the room that was reserved beyond the file's end, and flushes the file.
 * Whoever may write in the folder could have put a link in the file's place, so links
 * are not followed. */
static sp_status to_disk(const char *path, int64_t bytes)
{
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    sp_status rc = SP_OK;

    if (fd < 0 || ftruncate(fd, bytes) != 0 || fsync(fd) != 0)
        rc =
            SP_FAIL(SP_EIO, "%s: cannot be flushed to disk: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return rc;
}

static int64_t size_of(const sp_h5 *file)
{
    hsize_t bytes = 0;

    H5Fget_filesize(file->id, &bytes);
    return (int64_t)bytes;
}

/* HDF5 crashes at the end of the process if a file could not be closed, and a file
 * cannot be closed on a full disk. The limit on the size of files (ulimit -f) holds for
 * every file of the process, files in memory included, so a write that would exceed it
 * must not even begin. */
sp_status sp_h5_may_grow(const sp_h5 *file, int64_t bytes)
{
    struct rlimit limit;
    const int64_t size = file->id >= 0 ? size_of(file) : 0;

    assert(bytes >= 0 && file->is_written);
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur > INT64_MAX)
        return SP_OK;
    if (bytes <= (int64_t)limit.rlim_cur - 2 * MARGIN - size)
        return SP_OK;
    return SP_FAIL(SP_EIO, "%s: cannot be written: %s (ulimit -f allows %lld bytes)",
                   file->path, strerror(EFBIG), (long long)limit.rlim_cur);
}

/* Reserves room on the disk for the rest of the data and for the library's additions.
 * If the disk is full, the file's descriptor is exchanged for a file in memory, so that
 * HDF5 can close it. */
static sp_status reserve_room(const sp_h5 *file)
{
    int *disk, memory, error;

    if (H5Fget_vfd_handle(file->id, H5P_DEFAULT, (void **)&disk) < 0)
        return SP_OK;
    do
        error = posix_fallocate(*disk, 0, (off_t)(size_of(file) + MARGIN));
    while (error == EINTR); /* a signal does not mean a full disk */
    if (error == 0 || error == EINVAL || error == EOPNOTSUPP)
        return SP_OK;
    /* The name is not the path, since such a name has 249 bytes at most. */
    memory = (int)syscall(SYS_memfd_create, "sp_h5", 0);
    if (memory >= 0) {
        dup2(memory, *disk);
        close(memory);
    }
    return SP_FAIL(SP_EIO, "%s: cannot be written: %s", file->path, strerror(error));
}

static sp_status close_written(sp_h5 *file)
{
    int64_t bytes;
    sp_status rc;

    sp_h5_enter();
    rc = reserve_room(file);
    if (H5Fflush(file->id, H5F_SCOPE_LOCAL) < 0 && rc == SP_OK)
        rc = sp_h5_fail(file, "", "cannot be written");
    bytes = size_of(file);
    if (H5Fclose(file->id) < 0 && rc == SP_OK)
        rc = sp_h5_fail(file, "", "cannot be closed");
    sp_h5_leave(rc);
    return rc == SP_OK ? to_disk(file->path, bytes) : rc;
}

sp_status sp_h5_close(sp_h5 *file)
{
    sp_status rc = SP_OK;

    if (!file)
        return SP_OK;
    if (file->is_written)
        rc = close_written(file);
    else if (file->fd >= 0)
        close(file->fd);
    sp_h5_cache_destroy(file->cache);
    sp_h5_catalog_free(&file->catalog);
    free(file->path);
    free(file);
    return rc;
}

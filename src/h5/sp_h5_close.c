/* Closing of files: a written file is on the disk afterwards, or there is an error and
 * HDF5 is nevertheless in order. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "h5/sp_h5_internal.h"

/* The file is flushed after HDF5 is left, since that may take long. */
static sp_status close_written(sp_h5 *file)
{
    sp_status rc = SP_OK;
    int fd, error;

    sp_h5_enter();
    if (H5Fclose(file->id) < 0)
        rc = sp_h5_fail(file, "", "cannot be closed");
    error = sp_h5_driver_error();
    fd = sp_h5_driver_file_take();
    sp_h5_leave(rc);
    if (fd >= 0 && !error && fsync(fd) != 0)
        error = errno;
    if (fd >= 0)
        close(fd);
    return rc == SP_OK && error ? sp_h5_fail_write(file, "", error) : rc;
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

/* Two file drivers (HDF5's "virtual file drivers").
 *
 * The one for reading differs from the library's own in two ways. It cannot open a
 * second file, so external links lead nowhere. And it keeps the system's error, so that
 * an unreadable file is not reported as damaged.
 *
 * The one for writing keeps the system's first error too, and the library does not
 * learn of it, since HDF5 crashes at the end of the process if it could not close a
 * file. After an error nothing more is written to the file. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "h5/sp_h5_internal.h"

typedef struct driven {
    H5FD_t base; /* the library wants it first */
    int fd;
    haddr_t end_of_addresses, bytes;
    haddr_t most; /* bytes of a file that is written (ulimit -f) */
    int error;    /* errno; 0: no error in writing */
} driven;

static int n_open;
static int first_error;      /* errno; 0: no error */
static int unclosed_fd = -1; /* of the written file that the library closed last */

static void note_error(void)
{
    if (first_error == 0)
        first_error = errno;
}

static H5FD_t *h5_driver_open_file(const char *name, unsigned flags, hid_t list,
                                   haddr_t most)
{
    driven *file;
    struct stat about;

    (void)list;
    (void)most;
    if (n_open > 0 || flags & H5F_ACC_RDWR || !(file = calloc(1, sizeof *file)))
        return NULL;
    file->fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd >= 0 && fstat(file->fd, &about) == 0 && S_ISREG(about.st_mode)) {
        file->bytes = (haddr_t)about.st_size;
        n_open++;
        return &file->base;
    }
    if (file->fd >= 0)
        close(file->fd);
    else
        note_error();
    free(file);
    return NULL;
}

static herr_t h5_close_file(H5FD_t *base)
{
    driven *file = (driven *)base;

    close(file->fd);
    free(file);
    n_open--;
    return 0;
}

static herr_t query(const H5FD_t *base, unsigned long *flags)
{
    (void)base;
    *flags = H5FD_FEAT_ACCUMULATE_METADATA_READ | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
}

static haddr_t get_end_of_addresses(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const driven *)base)->end_of_addresses;
}

static herr_t set_end_of_addresses(H5FD_t *base, H5FD_mem_t type, haddr_t end)
{
    (void)type;
    ((driven *)base)->end_of_addresses = end;
    return 0;
}

static haddr_t get_end_of_file(const H5FD_t *base, H5FD_mem_t type)
{
    (void)type;
    return ((const driven *)base)->bytes;
}

static herr_t h5_read_file(H5FD_t *base, H5FD_mem_t type, hid_t list, haddr_t at,
                           size_t bytes, void *to)
{
    const driven *file = (const driven *)base;
    char *out = to;
    ssize_t got;

    (void)type;
    (void)list;
    if (at > file->bytes || bytes > file->bytes - at)
        return -1;
    for (; bytes > 0; bytes -= (size_t)got, out += got, at += (haddr_t)got) {
        got = pread(file->fd, out, bytes, (off_t)at);
        if (got < 0 && errno == EINTR) {
            got = 0;
        } else if (got <= 0) {
            if (got < 0)
                note_error();
            return -1;
        }
    }
    return 0;
}

static herr_t refuse_to_write(H5FD_t *base, H5FD_mem_t type, hid_t list, haddr_t at,
                              size_t bytes, const void *from)
{
    (void)base;
    (void)type;
    (void)list;
    (void)at;
    (void)bytes;
    (void)from;
    return -1;
}

static const H5FD_class_t driver = {
    .name = "sptrain",
    .maxaddr = (haddr_t)INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .open = h5_driver_open_file,
    .close = h5_close_file,
    .query = query,
    .get_eoa = get_end_of_addresses,
    .set_eoa = set_end_of_addresses,
    .get_eof = get_end_of_file,
    .read = h5_read_file,
    .write = refuse_to_write,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

/* ---- writing ---- */

static H5FD_t *h5_driver_create_file(const char *name, unsigned flags, hid_t list,
                                     haddr_t most)
{
    driven *file = calloc(1, sizeof *file);
    struct rlimit limit;

    (void)flags;
    (void)list;
    (void)most;
    if (!file)
        return NULL;
    file->fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file->fd >= 0) {
        file->most = INT64_MAX;
        if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < INT64_MAX)
            file->most = limit.rlim_cur;
        return &file->base;
    }
    note_error();
    free(file);
    return NULL;
}

static herr_t h5_leave_open(H5FD_t *base)
{
    driven *file = (driven *)base;

    first_error = file->error;
    unclosed_fd = file->fd;
    free(file);
    return 0;
}

/* The features of the library's own driver, on which the layout of a file depends. */
static herr_t query_written(const H5FD_t *base, unsigned long *flags)
{
    (void)base;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
             H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA |
             H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
}

/* Bytes after the file's end are zeros, as the library expects. */
static herr_t h5_read_back(H5FD_t *base, H5FD_mem_t type, hid_t list, haddr_t at,
                           size_t bytes, void *to)
{
    driven *file = (driven *)base;
    const haddr_t end = at < file->bytes ? file->bytes : at;
    const size_t within = bytes < end - at ? bytes : (size_t)(end - at);

    memset(to, 0, bytes);
    if (!file->error && h5_read_file(base, type, list, at, within, to) < 0)
        file->error = first_error ? first_error : EIO;
    return 0;
}

static herr_t h5_write_file(H5FD_t *base, H5FD_mem_t type, hid_t list, haddr_t at,
                            size_t bytes, const void *from)
{
    driven *file = (driven *)base;
    const haddr_t end = at + bytes;
    ssize_t put;

    (void)type;
    (void)list;
    if (end > file->most && !file->error)
        file->error = EFBIG; /* the write would end the process (SIGXFSZ) */
    for (const char *in = from; at < end && !file->error; at += (haddr_t)put) {
        put = pwrite(file->fd, in + (bytes - (end - at)), end - at, (off_t)at);
        if (put <= 0 && !(put < 0 && errno == EINTR))
            file->error = put < 0 ? errno : EIO;
        put = put < 0 ? 0 : put;
    }
    file->bytes = end > file->bytes ? end : file->bytes;
    return 0;
}

static herr_t h5_truncate_file(H5FD_t *base, hid_t list, hbool_t is_closing)
{
    driven *file = (driven *)base;

    (void)list;
    (void)is_closing;
    if (file->end_of_addresses > file->most && !file->error)
        file->error = EFBIG;
    if (file->bytes != file->end_of_addresses && !file->error &&
        ftruncate(file->fd, (off_t)file->end_of_addresses) != 0)
        file->error = errno;
    file->bytes = file->end_of_addresses;
    return 0;
}

static herr_t get_error_of_writing(H5FD_t *base, hid_t list, void **error)
{
    (void)list;
    *error = &((driven *)base)->error;
    return 0;
}

static const H5FD_class_t writing_driver = {
    .name = "sptrain-writing",
    .maxaddr = (haddr_t)INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .open = h5_driver_create_file,
    .close = h5_leave_open,
    .query = query_written,
    .get_eoa = get_end_of_addresses,
    .set_eoa = set_end_of_addresses,
    .get_eof = get_end_of_file,
    .get_handle = get_error_of_writing,
    .read = h5_read_back,
    .write = h5_write_file,
    .truncate = h5_truncate_file,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

/* ---- property lists ---- */

static hid_t driver_list(const H5FD_class_t *which, hid_t *id)
{
    hid_t list = H5Pcreate(H5P_FILE_ACCESS);

    first_error = 0;
    if (*id < 0)
        *id = H5FDregister(which);
    H5Pset_driver(list, *id, NULL);
    H5Pset_fclose_degree(list, H5F_CLOSE_STRONG);
    return list;
}

hid_t sp_h5_driver_list(void)
{
    static hid_t id = H5I_INVALID_HID;

    return driver_list(&driver, &id);
}

hid_t sp_h5_writing_list(void)
{
    static hid_t id = H5I_INVALID_HID;

    return driver_list(&writing_driver, &id);
}

int sp_h5_driver_error(void)
{
    return first_error;
}

int sp_h5_driver_file_take(void)
{
    const int fd = unclosed_fd;

    unclosed_fd = -1;
    return fd;
}

/* A file driver for reading (HDF5's "virtual file driver"). It differs from the
 * library's own in two ways. It cannot open a second file, so external links lead
 * nowhere. And it keeps the system's error, so that an unreadable file is not reported
 * as damaged. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "h5/sp_h5_internal.h"

typedef struct driven {
    H5FD_t base; /* the library wants it first */
    int fd;
    haddr_t end_of_addresses, bytes;
} driven;

static int n_open;
static int first_error; /* errno; 0: no error */

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

hid_t sp_h5_driver_list(void)
{
    static hid_t id = H5I_INVALID_HID;
    hid_t list = H5Pcreate(H5P_FILE_ACCESS);

    first_error = 0;
    if (id < 0)
        id = H5FDregister(&driver);
    H5Pset_driver(list, id, NULL);
    H5Pset_fclose_degree(list, H5F_CLOSE_STRONG);
    return list;
}

int sp_h5_driver_error(void)
{
    return first_error;
}

/* What the files of the module sp_h5 share. Functions here expect the lock to be held,
 * except sp_h5_enter itself. */
#ifndef SP_H5_INTERNAL_H
#define SP_H5_INTERNAL_H

#include <hdf5.h>

#include "h5/sp_h5.h"

struct sp_h5 {
    hid_t id;
    char *path;
    bool is_written;
    int64_t bytes;
};

/* What deflate can shrink at most is 1032:1; nothing in a file holds more than this
 * times the file's size. */
enum { SP_H5_EXPANSION = 1100 };

/* Take the lock; hand on a status while giving it back. */
void sp_h5_enter(void);
sp_status sp_h5_leave(sp_status rc);

/* "FILE:object: what: text of the library", with the innermost line of its error stack.
 */
sp_status sp_h5_fail(const sp_h5 *file, const char *object, const char *what);
/* Frees the handle alone. */
void sp_h5_free(sp_h5 **file);
bool sp_h5_exists(const sp_h5 *file, const char *name);
/* Opens a dataset; *rc tells why not. */
hid_t sp_h5_open_set(const sp_h5 *file, const char *name, sp_status *rc);
/* SP_EIO where so many bytes more would not fit under the process's limit on the size
 * of files, with what HDF5 adds when it closes the file. */
sp_status sp_h5_may_grow(const sp_h5 *file, int64_t bytes);
/* A new dataset, filled where data is not NULL. */
sp_status sp_h5_make_set(sp_h5 *file, const char *name, hid_t type, int rank,
                         const int64_t *dim, hid_t mem, const void *data);

sp_h5_type sp_h5_describe(hid_t type);
/* The library's own constant for a number in memory; not to be closed. */
hid_t sp_h5_native(sp_h5_type type);
/* Name of a filter of a dataset (its creation properties) that the library lacks, "". */
void sp_h5_missing_filter(hid_t made, char name[SP_H5_FILTER]);

#endif

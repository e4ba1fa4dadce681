/* What the files of src/h5 share that call HDF5. Functions here expect the lock to be
 * held, except sp_h5_enter itself.
 *
 *     sp_h5.c           a file opened for reading: look-ups and values, without HDF5
 *     sp_h5_child.c     the limited child: HDF5 file --> catalog --> parent
 *     sp_h5_describe.c  HDF5 file --> catalog; sp_h5_driver.c: its view of the file
 *     sp_h5_catalog.c   a catalog as data, checked
 *     sp_h5_chunk.c     rows of chunks; sp_h5_filter.c: their filters undone
 *     sp_h5_number.c    numbers of any stored type; sp_h5_type.c: types as HDF5 has them
 *     sp_h5_write.c     writing; sp_h5_close.c: to the disk
 */
#ifndef SP_H5_INTERNAL_H
#define SP_H5_INTERNAL_H

#include <hdf5.h>

#include "h5/sp_h5.h"
#include "h5/sp_h5_catalog.h"

struct sp_h5 {
    char *path;
    bool is_written;
    hid_t id; /* of a file that is written */
    int fd;   /* of one that is read, with the next four */
    int64_t bytes;
    sp_h5_catalog catalog;
    sp_h5_unpacker *unpacker;
};

/* Take the lock; hand on a status while giving it back. */
void sp_h5_enter(void);
sp_status sp_h5_leave(sp_status rc);

/* The innermost line of the library's error stack, "HDF5: ..."; "" where there is none.
 * The stack is empty afterwards. */
void sp_h5_library_text(char *text, size_t size);
/* "FILE:object: what: text of the library". */
sp_status sp_h5_fail(const sp_h5 *file, const char *object, const char *what);

/* SP_EIO where so many bytes more would not fit under the process's limit on the size
 * of files, with what HDF5 adds when it closes the file. */
sp_status sp_h5_may_grow(const sp_h5 *file, int64_t bytes);

/* Everything that the file names into an empty catalog. What the library cannot read
 * gets its reason in the catalog. SP_EDATA where it is no HDF5 file that can be opened,
 * SP_EMEM. */
sp_status sp_h5_describe(const char *path, sp_h5_catalog *catalog);

/* The library's view of a file that is only read: of one file at a time, so that no
 * link leads to another. While chunks are looked for, their bytes are not read but
 * their places noted. */
hid_t sp_h5_driver_list(void); /* a file access list, to be closed */
void sp_h5_driver_look(bool is_looking);
/* Place of the last bytes that were asked for while looking. */
void sp_h5_driver_found(int64_t *at, int64_t *bytes);

sp_h5_type sp_h5_type_of(hid_t type);
/* The library's own constant for a number in memory; not to be closed. */
hid_t sp_h5_native(sp_h5_type type);
/* Text of a character set (the library converts none); size 0: of any size. */
hid_t sp_h5_text_type(size_t size, H5T_cset_t set);

#endif

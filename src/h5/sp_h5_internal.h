/* The declarations that the files of src/h5 share, with HDF5's own types. Functions
 * here expect the lock to be held, except sp_h5_enter itself.
 *
 *     sp_h5.c           a file opened for reading: look-ups and values, without HDF5
 *     sp_h5_child.c     the limited child: HDF5 file --> catalog --> parent
 *     sp_h5_describe.c  HDF5 file --> catalog
 *     sp_h5_driver.c    the file drivers through which HDF5 reads and writes files
 *     sp_h5_catalog.c   the catalog as bytes and as data, checked
 *     sp_h5_values.c    rows that are not contiguous, unpacked by HDF5 in the child
 *     sp_h5_cache.c     unpacked rows, kept
 *     sp_h5_number.c    numbers of any stored type; sp_h5_type.c: HDF5's types
 *     sp_h5_write.c     writing; sp_h5_close.c: flushing to disk and closing */
#ifndef SP_H5_INTERNAL_H
#define SP_H5_INTERNAL_H

#include <hdf5.h>

#include "h5/sp_h5.h"
#include "h5/sp_h5_catalog.h"
#include "h5/sp_h5_rows.h"

struct sp_h5 {
    char *path;
    bool is_written;
    hid_t id; /* HDF5's handle of a file that is written */
    int fd;   /* the descriptor of a file that is read; the next three are its too */
    int64_t bytes;
    sp_h5_catalog catalog;
    sp_h5_cache *cache; /* NULL until rows are unpacked */
};

/* Allocates *file with its path and without an open file. SP_EMEM, and *file is
 * NULL. */
sp_status sp_h5_begin(sp_h5 **file, const char *path);

/* The HDF5 library serves one thread at a time. sp_h5_enter acquires its lock;
 * sp_h5_leave releases it and returns its argument. No call between the two waits for
 * another rank. */
void sp_h5_enter(void);
sp_status sp_h5_leave(sp_status rc);

/* The innermost line of the library's error stack, as "HDF5: ...", or "" if the stack
 * is empty. Empties the stack. */
void sp_h5_library_text(char *text, size_t size);
/* Fails with "FILE:object: what: text of the library"; SP_EIO. */
sp_status sp_h5_fail(const sp_h5 *file, const char *object, const char *what);

/* Fails with "FILE:object: cannot be written: text of the system's error"; SP_EIO. */
sp_status sp_h5_fail_write(const sp_h5 *file, const char *object, int error);

/* Fails with the path and the text of the system's `error`: SP_EDATA if it says that
 * the path names no file, else SP_EIO. */
sp_status sp_h5_fail_system(const char *path, int error);

/* Fills an empty catalog with all that the file names. A part that the library cannot
 * read gets its reason in the catalog. SP_EDATA: this is no HDF5 file, or it is
 * damaged; SP_EIO: the system could not read a part of it; SP_EMEM. */
sp_status sp_h5_describe(const char *path, sp_h5_catalog *catalog);

/* Reads rows first .. first + n - 1 of a dataset in their stored type, unpacked, into
 * to [bytes]. The message names neither file nor dataset. SP_EDATA, SP_EIO, SP_EMEM. */
sp_status sp_h5_values(const char *path, const char *name, int64_t first, int64_t n,
                       int64_t bytes, void *to);

/* The driver that the library uses to read a file. It opens one file at a time, so that
 * no link leads to another file. */
hid_t sp_h5_driver_list(void); /* a file access property list; the caller closes it */
/* The same of the driver for new files. What H5Fget_vfd_handle gives is an int: errno of
 * the first write that failed, or 0. The library sees no failure. */
hid_t sp_h5_writing_list(void);
/* The first error (errno) of the system in opening or reading a file since the list was
 * made, or in writing the file that was closed since then; 0: no error. */
int sp_h5_driver_error(void);
/* The descriptor of the written file that the library has closed, which the caller
 * closes; -1: no file was closed. */
int sp_h5_driver_file_take(void);

sp_h5_type sp_h5_type_of(hid_t type);
/* HDF5's constant for a number in memory; it must not be closed. */
hid_t sp_h5_native(sp_h5_type type);
/* A new type for texts of a character set, which the library does not convert; size 0
 * is the variable size. The caller closes it. */
hid_t sp_h5_text_type(size_t size, H5T_cset_t set);

#endif

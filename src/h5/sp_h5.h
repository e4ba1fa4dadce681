/* HDF5 files. This room is the only place that includes hdf5.h.
 *
 *     write  sp_h5_create --> sp_h5_write, sp_h5_write_rows, sp_h5_attr_write
 *                         --> sp_h5_close    by HDF5, under one lock; fsync at the end
 *
 *     read   sp_h5_open   --> limited child: HDF5 reads headers --> catalog, checked
 *                         --> sp_h5_shape_of, sp_h5_read, sp_h5_attr_read
 *                         --> sp_h5_close    by look-ups in the catalog, pread
 *
 * HDF5 can crash, hang or use all memory on damaged files. So a child process of this
 * program with limits on time and memory reads the headers of a file that is opened. It
 * sends a catalog of the file's names, the places of values, and the attributes. This
 * process checks the catalog and reads contiguous values without HDF5. HDF5 unpacks all
 * other values in such a child too (h5/sp_h5_rows.h). Links to other files, external
 * storage and virtual datasets are refused by name. A file opened for reading belongs
 * to one thread at a time. Calls that write share one lock, because HDF5 is not
 * thread-safe here.
 *
 * Names of datasets are paths from the root; the object of an attribute is such a path,
 * a group's path, or "/". Files are written in the 1.10 format, which has checksums in
 * its headers; datasets are contiguous and nothing carries a time, so the same calls
 * give the same bytes. In a file opened for reading a failure is SP_EDATA if the path
 * names no file or the file is damaged, and SP_EIO, which says nothing about the file's
 * content, if the system cannot read it or it shrinks while it is read. In a file that
 * is written it is SP_EIO. */
#ifndef SP_H5_H
#define SP_H5_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sp_error.h"

#define SP_H5_SIGNATURE                                                                \
    "\x89HDF\r\n\x1a\n" /* the first bytes of most files, 8 of them */

typedef struct sp_h5 sp_h5; /* an open file */

/* The type of an element as a file stores it. */
typedef struct sp_h5_type {
    /* 'i' signed, 'u' unsigned, 'f' IEEE float, 's' text, '?' another type */
    char kind;
    int size;        /* bytes of an element */
    bool is_swapped; /* the byte order is not this machine's */
} sp_h5_type;

#define SP_H5_U8  ((sp_h5_type){'u', 1, false})
#define SP_H5_U16 ((sp_h5_type){'u', 2, false})
#define SP_H5_U32 ((sp_h5_type){'u', 4, false})
#define SP_H5_U64 ((sp_h5_type){'u', 8, false})
#define SP_H5_I32 ((sp_h5_type){'i', 4, false})
#define SP_H5_I64 ((sp_h5_type){'i', 8, false})
#define SP_H5_F32 ((sp_h5_type){'f', 4, false})
#define SP_H5_F64 ((sp_h5_type){'f', 8, false})

enum { SP_H5_RANK = 4 }; /* the most dimensions of a dataset that is read */

/* The chunks of a dataset that is not contiguous, which h5/sp_h5_rows.h unpacks. */
typedef struct sp_h5_chunks {
    int64_t rows; /* of a chunk; all rows if they are within the header; 0: no chunks */
    int64_t bytes; /* of a chunk unpacked, its part beyond the edge too */
} sp_h5_chunks;

/* The shape and the place of a dataset. */
typedef struct sp_h5_shape {
    sp_h5_type type;
    /* The number of dimensions; 0: a scalar; -1: no values, or more than are read. */
    int rank;
    int64_t dim[SP_H5_RANK];
    bool is_contiguous;
    /* The byte offset of the values if they are contiguous and not empty, else -1. */
    int64_t at;
    sp_h5_chunks chunks;
} sp_h5_shape;

/* Does the work of the child that reads headers and exits, if this process was started
 * as one. main calls it first of all, before MPI is touched, in every program that
 * opens a file (unit tests too). */
void sp_h5_child_main(int argc, char **argv);

/* From here on a child is kept for the next file that this thread opens, as long as it
 * finds no damage; a start of this program needs some 10 ms, most of it for loading
 * libraries. false ends it. */
void sp_h5_keep_child(bool is_wanted);

/* The version of the library, such as "1.10.8". */
const char *sp_h5_library(void);

/* Opens a file for reading, which starts a child process. *file is NULL after a
 * failure. */
sp_status sp_h5_open(sp_h5 **file, const char *path);
/* Opens the files one after the other, with one child for all, calls `use` with each
 * and closes it. Ends with the first failure, of a file or of `use`. */
sp_status sp_h5_open_each(char *const *paths, int n,
                          sp_status (*use)(sp_h5 *file, int i, void *context),
                          void *context);
/* Opens a file that this process has written: HDF5 reads its headers here, without a
 * child. */
sp_status sp_h5_open_own(sp_h5 **file, const char *path);
/* Creates the file, or empties an existing one. */
sp_status sp_h5_create(sp_h5 **file, const char *path);
/* Closes a file and frees it, after a failure too. A written file is flushed to disk
 * (fsync) first. NULL does nothing. */
sp_status sp_h5_close(sp_h5 *file);
/* Closes the file of a variable, for SP_CLOSED_BY. */
static inline void sp_h5_done(sp_h5 **file)
{
    sp_h5_close(*file);
}
const char *sp_h5_path(const sp_h5 *file);
/* The size of a file at the time when it was opened for reading. */
int64_t sp_h5_bytes(const sp_h5 *file);

/* True if the file names the object. A link that leads nowhere counts: it is damage,
 * not absence. */
bool sp_h5_has(sp_h5 *file, const char *name);
/* The paths ("/params/conv1/weight") of all datasets, sorted by name. The list is the
 * caller's, who frees it with sp_h5_list_free. */
sp_status sp_h5_list(sp_h5 *file, char ***names, int *n);
void sp_h5_list_free(char **names, int64_t n);
/* Returns the shape of a dataset. SP_EDATA with the reason if the values cannot be
 * read. */
sp_status sp_h5_shape_of(sp_h5 *file, const char *name, sp_h5_shape *shape);

/* Makes a group, and the groups above it, for its own attributes. */
sp_status sp_h5_write_group(sp_h5 *file, const char *name);
/* Makes a dataset and the groups above it, and writes its values. With data NULL the
 * values follow by sp_h5_write_rows. */
sp_status sp_h5_write(sp_h5 *file, const char *name, sp_h5_type type, int rank,
                      const int64_t *dim, const void *data);
/* Writes rows first .. first + n - 1, all columns, of elements of the dataset's type.
 */
sp_status sp_h5_write_rows(sp_h5 *file, const char *name, int64_t first, int64_t n,
                           const void *data);
/* Writes a dataset of n texts, stored at one size and padded with zeros. */
sp_status sp_h5_write_texts(sp_h5 *file, const char *name, int64_t n,
                            char *const *texts);

/* Reads a whole dataset of exactly this shape, converted to `type` from any type of
 * number. Floats are rounded; a value that an integer type does not hold is SP_EDATA.
 * The message about another shape names both shapes. */
sp_status sp_h5_read(sp_h5 *file, const char *name, sp_h5_type type, int rank,
                     const int64_t *dim, void *data);
/* Reads rows in the file's own type and byte order. */
sp_status sp_h5_read_rows(sp_h5 *file, const char *name, int64_t first, int64_t n,
                          void *data);
/* Reads a dataset of n texts, stored at a fixed or a variable size. Each is malloc'd
 * into texts[i]. */
sp_status sp_h5_read_texts(sp_h5 *file, const char *name, int64_t n, char **texts);
/* Finds the same texts: *texts is valid until the file is closed. */
sp_status sp_h5_find_texts(sp_h5 *file, const char *name, int64_t n,
                           char *const **texts);

bool sp_h5_attr_has(sp_h5 *file, const char *object, const char *name);
/* The number of elements; a scalar has 1. */
sp_status sp_h5_attr_count(sp_h5 *file, const char *object, const char *name,
                           int64_t *n);
/* Writes an attribute of n elements; n < 0 makes a scalar. The object must not have an
 * attribute of that name yet. */
sp_status sp_h5_attr_write(sp_h5 *file, const char *object, const char *name,
                           sp_h5_type type, int n, const void *data);
/* Writes texts of variable size (UTF-8), as h5py does; n < 0 makes a scalar of
 * texts[0]. */
sp_status sp_h5_attr_write_texts(sp_h5 *file, const char *object, const char *name,
                                 int n, char *const *texts);
/* Reads an attribute of exactly n elements, converted to `type`. */
sp_status sp_h5_attr_read(sp_h5 *file, const char *object, const char *name,
                          sp_h5_type type, int64_t n, void *data);
/* Reads an attribute that is one whole number, of any number type. */
sp_status sp_h5_attr_read_int(sp_h5 *file, const char *object, const char *name,
                              int64_t *value);
/* Reads an attribute of *n texts of fixed or variable size. Freed with sp_h5_list_free.
 */
sp_status sp_h5_attr_read_texts(sp_h5 *file, const char *object, const char *name,
                                char ***texts, int *n);
/* Reads an attribute of one text, malloc'd; NULL after a failure. */
sp_status sp_h5_attr_read_text(sp_h5 *file, const char *object, const char *name,
                               char **text);

#endif

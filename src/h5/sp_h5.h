/* HDF5, and nothing else of it elsewhere: the only module that includes hdf5.h.
 *
 *     sp_h5_create --> sp_h5_write, sp_h5_write_rows, sp_h5_attr_* --> sp_h5_close
 *                                                                     (to disk)
 *     sp_h5_open   --> sp_h5_shape_of, sp_h5_read, sp_h5_attr_*    --> sp_h5_close
 *
 * HDF5 crashes, hangs and eats memory on damaged files. So a limited child of this
 * program reads the headers of a file that is opened, and tells in a catalog what the
 * file names, where values lie, and the attributes; values are read without HDF5, by
 * pread and our own inflate. Links to other files, external storage and virtual
 * datasets are refused by name. A file that is read belongs to one thread at a time;
 * calls that write take one lock, because HDF5 here is not thread-safe.
 *
 * Names of datasets are paths from the root; the object of an attribute is such a path
 * or "/". Files are written in the 1.10 format (checksummed headers), datasets
 * contiguous, without any time stamp: the same calls give the same bytes. A failure is
 * SP_EDATA in a file opened for reading, SP_EIO in one that is being written.
 */
#ifndef SP_H5_H
#define SP_H5_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sp_error.h"

typedef struct sp_h5 sp_h5; /* an open file */

/* Type of an element. */
typedef struct sp_h5_type {
    char kind; /* 'i' signed, 'u' unsigned, 'f' IEEE float, 's' text, '?' anything else
                */
    int size;  /* bytes of an element as stored */
    bool is_swapped; /* byte order differs from this machine's */
} sp_h5_type;

#define SP_H5_U8  ((sp_h5_type){'u', 1, false})
#define SP_H5_U16 ((sp_h5_type){'u', 2, false})
#define SP_H5_U32 ((sp_h5_type){'u', 4, false})
#define SP_H5_U64 ((sp_h5_type){'u', 8, false})
#define SP_H5_I32 ((sp_h5_type){'i', 4, false})
#define SP_H5_I64 ((sp_h5_type){'i', 8, false})
#define SP_H5_F32 ((sp_h5_type){'f', 4, false})
#define SP_H5_F64 ((sp_h5_type){'f', 8, false})

enum { SP_H5_RANK = 4 }; /* dimensions that are read */

/* A dataset as it lies in its file. */
typedef struct sp_h5_shape {
    sp_h5_type type;
    int rank; /* -1: no data space */
    int64_t dim[SP_H5_RANK];
    bool is_contiguous;
    int64_t at; /* byte offset in the file if contiguous and not empty, else -1 */
} sp_h5_shape;

/* If this process was started as the child that reads headers: does its work and exits.
 * First thing in main, before MPI is touched, of every program that opens a file (unit
 * tests too). */
void sp_h5_child_main(int argc, char **argv);

/* The library's version, "1.10.8". */
const char *sp_h5_library(void);

/* Read only; sets *file NULL on failure. Costs a child process. */
sp_status sp_h5_open(sp_h5 **file, const char *path);
/* Each file in turn, by one child for all: `use` gets it opened, and it is closed
 * afterwards. Ends with the first failure, of a file or of `use`. */
sp_status sp_h5_open_each(char *const *paths, int n,
                          sp_status (*use)(sp_h5 *file, int i, void *context),
                          void *context);
/* A file that this process has written: HDF5 reads its headers here, without a child.
 */
sp_status sp_h5_open_own(sp_h5 **file, const char *path);
/* Makes the file or empties it. */
sp_status sp_h5_create(sp_h5 **file, const char *path);
/* A written file is flushed to disk (fsync) first. NULL is fine. Always frees. */
sp_status sp_h5_close(sp_h5 *file);
const char *sp_h5_path(const sp_h5 *file);
int64_t sp_h5_bytes(const sp_h5 *file); /* size when it was opened for reading */

/* True if the file names it, though it be by a link that leads nowhere: that is damage,
 * not absence. */
bool sp_h5_has(sp_h5 *file, const char *name);
/* Paths ("/params/conv1/weight") of all datasets below a group, sorted by name;
 * malloc'd, freed with sp_h5_list_free. A group that is absent holds none. */
sp_status sp_h5_list(sp_h5 *file, const char *group, char ***names, int *n);
void sp_h5_list_free(char **names, int n);
/* SP_EDATA with the reason where its values cannot be read. */
sp_status sp_h5_shape_of(sp_h5 *file, const char *name, sp_h5_shape *shape);
/* The table of a dataset's chunks (h5/sp_h5_rows.h), the caller's from now on; NULL
 * where it is contiguous. It is not read from this file any more. */
struct sp_h5_chunks;
sp_status sp_h5_take_chunks(sp_h5 *file, const char *name,
                            struct sp_h5_chunks **chunks);

/* Make a dataset (and the groups above it) and fill it. data NULL: room only, for rows.
 */
sp_status sp_h5_write(sp_h5 *file, const char *name, sp_h5_type type, int rank,
                      const int64_t *dim, const void *data);
/* Rows first .. first + n - 1 (all columns), elements of the type the dataset was made
 * with. */
sp_status sp_h5_write_rows(sp_h5 *file, const char *name, int64_t first, int64_t n,
                           const void *data);
/* Texts of one fixed size, padded with zeros. */
sp_status sp_h5_write_texts(sp_h5 *file, const char *name, int64_t n,
                            char *const *texts);

/* The whole dataset, converted to `type` (number to number): floats are rounded, what
 * an integer type does not hold is SP_EDATA. The message tells both shapes where it has
 * not exactly this one. */
sp_status sp_h5_read(sp_h5 *file, const char *name, sp_h5_type type, int rank,
                     const int64_t *dim, void *data);
/* Rows as stored: the file's own type and byte order. */
sp_status sp_h5_read_rows(sp_h5 *file, const char *name, int64_t first, int64_t n,
                          void *data);
/* n texts of fixed or any size from a dataset of n elements, each malloc'd into
 * texts[i]. */
sp_status sp_h5_read_texts(sp_h5 *file, const char *name, int64_t n, char **texts);

bool sp_h5_attr_has(sp_h5 *file, const char *object, const char *name);
/* Number of elements; a scalar has 1. */
sp_status sp_h5_attr_count(sp_h5 *file, const char *object, const char *name,
                           int64_t *n);
/* n < 0 makes a scalar. An attribute of that name must not be there yet. */
sp_status sp_h5_attr_write(sp_h5 *file, const char *object, const char *name,
                           sp_h5_type type, int n, const void *data);
/* Text of any size (UTF-8), as h5py writes it; n < 0 makes a scalar of texts[0]. */
sp_status sp_h5_attr_write_texts(sp_h5 *file, const char *object, const char *name,
                                 int n, char *const *texts);
/* Exactly n elements, converted to `type`. */
sp_status sp_h5_attr_read(sp_h5 *file, const char *object, const char *name,
                          sp_h5_type type, int64_t n, void *data);
/* One integer of any number type that holds an integral value. */
sp_status sp_h5_attr_read_int(sp_h5 *file, const char *object, const char *name,
                              int64_t *value);
/* *n texts, fixed or any size; free with sp_h5_list_free. */
sp_status sp_h5_attr_read_texts(sp_h5 *file, const char *object, const char *name,
                                char ***texts, int *n);

#endif

/* The limited child that reads HDF5 headers, and unpacks values that are not
 * contiguous. If the library crashes, hangs or uses all memory on a damaged file, only
 * the child dies. The child is this program, started again (sp_h5_child_main). Between
 * the files of src/h5.
 *
 *     parent --list: number and bytes of the paths, paths--> child
 *            <--frames: catalog or failure of each path in turn--
 *            --path, dataset, rows-->
 *            <--frame: rows or failure--
 *
 * A child that has answered all paths of a list without a failure can read another list
 * (sp_h5_keep_child). It ends when the parent's end of the socket is closed, so it does
 * not outlive a parent that was killed. */
#ifndef SP_H5_CHILD_H
#define SP_H5_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "h5/sp_h5_catalog.h"

typedef struct sp_h5_child {
    pid_t pid;
    int fd;
    int n_left;      /* paths that it has yet to answer */
    bool is_stalled; /* it sent nothing for so long that it is not waited for */
} sp_h5_child;

/* Starts a child for n paths. Call sp_h5_child_end after success. SP_EIO. */
sp_status sp_h5_child_start(sp_h5_child *child, char *const *paths, int n);
/* Receives the catalog of the next path, a file of this size; the catalog is not
 * checked yet. SP_EDATA with the child's message, or with how the child ended; SP_EMEM.
 */
sp_status sp_h5_child_next(sp_h5_child *child, const char *path, int64_t file_bytes,
                           sp_h5_catalog *catalog);
/* Keeps the child for the next list if that is wanted and it is as good as new;
 * otherwise kills it, whatever it is doing, and waits for its end. */
void sp_h5_child_end(sp_h5_child *child);

/* Rows first .. first + n - 1 of a dataset. */
typedef struct sp_h5_rows_request {
    const char *path;  /* the file, which fd has open too */
    const char *name;  /* the dataset's path in it */
    const char *where; /* begins every message */
    int fd;
    int64_t first, n;
    int64_t bytes;       /* of these rows, as stored */
    int64_t chunk_bytes; /* of a chunk unpacked */
} sp_h5_rows_request;

/* Reads the rows into to [request->bytes]. A child with pid 0 is started first, and one
 * that fails to answer is killed: its pid is 0 then. SP_EDATA, also if the child
 * crashed; SP_EIO: the file cannot be read, or the path names another file now;
 * SP_EMEM. */
sp_status sp_h5_child_rows(sp_h5_child *child, const sp_h5_rows_request *request,
                           void *to);
/* Kills the child and waits for its end; does nothing with pid 0. */
void sp_h5_child_kill(sp_h5_child *child);

/* The five functions above, in a process whose main has called sp_h5_child_main. NULL
 * in a program that only uses the library and must not be started again: there the
 * process itself reads headers and unpacks rows. */
typedef struct sp_h5_reader {
    sp_status (*start)(sp_h5_child *child, char *const *paths, int n);
    sp_status (*next)(sp_h5_child *child, const char *path, int64_t file_bytes,
                      sp_h5_catalog *catalog);
    void (*end)(sp_h5_child *child);
    sp_status (*rows)(sp_h5_child *child, const sp_h5_rows_request *request, void *to);
    void (*kill)(sp_h5_child *child);
} sp_h5_reader;
extern const sp_h5_reader *sp_h5_reader_child;

#endif

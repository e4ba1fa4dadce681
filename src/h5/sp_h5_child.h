/* The limited child that reads HDF5 headers. If the library crashes, hangs or takes all
 * memory on a damaged file, only the child dies. The child is this program, started
 * again (sp_h5_child_main). Between the files of src/h5.
 *
 *     parent --list: number and bytes of the paths, paths--> child
 *            <--frames: catalog or failure of each path in turn--
 *
 * A child that has answered all paths of a list without a failure can read another list
 * (sp_h5_keep_child). */
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
/* Keeps the child for the next list where that is wanted and it is as good as new;
 * otherwise kills it, whatever it is doing, and waits for its end. */
void sp_h5_child_end(sp_h5_child *child);

/* The three functions above, in a process whose main has called sp_h5_child_main. NULL in
 * a program that only uses the library, which must not be started again: there the
 * process itself reads the headers. */
typedef struct sp_h5_reader {
    sp_status (*start)(sp_h5_child *child, char *const *paths, int n);
    sp_status (*next)(sp_h5_child *child, const char *path, int64_t file_bytes,
                      sp_h5_catalog *catalog);
    void (*end)(sp_h5_child *child);
} sp_h5_reader;
extern const sp_h5_reader *sp_h5_reader_child;

#endif

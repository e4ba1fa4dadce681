/* The limited child that reads HDF5 headers: if the library crashes, hangs or eats
 * memory on a damaged file, only the child dies. It is this program started anew
 * (sp_h5_child_main). Between the files of src/h5.
 *
 *     parent --paths, ended by zero bytes--> child
 *            <--frames: catalog or failure of each path in turn--
 */
#ifndef SP_H5_CHILD_H
#define SP_H5_CHILD_H

#include <sys/types.h>

#include "h5/sp_h5_catalog.h"

typedef struct sp_h5_child {
    pid_t pid;
    int fd;
} sp_h5_child;

/* sp_h5_child_end after success. */
sp_status sp_h5_child_start(sp_h5_child *child, char *const *paths, int n);
/* The catalog of the next path, a file of this size; not checked yet. SP_EDATA with the
 * child's message, or with the way it ended. */
sp_status sp_h5_child_next(sp_h5_child *child, const char *path, int64_t file_bytes,
                           sp_h5_catalog *catalog);
/* Ends the child, whatever it is doing. */
void sp_h5_child_end(sp_h5_child *child);

#endif

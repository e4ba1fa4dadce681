/* What the reading child and its parent say to each other. Between sp_h5_child.c, the
 * parent's side, and sp_h5_child_serve.c, the child's. */
#ifndef SP_H5_CHILD_PROTOCOL_H
#define SP_H5_CHILD_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SP_H5_CHILD_WORD "--read-h5-headers" /* the only argument of a child */

/* Seconds of wall time for one file, and the most that a large file adds. */
enum { SP_H5_CHILD_WALL_S = 60, SP_H5_CHILD_MORE_S = 120 };

/* The bytes that follow are n texts, each with its zero byte: paths of the files to
 * describe, or with n_rows > 0 the path of a file and the name of a dataset. */
typedef struct sp_h5_list_head {
    uint64_t n, bytes;
    int64_t first, n_rows, rows_bytes, chunk_bytes;
} sp_h5_list_head;

/* The identity of the file that the child read. */
typedef struct sp_h5_identity {
    uint64_t device, inode;
    int64_t bytes;
} sp_h5_identity;

/* The head of each answer. */
typedef struct sp_h5_frame {
    /* The bytes that follow the frame are a catalog, rows, or a message. */
    uint64_t status, bytes, hash;
    sp_h5_identity file; /* of rows; a catalog has its own */
} sp_h5_frame;

/* Sends all the bytes; false if the other process has died. */
bool sp_h5_child_send(int fd, const void *data, size_t bytes);

#endif

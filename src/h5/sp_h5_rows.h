/* Rows of datasets that are not contiguous: stored in chunks, compressed, or within a
 * header. HDF5 itself unpacks them, in a limited child.
 *
 *     any thread of a rank: sp_h5_cache_read --> block in memory --> rows
 *                                |  not there
 *                                +--request--> child: H5Dread --rows--> block
 *
 * A block is the rows of a chunk or of several small chunks, with all columns. It is
 * unpacked once and kept while the cache has room. HDF5 may crash, hang or use all
 * memory on a damaged chunk: then the child dies, the file is reported as damaged, and
 * the next request starts another child. */
#ifndef SP_H5_ROWS_H
#define SP_H5_ROWS_H

#include "h5/sp_h5.h"

/* A dataset in chunks, of an open file. */
typedef struct sp_h5_packed {
    const void *key;  /* no other dataset that the cache is asked for has it */
    const char *path; /* of the file, which fd has open */
    int fd;
    const char *name;  /* the dataset's path in it */
    const char *where; /* begins every message */
    int64_t rows, row_bytes;
    sp_h5_chunks chunks;
} sp_h5_packed;

/* The rows that are unpacked together: the rows of 256 KiB of chunks, of one chunk at
 * least. */
int64_t sp_h5_block_rows(const sp_h5_chunks *chunks, int64_t row_bytes);

/* Unpacked blocks of any number of files, at most `most` bytes together (one block may
 * be larger), and the child that unpacks, which is started for the first block. Threads
 * may share a cache; it has a lock. *cache is NULL after a failure. SP_EMEM. */
typedef struct sp_h5_cache sp_h5_cache;
sp_status sp_h5_cache_create(sp_h5_cache **cache, int64_t most);
/* Reads rows first .. first + n - 1, which must exist, in their stored type. SP_EDATA:
 * the file is damaged; SP_EIO: it cannot be read, or the path names another file now;
 * SP_EMEM. */
sp_status sp_h5_cache_read(sp_h5_cache *cache, const sp_h5_packed *set, int64_t first,
                           int64_t n, void *to);
/* The number of bytes that were unpacked so far. */
int64_t sp_h5_cache_unpacked(sp_h5_cache *cache);
/* Ends the child and frees the blocks. NULL is allowed. */
void sp_h5_cache_destroy(sp_h5_cache *cache);

#endif

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

#include "base/sp_serial.h"
#include "h5/sp_h5.h"

enum {
    /* The bytes that a chunk may have unpacked: SP_H5_CHUNK, in larger files
     * SP_H5_CHUNK_FACTOR times the size of the file. */
    SP_H5_CHUNK = 64 << 20,
    SP_H5_CHUNK_FACTOR = 4,
};

/* A dataset that is not contiguous. */
typedef struct sp_h5_chunks {
    uint64_t serial; /* a number that no other table of this process has */
    char *name;      /* the dataset's path in its file */
    int64_t dim[SP_H5_RANK];
    int32_t rank, type_size;
    int64_t rows;  /* the rows of a chunk; all rows if they are within the header */
    int64_t bytes; /* the bytes of a chunk unpacked, its part beyond the edge too */
} sp_h5_chunks;

/* True if every number of the table is possible in a file of this size; else `why`
 * names the wrong one. A table that passed is safe for reading, whatever its origin. */
bool sp_h5_chunks_check(const sp_h5_chunks *chunks, int64_t file_bytes, char *why,
                        size_t size);
/* Writes a table to bytes, or reads it from bytes; NULL stays NULL. */
void sp_h5_chunks_serialize(sp_serial *serial, sp_h5_chunks **chunks);
void sp_h5_chunks_free(sp_h5_chunks *chunks);
/* The rows that are unpacked together: the rows of 256 KiB of chunks, of one chunk at
 * least. */
int64_t sp_h5_chunks_block(const sp_h5_chunks *chunks);
/* The bytes of n rows. */
int64_t sp_h5_chunks_bytes(const sp_h5_chunks *chunks, int64_t n);

/* Unpacked blocks of any number of files, at most `most` bytes together (one block may
 * be larger), and the child that unpacks, which is started for the first block. Threads
 * may share a cache; it has a lock. *cache is NULL after a failure. SP_EMEM. */
typedef struct sp_h5_cache sp_h5_cache;
sp_status sp_h5_cache_create(sp_h5_cache **cache, int64_t most);
/* Reads rows first .. first + n - 1, which must exist, in their stored type; fd is open
 * on the file and path is its name. `where` begins every message. SP_EDATA: the file is
 * damaged; SP_EIO: it cannot be read, or the path names another file now; SP_EMEM. */
sp_status sp_h5_cache_read(sp_h5_cache *cache, const sp_h5_chunks *chunks,
                           const char *path, int fd, const char *where, int64_t first,
                           int64_t n, void *to);
/* The number of bytes that were unpacked so far. */
int64_t sp_h5_cache_unpacked(sp_h5_cache *cache);
/* Ends the child and frees the blocks. NULL is allowed. */
void sp_h5_cache_destroy(sp_h5_cache *cache);

#endif

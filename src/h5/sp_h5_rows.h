/* Rows of datasets that are stored in chunks, read without HDF5.
 *
 *     child: index of chunks --> sp_h5_chunks --broadcast--> every rank
 *     any thread of any rank: pread of a stored chunk --> checksum, inflate, unshuffle
 *                             --> band: the rows of all chunks side by side --> rows
 *
 * HDF5 crashes on some damaged files while it reads chunks, so nothing of a chunk
 * passes through it. Deflate, shuffle and Fletcher-32 are undone here; datasets of
 * other filters are refused by name when the file is opened.
 */
#ifndef SP_H5_ROWS_H
#define SP_H5_ROWS_H

#include "base/sp_wire.h"
#include "h5/sp_h5.h"

enum {
    SP_H5_FILTERS = 8,     /* most in one pipeline */
    SP_H5_BAND = 64 << 20, /* bytes of a band that any file may ask for */
    SP_H5_BAND_FACTOR = 4, /* and larger files this times their size */
};

/* A step of the pipeline, in the order of writing. */
typedef struct sp_h5_filter {
    int32_t id;
    uint32_t element_bytes; /* of shuffle */
} sp_h5_filter;

/* A dataset in chunks, or the bytes of a compact one. */
typedef struct sp_h5_chunks {
    uint64_t serial; /* no other table of this process has it */
    int64_t dim[SP_H5_RANK], chunk[SP_H5_RANK];
    int32_t rank, type_size, n_filters;
    sp_h5_filter filter[SP_H5_FILTERS];
    int64_t n;              /* chunks, the last dimension fastest; 0: compact */
    int64_t *at;            /* [n] byte offset in the file */
    uint32_t *bytes;        /* [n] as stored */
    uint32_t *mask;         /* [n] bit i: filter i was left out */
    unsigned char *compact; /* [compact_bytes] */
    int64_t compact_bytes;
} sp_h5_chunks;

/* Chunks of a grid that holds all of the dataset, -1 where that overflows. */
int64_t sp_h5_chunks_count(const sp_h5_chunks *chunks);
/* Whether every number of the table makes sense in a file of this size; `why` says what
 * does not. After this the table is safe to read with, whatever it came from. */
bool sp_h5_chunks_check(const sp_h5_chunks *chunks, int64_t file_bytes, char *why,
                        size_t size);
/* Writes or reads a table; *chunks NULL stays NULL. */
void sp_h5_chunks_wire(sp_wire *wire, sp_h5_chunks **chunks);
void sp_h5_chunks_free(sp_h5_chunks *chunks);

/* Buffers of a reader, with the bands that it read last. One thread at a time. NULL
 * before the first use; they grow and are kept, so that a reader that comes back to
 * chunks of the same size allocates nothing. */
typedef struct sp_h5_unpacker sp_h5_unpacker;

/* Rows first .. first + n - 1, which exist, as stored. `where` begins every message.
 * SP_EDATA where the chunk is damaged, SP_EIO where the file cannot be read, SP_EMEM.
 */
sp_status sp_h5_unpack(sp_h5_unpacker **unpacker, const sp_h5_chunks *chunks, int fd,
                       const char *where, int64_t first, int64_t n, void *to);
void sp_h5_unpacker_free(sp_h5_unpacker *unpacker);

#endif

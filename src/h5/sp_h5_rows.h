/* Rows of datasets that are stored in chunks, read without HDF5.
 *
 *     child: index of chunks --> sp_h5_chunks --broadcast--> every rank
 *     any thread of any rank: pread of a stored chunk --> checksum, inflate, unshuffle
 *                             --> band: the rows of all chunks side by side --> rows
 *
 * HDF5 crashes on some damaged files while it reads chunks, so it never sees the bytes
 * of one. Deflate, shuffle and Fletcher-32 are undone here; a dataset with another
 * filter is refused by name when its file is opened. */
#ifndef SP_H5_ROWS_H
#define SP_H5_ROWS_H

#include "base/sp_wire.h"
#include "h5/sp_h5.h"

enum {
    SP_H5_FILTERS = 8, /* the most filters of a dataset */
    /* The bytes that a band may have: SP_H5_BAND, in larger files SP_H5_BAND_FACTOR
     * times the size of the file. */
    SP_H5_BAND = 64 << 20,
    SP_H5_BAND_FACTOR = 4,
};

/* A filter of the pipeline, which stands in the order of writing. */
typedef struct sp_h5_filter {
    int32_t id;
    uint32_t element_bytes; /* the size of an element, for shuffle */
} sp_h5_filter;

/* The table of a dataset's chunks, or the values of a compact dataset themselves. */
typedef struct sp_h5_chunks {
    uint64_t serial; /* a number that no other table of this process has */
    int64_t dim[SP_H5_RANK], chunk[SP_H5_RANK];
    int32_t rank, type_size, n_filters;
    sp_h5_filter filter[SP_H5_FILTERS];
    int64_t n;   /* number of chunks, the last dimension counts fastest; 0: compact */
    int64_t *at; /* [n] byte offset of a chunk in the file */
    uint32_t *bytes; /* [n] bytes of a chunk as stored */
    uint32_t *mask;  /* [n] bit i: filter i was not applied to the chunk */
    /* [compact_bytes] the values of a compact dataset, else NULL */
    unsigned char *compact;
    int64_t compact_bytes;
} sp_h5_chunks;

/* The number of chunks that cover the dataset; -1 where it overflows. */
int64_t sp_h5_chunks_count(const sp_h5_chunks *chunks);
/* True if every number of the table is possible in a file of this size; else `why` says
 * which is not. A table that passed is safe to read with, wherever it came from. */
bool sp_h5_chunks_check(const sp_h5_chunks *chunks, int64_t file_bytes, char *why,
                        size_t size);
/* Writes a table to bytes, or reads it from bytes; NULL stays NULL. */
void sp_h5_chunks_wire(sp_wire *wire, sp_h5_chunks **chunks);
void sp_h5_chunks_free(sp_h5_chunks *chunks);

/* The buffers of one thread that reads, with the bands that it read last. A pointer to
 * it is NULL before the first use. The buffers grow and stay, so that a thread that
 * returns to chunks of the same size allocates nothing. */
typedef struct sp_h5_unpacker sp_h5_unpacker;

/* Reads rows first .. first + n - 1, which must exist, as they are stored. `where`
 * begins every message. SP_EDATA: the chunk is damaged; SP_EIO: the file cannot be
 * read; SP_EMEM. */
sp_status sp_h5_unpack(sp_h5_unpacker **unpacker, const sp_h5_chunks *chunks, int fd,
                       const char *where, int64_t first, int64_t n, void *to);
void sp_h5_unpacker_free(sp_h5_unpacker *unpacker);

#endif

/* Chunks of a file: their places, and the decoding of one. Only the files of this folder
 * include it. */
#ifndef SP_LAZ_CHUNK_H
#define SP_LAZ_CHUNK_H

#include "scan/laz/sp_laz_codec.h"

/* The chunks of a file, as far as a table gives them. Without a table, a chunk with
 * length -1 ends somewhere before the end of the file. */
typedef struct laz_table {
    bool is_there;
    int64_t n_chunks;
    sp_laz_place *chunk; /* [n_chunks] */
    int64_t begin;       /* the first byte of the first chunk */
    int64_t end;      /* the first byte after the table; without one, the file's end */
    int64_t file_end; /* the file's end; bytes may follow the table */
} laz_table;

/* Reads the chunk table. A table that was never written, since a writer was cut off, is
 * not there. SP_EDATA: it contradicts the file or the number of points; SP_EIO;
 * SP_EMEM. */
sp_status sp_laz_table_read(laz_table *table, const sp_laz_file *file,
                            const sp_laz_format *format);
void sp_laz_table_destroy(laz_table *table);
/* Encodes the table of n chunks, using their n and bytes, into *bytes, malloc'd for the
 * caller. SP_EMEM. */
sp_status sp_laz_table_write(const sp_laz_place *chunk, int64_t n_chunks,
                             const sp_laz_format *format, unsigned char **bytes,
                             size_t *n);

/* SP_EDATA: the header counts fewer points than the chunks hold, which are `least` or
 * more. */
sp_status sp_laz_count_is_low(const sp_laz_file *file, int64_t least);
/* Reads exactly n bytes of the file from byte `at` on. SP_EDATA: it ends before;
 * SP_EIO. */
sp_status sp_laz_pread(const sp_laz_file *file, void *to, size_t n, int64_t at);

/* A file that has or gets chunks at their places in the file of the points
 * (sp_laz_copy). */
typedef struct laz_copy {
    const char *path; /* NULL: there is none */
    int fd;
    bool is_complete; /* chunks are read from it; else they are written to it */
} laz_copy;

/* A chunk on the way from the file into records. */
typedef struct laz_decoder {
    const sp_laz_file *file;
    const laz_copy *copy;
    laz_codec codec;
    laz_input input;      /* pointwise */
    unsigned char *bytes; /* layered: the chunk */
    size_t room;
    int64_t number;     /* of the chunk, for messages */
    sp_laz_place place; /* a length that is not known is set at the end of the chunk */
    int64_t done;       /* points decoded */
    bool is_first;      /* the next point is the first, which is in codec.last */
} laz_decoder;

/* Creates a decoder of one thread; file, copy and format are borrowed. SP_EMEM; destroy
 * after failure too. */
sp_status sp_laz_decoder_create(laz_decoder *d, const sp_laz_file *file,
                                const laz_copy *copy, const sp_laz_format *format);
void sp_laz_decoder_destroy(laz_decoder *d);
/* Begins chunk `number` of the file (for messages) and copies its place. If its length
 * is not known (-1), it lies before byte `end`. SP_EDATA; SP_EIO; SP_EMEM. */
sp_status sp_laz_decoder_begin(laz_decoder *d, int64_t number,
                               const sp_laz_place *place, int64_t end);
/* Decodes the next n points, at most the remaining ones (place.n - done). After the
 * last one the end of the chunk is checked. SP_EDATA: damaged; SP_EIO; SP_EMEM. */
sp_status sp_laz_decoder_next(laz_decoder *d, unsigned char *records, int64_t n);

#endif

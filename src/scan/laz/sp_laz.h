/* LAZ: the compressed form of LAS point records, read and written.
 *
 *     file   | LAS header, VLRs | table at | chunk | chunk | ... | chunk table | EVLRs
 *                     |             8 bytes   |                      |
 *              sp_laz_format               points               sp_laz_table
 *              (the LAZ VLR)
 *
 *     sp_laz_open --> sp_laz_next ...  --> records          threads decode chunks ahead
 *     sp_laz_create --> sp_laz_write ... --> sp_laz_finish  threads encode chunks
 *
 * A record is as long as in the LAS file and has its bytes; the caller interprets the
 * fields, the LAS header and all VLRs but the LAZ VLR. Chunks are independent of each
 * other: each begins with an uncoded record. Two compressors exist: for point formats 0
 * to 5, with the fields of a point after each other in one stream ("pointwise"), and
 * for formats 6 to 10, in which every field has a stream of its own ("layered"). The
 * sources have this order:
 *
 *     sp_laz_coder.*      arithmetic coder, models of symbols
 *     sp_laz_field.h      integers, medians, GPS times, colours, wave packets
 *     sp_laz_pointwise.c, sp_laz_layered.c    the points of a chunk
 *     sp_laz_format.c     the VLR        sp_laz_table.c   the chunk table
 *     sp_laz_chunk.c      a chunk of a file, in portions
 *     sp_laz_read.c, sp_laz_write.c           the threads
 *
 * Damage. LAZ has no checksums. Every number from the file is checked before it is
 * used, and a damaged file gives SP_EDATA with file, chunk and point, or other points;
 * never a crash, and no memory beyond some hundred times the file. Noticed are: a chunk
 * whose bytes do not suffice or are not all used, a stream that ends otherwise than
 * encoders end, bits that no encoder writes, sizes that contradict each other. Damage
 * inside a stream is noticed by these in most cases, since all that follows it is
 * decoded from wrong positions; not noticed is damage if its wrong decoding ends, by
 * chance, in the same place and in the same way, and damage in the first record of a
 * chunk, which is not coded. */
#ifndef SP_LAZ_H
#define SP_LAZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/sp_error.h"

/* The VLR: its user ID, its record ID, and the most bytes that one may have here. */
#define SP_LAZ_USER_ID "laszip encoded"
enum {
    SP_LAZ_RECORD_ID = 22204,
    SP_LAZ_ITEMS = 6, /* parts of a record, at most */
    SP_LAZ_VLR_BYTES = 34 + 6 * SP_LAZ_ITEMS,
    SP_LAZ_CHUNK = 50000 /* points of a chunk, unless the file says otherwise */
};

typedef enum sp_laz_compressor {
    SP_LAZ_STREAM = 1,    /* pointwise, all points in one chunk, without a table */
    SP_LAZ_POINTWISE = 2, /* in chunks */
    SP_LAZ_LAYERED = 3
} sp_laz_compressor;

/* The parts of a record, as numbered in files. */
typedef enum sp_laz_type {
    SP_LAZ_BYTE = 0,
    SP_LAZ_POINT10 = 6,
    SP_LAZ_GPSTIME11 = 7,
    SP_LAZ_RGB12 = 8,
    SP_LAZ_WAVEPACKET13 = 9,
    SP_LAZ_POINT14 = 10,
    SP_LAZ_RGB14 = 11,
    SP_LAZ_RGBNIR14 = 12,
    SP_LAZ_WAVEPACKET14 = 13,
    SP_LAZ_BYTE14 = 14
} sp_laz_type;

typedef struct sp_laz_item {
    sp_laz_type type;
    int bytes, version;
    int at; /* its first byte in the record */
} sp_laz_item;

/* How the points of a file are compressed. */
typedef struct sp_laz_format {
    sp_laz_compressor compressor;
    uint32_t chunk_points; /* UINT32_MAX: chunks differ, the table has their sizes */
    int record_bytes;
    int n_items;
    sp_laz_item item[SP_LAZ_ITEMS];
} sp_laz_format;

/* Reads the content of a VLR. The items must match a point format 0 to 10 with records
 * of this length. SP_EDATA: it is damaged, or of a kind unknown here. */
sp_status sp_laz_format_read(sp_laz_format *format, const char *path,
                             const unsigned char *vlr, size_t bytes, int point_format,
                             int record_bytes);
/* The format that writers use today: chunks of SP_LAZ_CHUNK points, items of version 2
 * (point formats 0 to 5) or 3. record_bytes is at least the point format's length. */
void sp_laz_format_default(sp_laz_format *format, int point_format, int record_bytes);
/* The nearest format that is written: chunks, and no items of version 1. */
void sp_laz_format_current(sp_laz_format *format);
/* Writes the content of the VLR into vlr and returns its length. */
size_t sp_laz_format_write(const sp_laz_format *format,
                           unsigned char vlr[SP_LAZ_VLR_BYTES]);

/* ---- reading ---- */

/* The compressed points of a file; the path is for messages. All is borrowed until
 * sp_laz_close. */
typedef struct sp_laz_file {
    const char *path;
    int fd;
    int64_t file_bytes;
    int64_t at;       /* the first byte of the points, which the LAS header has */
    int64_t n_points; /* of the LAS header */
} sp_laz_file;

typedef struct sp_laz_reader sp_laz_reader;

/* Opens the points of a file and reads the chunk table, if there is one. n_threads
 * threads decode, which start at the first read; 1: the caller's alone. Memory: a chunk
 * for each thread, at most a MiB for its points, and the bytes of the chunk. */
sp_status sp_laz_open(sp_laz_reader **reader, const sp_laz_file *file,
                      const sp_laz_format *format, int n_threads);
void sp_laz_close(sp_laz_reader *reader);
/* Reads the next points, at most max, as consecutive records; *n is 0 after the last
 * one. SP_EDATA: damaged; SP_EIO; SP_EMEM. After an error nothing more can be read. */
sp_status sp_laz_next(sp_laz_reader *reader, int64_t max, unsigned char *records,
                      int64_t *n);
/* A chunk: its first point and number of points; its first byte in the file and its
 * length. */
typedef struct sp_laz_place {
    int64_t first, n;
    int64_t at, bytes;
} sp_laz_place;

/* The chunks of the file, *n of them (n NULL: the caller knows), in a list that the
 * reader owns; NULL if the file has no table. */
const sp_laz_place *sp_laz_chunks(const sp_laz_reader *reader, int64_t *n);
/* Drops the chunks that are not wanted [chunks]; the others are numbered anew, and so
 * are their points. There is a chunk table, and nothing was read. Returns the number of
 * points. */
int64_t sp_laz_keep(sp_laz_reader *reader, const bool *is_wanted);
/* From now on each chunk that is read is also written to the file `path`, at its place in
 * the file of the points; with is_copied all are read from there. Several readers may
 * write to one. Only layered chunks are, and nothing was read yet. The path is borrowed.
 * SP_EIO. */
sp_status sp_laz_copy(sp_laz_reader *reader, const char *path, bool is_copied);
/* Goes back to the first point that is read, and frees the memory of decoding. */
sp_status sp_laz_rewind(sp_laz_reader *reader);
/* Reads the chunks first, first + step, ... below `end` only, from the first on. There
 * is a chunk table; end is at most the number of its chunks. */
sp_status sp_laz_select(sp_laz_reader *reader, int64_t first, int64_t end,
                        int64_t step);
/* The bytes after the points and the chunk table, *at .. *end - 1, where EVLRs are;
 * empty without a table, since the end of the points is then unknown. */
void sp_laz_rest(const sp_laz_reader *reader, int64_t *at, int64_t *end);

/* ---- writing ---- */

typedef struct sp_laz_writer sp_laz_writer;

/* Begins to write points at the place where `to` is, which is the place that the LAS
 * header gives. The file has to be one that can be sought; path is for messages. Both
 * are borrowed until sp_laz_abandon. n_threads threads encode; 1: the caller. The items
 * have to be of version 2 or later, as sp_laz_format_current makes them. Memory: a
 * chunk for each thread. SP_EIO; SP_EMEM. */
sp_status sp_laz_create(sp_laz_writer **writer, const char *path, FILE *to,
                        const sp_laz_format *format, int n_threads);
/* Writes n records. A chunk ends after format.chunk_points of them, and, if chunks may
 * differ, with each call of sp_laz_cut. */
sp_status sp_laz_write(sp_laz_writer *writer, const unsigned char *records, int64_t n);
sp_status sp_laz_cut(sp_laz_writer *writer);
/* Writes a chunk of n points that is encoded already, in the writer's format. */
sp_status sp_laz_put(sp_laz_writer *writer, const unsigned char *chunk, int64_t bytes,
                     int64_t n);
/* Writes the remaining points and the chunk table; `to` is then after it. */
sp_status sp_laz_finish(sp_laz_writer *writer);
/* The chunks that were written, n of them, in a list that the writer owns. */
const sp_laz_place *sp_laz_written(const sp_laz_writer *writer, int64_t *n);
/* Frees the writer, in whatever state it is. */
void sp_laz_abandon(sp_laz_writer *writer);

#endif

/* A copy of a LAS or LAZ file while it is written: sp_scan_las_write.c has the file,
 * sp_scan_las_points.c its points, sp_scan_las_rest.c what follows them. Only these
 * three and sp_scan_copc.c include it.
 *
 *     one writer     head, points, rest
 *     n writers      part k: the points of the sections k, k + n, ... of the rows, in a
 *                    file of its own (with LAZ: only chunks and their table)
 *                    at the end: head, the sections of all parts in turn, rest
 */
#ifndef SP_SCAN_LAS_COPY_H
#define SP_SCAN_LAS_COPY_H

#include "scan/sp_scan_las.h"

/* The user of the records of COPC. */
#define SP_LAS_COPC "copc"

typedef struct sp_las_copy {
    sp_scan *scan;
    const char *path;
    FILE *to;
    const sp_las_header *header; /* of the source */
    const sp_scan_labels *labels;
    sp_las_extra extra;
    bool is_laz;         /* the copy */
    unsigned char *head; /* the new header and VLRs */
    size_t head_bytes;
    sp_laz_format format;
    bool is_copc;              /* the copy, as the source */
    int64_t rest_at, rest_end; /* the data after the points of the source */
    int64_t rest_by;           /* bytes that its beginning moves by */
    int n_cuts;
    sp_las_record *cut; /* [n_cuts] extended records that the copy does not have */
    int64_t n_written; /* points of a copy of a window, by their return, their extent */
    int64_t by_return[15];
    int32_t low[3], high[3];
    const sp_scan_part *part; /* the part to write; n 0: all by one writer */
} sp_las_copy;

sp_status sp_las_put_bytes(const sp_las_copy *c, const void *from, size_t n);
/* Writes the points: all, a part's, or those that the parts have. `laz` is the writer
 * of a copy that is LAZ, else NULL. */
sp_status sp_las_put_points(sp_las_copy *c, sp_laz_writer *laz);

/* ---- COPC (sp_scan_copc.c) ---- */

/* Is the scan COPC? Its first record is then the index's, and is in *vlr. SP_EIO. */
sp_status sp_copc_info(sp_scan *scan, sp_las_record *vlr, bool *is_copc);
/* The number of the chunk that begins at byte `at` and has n_points. SP_EDATA. */
sp_status sp_copc_find_chunk(const sp_scan *scan, int64_t at, int64_t n_points,
                             int64_t *chunk);

/* ---- what follows the points ---- */

/* Lists the records that the copy leaves out, and moves the descriptions of extra bytes
 * there to c->extra, if they change. The places of the rest, is_copc and extra are set.
 * SP_EIO; SP_EDATA; SP_EMEM. */
sp_status sp_las_rest_plan(sp_las_copy *c);
/* Writes the rest at the position of c->to, and adapts the offsets in the head.
 * SP_EDATA: an offset is within the points; SP_EIO; SP_EMEM. */
sp_status sp_las_rest_put(sp_las_copy *c);
/* The place in the copy of this byte of the source's rest. */
int64_t sp_las_rest_moved(const sp_las_copy *c, int64_t at);
/* Moves the offset at byte `at` of the head, if it is one into the rest. SP_EDATA. */
sp_status sp_las_rest_move(sp_las_copy *c, int at);
#endif

/* A copy of a LAS or LAZ file while it is written: sp_scan_las_write.c has the file,
 * sp_scan_las_points.c its points. Only these two include it.
 *
 *     one writer     head, points, rest
 *     n writers      part k: the points of the sections k, k + n, ... of the rows, in a
 *                    file of its own (with LAZ: of chunks and their table alone)
 *                    at the end: head, the sections of all parts in turn, rest
 */
#ifndef SP_SCAN_LAS_COPY_H
#define SP_SCAN_LAS_COPY_H

#include "scan/sp_scan_las.h"

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
    int64_t rest_at, rest_end; /* what stands behind the points of the source */
    const sp_scan_part *part;  /* what is written; n 0: all by one writer */
} sp_las_copy;

sp_status sp_las_put_bytes(const sp_las_copy *c, const void *from, size_t n);
/* Writes the points: all, those of a part, or those that the parts have. `laz` is the
 * writer of a copy that is LAZ, else NULL. */
sp_status sp_las_put_points(sp_las_copy *c, sp_laz_writer *laz);
#endif

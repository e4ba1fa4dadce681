/* What sp_scan_las.c and sp_scan_laz.c share: the header of a LAS file. */
#ifndef SP_SCAN_LAS_H
#define SP_SCAN_LAS_H

#include "scan/sp_scan_format.h"

typedef struct sp_las_header {
    int minor, format; /* version 1.minor, point data format */
    int record_bytes;
    int64_t n_points, data_at;
    uint32_t n_vlrs;
    int header_bytes;
    double scale[3], offset[3];
} sp_las_header;

enum { SP_LAS_FORMATS = 11 };
/* Bytes of the standard part of a record, by format. */
extern const int sp_las_bytes[SP_LAS_FORMATS];

/* Read and check the header, name the fields, set n_points, data_at, record_bytes. */
sp_status sp_las_open(sp_scan *scan, sp_las_header *header);

/* LAZ through the library, in this process: what a format provides. */
sp_status sp_laz_open(sp_scan *scan, const sp_scan_options *options);
sp_status sp_laz_fill(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n);
sp_status sp_laz_rewind(sp_scan *scan);
void sp_laz_close(sp_scan *scan);

#endif

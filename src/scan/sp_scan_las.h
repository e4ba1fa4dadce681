/* The header of a LAS file, which sp_scan_las.c and sp_scan_laz.c share, and reading of
 * LAZ in this process. */
#ifndef SP_SCAN_LAS_H
#define SP_SCAN_LAS_H

#include "scan/sp_scan_format.h"

/* The fields of the header that reading needs. */
typedef struct sp_las_header {
    int minor, format; /* version 1.minor, point data format */
    int record_bytes;
    int64_t n_points, data_at; /* byte of the first record in the file */
    uint32_t n_vlrs;           /* number of variable length records */
    int header_bytes;
    double scale[3], offset[3];
} sp_las_header;

enum { SP_LAS_FORMATS = 11 };
/* Bytes of the standard part of a record, by point data format. */
extern const int sp_las_bytes[SP_LAS_FORMATS];

/* Reads and checks the header, names the fields, and sets n_points, data_at and
 * record_bytes. */
sp_status sp_las_open(sp_scan *scan, sp_las_header *header);

/* LAZ through the library of LASzip, in this process: the functions of a format. */
sp_status sp_laz_open(sp_scan *scan, const sp_scan_options *options);
sp_status sp_laz_fill(sp_scan *scan, int64_t max, unsigned char *to, int64_t *n);
sp_status sp_laz_rewind(sp_scan *scan);
void sp_laz_close(sp_scan *scan);

#endif

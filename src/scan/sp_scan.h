/* Scans as they come from instruments and other programs: one interface for LAS and
 * LAZ, SemanticKITTI, PLY, PCD, NumPy arrays and columns of text.
 *
 *     sp_scan_open   reads the header: which attributes there are
 *     sp_scan_select names the attributes wanted
 *     sp_scan_next   gives the next points, in the order of the file, in double
 * precision
 *
 * Every format is brought to records of one length with fields at fixed places (see
 * sp_scan_format.h), so attributes are found by name in the same way everywhere:
 * without regard to case, and "scalar_" as CloudCompare writes it may be left out.
 * Local; not thread-safe for one scan. Memory: a block of points (a whole file for
 * binary_compressed PCD, which cannot be read in parts).
 */
#ifndef SP_SCAN_H
#define SP_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sp_error.h"

enum {
    SP_SCAN_BLOCK = 65536,  /* a good number of points to ask for */
    SP_SCAN_UNLABELLED = -1 /* label of points without one */
};

typedef struct sp_scan sp_scan;

typedef struct sp_scan_options {
    const char *columns; /* "x,y,z,-,label" of text and npy; NULL: as the file says */
    const char *label_field; /* attribute that is the label; NULL: the usual names */
} sp_scan_options;

/* Some points of a scan: buffers that grow and are used again. Zero at first. */
typedef struct sp_scan_points {
    int64_t n, first_row; /* row of the first one in the file */
    double *xyz;          /* [n][3] metre */
    int32_t *label;       /* [n] code of the source; negative: unlabelled */
    double *attr;         /* [n][attributes selected] */
    int64_t capacity;
} sp_scan_points;

/* First thing in main of programs that read scans: LAZ is decompressed by a limited
 * child (sp_probe.h), which is this program started again; without this, here. */
void sp_scan_main(int argc, char **argv);

/* The format is told by the first bytes, else by the name. SP_EIO where the file cannot
 * be opened, SP_EDATA where it is not what it says, SP_EUSAGE for options that do not
 * fit. */
sp_status sp_scan_open(sp_scan **scan, const char *path,
                       const sp_scan_options *options);
void sp_scan_close(sp_scan *scan);

const char *sp_scan_path(const sp_scan *scan);
/* -1 where only reading tells (text, LAZ). */
int64_t sp_scan_count(const sp_scan *scan);
bool sp_scan_is_labelled(const sp_scan *scan);
/* Is there an attribute of this name (not the coordinates)? */
bool sp_scan_has(const sp_scan *scan, const char *name);

/* Attribute i in the order of the file, NULL after the last; its type as a number ('i',
 * 'u', 'f' and bytes; scaled ones are 'f' 8). Coordinates are among them. */
const char *sp_scan_attribute(const sp_scan *scan, int i, char *kind, int *size);

/* Which attributes sp_scan_next gives, in this order. SP_EUSAGE naming those there are.
 */
sp_status sp_scan_select(sp_scan *scan, int n, const char *const *names);
/* The next up to max points; out->n is 0 at the end. SP_EDATA for coordinates or
 * attributes that are not finite, labels that are not integers, files that end early.
 */
sp_status sp_scan_next(sp_scan *scan, int64_t max, sp_scan_points *out);
/* Back to the first point. */
sp_status sp_scan_rewind(sp_scan *scan);
void sp_scan_points_destroy(sp_scan_points *points);

/* ---- writing ---- */

/* Copy a LAS file with other classes: code [sp_scan_count], 0 to 31 in formats 0 to 5,
 * to 255 in the others. SP_EDATA where the scan is no LAS or a code does not fit,
 * SP_EIO. */
sp_status sp_scan_write_las(sp_scan *scan, const char *path, const int32_t *code);

#endif

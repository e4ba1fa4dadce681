/* The structures of a LAS file for its files:
 *
 *     read    sp_scan_las.c        header, fields of a record, extra bytes by their names
 *             sp_scan_laz.c        compressed records; sp_scan_copc.c: those in a window
 *             sp_scan_ept.c        LAZ in an octree of files
 *             sp_scan_las_unit.c   units, from the records of the coordinate system
 *     copy    sp_scan_las_write.c  head; _points.c: records; _rest.c: what follows them
 *             sp_scan_las_extra.c  fields that are added, as extra bytes
 */
#ifndef SP_SCAN_LAS_H
#define SP_SCAN_LAS_H

#include "scan/laz/sp_laz.h"
#include "scan/sp_scan_format.h"

/* The fields of the header that reading needs. */
typedef struct sp_las_header {
    int minor, format; /* version 1.minor, point data format */
    int record_bytes;
    int64_t n_points, data_at; /* byte of the first record in the file */
    uint32_t n_vlrs;           /* variable length records that are before the points */
    uint32_t n_evlrs;          /* extended ones that the header claims, may be 0 */
    int64_t evlrs_at;          /* within the file */
    int header_bytes;
    double scale[3], offset[3];
    double low[3], high[3]; /* of the points, as the header claims; unchecked */
} sp_las_header;

enum { SP_LAS_FORMATS = 11, SP_LAS_UNIT = 40 };
/* Bytes of the standard part of a record, by point data format. */
extern const int sp_las_bytes[SP_LAS_FORMATS];

enum {
    SP_LAS_EXTRA_BYTES = 192,
    SP_LAS_VLR_HEAD = 54,
    SP_LAS_EVLR_HEAD = 60,
    SP_LAS_USER = 17
};

/* A variable length record, or an extended one: the place of its content, and its
 * owner. All zero before the first; at the end `is_end` is true. */
typedef struct sp_las_record {
    bool is_end;
    bool is_extended;
    uint32_t number; /* of records of its kind that were read */
    char user[SP_LAS_USER];
    int id;
    int64_t head_at, at; /* its head; its content */
    int64_t bytes;       /* of the content, as far as they lie before the points or, of
                          * an extended one, within the file */
} sp_las_record;

/* The state of an open scan (scan->own). From `vlr` on all is of LAZ: the record that
 * describes the compression, its content, and the reader of the points. */
typedef struct sp_las {
    sp_las_header header;
    /* A byte of the record that has the class, if it is above 31; 0: no such byte. */
    int wide_class_at;
    char unit[4][SP_LAS_UNIT]; /* names of rare units (sp_scan_las_unit.c) */
    sp_las_record vlr;
    sp_laz_format format;
    sp_laz_reader *reader;
    bool is_kept; /* it is COPC without the chunks outside of a window */
} sp_las;

/* The scan is LAS or LAZ. */
static inline sp_las *sp_las_of(const sp_scan *scan)
{
    return (sp_las *)scan->own;
}

/* Is the scan compressed? Is it LAS or LAZ? */
static inline bool sp_las_is_laz(const sp_scan *scan)
{
    return scan->format == &sp_scan_laz || scan->format == &sp_scan_ept;
}
static inline bool sp_las_is(const sp_scan *scan)
{
    return scan->format == &sp_scan_las || sp_las_is_laz(scan);
}

/* All functions are local.
 *
 * Reads and checks the header, names the fields, and sets n_points, data_at and
 * record_bytes, title, extent and unit of the scan. SP_EDATA: the header contradicts
 * itself or the length of the file; SP_EIO; errors of sp_las_find_unit. */
sp_status sp_las_open(sp_scan *scan);
/* Goes to the next record before the points. Records that would run into the points are
 * not there. SP_EIO. */
sp_status sp_las_next_vlr(sp_scan *scan, sp_las_record *vlr);
/* The same of all records: those before the points, then the extended ones. */
sp_status sp_las_next_record(sp_scan *scan, sp_las_record *record);
/* The user that the head of a record names, without blanks at its end. */
void sp_las_user(const unsigned char *head, char user[SP_LAS_USER]);
bool sp_las_is_record(const sp_las_record *record, const char *user, int id);
/* Sets the units of the scan's coordinates by the records that describe their system.
 * SP_EIO; SP_EMEM. */
sp_status sp_las_find_unit(sp_scan *scan);
/* Sets them by well-known text instead. SP_EMEM. */
sp_status sp_las_unit_of_text(sp_scan *scan, const char *text);

/* The octree that COPC and EPT have: its cube in x and y. */
enum { SP_OCTREE_LEVELS = 31 };
typedef struct sp_octree {
    double low[2], edge[2];
} sp_octree;
/* Does the node x, y of a level meet the window x0, y0, x1, y1? Its points may lie on its
 * faces. */
bool sp_octree_meets(const sp_octree *tree, int level, const int32_t key[2],
                     const double window[4]);

/* Keeps only the nodes of EPT that meet the window; nothing was read yet. */
void sp_ept_keep(sp_scan *scan, const double window[4]);
/* Marks the chunks of an open COPC scan whose nodes meet the window x0, y0, x1, y1, as
 * sp_laz_chunks lists them; the caller frees *is_wanted. NULL: the scan is other LAZ, or
 * none of its chunks is known. SP_EDATA: its index is damaged; SP_EIO; SP_EMEM. */
sp_status sp_copc_find(sp_scan *scan, const double window[4], bool **is_wanted);

/* Writes a copy of a LAS or LAZ scan with other classes, as LAS or LAZ, or a part of
 * it, as sp_scan_format.write: classes 0 to 31 in point formats 0 to 5, 0 to 255 in the
 * others. Everything else stays: all other fields, the order of points, the records
 * before and after them; the record that describes the compression comes and goes with
 * it. SP_EDATA: the scan is neither, or a code does not fit; SP_EIO; SP_EMEM. */
sp_status sp_las_write(sp_scan *scan, const sp_scan_labels *labels,
                       const sp_scan_part *part);
/* The rows of a section of a copy as LAS or LAZ, as sp_scan_section says; 0: one writer
 * has all. */
int64_t sp_las_section(sp_scan *scan, const sp_scan_format *as);
/* The largest class code of a copy of this scan; 0 if it is neither LAS nor LAZ. */
int32_t sp_las_most_code(const sp_scan *scan);

/* ---- added fields, as extra bytes (sp_scan_las_extra.c) ---- */

/* The bytes of a record that a description [SP_LAS_EXTRA_BYTES] covers; 0: its type is
 * unknown. */
int sp_las_described(const unsigned char *description);

/* The place of a value in the records of a copy, and its form: a float unchanged, an
 * integer as its share of the largest one. */
typedef struct sp_las_place {
    int at; /* first byte in the record */
    char kind;
    int size;
    bool is_new;     /* the scan does not have the field */
    bool is_changed; /* it has it with another meaning of its numbers */
} sp_las_place;

/* The places of added fields in the records of a copy. */
typedef struct sp_las_extra {
    int n;
    const sp_scan_added *added; /* [n] borrowed */
    sp_las_place *place;        /* [n] */
    int record_bytes;           /* of the copy */
    int n_new, n_changed;       /* fields that are new, that are changed */
    unsigned char
        *moved;         /* [moved_bytes] descriptions of extended records, which the */
    size_t moved_bytes; /* copy has in a VLR (sp_las_rest_plan) */
} sp_las_extra;

/* Checks whether the fields can be added: as sp_scan_format.check_added. */
sp_status sp_las_check_added(const sp_scan *scan, int n, const sp_scan_added *added);
/* Places the fields: the scan's own keep their places, new ones follow the record.
 * SP_EDATA; SP_EMEM. Free after failure too. */
sp_status sp_las_extra_place(sp_las_extra *extra, const sp_scan *scan,
                             const sp_scan_labels *labels);
void sp_las_extra_free(sp_las_extra *extra);
/* The most bytes that sp_las_extra_describe adds to a head. */
size_t sp_las_extra_room(const sp_las_extra *extra);
/* Describes the new fields in a head, which is the header and its VLRs, of *bytes
 * bytes with room after them, and sets the length of records in it. SP_EDATA. */
sp_status sp_las_extra_describe(const sp_las_extra *extra, const sp_scan *scan,
                                unsigned char *head, size_t *bytes);
/* Writes the values [n] of a point into its record. */
void sp_las_extra_put(const sp_las_extra *extra, const float *value,
                      unsigned char *record);

#endif

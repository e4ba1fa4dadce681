/* Scans as they come from instruments and other programs: one interface for LAS and
 * LAZ, Entwine Point Tiles, SemanticKITTI, PLY, PCD, NumPy arrays and columns of text.
 *
 *     file --sp_scan_open--> format, fields        sp_scan_las.c, _laz.c, _ept.c, _kitti.c,
 *            |               (sp_scan_format.c     _ply.c, _pcd.c, _npy.c, _text.c
 *            |                recognizes it)
 *            sp_scan_select  chooses the attributes wanted
 *            sp_scan_next    gives the next points, in the order of the file:
 *                            xyz, label, attributes, all in double precision
 *                            (sp_scan_decode.c)
 *            sp_scan_write   copies it with other classes and added fields
 *
 *     spvox convert   sp_scan ------------------> sp_gridding --> voxels of a shard
 *     spvox scene     sp_scene_scan ------------> sp_gridding --> sp_scene, shards
 *
 * Every format is brought to records of one length with fields at fixed places
 * (sp_scan_format.h), so attributes are found by name in the same way everywhere: case
 * does not matter, and the prefix "scalar_" of CloudCompare may be left out.
 *
 * All calls are local; one scan must not be used by two threads at once. Memory is a
 * block of points (a whole file for binary_compressed PCD, which cannot be read in
 * parts). */
#ifndef SP_SCAN_H
#define SP_SCAN_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/sp_error.h"

enum {
    SP_SCAN_BLOCK = 16384,  /* a reasonable `max` for sp_scan_next */
    SP_SCAN_UNLABELLED = -1 /* label of points without one */
};

typedef struct sp_scan sp_scan;

/* The unit of z: what the scan's records say; the unit of x and y; one of three. */
typedef enum sp_scan_z_unit {
    SP_SCAN_Z_OF_RECORDS,
    SP_SCAN_Z_SAME,
    SP_SCAN_Z_METRE,
    SP_SCAN_Z_FOOT,
    SP_SCAN_Z_US_FOOT
} sp_scan_z_unit;
#define SP_SCAN_Z_WORDS "records|same|metre|foot|us-foot"
/* The word among these, which is a constant, and the other way round; -1: it is not
 * among them. */
const char *sp_scan_z_word(sp_scan_z_unit unit);
int sp_scan_find_z_word(const char *word);

typedef struct sp_scan_options {
    /* "x,y,z,-,label": names the columns of text and npy; NULL: the file names them */
    const char *columns;
    /* The attribute that is the label; NULL: the usual names are tried. */
    const char *label_field;
    int n_threads; /* that decompress LAZ ahead; 0 and 1: only the caller */
    /* Heights in one of the three units are converted to the unit of x and y, which is
     * metre if the scan does not say. */
    sp_scan_z_unit z_unit;
    /* The value of attributes that are not finite; NULL: they are refused. */
    const double *missing;
} sp_scan_options;

/* Some points of a scan, in buffers that grow and are used again. All zero before the
 * first use. */
typedef struct sp_scan_points {
    int64_t n, first_row; /* number of points; row of the first one in the file */
    int64_t n_missing;    /* how many of them sp_scan_is_missing says */
    double *xyz;          /* [n][3] metre */
    int32_t *label;       /* [n] class code of the source; negative: unlabelled, as
                             negative numbers and NaN of the source are */
    double *attr;         /* [n][number of attributes selected] */
    int64_t capacity;
} sp_scan_points;

/* Opens a scan. The first bytes decide the format, else the name's ending. SP_EIO: the
 * file cannot be opened; SP_EDATA: its content does not fit its format; SP_EUSAGE: the
 * options do not fit; SP_EMEM. Close after success with sp_scan_close, until which the
 * texts of the options are borrowed. */
sp_status sp_scan_open(sp_scan **scan, const char *path,
                       const sp_scan_options *options);
void sp_scan_close(sp_scan *scan);
/* Closes the scan of a variable, for SP_CLOSED_BY. */
static inline void sp_scan_done(sp_scan **scan)
{
    sp_scan_close(*scan);
}

const char *sp_scan_path(const sp_scan *scan);
/* The number of points; -1 if only reading finds it: text, and LAZ that claims more
 * points than it has bytes. */
int64_t sp_scan_count(const sp_scan *scan);
/* The lowest and the highest x, y and z as the header claims them, which may be wrong;
 * false if it claims no bounds. */
bool sp_scan_extent(const sp_scan *scan, double low[3], double high[3]);
/* The resolution of x, y and z as the file stores them: the scale of integers in metre,
 * with is_float the relative spacing of floating-point numbers. 0: a double, or text. */
void sp_scan_resolution(const sp_scan *scan, double step[3], bool is_float[3]);
bool sp_scan_is_labelled(const sp_scan *scan);
/* The name of the format, such as "LAS"; it is a constant. */
const char *sp_scan_format_name(const sp_scan *scan);
/* The unit of x and y as the scan names it: a word of sp_recipe_is_unit, or other words
 * if it is another length. Valid until the scan is closed. NULL: the scan does not
 * say. */
const char *sp_scan_unit(const sp_scan *scan);
/* Checks that a voxel has one length in all directions. SP_EDATA, which names an option
 * to take the scan: the unit of x and y is not in sp_recipe_is_unit, or a degree unless
 * with_degrees; z is in another unit and options.z_unit does not say what to do. */
sp_status sp_scan_check_units(const sp_scan *scan, bool with_degrees);
/* Are x, y and z distances from the centre of the Earth? Then z is no height. */
bool sp_scan_is_geocentric(const sp_scan *scan);
/* Remarks about a scan that is read all the same: of its kind at most one. */
typedef enum sp_scan_note_kind {
    SP_SCAN_NOTE_LABEL, /* several attributes may be the label; known after opening */
    SP_SCAN_NOTE_COUNT, /* it has another number of points than it says; known at the
                           end of reading */
    SP_SCAN_NOTES
} sp_scan_note_kind;
/* A sentence that begins with the scan's path; NULL: there is nothing to remark. It is
 * the scan's. */
const char *sp_scan_note(const sp_scan *scan, sp_scan_note_kind kind);
/* The EPSG code of the coordinate system that the scan names; 0: not known. */
int sp_scan_epsg(const sp_scan *scan);
/* Does the scan have an attribute of this name (coordinates excluded)? */
bool sp_scan_has(const sp_scan *scan, const char *name);

/* The axis, 0 to 2, that an attribute of this name is; -1: it is no coordinate. */
int sp_scan_axis_of(const sp_scan *scan, const char *name);

/* The name of attribute i in the order of the file, NULL after the last one, and the
 * type that holds its values: kind ('i', 'u', 'f') and bytes; scaled integers count as
 * 'f' 8. Coordinates are included. */
const char *sp_scan_attribute(const sp_scan *scan, int i, char *kind, int *size);

/* Selects the attributes that sp_scan_next gives, in this order. SP_EUSAGE: one is
 * missing; the message lists those present. */
sp_status sp_scan_select(sp_scan *scan, int n, const char *const *names);
/* Is this a row without a point? Depth cameras and PCL keep a row for each pixel, with
 * NaN for coordinates if nothing was measured. */
static inline bool sp_scan_is_missing(const double xyz[3])
{
    return isnan(xyz[0]) || isnan(xyz[1]) || isnan(xyz[2]);
}
/* Reads the next points, at most max; out->n is 0 at the end. Missing points are among them:
 * they are unlabelled, and their attributes may be any value. SP_EDATA: a coordinate is
 * infinite, attributes of points are not finite, labels are not integers, or the file
 * ends early. */
sp_status sp_scan_next(sp_scan *scan, int64_t max, sp_scan_points *out);
/* Goes back to the first point. */
sp_status sp_scan_rewind(sp_scan *scan);
/* Limits reading to part `part` of n_parts: consecutive rows, about the same number in
 * each part, in the order of the parts; LAZ is divided between its chunks. A format
 * that is only read from its beginning (text, for one) is whole in part 0. Reading
 * begins at the part's first point. Errors of sp_scan_rewind. */
sp_status sp_scan_limit(sp_scan *scan, int part, int n_parts);
/* Leaves out what lies outside of the window x0, y0, x1, y1 as a whole: COPC and EPT then
 * have only the rows of chunks or files with nodes that meet it, in their order. Other
 * scans stay whole. Nothing was read yet. SP_EDATA: the index is damaged; SP_EIO; SP_EMEM. */
sp_status sp_scan_keep_near(sp_scan *scan, const double window[4]);
/* Of COPC after sp_scan_keep_near, from now on: the compressed chunks that are read are
 * also written to the file `path`, by any number of readers, or, with is_copied, read
 * from there, so that two passes read the scan once. Other scans ignore it. Nothing was
 * read yet; the path is borrowed. SP_EIO. */
sp_status sp_scan_copy_chunks(sp_scan *scan, const char *path, bool is_copied);
void sp_scan_points_destroy(sp_scan_points *points);

/* ---- writing ---- */

/* Codes of points that get no class: whatever the format has for no class; the class
 * that the point has in the scan. */
enum { SP_SCAN_NO_CLASS = -1, SP_SCAN_KEEP = -2 };

enum { SP_SCAN_ADDED_NAME = 32 }; /* most bytes of a name or a help, as in LAS */

/* A field that is written beside the class: values from 0 to 1, or codes. */
typedef struct sp_scan_added {
    char name[SP_SCAN_ADDED_NAME + 1], help[SP_SCAN_ADDED_NAME + 1];
    /* In LAS: float32, else uint8 in steps of 1/255. Other formats have floats. */
    bool is_float;
    bool is_code; /* whole numbers from 0 to 255, uint8 in LAS */
} sp_scan_added;

/* The classes, and values of added fields, for all points of a scan. */
typedef struct sp_scan_labels {
    int64_t n;     /* number of points */
    bool has_kept; /* some codes are SP_SCAN_KEEP */
    int n_added;
    const sp_scan_added *added; /* [n_added] */
    /* Gives the codes and values of the rows first .. first + n - 1: code [n], value
     * [n][n_added]. Its failure ends the writing. */
    sp_status (*get)(const void *from, int64_t first, int64_t n, int32_t *code,
                     float *value);
    const void *from; /* for get */
    /* x0, y0, x1, y1: only points with x0 <= x < x1 and y0 <= y < y1 are written, which
     * LAS and LAZ can; NULL: all are. */
    const double *window;
} sp_scan_labels;

/* The ending of the files that get the classes of this scan: its own if its format can
 * be written; ".label" of SemanticKITTI; ".txt" of the others. */
const char *sp_scan_output_ending(const sp_scan *scan);
/* Can these codes [n] and fields be written onto this scan in a file of this name?
 * SP_EDATA: a code, or a field, does not fit the format. */
sp_status sp_scan_check_labels(const sp_scan *scan, const char *path,
                               const int32_t *code, int n, int n_added,
                               const sp_scan_added *added);

/* The largest code that a file of this name holds, which check_labels has accepted. */
int32_t sp_scan_most_code(const sp_scan *scan, const char *path);
/* Can classes be written into a file of this name? The ending decides the format.
 * SP_EUSAGE lists the endings. */
sp_status sp_scan_check_output(const char *path);
/* Writes the scan with other classes and added fields in the format of path's ending,
 * under a temporary name at first, so that no partial file stays. Everything else is
 * unchanged in copies of LAS and LAZ: each byte of all other fields, the order of
 * points, all records before and after them. A field that the scan has already gets
 * other values. SP_EDATA: the scan, a code or a field does not fit the format; SP_EIO;
 * errors of reading. */
sp_status sp_scan_write(sp_scan *scan, const char *path, const sp_scan_labels *labels);

/* ---- writing by several ----
 *
 *     rows     | section 0 | section 1 | section 2 | section 3 | ...
 *     writer         0           1           0           1           of two
 *
 *     each writer   sp_scan_write_part   its sections --> a temporary file
 *     one of them   sp_scan_join         temporary files --> what sp_scan_write writes
 */

/* The rows of a section of the copy of this scan that is called `path`; 0: the copy can
 * only be written by one. LAS is divided anywhere, LAZ if its chunks are of one length
 * and a table has them. */
int64_t sp_scan_section(sp_scan *scan, const char *path);
/* Writes the part k of n of the copy that will be called `path` to the file `to`: rows
 * of the sections k, k + n, ... are asked for. Errors as of sp_scan_write. */
sp_status sp_scan_write_part(sp_scan *scan, const char *path,
                             const sp_scan_labels *labels, int k, int n,
                             const char *to);
/* Writes the copy from its parts [n]; no rows are asked for. Errors as of
 * sp_scan_write.
 *  */
sp_status sp_scan_join(sp_scan *scan, const char *path, const sp_scan_labels *labels,
                       int n, char *const *part);

/* ---- formats ---- */

/* Print the formats that are read, or those that classes are written in, for help. */
void sp_scan_print_formats(FILE *to);
void sp_scan_print_outputs(FILE *to);

#endif

/* The points of one sample in memory, and the two ways to get them from a scan. Local.
 *
 *     without --block: a file is a sample
 *         scan --vox_cloud_load--> cloud; with sweeps, also the scans before it, as
 *             SP_POINT_FOREIGN (vox_sweeps.h)
 *     with --block: a block is a sample
 *         scan --> records by block, in temporary files --> cloud     vox_spill.h
 */
#ifndef VOX_CLOUD_H
#define VOX_CLOUD_H

#include "comm/sp_comm.h"
#include "data/sp_shard.h"
#include "scan/sp_scan.h"
#include "vox/vox_options.h"

/* Properties of a scan that its samples keep. Ranks exchange it as plain bytes. */
typedef struct vox_source {
    int32_t is_labelled;
    char format[20]; /* sp_scan_format_name */
    char unit[20];   /* sp_scan_unit; "": the scan does not say */
} vox_source;

/* Points of a sample, in buffers that grow and are used again. All zero before the
 * first use; destroy with vox_cloud_destroy. */
typedef struct vox_cloud {
    int64_t n, capacity;
    int n_columns;  /* features, while it is sorted */
    int64_t n_rows; /* of the whole scan that was loaded, missing points too */
    vox_source source;
    double *xyz; /* [n][3] metre */
    /* [n][options->n_features] after division; height and count are 0 so far */
    float *features;
    int32_t *label;  /* [n] class, or code without a map, or SP_IGNORE */
    uint64_t *index; /* [n] row in the file */
    /* [n] 0: the point lies in the margin of its block; SP_POINT_FOREIGN: it is one of
     * another input */
    uint8_t *is_owned;
    /* [n] the block that owns the point, and the point's row among those that it owns
     */
    uint32_t *home, *home_row;
    /* A block: home, home_row and corner are set. The corner of its scan is the whole
     * units below the lowest x, y and z of all points. */
    bool is_block;
    double corner[3];
} vox_cloud;

/* One sample of the input: a file, or a block of a file. */
typedef struct vox_piece {
    int32_t file, bx, by; /* number of the input; column and row of the block */
    /* A block's scan (vox_parts), its points that are not in the margin, all points,
     * and the points of other inputs. */
    uint32_t crc;
    int64_t n_own, n, n_foreign;
    sp_block block; /* all zero: the whole scan */
} vox_piece;

/* Number of points within the bounds for each code of the source, for warnings, and of
 * missing points (sp_scan_is_missing) of all scans. */
typedef struct vox_codes {
    int64_t n[VOX_MAX_CODE + 1]; /* other codes are not counted */
    int64_t n_missing;
    int64_t missing_from_end; /* inputs from the first one with such a row on, or 0 */
} vox_codes;

/* Chooses the columns without --features: one and height, and intensity if the first
 * input has it. Errors of opening that scan. */
sp_status vox_features_default(vox_options *options);
/* Opens an input and selects the attributes that the features need. Close with
 * sp_scan_close. Errors: see sp_scan_open and sp_scan_select; SP_EDATA if its
 * coordinates are in degree and with_degrees is not set. */
sp_status vox_scan_open(sp_scan **scan, const vox_options *options, int file);
/* Leaves out what the bounds do not need of an input that was opened, as vox_scan_open
 * does. Errors of sp_scan_keep_near. */
sp_status vox_scan_keep_near(sp_scan *scan, const vox_options *options, int file);
/* Warns once if an input has an attribute that the default features leave out. */
void vox_warn_left_out(const sp_scan *scan, const vox_options *options, int file);
/* Prints the remarks of a scan that was read to its end as warnings; about the choice
 * of a label only once. */
void vox_warn_of_notes(const sp_scan *scan);
vox_source vox_source_of(const sp_scan *scan);

/* Loads all points of an input within the bounds and counts their codes in `codes`.
 * Errors of reading a scan; SP_EMEM. */
sp_status vox_cloud_load(vox_cloud *cloud, const vox_options *options, int file,
                         vox_codes *codes);
void vox_cloud_destroy(vox_cloud *cloud);

/* Makes room for n points. SP_EMEM. */
sp_status vox_cloud_reserve(vox_cloud *cloud, const vox_options *options, int64_t n);
/* Is this a point with x0 <= x < x1 and y0 <= y < y1, or without bounds, a point at
 * all? Neighbouring bounds share no point. */
bool vox_is_within(const vox_options *options, const double *xyz);
/* Counts one point's code; codes beyond VOX_MAX_CODE are ignored. */
void vox_codes_count(vox_codes *codes, int32_t code);
/* Counts missing points of an input. */
void vox_codes_count_missing(vox_codes *codes, const vox_options *options, int file,
                             int64_t n);
/* Sums the missing points of all ranks and reports on rank 0 their number and `what` became
 * of them. Collective. */
sp_status vox_codes_tell_missing(vox_codes *codes, const vox_options *options,
                                 sp_comm *comm, const char *what);
/* The label of a point with this code: a class if there is a map, else the code
 * itself; SP_IGNORE without a class. */
int32_t vox_class_of(const vox_options *options, int32_t code);
/* The number of attributes that the features need. */
int vox_attributes_of(const vox_options *options);
/* Converts one point's selected attributes to its feature columns [n_features]. */
void vox_features_of(const vox_options *options, const double *attr, float *to);

#endif

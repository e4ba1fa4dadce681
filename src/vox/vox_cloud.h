/* The points of one sample in memory, and how they come from a scan. Local.
 *
 *     without --block: a file is a sample
 *         scan --vox_cloud_load--> cloud
 *     with --block: a block is a sample
 *         scan --vox_spill_write--> records by block, in a temporary file
 *         temporary file --vox_spill_read--> cloud
 *
 * Memory is a sample's points and, while a file is cut, one buffer of a fixed size; the
 * temporary file takes 40 bytes and 4 per feature for each point and each of its copies
 * in margins.
 */
#ifndef VOX_CLOUD_H
#define VOX_CLOUD_H

#include "scan/sp_scan.h"
#include "vox/vox_options.h"

/* Buffers that grow and are used again. Zero at first. */
typedef struct vox_cloud {
    int64_t n, capacity;
    bool is_labelled;
    double *xyz;       /* [n][3] metre */
    float *features;   /* [n][options->n_features], divided; height and count still 0 */
    int32_t *label;    /* [n] class, or code without a map; SP_IGNORE */
    uint64_t *index;   /* [n] row in the file */
    uint8_t *is_owned; /* [n] 0: in the margin of its block */
} vox_cloud;

/* One sample: a file, or a block of one. */
typedef struct vox_piece {
    int32_t file, bx, by; /* index of the input, of the block */
    int32_t is_labelled;
    int64_t at, n; /* records in the file's temporary file; at -1: the whole scan */
} vox_piece;

/* Points within the bounds by the code of their label, for warnings. */
typedef struct vox_codes {
    int64_t n[VOX_MAX_CODE + 1]; /* other codes are not counted */
} vox_codes;

/* Open an input with the attributes of the features selected. */
sp_status vox_scan_open(sp_scan **scan, const vox_options *options, int file);

/* All points of an input within the bounds; their codes are added to `codes`. */
sp_status vox_cloud_load(vox_cloud *cloud, const vox_options *options, int file,
                         vox_codes *codes);
void vox_cloud_destroy(vox_cloud *cloud);

/* Cut a file: writes its records to `path`, appends its pieces (those with points of
 * their own, by rows of blocks) to *pieces, malloc'd, freed by the caller. Blocks begin
 * at the whole metre below the lowest x and y; the last one of a row is closed, so that
 * a tile of exactly n blocks is cut into n. Reads the file three times; codes as above.
 */
sp_status vox_spill_write(const vox_options *options, int file, const char *path,
                          vox_codes *codes, vox_piece **pieces, int64_t *n_pieces);
sp_status vox_spill_read(vox_cloud *cloud, const vox_options *options, const char *path,
                         const vox_piece *piece);

/* Room for n points. */
sp_status vox_cloud_reserve(vox_cloud *cloud, const vox_options *options, int64_t n);
/* x0 <= x < x1 and y0 <= y < y1, or no bounds: neighbouring bounds share no point. */
bool vox_is_within(const vox_options *options, const double *xyz);
void vox_codes_count(vox_codes *codes, int32_t code);
/* The label of a point: a class with a map, else the code itself; SP_IGNORE. */
int32_t vox_class_of(const vox_options *options, int32_t code);
/* Attributes [attributes selected] to feature columns [n_features]. */
void vox_features_of(const vox_options *options, const double *attr, float *to);

#endif

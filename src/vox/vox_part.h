/* Voxelized samples on their way to a shard. A rank appends the samples it voxelized to
 * a file of its own (PREFIX.part-RANK.tmp); when all sizes are known, the rank that
 * writes a shard reads them from there. So each sample is voxelized once, by any rank,
 * memory holds one at a time, and shards are contiguous. Costs the shards' size in
 * temporary disk space.
 */
#ifndef VOX_PART_H
#define VOX_PART_H

#include "scan/sp_gridding.h"
#include "vox/vox_options.h"

/* What is known of a voxelized sample; sent between ranks as it is. */
typedef struct vox_part {
    int64_t piece;       /* number of the sample in the list of pieces */
    int64_t n, n_points; /* voxels, points of the point map */
    int64_t rank, at;    /* file and byte where it lies */
    int64_t cost[SP_COST_COLUMNS];
    double origin[3];
    int32_t is_labelled;
    int32_t max_label;             /* of its points; -1: none has one */
    int64_t n_labelled;            /* voxels with a class */
    double mean[VOX_MAX_FEATURES]; /* over its voxels */
    double m2[VOX_MAX_FEATURES];   /* sum of squared differences from the mean */
} vox_part;

/* Append to the open file at part->at; sets n, n_points, n_labelled, cost, origin,
 * mean, m2 from the grid. *bytes is what was written. */
sp_status vox_part_write(int fd, const char *path, const sp_grid *grid, int n_features,
                         vox_part *part, int64_t *bytes);
/* Into `sample`, whose arrays are own and freed by vox_part_free. */
sp_status vox_part_read(const char *path, const vox_part *part, int n_features,
                        sp_sample *sample);
void vox_part_free(sp_sample *sample);

#endif

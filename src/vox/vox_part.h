/* Voxelized samples between voxelization and their shard. A rank appends the samples
 * that it voxelized to a temporary file of its own (PREFIX.part-RANK.tmp). When all
 * sizes are known, the rank that writes a shard reads them from there. So each sample
 * is voxelized once, by any rank, memory holds one sample at a time, and a shard is a
 * contiguous range of samples. The cost is the shards' size in temporary disk space. */
#ifndef VOX_PART_H
#define VOX_PART_H

#include "scan/sp_gridding.h"
#include "vox/vox_cloud.h"

/* Describes one voxelized sample. Ranks exchange it as plain bytes. */
typedef struct vox_part {
    int64_t piece;       /* number of the sample in the list of pieces */
    /* number of voxels; numbers of points in the point map and in the context */
    int64_t n, n_points, n_context;
    int64_t rank, at; /* rank with the sample in its file, and its first byte there */
    int64_t cost[SP_COST_COLUMNS];
    double origin[3];
    vox_source source;
    double step[3]; /* of x, y and z that lie on a grid coarser than voxels, else 0 */
    int32_t max_label;  /* largest label of its points; -1: no point has one */
    int64_t n_labelled; /* number of voxels with a class */
    double mean[VOX_MAX_FEATURES]; /* mean of each feature over the voxels */
    double m2[VOX_MAX_FEATURES];   /* sum of squared differences from the mean */
    double most[VOX_MAX_FEATURES]; /* the largest value of each, 0 at least */
} vox_part;

/* Appends the grid's sample to the open file at part->at, and sets n, n_points,
 * n_labelled, cost, origin, mean, m2 and most of part from the grid. *bytes is the number of
 * bytes written. Local. SP_EIO. */
sp_status vox_part_write(int fd, const char *path, const sp_grid *grid, int n_features,
                         vox_part *part, int64_t *bytes);
/* Reads a sample. Its arrays are malloc'd and freed by vox_part_free, never by
 * sp_sample_destroy. Local. SP_EIO; SP_EMEM. */
sp_status vox_part_read(const char *path, const vox_part *part, int n_features,
                        sp_sample *sample);
void vox_part_free(sp_sample *sample);

#endif

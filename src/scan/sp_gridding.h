/* Points to voxels: what spvox convert and spvox scene share. Local.
 *
 *     points (metre) --floor((p - origin) / voxel_size)--> one row per occupied voxel:
 *     mean of its points' features, majority of their labels, place of the mean point
 *
 * Rows are sorted by Morton key (bit 0 of the key x, bit 1 y, bit 2 z), so neighbours
 * in space lie near each other in the file, and the order depends on the voxels alone.
 */
#ifndef SP_GRIDDING_H
#define SP_GRIDDING_H

#include "data/sp_shard.h"

/* Points in the caller's arrays. */
typedef struct sp_points {
    int64_t n;             /* < 2^31 */
    const double *xyz;     /* [n][3] metre */
    const float *features; /* [n][c] */
    int c;
    const int32_t *label;  /* [n] class or SP_IGNORE; NULL: unlabelled */
    const uint64_t *index; /* [n] row in the source file; NULL: 0, 1, 2, ... */
    const uint8_t
        *is_owned; /* [n] 0: context, left out of the point map; NULL: all 1 */
} sp_points;

typedef struct sp_grid_options {
    double voxel_size;
    double origin[3];
    bool ignore_conflicts; /* a voxel whose labelled points disagree is SP_IGNORE */
    bool with_points;      /* fill the sample's point map */
} sp_grid_options;

/* A voxelized sample and what a shard stores about it. Zero before the first use;
 * reusable, its buffers grow. Destroy with sp_grid_destroy, never sp_sample_destroy. */
typedef struct sp_grid {
    sp_sample sample; /* id is left alone; labels all SP_IGNORE where the
                         points have none */
    int32_t *count;   /* [sample.n] points in the voxel */
    int64_t cost[SP_COST_COLUMNS];
    struct sp_grid_buffers *own;
} sp_grid;

/* Voxelize. Majority is among labelled points; a tie is SP_IGNORE. Points keep their
 * order in the point map. Sums run in double, by point order. SP_EDATA: a coordinate
 * that is not finite or lies outside [-2^19, 2^19) voxels (message names point and
 * value); SP_EMEM. */
sp_status sp_grid_points(sp_grid *grid, const sp_points *points,
                         const sp_grid_options *options);
void sp_grid_destroy(sp_grid *grid);

/* Cost columns of a sample of unique coordinates [n][3] in any order: voxels at strides
 * 1, 2, 4, 8, 16 and pairs of a 3^3 kernel at stride 1. SP_EMEM. */
sp_status sp_grid_cost(const int32_t *coords, int64_t n, int64_t cost[SP_COST_COLUMNS]);

#endif

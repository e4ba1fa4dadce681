/* Points to voxels: spvox convert and spvox scene share this step. Local.
 *
 *     points (metre) --floor((p - origin) / voxel_size) - begin--> one row per voxel:
 *     mean of its points' features, majority of their labels, place of the mean point
 *
 * Rows are sorted by Morton key (bit 0 of the key x, bit 1 y, bit 2 z). So neighbours
 * in space lie near each other in the file, and the order depends only on the voxels.
 */
#ifndef SP_GRIDDING_H
#define SP_GRIDDING_H

#include "data/sp_shard.h"

enum { SP_POINT_FOREIGN = 2 }; /* a value of sp_points.is_owned */

/* A point cloud in arrays that the caller owns. */
typedef struct sp_points {
    int64_t n;             /* < 2^31 */
    const double *xyz;     /* [n][3] metre */
    const float *features; /* [n][c] */
    int c;
    const int32_t *label;  /* [n] class or SP_IGNORE; NULL: unlabelled */
    const uint64_t *index; /* [n] row in the source file; NULL: 0, 1, 2, ... */
    /* [n] 1: in the point map; 0: context, which the point map leaves out;
     * SP_POINT_FOREIGN: only in the voxels. NULL: all 1. */
    const uint8_t *is_owned;
    /* [n] the block that owns the point, and its row among the points of that block,
     * for the point map; NULL: not known. */
    const uint32_t *home, *home_row;
} sp_points;

typedef struct sp_grid_options {
    double voxel_size;
    double origin[3];
    /* The voxel, counted from the origin, that gets the coordinates 0: the sample's
     * origin is there. Samples of one origin agree which points share a voxel. */
    int64_t begin[3];
    /* A voxel becomes SP_IGNORE if its labelled points disagree. */
    bool ignore_conflicts;
    /* Fill the sample's point map, and its context too if the homes of context are
     * known. */
    bool with_points;
    bool without_cost; /* the cost columns, which not all callers need, stay 0 */
} sp_grid_options;

/* A voxelized sample and the columns that a shard stores about it. All zero before the
 * first use; a grid can be used again, and its buffers grow. It owns the sample's
 * arrays: destroy it with sp_grid_destroy, never with sp_sample_destroy. */
typedef struct sp_grid {
    /* `id` is left unchanged; labels are all SP_IGNORE for unlabelled points */
    sp_sample sample;
    int32_t *count; /* [sample.n] number of points in the voxel */
    int64_t cost[SP_COST_COLUMNS];
    struct sp_grid_buffers *own;
} sp_grid;

/* Voxelizes points. A voxel's label is the majority among its labelled points; a tie
 * gives SP_IGNORE. Points keep their order in the point map. Sums are in double, in
 * point order. SP_EDATA: a coordinate is not finite or lies outside [-2^19, 2^19)
 * voxels (the message names point and value). SP_EMEM. */
sp_status sp_grid_points(sp_grid *grid, const sp_points *points,
                         const sp_grid_options *options);
/* The same for points of a sample whose voxels are known, as it was made of them and of
 * others: makes room for n voxels, which the caller fills in grid->sample: coords in
 * the order of sp_grid_points, subvoxel, origin. SP_EMEM. */
sp_status sp_grid_reserve(sp_grid *grid, int64_t n);
/* Fills the point map by these voxels; options->origin and begin as they were. The
 * sample has no features and no labels. SP_EDATA: a point lies outside of the voxels;
 * SP_EMEM. */
sp_status sp_grid_locate(sp_grid *grid, const sp_points *points,
                         const sp_grid_options *options);
void sp_grid_destroy(sp_grid *grid);

/* Computes the cost columns of a sample of distinct coordinates [n][3], in any order:
 * the numbers of voxels at strides 1, 2, 4, 8, 16 and of pairs of a kernel of edge 3 at
 * stride 1. SP_EMEM. */
sp_status sp_grid_cost(const int32_t *coords, int64_t n, int64_t cost[SP_COST_COLUMNS]);

#endif

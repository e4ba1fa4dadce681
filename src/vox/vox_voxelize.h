/* From a cloud to a voxelized sample: the features that need the whole sample, the
 * origin, the grid. Local. */
#ifndef VOX_VOXELIZE_H
#define VOX_VOXELIZE_H

#include "scan/sp_gridding.h"
#include "vox/vox_cloud.h"

/* Voxelizes a cloud, cloud->n > 0. Fills the cloud's heights and, in the grid, the
 * counts. The origin is the whole metre below the lowest x, y and z; a block's origin
 * is a multiple of options->alignment voxels from the corner of its scan. SP_EDATA: the
 * points are too far apart for the grid, or a feature does not fit float32; SP_EMEM. */
sp_status vox_voxelize(const vox_options *options, vox_cloud *cloud, sp_grid *grid);
/* Finds the voxels of some of a sample's points: grid->sample has its voxels
 * (sp_grid_reserve). Errors of sp_grid_locate. */
sp_status vox_locate(const vox_options *options, const vox_cloud *cloud, sp_grid *grid);

/* The grid of a sample's coordinates, if they lie on one. */

/* Sets step[a] to the greatest common divisor of all differences of the coordinate a,
 * if it is above the edge of a voxel and looks like the work of a writer that rounds:
 * the coordinates have five digits or more before it, or there are a thousand points.
 * Else 0. Local. Cost: the time to read a few points, unless there is such a step. */
void vox_find_steps(const vox_cloud *cloud, double voxel_size, double step[3]);
/* Writes "x in steps of 1 (50 % of the rows of voxels stay empty), y in ..." and returns
 * whether there is any step. */
bool vox_list_steps(const double step[3], double voxel_size, char *text, size_t bytes);

#endif

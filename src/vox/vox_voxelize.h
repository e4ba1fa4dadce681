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

#endif

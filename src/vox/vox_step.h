/* The grid of a sample's coordinates, if they lie on one. */
#ifndef VOX_STEP_H
#define VOX_STEP_H

#include "vox/vox_cloud.h"

/* Sets step[a] to the greatest common divisor of all differences of the coordinate a,
 * if it is above the edge of a voxel and looks like the work of a writer that rounds:
 * the coordinates have five digits or more before it, or there are a thousand points.
 * Else 0. Local. Cost: the time to read a few points, unless there is such a step. */
void vox_find_steps(const vox_cloud *cloud, double voxel_size, double step[3]);
/* Writes "x in steps of 1 (50 % of the rows of voxels stay empty), y in ..." and returns
 * whether there is any step. */
bool vox_list_steps(const double step[3], double voxel_size, char *text, size_t bytes);

#endif

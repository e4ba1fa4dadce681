/* Means and covariances of the classes' features from their sums. */
#ifndef SP_CALIBRATE_MOMENTS_H
#define SP_CALIBRATE_MOMENTS_H

#include <stdbool.h>

#include "checkpoint/sp_calibration.h"

/* Sets whiten and mean of a calibration. It has n_features above 0, and its count is
 * set.
 *   sum  [n_classes][n_features] features of the voxels of each class, then
 *        [n_classes][i][j <= i] their products; n_voxels in all
 * False if a covariance has no inverse, as numbers that are not finite have. Pure. */
bool sp_calibrate_moments(sp_calibration *calibration, const double *sum,
                          int64_t n_voxels);

#endif

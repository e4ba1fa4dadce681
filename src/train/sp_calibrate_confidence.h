/* Counts of voxels by the confidence in their predicted class, and the calibration error
 * that follows (Naeini et al. 2015). Whole numbers: counts of ranks are added. */
#ifndef SP_CALIBRATE_CONFIDENCE_H
#define SP_CALIBRATE_CONFIDENCE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SP_CONFIDENCE_BINS = 15,
    SP_CONFIDENCE_UNITS = 1 << 24 /* of a confidence of 1 */
};

typedef struct sp_confidence_bins {
    int64_t n[SP_CONFIDENCE_BINS], correct[SP_CONFIDENCE_BINS];
    int64_t units[SP_CONFIDENCE_BINS]; /* sum of the confidences */
} sp_confidence_bins;

/* Counts a voxel; confidence in 0 .. 1. */
void sp_confidence_count(sp_confidence_bins *bins, double confidence, bool is_correct);
/* The expected calibration error: over bins of confidence, the difference between the
 * mean confidence and the share of correct voxels, weighted by their numbers. */
double sp_confidence_error(const sp_confidence_bins *bins, int64_t n_voxels);

#endif

#include "train/sp_calibrate_confidence.h"

#include <math.h>

void sp_confidence_count(sp_confidence_bins *bins, double confidence, bool is_correct)
{
    const int i = (int)(confidence * SP_CONFIDENCE_BINS);
    const int bin = i < SP_CONFIDENCE_BINS ? i : SP_CONFIDENCE_BINS - 1;

    bins->n[bin]++;
    bins->correct[bin] += is_correct;
    bins->units[bin] += (int64_t)(confidence * SP_CONFIDENCE_UNITS + 0.5);
}

double sp_confidence_error(const sp_confidence_bins *bins, int64_t n_voxels)
{
    double error = 0;

    for (int i = 0; i < SP_CONFIDENCE_BINS; i++)
        error += fabs((double)bins->correct[i] -
                      (double)bins->units[i] / SP_CONFIDENCE_UNITS);
    return error / (double)n_voxels;
}

/* What `sptrain calibrate` finds out about a model on labelled data, beside its
 * weights: a temperature for its probabilities, and the classes' places among the
 * features that its last layer reads.
 *
 *     temperature   softmax(logits / T) instead of softmax(logits) (Guo et al. 2017,
 *                   "On Calibration of Modern Neural Networks"), of least calibration
 *                   error, but no less likelihood than 1. A probability p of a
 *                   mean over views, blocks or models becomes p^(1/T) over the sum of
 *                   all classes'. For one view and one block that is the same, and it
 *                   never changes which class is the greatest.
 *     distance      min over classes c of |W_c (f / |f| - mean of c)|: the Mahalanobis
 *                   distance (Lee et al. 2018, "A Simple Unified Framework for Detecting
 *                   Out-of-Distribution Samples") of features with length 1 (Mueller and
 *                   Hein 2025, "Mahalanobis++"), by the class's own covariance and,
 *                   on its diagonal, three times the mean variance (Friedman 1989,
 *                   "Regularized Discriminant Analysis"). Its mean over the
 *                   surroundings (predict/sp_nearby.h) is large for objects that the
 *                   training has not seen. Measured on airborne tiles with a class left
 *                   out: with features as they are, only vegetation is far from its own
 *                   mean.
 *     quantiles     of these means of the labelled voxels; a threshold for a share
 *
 * In a checkpoint they are the datasets of the group /calibration (input/SCHEMA);
 * packed models have them too. */
#ifndef SP_CALIBRATION_H
#define SP_CALIBRATION_H

#include "base/sp_serial.h"

struct sp_h5; /* h5/sp_h5.h */

enum {
    SP_CALIBRATION_STEPS = 1000,    /* quantiles from 0 to 1 in these steps */
    SP_CALIBRATION_FEATURES = 1024, /* most features of the last layer */
    SP_CALIBRATION_CLASSES = 1 << 16,
    SP_CALIBRATION_NUMBERS = 1 << 24, /* most elements of `whiten` */
    /* The distance counts in units, so that sums of it do not depend on their order;
     * the product of the two is 1 of predict/sp_merge.h. */
    SP_CALIBRATION_UNITS = 1 << 20, /* of a distance of 1 */
    SP_CALIBRATION_MOST = 1 << 10,  /* a larger distance counts as this */
    SP_CALIBRATION_EDGE = 2         /* voxels of a cell of the surroundings */
};

typedef struct sp_calibration {
    double temperature; /* above 0; 1 changes nothing */
    int n_classes;
    int n_features;   /* 0: the last layer's features were not found */
    double *whiten;   /* [n_classes][n_features][n_features] W, lower triangles */
    double *mean;     /* [n_classes][n_features] W times the mean of f / |f| */
    double *count;    /* [n_classes] voxels of the class; 0: it has no mean */
    double *quantile; /* [SP_CALIBRATION_STEPS + 1] */
} sp_calibration;

/* True if W of so many classes and features is not too large. Pure. */
bool sp_calibration_has_room(int64_t n_classes, int64_t n_features);
/* Makes one with zeroed arrays and temperature 1. SP_EMEM; destroy it in any case. */
sp_status sp_calibration_create(sp_calibration **calibration, int n_classes,
                                int n_features);
void sp_calibration_destroy(sp_calibration *calibration);
/* The temperature; 1 if the model was not calibrated: calibration is NULL. Pure. */
double sp_calibration_temperature(const sp_calibration *calibration);
/* The factor that gives a row f [n] the length 1; 0 if all of it is 0. Pure. */
double sp_calibration_scale(const float *f, int n);
/* Writes the distance of each row of f [n][n_features] from the nearest class, in
 * units. Pure. */
void sp_calibration_distances(const sp_calibration *calibration, const float *f,
                              int64_t n, uint64_t *distance);
/* The mean distance that the share q, 0 to 1, of the labelled voxels does not exceed.
 * Pure. */
double sp_calibration_threshold(const sp_calibration *calibration, double q);
/* Writes it to an open file, or reads it; *calibration is NULL if the file has none.
 * SP_EDATA; SP_EIO; SP_EMEM. */
sp_status sp_calibration_write(struct sp_h5 *file, const sp_calibration *calibration);
sp_status sp_calibration_read(struct sp_h5 *file, sp_calibration **calibration);
/* Writes it, or its absence, to bytes or reads it from them. */
void sp_calibration_serialize(sp_serial *serial, sp_calibration **calibration);

#endif

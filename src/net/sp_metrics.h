/* Confusion matrices and the metrics that follow from them. They are exact: integers
 * until the last division.
 *
 * All that the ranks sum lies in one buffer, for one all-reduce of int64. The loss
 * travels as fixed-point limbs (sp_exact), so its value depends on neither the number
 * of ranks nor the order of samples.
 *
 *     | confusion | point_confusion | merged | merged_points | exact   | n |
 *     | C*C       | C*C, each if it is wanted                | 2*WIDE  | 1 |
 */
#ifndef SP_METRICS_H
#define SP_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/sp_comm.h"

struct sp_batch;  /* data/sp_loader.h */
struct sp_sample; /* data/sp_shard.h */

typedef struct sp_metrics {
    int n_classes;
    int64_t *confusion;       /* [C][C] truth, prediction: voxels */
    int64_t *point_confusion; /* [C][C]: raw points; NULL if points are not counted */
    /* [C][C] predictions of several views, or of points that several blocks contain
     * (predict/sp_merge.h); NULL if they are not wanted. */
    int64_t *merged, *merged_points;
    double loss_sum, weight_sum; /* set by sp_metrics_reduce: sum w * l, sum w */
    int64_t n_samples;
    int64_t *exact; /* [2][SP_EXACT_WIDE] loss and weight; order-independent */
    int64_t *sums;  /* [n_sums] the buffer that holds all of the above */
    size_t n_sums;
} sp_metrics;

/* The matrices in addition to the voxels' matrix. */
typedef enum sp_metrics_part {
    SP_METRICS_POINTS = 1,
    SP_METRICS_MERGED = 2,
    SP_METRICS_MERGED_POINTS = 4
} sp_metrics_part;

/* All functions but sp_metrics_reduce are local. */

/* Creates zeroed metrics with the matrices of `parts`, a sum of sp_metrics_part.
 * SP_EMEM; destroy after failure too. */
sp_status sp_metrics_create(sp_metrics *metrics, int n_classes, int parts);
void sp_metrics_destroy(sp_metrics *metrics);
/* Sets all counts and sums to 0, for another pass; the matrices stay allocated. */
void sp_metrics_zero(sp_metrics *metrics);

/* Finds the batch's first stored voxel whose prediction is SP_IGNORE, which sp_net_loss
 * writes if an output is not finite: voxel *voxel of sample *b. False: all have one.
 * Local. */
bool sp_metrics_find_unpredicted(const struct sp_batch *batch,
                                 const int32_t *prediction, int *b, int64_t *voxel);
/* Adds one sample's raw points, which have the classes of their voxels, to a matrix.
 * Local.
 *   row_of       [sample->n] row of the prediction of each stored row, or -1; NULL: the
 *                same
 *   prediction   [rows] class */
void sp_metrics_add_points(int64_t *confusion, int n_classes,
                           const struct sp_sample *sample, const int32_t *row_of,
                           const int32_t *prediction);

/* Sums over all ranks: every rank then holds the sums of all, and loss_sum and
 * weight_sum (NAN if a summand was not finite). Allocates nothing. Collective. */
sp_status sp_metrics_reduce(sp_metrics *metrics, sp_comm *comm);

/* Metrics of a matrix confusion [C][C] (truth, prediction), before or after the sum
 * over the ranks. Pure. */

/* The voxels (points) of class c, and those predicted as it. */
int64_t sp_metrics_truth(const int64_t *confusion, int n_classes, int c);
int64_t sp_metrics_predicted(const int64_t *confusion, int n_classes, int c);
/* The IoU of class c; NAN if it is absent from truth and prediction. */
double sp_metrics_iou(const int64_t *confusion, int n_classes, int c);
/* The share of the voxels predicted as class c that are of class c, and the share of
 * the voxels of class c that are predicted as c; NAN without such voxels. */
double sp_metrics_precision(const int64_t *confusion, int n_classes, int c);
double sp_metrics_recall(const int64_t *confusion, int n_classes, int c);
/* The mean IoU of the classes that occur; NAN if no class does. */
double sp_metrics_miou(const int64_t *confusion, int n_classes);
/* The score that chooses best.h5: the mean IoU of the points, or of the voxels if no
 * point has a label; NAN without any label. */
double sp_metrics_score(const sp_metrics *metrics);
/* The share of the diagonal; NAN of an empty matrix. */
double sp_metrics_accuracy(const int64_t *confusion, int n_classes);
/* The sum of the matrix: labelled voxels (points). */
int64_t sp_metrics_total(const int64_t *confusion, int n_classes);

#endif

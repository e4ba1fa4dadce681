/* Confusion matrices and what follows from them; exact: integers until the last division. */
#ifndef SP_METRICS_H
#define SP_METRICS_H

#include "sp_comm.h"

typedef struct sp_metrics {
    int n_classes;
    int64_t *confusion;       /* [C][C] truth, prediction: voxels */
    int64_t *point_confusion; /* [C][C]: raw points; NULL where there are none */
    double loss_sum, weight_sum;
    int64_t n_samples;
    int64_t *exact; /* [2][SP_EXACT_LIMBS] loss and weight; order-independent */
} sp_metrics;

sp_status sp_metrics_create(sp_metrics *metrics, int n_classes, bool with_points);
void sp_metrics_destroy(sp_metrics *metrics);
void sp_metrics_zero(sp_metrics *metrics);
/* Collective: sums over all ranks, one all-reduce. */
sp_status sp_metrics_reduce(sp_metrics *metrics, sp_comm *comm);

/* IoU of class c; NAN if absent from truth and prediction. */
double sp_metrics_iou(const int64_t *confusion, int n_classes, int c);
/* Mean over the classes that occur; NAN if none. */
double sp_metrics_miou(const int64_t *confusion, int n_classes);
double sp_metrics_accuracy(const int64_t *confusion, int n_classes);
int64_t sp_metrics_total(const int64_t *confusion, int n_classes);

#endif

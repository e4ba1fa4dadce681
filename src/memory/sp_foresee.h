/* The memory of a run, foreseen from its network and the voxels of its samples, part by
 * part. Pure but for sp_foresee_load; the backend need not be open, its table and
 * precision count.
 */
#ifndef SP_FORESEE_H
#define SP_FORESEE_H

#include "compute/sp_backend.h"
#include "graph/sp_graph.h"
#include "data/sp_shard.h"

/* All borrowed. */
typedef struct sp_foresight {
    const sp_config *config;
    const sp_graph *graph;
    const sp_backend *backend;
    const int *columns; /* [n_columns] features of a sample */
    int n_columns;
} sp_foresight;

/* What a rank holds at a time. */
typedef struct sp_load {
    int n_samples;
    int64_t voxels[SP_MAX_LEVELS], pairs[SP_MAX_MAPS]; /* of the graph's plan */
} sp_load;

/* Weights, gradients and moments; of exact sums what travels; on the host the copy of
 * rank 0 that a checkpoint is written from, and limbs of exact sums. With is_training
 * false weights alone. */
double sp_foresee_weights(const sp_foresight *f, bool is_training);
/* Weights in the order of the kernels; on the host packed at each use: 0. */
double sp_foresee_packed(const sp_foresight *f, bool is_training);
/* Activations, and gradients of them in training. */
double sp_foresee_activations(const sp_foresight *f, const sp_load *load,
                              bool is_training);
/* One slot of a loader: plan, features, labels. */
double sp_foresee_batch(const sp_foresight *f, const sp_load *load);
/* Of the weight gradient that takes most. */
double sp_foresee_scratch(const sp_foresight *f, const sp_load *load);

/* Read a sample, as the epoch's augmentation leaves it (epoch < 0: as stored), and plan
 * it on the host. SP_EDATA, SP_EIO, SP_EMEM. */
sp_status sp_foresee_load(const sp_foresight *f, const sp_dataset *set, int64_t sample,
                          int64_t epoch, sp_load *load);

#endif

/* The memory of a run, from its network and the voxels that it holds at a time.
 *
 *     fixed        program, index, weights, gradients, moments, copy of a checkpoint
 *     activations  of the network: the walk of sp_assign, and what its operations take
 *     batches      up to 3 slots of a loader: samples as read, plan, features, labels
 *     scratch      of a loader's planner and readers: one batch being made
 *
 * The walks are those of the run itself for the network (sp_assign, sp_fixed) and for
 * the plan (plan_bytes of the backend, held to plan_build by tests), sp_loader_need for
 * the loader. A rank that trains and evaluates takes
 *
 *     fixed + max(activations of both) + batches and scratch of both loaders
 *
 * since arenas grow to their largest use and stay so. On a device scratch is that of
 * the weight gradient, and loaders' scratch is the host's affair. Pure but for
 * sp_foresee_load; the backend need not be open, its table and precision count.
 */
#ifndef SP_FORESEE_H
#define SP_FORESEE_H

#include "compute/sp_backend.h"
#include "data/sp_loader.h"
#include "data/sp_shard.h"
#include "memory/sp_assign.h"

/* All borrowed. */
typedef struct sp_foresight {
    const sp_config *config;
    const sp_graph *graph;
    const sp_backend *backend;
    const int *columns; /* [n_columns] features of a sample */
    int n_columns;
    double factor; /* the network's voxel edge over that of the shards */
    bool has_subvoxel;
    int64_t n_samples;    /* that the index of the run's data sets lists */
    int n_ranks, n_local; /* of the world, of this node */
    bool is_predicting;   /* evaluation: predictions travel to rank 0 */
} sp_foresight;

/* The samples that a rank holds at a time. */
typedef struct sp_load {
    int n_samples;
    int64_t stored, points;        /* voxels and points as the files have them */
    int64_t voxels[SP_MAX_LEVELS]; /* of the network's levels */
    int64_t above;                 /* of all levels above them together */
    int64_t pairs[SP_MAX_MAPS];    /* of the graph's plan */
} sp_load;

/* The walker of a network: one for each thread that asks. */
typedef struct sp_foreseer {
    sp_foresight what;
    sp_lowered low;
    sp_assign assign;
    bool is_training;
    int n_slots; /* of the loader, that hold batches */
} sp_foreseer;

/* SP_EMEM; close after failure too. */
sp_status sp_foresee_open(sp_foreseer *foreseer, const sp_foresight *what,
                          bool is_training);
void sp_foresee_close(sp_foreseer *foreseer);

typedef struct sp_foreseen {
    int64_t activations, batches, scratch; /* bytes */
} sp_foreseen;

/* Bytes that a batch takes; one without samples takes what does not depend on them,
 * buffers of readers and of the planner. Not thread-safe. */
sp_foreseen sp_foresee_step(sp_foreseer *foreseer, const sp_load *load);

typedef struct sp_foreseen_fixed {
    /* Bytes of the program, on a device of arenas' last pages; of weights, packed ones
     * too, gradients and optimizer state. */
    int64_t program, weights;
} sp_foreseen_fixed;
sp_status sp_foresee_fixed(sp_foreseer *foreseer, sp_foreseen_fixed *fixed);

/* Read a sample, as the epoch's augmentation leaves it (epoch < 0: as stored), and plan
 * it on the host, in at most `room` bytes (0: as many as there are). SP_EDATA, SP_EIO,
 * SP_EMEM. */
sp_status sp_foresee_load(const sp_foresight *what, const sp_dataset *set,
                          int64_t sample, int64_t epoch, int64_t room, sp_load *load);

#endif

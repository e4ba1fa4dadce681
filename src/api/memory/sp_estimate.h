/* The memory of a run, estimated before it starts from its network and from the voxels
 * that a rank holds at a time. The folder's modules in the order of their use:
 *
 *     sp_graph --sp_lower--> steps and values (sp_lower.h)
 *                                |  rows of a micro-batch
 *                                +--sp_buffer_plan--> bytes of activations and gradients
 *                                +--sp_fixed-------> bytes of parameters
 *     index, voxels, pairs --sp_estimate--> bytes of a batch, of all that a rank holds
 *     bytes of samples, memory of a rank --sp_budgets--> micro-batches of every step
 *
 * The run itself uses sp_lower, sp_buffer_plan and sp_fixed as well, and plan_bytes of
 * a backend runs its plan_build on arenas that only count, so the estimate and the
 * execution cannot disagree. sp_loader_size gives the loader's need. The parts of the
 * estimate are
 *
 *     fixed        program, index, weights, gradients, moments
 *     activations  of the network: sp_buffer_plan's two spans
 *     batches      up to 3 slots of a loader: samples as read; up to 2 on the host, else 3:
 *                  plan, features, labels
 *     scratch      of a loader's planner and readers while they make one batch, and of
 *                  the operations of the network
 *
 * Arenas grow to their largest use and keep that size. A rank that trains and evaluates
 * therefore needs
 *
 *     fixed + max(activations of both) + batches and scratch of both loaders
 *
 * On a device the scratch is the weight gradient's; the loaders' scratch is memory of
 * the host and is not counted. No function but sp_estimate_load reads a file. The
 * backend need not be open: only its table and its precision are read.
 */
#ifndef SP_ESTIMATE_H
#define SP_ESTIMATE_H

#include "compute/sp_backend.h"
#include "data/sp_loader.h"
#include "data/sp_shard.h"
#include "net/sp_buffer_plan.h"

/* The run whose memory is estimated. All pointers are borrowed. */
typedef struct sp_estimated_run {
    const sp_config *config;
    const sp_graph *graph;
    const sp_backend *backend;
    const int *columns; /* [n_columns] feature columns that are read of a sample */
    int n_columns;
    double factor;       /* edge of the network's voxels over the shards' voxel edge */
    bool has_subvoxel;   /* the shards have /subvoxel, so augmentation turns freely */
    int64_t index_bytes; /* a rank's share of the indices of all data sets of the run */
    int64_t unpacked_bytes; /* unpacked chunks that a rank keeps (sp_dataset) */
    int n_threads; /* that compute in the rank with most of them; set by sp_budgets */
    int n_ranks;   /* ranks of the world */
    int n_local;   /* ranks of this node */
    bool is_predicting; /* in an evaluation predictions travel to rank 0 */
    /* The next three describe an evaluation: its views (predict/sp_view.h; 0 and 1:
     * samples as stored), whether some are scaled, and the bytes of points that wait to
     * be merged (sp_merger_bytes). */
    int n_views;
    bool has_scaled_views;
    int64_t merging_bytes;
    int64_t beside_bytes; /* weights of the models that are averaged with this one */
} sp_estimated_run;

/* The samples that a rank holds at a time, as far as memory depends on them. */
typedef struct sp_load {
    sp_plan_counts plan;    /* of the graph's plan_spec */
    int64_t stored, points; /* voxels and points as the files have them */
    int64_t context; /* points of margins, if an evaluation merges blocks; else 0 */
} sp_load;

/* The state of an estimate. Each thread needs its own. */
typedef struct sp_estimator {
    sp_estimated_run what;
    sp_lowered low;
    sp_buffer_plan buffers;
    bool is_training;
    /* Slots of the loader that hold samples at a time, and that hold a plan too. */
    int n_slots, n_memories;
} sp_estimator;

/* Prepares an estimate of training or of evaluation. SP_EMEM; close after a failure
 * too. */
sp_status sp_estimate_open(sp_estimator *estimator, const sp_estimated_run *what,
                           bool is_training);
void sp_estimate_close(sp_estimator *estimator);
/* Has the loader make n_batches batches in all; a training's makes more than it has
 * slots. */
void sp_estimate_set_batches(sp_estimator *estimator, int64_t n_batches);

/* The parts that depend on samples. */
typedef enum sp_memory_part {
    SP_ACTIVATIONS,
    SP_BATCHES,
    SP_SCRATCH,
    SP_PARTS
} sp_memory_part;

/* The bytes that a batch needs. A batch without samples needs only buffers that do not
 * depend on samples: the readers' and the planner's. Not thread-safe. */
void sp_estimate_step(sp_estimator *estimator, const sp_load *load,
                      int64_t part[SP_PARTS]);

typedef struct sp_fixed_estimate {
    int64_t program; /* bytes of the program; on a device, unused ends of arenas */
    int64_t weights; /* bytes of parameters, packed ones too, gradients and moments */
} sp_fixed_estimate;
/* Does the network keep the packed weights of all layers (sp_fixed_rules.is_inference)?
 * Only evaluations do, unless the deck bounds their memory. Pure. */
bool sp_estimate_is_inference(const sp_config *config, bool is_training);
/* The bytes that no batch changes. SP_EMEM. */
sp_status sp_estimate_fixed(sp_estimator *estimator, sp_fixed_estimate *fixed);
/* Fails with SP_EMEM and a message if these bytes by themselves exceed the `memory`
 * bytes of a rank (0: of this machine). On a device it never does: its memory is
 * reserved before anything is written. *weights (may be NULL) becomes those of
 * sp_fixed_estimate. Local. */
sp_status sp_estimate_fit(const sp_estimated_run *what, bool is_training,
                          int64_t memory, int64_t *weights);

/* The points in the sample's margin that an evaluation reads. Pure. */
int64_t sp_estimate_context(const sp_estimated_run *what, const sp_dataset *set,
                            int64_t sample);
/* A sample as it is planned for comparison. */
typedef struct sp_planned {
    int64_t sample;
    int64_t epoch; /* augmented as in this one; below 0: as stored */
    /* The sample that is mixed into it, as if drawn in that epoch, or -1. */
    int64_t partner;
    bool is_in_range; /* without the voxels that eval.range leaves out */
} sp_planned;
/* The partner of the sample in that epoch if it were mixed for certain; -1 if the deck
 * mixes no samples. Pure. */
int64_t sp_estimate_partner(const sp_estimated_run *what, const sp_dataset *set,
                            int64_t sample, int64_t epoch);
/* Reads a sample, and its partner, and plans it on the host in at most `room` bytes (0:
 * without a bound); *load is the sample's actual load. SP_EDATA, SP_EIO, SP_EMEM. */
sp_status sp_estimate_load(const sp_estimated_run *what, const sp_dataset *set,
                           const sp_planned *of, int64_t room, sp_load *load);

#endif

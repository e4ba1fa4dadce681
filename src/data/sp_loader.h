/* Batches, filled ahead: readers (pread only) --> planner (augment, voxelize, collate,
 * plan) --> ring of slots --> training thread.
 *
 *   sp_loader_next      waits for the oldest filled slot
 *   sp_loader_recycle   gives it back; its arena is reset
 *
 * A failure in any thread travels in the slot and is raised by sp_loader_next.
 */
#ifndef SP_LOADER_H
#define SP_LOADER_H

#include "compute/sp_backend.h"
#include "data/sp_sampler.h"
#include "graph/sp_graph.h"

/* One micro-batch of this rank. Rows are in plan order: by sample, then Morton key. */
typedef struct sp_batch {
    int64_t epoch, position; /* of the step it belongs to */
    int micro, n_micro;
    int step_samples; /* of the whole step, all ranks */
    int n_samples;
    const int64_t *sample_id; /* [n_samples] host */
    int32_t n;                /* voxels */
    const float *features;    /* [n][c] backend memory, normalized */
    const int32_t *labels;    /* [n] backend memory; class or SP_IGNORE */
    sp_plan plan;
    int64_t cost_max, cost_sum; /* of the deal, for the imbalance figure */
    /* Evaluation and prediction only (NULL otherwise), host: */
    const sp_sample *sample; /* [n_samples] as stored, points included */
    const int32_t *row_of;   /* stored voxel -> row of the batch; sample b's begin at */
    const int64_t *row_of_at; /* row_of[row_of_at[b]], [n_samples + 1] */
} sp_batch;

typedef struct sp_loader sp_loader;

enum { SP_LOADER_SLOTS = 3 }; /* batches that a run's loader holds */

typedef struct sp_loader_options {
    const sp_dataset *set; /* borrowed, like the rest */
    const sp_config *config;
    const sp_graph *graph;
    sp_backend *backend;
    const sp_sampler *sampler;
    const int *columns; /* [n_columns] feature columns */
    int n_columns;
    const double *mean, *std; /* [n_columns] of the selection; NULL: not normalized */
    bool is_training;         /* augmentation; false: one pass, stored rows kept */
    bool with_points;
    int n_slots; /* >= 2 */
} sp_loader_options;

/* The shape of batches, as far as memory depends on it. */
typedef struct sp_loader_shape {
    int n_columns, n_readers;
    bool has_subvoxel, is_training, verify;
    bool is_merging; /* stored voxels may become one: turned freely, or coarser */
} sp_loader_shape;

typedef struct sp_loader_bytes {
    int64_t slot;   /* host memory of a slot */
    int64_t device; /* the backend's memory of a slot, without the plan */
    int64_t
        scratch; /* host memory of planner and readers, with plan_scratch of a plan */
} sp_loader_bytes;

/* A batch of n_samples with so many voxels and points as stored and voxels as the
 * network has them. Pure. */
sp_loader_bytes sp_loader_size(const sp_loader_shape *shape, int n_samples,
                               int64_t stored, int64_t points, int64_t voxels,
                               int64_t plan_scratch);

/* Starts the threads. They do nothing until sp_loader_seek. Local. SP_EDATA where
 * data.voxel_size is no multiple of the shards', SP_EMEM. */
sp_status sp_loader_create(sp_loader **loader, const sp_loader_options *options);
/* Joins the threads, in the middle of work too; NULL is fine. */
void sp_loader_destroy(sp_loader *loader);
/* Begin at a position. Training goes on through the following epochs without end (a new
 * epoch begins by itself); evaluation ends after one pass. Batches in flight are
 * dropped; those not recycled are void. Waits for the samples just being read. */
sp_status sp_loader_seek(sp_loader *loader, sp_position at);
/* The next micro-batch; *batch NULL at the end of an evaluation pass, and after a
 * failure, but for SP_EMEM, where it tells whose samples there is no memory for.
 * *waited_s (may be
 * NULL) is the time the caller waited. A failure of any thread comes where its batch
 * would have, and again until the next seek. With data.on_error = "skip" a sample that
 * cannot be read is empty here, with a warning that names it: the other ranks need not
 * know, since batches are of any size and losses are divided by what was summed. */
sp_status sp_loader_next(sp_loader *loader, sp_batch **batch, double *waited_s);
/* Give a batch back. At most n_slots - 1 may be held when the next one is asked for. */
sp_status sp_loader_recycle(sp_loader *loader, sp_batch *batch);
/* Seconds since the last call that the planner spent on plans, and on everything else:
 * waiting for readers, augmenting, voxelizing, collating. */
void sp_loader_times(sp_loader *loader, double *plan_s, double *read_s);
/* Samples left out so far on this rank (data.on_error = "skip"). */
int64_t sp_loader_skipped(sp_loader *loader);

#endif

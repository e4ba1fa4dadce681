/* Batches, prepared ahead of the training. The folder's flow:
 *
 *     sp_shard_*  headers of all files --> index of the data set, on every rank
 *     sp_sampler  index, seed, epoch, position --> samples of a step, dealt to ranks
 *                                                         |
 *     sp_loader   a free slot <---------------------------+
 *       readers   sp_sample: pread, checks    --> arrays of each sample, in the slot
 *       planners  sp_voxel: augment, voxelize --> voxels of a batch --> plan_build
 *                                                 --> batch in the backend's memory
 *       ring      of slots, filled in order   --> sp_loader_next --> training thread
 *                                                                         |
 *                 a free slot <-- sp_loader_recycle <---------------------+
 *
 * Readers (data.readers threads) only call pread. Each planner (data.planners threads)
 * augments and voxelizes a batch of its own; batches are planned one after another, in
 * their order. If the planner would share its only core with the training thread,
 * sp_loader_next voxelizes and plans instead: a planner that interrupts the training at
 * any time makes ranks wait for each other at the next sum over them. Results depend on
 * the order in which samples are dealt and never on which thread was first. A failure
 * in any thread is stored in the slot, and sp_loader_next raises it in place of the
 * batch. */
#ifndef SP_LOADER_H
#define SP_LOADER_H

#include "data/sp_sampler.h"
#include "compute/sp_backend.h"
#include "data/sp_shard.h"

/* One micro-batch of this rank. It belongs to its slot until sp_loader_recycle. Rows
 * are in the plan's order: by sample, then by Morton key. */
typedef struct sp_batch {
    int64_t epoch, position; /* the position where the step begins */
    int micro, n_micro;
    int view;         /* which of the loader's views; 0 without views */
    int step_samples; /* samples of the whole step, on all ranks */
    int n_samples;
    /* Samples that are read for it: the batch's own, then the partners that are mixed
     * into them. */
    int n_reads;
    const int64_t *sample_id; /* [n_reads] host memory */
    int32_t n;                /* voxels of all samples together */
    const float *features;    /* [n][c] backend memory; normalized */
    const int32_t *labels;    /* [n] backend memory; class or SP_IGNORE */
    sp_plan plan;
    /* Greatest and total cost dealt to a rank, for the log's imbalance. */
    int64_t cost_max, cost_sum;
    /* The next three are set in evaluation and prediction only, in host memory; else
     * NULL. */
    /* [n_samples] as stored, with points if the set has them. */
    const sp_sample *sample;
    /* The row of the batch that each stored voxel became, -1 if it was dropped. The
     * voxels of sample b begin at row_of[row_of_at[b]]; row_of_at has n_samples + 1
     * entries. */
    const int32_t *row_of;
    const int64_t *row_of_at;
} sp_batch;

typedef struct sp_loader sp_loader;

/* Slots of the loader of a run: one that is trained on, one that waits, and one for each
 * of data.planners. */
enum { SP_LOADER_MOST_PLANNERS = 16, SP_LOADER_MOST_SLOTS = SP_LOADER_MOST_PLANNERS + 2 };
static inline int sp_loader_slots(const sp_config *config)
{
    return config->data.planners + 2;
}
/* Batches of a loader of n_slots slots that have a plan at a time. In memory of the host
 * one waits only with its samples: its plan takes a small part of a step, and begins as
 * the step before it does. */
static inline int sp_loader_memories(const sp_config *config, bool is_host, int n_slots)
{
    const int most = config->data.planners + (is_host ? 1 : 2);

    return most < n_slots ? most : n_slots;
}

typedef struct sp_loader_options {
    const sp_dataset *set; /* borrowed, as are all pointers here */
    const sp_config *config;
    const sp_plan_spec *spec; /* what a plan of the network has */
    sp_backend *backend;
    const sp_sampler *sampler;
    const int *columns; /* [n_columns] feature columns that are read */
    int n_columns;
    /* [n_columns] statistics of these columns; NULL: not normalized. */
    const double *mean, *std;
    sp_vectors vectors; /* the vectors in these columns; n may be 0 */
    const struct sp_bank *bank; /* of a training; NULL: nothing is pasted */
    /* True: augments, goes on without end; false: one pass, stored rows are kept. */
    bool is_training;
    bool with_points;
    bool with_context; /* the points of margins too; the set has blocks */
    /* An evaluation gives each micro-batch n_views times in a row, augmented by
     * view[0], view[1], ...; view[0] changes nothing. n_views 0 is one view. */
    const struct sp_augment *view;
    int n_views;
    /* An evaluation leaves out the voxels outside of this box (eval.range) and ignores
     * their labels and their points'; NULL or empty: it has all. */
    const sp_doubles *range;
    int n_slots; /* at least 2 */
    /* sp_loader_next voxelizes and plans a batch once its samples are read; else
     * planners do, ahead. */
    bool is_filled_by_caller;
} sp_loader_options;

/* The options of a loader that determine the memory of a batch. */
typedef struct sp_loader_shape {
    int n_columns, n_readers, n_planners;
    bool has_subvoxel, is_training, verify;
    /* Several stored voxels may become one: they are turned freely, made coarser, or
     * mixed. */
    bool is_merging;
    bool is_displacing; /* voxels are displaced one by one */
    bool is_mixing;     /* samples are mixed (data/sp_mix.h); partners count too */
} sp_loader_shape;

typedef struct sp_loader_bytes {
    int64_t slot;   /* the host memory of a slot */
    int64_t device; /* the backend's memory of a slot, without the plan */
    /* The host memory that planners and readers need while they work, plan_scratch
     * included. */
    int64_t scratch;
} sp_loader_bytes;

/* Returns the bytes of a batch of n_samples samples with `stored` voxels and `points`
 * points in the shards, and `voxels` voxels after voxelization. Pure. */
sp_loader_bytes sp_loader_size(const sp_loader_shape *shape, int n_samples,
                               int64_t stored, int64_t points, int64_t voxels,
                               int64_t plan_scratch);

/* Creates a loader and starts its threads, which wait for sp_loader_seek. Local.
 * SP_EDATA: data.voxel_size is not a multiple of the shards'; SP_EMEM. */
sp_status sp_loader_create(sp_loader **loader, const sp_loader_options *options);
/* Ends the threads, in the middle of their work too, and frees all. NULL does nothing.
 */
void sp_loader_destroy(sp_loader *loader);
/* Begins at a position; comes before the first sp_loader_next. A training goes on
 * through the following epochs without end; an evaluation ends after one pass. Batches
 * on their way are dropped, and batches that were not recycled become void. Waits for
 * the samples that are just being read. */
sp_status sp_loader_seek(sp_loader *loader, sp_position at);
/* Waits for the next micro-batch. *batch is NULL at the end of an evaluation's pass and
 * after a failure other than SP_EMEM, when it names the samples that memory ran out
 * for. *waited_s (may be NULL) is the time that the caller waited for other threads. A
 * failure of any thread comes in place of its batch, and again until the next seek.
 * With data.on_error = "skip" a sample that cannot be read is empty here, and one
 * warning of the loader names it. The other ranks need not know of it, since batches
 * may have any size and losses are divided by the number of voxels that were summed. */
sp_status sp_loader_next(sp_loader *loader, sp_batch **batch, double *waited_s);
/* Returns a batch; its slot is filled anew. The caller may hold at most n_slots - 1
 * batches, and data.planners, when it asks for the next one. */
sp_status sp_loader_recycle(sp_loader *loader, sp_batch *batch);
/* Returns the seconds since the last call that a planner spent on plans, and on
 * everything else: waiting for readers and for its turn to plan, augmenting, voxelizing,
 * collating. Means over the planners. */
void sp_loader_times(sp_loader *loader, double *plan_s, double *read_s);

#endif

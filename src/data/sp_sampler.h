/* Deals samples: which samples a step holds, and which rank computes which. The results
 * are pure functions of the seed, the epoch and the position, so that a run can
 * continue anywhere on any number of ranks.
 *
 *     epoch order   a keyed permutation of 0 .. S-1: every sample once, not one added
 *                   or dropped; an evaluation uses 0 .. S-1 in this order
 *     step          the next `effective` positions (the last step of an epoch may be
 *                   shorter)
 *     group         the world, a node or a rank (batch.per): each has a run of the
 *                   step's positions of its own; the runs are as equal as possible
 *     micro-batch   a group's positions are cut into n_micro equal runs; each run is
 *                   dealt to the ranks of the group, the longest sample first to the
 *                   least loaded rank (batch.balance), or in equal runs
 *
 * Every rank computes all of this alike from the index of the data set, without a
 * message. A step is cut into more micro-batches than the deck asks for if a rank would
 * hold more voxels than batch.voxel_budget, or need more bytes than it may use. With
 * one group the micro-batches do not depend on the number of ranks unless such a bound
 * asks for more of them; with train.deterministic = "world" the bounds are applied as
 * if one rank held all samples, so that they never do.
 *
 * A sample that augment.crop_voxels bounds for certain counts with the voxels that are
 * left at most, and with this share of its cost; other crops do not count.
 *
 * Objects that augment.paste pastes count in each sample with augment.paste_voxels, but
 * have no cost: it is about the same for all samples.
 *
 * A sample that augment.mix mixes with a partner has the voxels and bytes of both, the
 * most that the mixed sample can have, and the cost that sp_mix_cost returns. */
#ifndef SP_SAMPLER_H
#define SP_SAMPLER_H

#include "comm/sp_comm.h"
#include "deck/sp_deck.h"

struct sp_dataset; /* data/sp_shard.h */

/* The position of a run in its data, which checkpoints store. */
typedef struct sp_position {
    int64_t epoch;    /* counts from 0 */
    int64_t position; /* samples of this epoch that all ranks together have used */
} sp_position;

/* The epoch of the last step, from 1; 0 before the first. */
static inline int64_t sp_position_epochs(sp_position at)
{
    return at.epoch + (at.position > 0);
}

/* A bound on the bytes of the samples that a rank holds at a time, the same on all
 * ranks. */
typedef struct sp_bound {
    int64_t bytes;
    /* Returns the bytes that a sample needs, at least 1; several samples need the sum.
     * The thread that deals calls it. NULL: no bound. */
    int64_t (*of_sample)(void *arg, int64_t sample);
    void *arg;
} sp_bound;

typedef struct sp_sampler {
    const struct sp_dataset *set; /* borrowed */
    const sp_comm *comm;          /* borrowed */
    const sp_config *mixing;      /* borrowed; NULL: samples are not mixed */
    uint64_t seed;
    bool is_shuffled;
    sp_per per; /* batch.size counts these ranks' samples */
    /* Samples of a step: as batch.per counts them, and in the world; there a step has
     * at most all samples of the set. */
    int size, effective;
    int n_groups; /* the world, nodes or ranks that have samples of their own */
    int accumulate;
    bool balance;
    int64_t voxel_budget;
    const sp_config *cropping; /* borrowed; NULL: samples are not cropped */
    int64_t pasted;            /* the most voxels that are pasted into a sample */
    sp_bound bound;
    bool is_whole; /* bounds are applied as if one rank held all samples */
    struct sp_sampler_scratch *scratch;
    /* The sampler of another evaluation, which runs at another time and in the same
     * memory (api/memory/sp_budget.h); borrowed; NULL: there is no other. */
    struct sp_sampler *next;
} sp_sampler;

/* The part of a micro-batch that this rank computes. */
typedef struct sp_assignment {
    int n_samples;         /* samples of this rank */
    const int64_t *sample; /* [n_samples] ids in the data set, in order of position */
    int64_t cost_max, cost_sum; /* greatest and total cost that was dealt to a rank */
} sp_assignment;

/* Opens a sampler. Local. A training deals as batch.size, per and accumulate say, an
 * evaluation batch.eval_size samples of the world. SP_EUSAGE: the batch is no positive
 * int; SP_EMEM. */
sp_status sp_sampler_open(sp_sampler *sampler, const struct sp_dataset *set,
                          const sp_comm *comm, const sp_config *config,
                          bool is_training);
void sp_sampler_close(sp_sampler *sampler);
/* Sets the bound. The call must come before a loader uses the sampler. */
void sp_sampler_limit(sp_sampler *sampler, const sp_bound *bound);

/* The sample at a position of an epoch. Thread-safe; needs about 100 ns. */
int64_t sp_sampler_at(const sp_sampler *sampler, int64_t epoch, int64_t position);
/* The sample that is mixed into this one (data/sp_mix.h), or -1. Thread-safe. */
int64_t sp_sampler_partner(const sp_sampler *sampler, int64_t epoch, int64_t sample);
/* The number of samples of the step that begins at `at`, and *n_micro, its number of
 * micro-batches, both the same on all ranks. 0: the epoch is over. sp_sampler_step and
 * sp_sampler_assign allocate nothing and share memory of the sampler, so one thread
 * calls them at a time. */
int sp_sampler_step(const sp_sampler *sampler, sp_position at, int *n_micro);
/* Deals micro-batch `micro` of that step. The arrays of *assigned are valid until the
 * next call. A rank may get no sample. */
void sp_sampler_assign(const sp_sampler *sampler, sp_position at, int micro,
                       sp_assignment *assigned);
/* Returns the need of a step of the samples with the most voxels, each mixed with the
 * largest one if samples are mixed:
 * *bytes is the most that a rank would hold as the deck cuts the step, *n_micro its
 * number of micro-batches. The bound's of_sample must be set; its bytes may be 0 for no
 * bound. */
void sp_sampler_costliest(const sp_sampler *sampler, int64_t *bytes, int *n_micro);
/* The number of optimizer steps of an epoch. */
int64_t sp_sampler_steps_per_epoch(const sp_sampler *sampler);
/* The number of samples of the n_steps steps from this position of an epoch on, into
 * later epochs too; INT64_MAX if it does not fit. */
int64_t sp_sampler_samples(const sp_sampler *sampler, int64_t position,
                           int64_t n_steps);

#endif

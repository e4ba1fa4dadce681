/* Which samples a step holds and which rank computes which: pure functions of the seed,
 * the epoch and the position, so that a run can continue anywhere on any number of
 * ranks.
 *
 *     epoch order   a keyed permutation of 0 .. S-1; every sample once, nothing padded
 *                   or dropped; evaluation takes 0 .. S-1 as they stand
 *     step          the next `effective` positions (the last step of an epoch may be
 *                   short)
 *     group         the world, a node or a rank (batch.per): it has a run of the step's
 *                   positions of its own; runs are as equal as possible
 *     micro-batch   a group's positions cut into n_micro equal runs; each is dealt to
 *                   the ranks of the group, longest sample first to the least loaded
 *                   rank, or in equal runs (batch.balance)
 *
 * All of it is computed alike on every rank from the index of the data set, without a
 * message. A step is cut into more micro-batches than the deck's where a rank would
 * hold more voxels than batch.voxel_budget, or more bytes than its memory has. With one
 * group the micro-batches do not depend on the ranks unless such a bound asks for more
 * of them; with train.deterministic = "world" bounds are kept as if one rank held all,
 * so that they never do.
 */
#ifndef SP_SAMPLER_H
#define SP_SAMPLER_H

#include "comm/sp_comm.h"
#include "data/sp_shard.h"
#include "deck/sp_deck.h"

/* The memory of a rank for samples, the same on all ranks. */
typedef struct sp_bound {
    int64_t bytes;
    /* What a sample takes of them, at least 1; what several take is the sum. Called by
     * the thread that deals. NULL: no bound. */
    int64_t (*of_sample)(void *arg, int64_t sample);
    void *arg;
} sp_bound;

typedef struct sp_sampler {
    const sp_dataset *set; /* borrowed */
    const sp_comm *comm;   /* borrowed */
    uint64_t seed;
    bool is_shuffled;
    sp_per per;
    int size, effective; /* samples of a step: per scope, in the world */
    int accumulate;
    bool balance;
    int64_t voxel_budget;
    sp_bound bound;
    bool is_whole; /* bounds are kept as if one rank held all */
    struct sp_sampler_scratch *scratch;
} sp_sampler;

/* Where a run stands. The checkpoint stores it. */
typedef struct sp_position {
    int64_t epoch;    /* from 0 */
    int64_t position; /* samples of this epoch already used, all ranks */
} sp_position;

/* One micro-batch as this rank sees it. */
typedef struct sp_deal {
    int n_samples;              /* of this rank */
    const int64_t *sample;      /* [n_samples] ids, in order of position */
    int n_world;                /* samples of the micro-batch on all ranks */
    int64_t cost_max, cost_sum; /* over ranks: max and sum of the dealt cost */
} sp_deal;

/* Local. Training deals batch.size, per and accumulate; evaluation batch.eval_size of
 * the world. SP_EUSAGE for a batch that is no positive int, SP_EMEM. */
sp_status sp_sampler_open(sp_sampler *sampler, const sp_dataset *set,
                          const sp_comm *comm, const sp_config *config,
                          bool is_training);
void sp_sampler_close(sp_sampler *sampler);
/* From now on; before the sampler is in use. */
void sp_sampler_limit(sp_sampler *sampler, const sp_bound *bound);

/* Sample at a position of an epoch. Thread-safe, about 100 ns. */
int64_t sp_sampler_at(const sp_sampler *sampler, int64_t epoch, int64_t position);
/* Samples of the step that begins at `at`, and its number of micro-batches (same on all
 * ranks). 0 samples: the epoch is over. step and deal allocate nothing and share
 * scratch: one thread at a time. */
int sp_sampler_step(const sp_sampler *sampler, sp_position at, int *n_micro);
/* Micro-batch `micro` of that step; the arrays stay valid until the next call. A rank
 * may get no sample. */
sp_status sp_sampler_deal(const sp_sampler *sampler, sp_position at, int micro,
                          sp_deal *deal);
/* The dearest step there can be, of the samples with the most voxels. *bytes: the most
 * that a rank would hold of it as the deck cuts it, *n_micro: what it is cut into. The
 * bound's of_sample is there, its bytes may be 0 for none. */
void sp_sampler_dearest(const sp_sampler *sampler, int64_t *bytes, int *n_micro);
/* Optimizer steps of an epoch. */
int64_t sp_sampler_steps_per_epoch(const sp_sampler *sampler);

#endif

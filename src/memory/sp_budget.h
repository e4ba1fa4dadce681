/* What a step may take of a rank's memory: micro-batches are cut so that they fit.
 *
 *     memory   bytes that a rank may use, the same on all ranks
 *     fixed    of them, weights and what else does not depend on the batch
 *     room     the rest; the samples that a rank holds at a time fit into it
 *
 * What a sample takes is foreseen from the index alone, so that every rank cuts every
 * step alike without a message: its voxels at each level from /cost, else in the ratios
 * of the largest sample's plan. Plans of some samples, as augmentation leaves them, tell
 * how much more than foreseen there can be. All of it is a function of deck, data and
 * memory.
 */
#ifndef SP_BUDGET_H
#define SP_BUDGET_H

#include "memory/sp_foresee.h"
#include "data/sp_sampler.h"

/* Zeroed: nothing is bounded. Not to be moved while a sampler has its bound. */
typedef struct sp_budget {
    sp_foresight what;
    const sp_dataset *set; /* borrowed */
    bool is_training;
    double share;        /* of the activations that counts */
    int64_t room;        /* bytes */
    sp_load like;        /* of the largest sample, as stored */
    int64_t like_voxels; /* of it in the file */
    double excess;       /* most bytes of a plan over those foreseen */
    int64_t *known;      /* [n_samples] foreseen so far, times excess; else 0 */
    /* The dearest step: bytes of its samples on a rank as the deck cuts it, what that
     * is cut into, and by the deck alone. */
    int64_t dearest_bytes;
    int64_t largest_bytes; /* of the sample with the most voxels */
    int n_micro, n_micro_asked;
    bool is_bound; /* some step may be cut for want of memory */
} sp_budget;

/* What does not depend on samples, arenas' last pages included. */
int64_t sp_budget_fixed(const sp_foresight *what, bool is_training);

/* Collective, agreed: bounds what the sampler deals to `room` bytes a rank. share: 1,
 * or for evaluations beside a training, whose activations it has, what part of them
 * must fit into this room. Reads some samples on rank 0: SP_EDATA, SP_EIO, SP_EMEM.
 * *who (may be NULL): the rank that failed. Close after failure too. */
sp_status sp_budget_open(sp_budget *budget, const sp_foresight *what,
                         sp_sampler *sampler, sp_comm *comm, bool is_training,
                         double share, int64_t room, int *who);
void sp_budget_close(sp_budget *budget);

/* Bytes of a sample that are foreseen, at least 1. */
int64_t sp_budget_of_sample(void *budget, int64_t sample);

/* Local: memory has run out (SP_EMEM, raised last) over these samples: the same with
 * whose they are, what was foreseen, and what there is. */
sp_status sp_budget_explain(sp_budget *budget, int64_t memory, const int64_t *sample,
                            int n);

#endif

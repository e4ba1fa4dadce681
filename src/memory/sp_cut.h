/* Steps that are cut for want of memory: the budgets of a run's training and of its
 * evaluations, and what the user hears of them.
 *
 *     memory   | fixed | evaluation | training                               |
 *
 * An evaluation beside a training uses the training's activations; of its own it has
 * batches and their plans, for which at most an eighth is set aside, or what its
 * largest sample needs. Its activations, which then fit into seven times that, count by
 * a seventh. */
#ifndef SP_CUT_H
#define SP_CUT_H

#include "memory/sp_budget.h"

/* Zeroed: nothing is bounded. Not to be moved while open. */
typedef struct sp_cut {
    int64_t memory; /* bytes that a rank may use, the same on all ranks; 0: no bound */
    int64_t base;   /* of them, what samples of a training step cannot have */
    sp_budget train, eval;
} sp_cut;

/* What is for us of a device's memory: all but a sixteenth, which drivers and libraries
 * need (1 GiB at least; of small devices an eighth); whole MiB. */
int64_t sp_cut_memory_of(int64_t device_bytes);

/* Collective, agreed: bounds what the samplers deal, before they are in use. train,
 * eval: NULL for none. memory 0: no bound. Errors as sp_budget_open; close after
 * failure too. */
sp_status sp_cut_open(sp_cut *cut, const sp_foresight *what, sp_sampler *train,
                      sp_sampler *eval, sp_comm *comm, int64_t memory, int *who);
void sp_cut_close(sp_cut *cut);
/* Rank 0 says how much memory there is, of device_bytes (0: of the host), what the
 * dearest training step needs, and how it is cut. Nothing without a bound. */
void sp_cut_print(const sp_cut *cut, int64_t device_bytes);

#endif

/* Inside sp_budgets: sp_budget_samples.c estimates the need of the samples of a data
 * set, sp_budget_steps.c of a run's steps; sp_budget.c makes the bounds from it. */
#ifndef SP_BUDGET_INTERNAL_H
#define SP_BUDGET_INTERNAL_H

#include "api/memory/sp_budget.h"
#include "base/sp_number.h"

/* The second index of sp_budget.room and sp_budget.largest: batches and scratch. */
enum { SP_REST = SP_BATCHES };

/* The estimate is multiplied by the greatest excess that was found in the compared
 * plans and by this margin. If twice the estimate fits, no plan is compared. */
#define SP_BUDGET_MARGIN   1.0625
#define SP_BUDGET_GENEROUS 2.0

static inline double ratio(int64_t a, int64_t b)
{
    return b > 0 ? (double)a / (double)b : 1;
}

static inline double mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* The sum of the parts: activations, batches and scratch. Bytes; pure. */
int64_t sp_budget_sum(const int64_t part[SP_PARTS]);
/* The bytes that depend on no sample: program, weights, and what both loaders and the
 * network take without one. Pure. */
int64_t sp_budgets_fixed(const sp_budgets *budgets);
/* The estimated parts of a sample, which the next estimates may overwrite. Local. */
const int64_t *sp_budget_estimate(sp_budget *b, int64_t sample);
/* Batches of a micro-batch: one for each view of an evaluation. */
int sp_budget_views(const sp_budget *b);
/* The bytes of activations that the sample needs with train.recompute. */
int64_t sp_budget_recomputed(sp_budget *b, int64_t sample);
enum { SP_RECOMPUTED_TEXT = 80 };
/* Prints that the sample needs so many bytes with train.recompute; "" if 0. */
const char *sp_budget_print_recomputed(char text[SP_RECOMPUTED_TEXT], int64_t bytes);
/* Fails with SP_EMEM and a message about the sample, which needs `need` bytes (0: more
 * than there was room to plan it in), and `recomputed` bytes with train.recompute (0:
 * it would not fit either). */
sp_status sp_budget_refuse(const sp_budget *b, int64_t sample, int64_t need,
                           int64_t recomputed, int64_t memory);

/* Opens the budget of a sampler, which is borrowed until the close; without one (NULL)
 * it stays zeroed. Local. SP_EMEM; close after a failure too. */
sp_status sp_budget_open(sp_budget *b, const sp_estimated_run *what,
                         sp_sampler *sampler, bool is_training);
/* Closes those of further sets too. */
void sp_budget_close(sp_budget *b);
/* True if the memory is the host's, not a device's. The budget was opened for a
 * sampler. */
bool sp_budget_is_host(const sp_budget *b);
/* Sets how many slots of the loader hold a batch: all 3, unless it has fewer batches. */
void sp_budget_set_slots(sp_budget *b, int64_t n_batches);
/* Sets part to the bytes that a batch of this load needs beyond a batch without
 * samples. Local. */
void sp_budget_bytes_of_load(sp_budget *b, const sp_load *load, int64_t part[SP_PARTS]);
/* The measure of a sample for the sampler (sp_bound): its bytes of b->part, or with
 * SP_PARTS the share of the room that it fills more of, in bytes of both rooms. */
int64_t sp_budget_of_sample(void *budget, int64_t sample);

/* Runs one of the next three functions on rank 0, which reads samples, and broadcasts
 * `reference`, `some` and `excess`. Collective; all ranks return the same status. */
sp_status sp_budget_read(sp_budget *b, const sp_budgets *budgets, sp_comm *comm,
                         sp_status (*what_of)(sp_budget *b, const sp_budgets *budgets));
/* Sets `reference` by the plan of the largest sample. */
sp_status sp_budget_plan_largest(sp_budget *b, const sp_budgets *budgets);
/* Sets `excess` by the largest sample and some others as augmentation leaves them, times
 * SP_BUDGET_MARGIN. */
sp_status sp_budget_compare(sp_budget *b, const sp_budgets *budgets);
/* In a training sets `excess` by the largest sample, without the margin. In an evaluation
 * sets `some` too, so that the samples of a small set are known by their own plans. */
sp_status sp_budget_plan_some(sp_budget *b, const sp_budgets *budgets);

/* The estimate of a sample that was dealt lately, or zeros. */
const int64_t *sp_budget_cached(const sp_budget *b, int64_t sample);

/* Sets `costliest` to the need of the worst step that could be dealt, as the deck cuts
 * it.
 */
void sp_budget_find_costliest(sp_budget *b);
/* Sets `costliest` to the greatest need of any rank in the steps that the deck asks
 * for. Collective. */
sp_status sp_budget_simulate(sp_budget *b, sp_comm *comm);
/* Sets `largest`, and *worst to the sample with the greatest need. The estimate of one
 * sample costs 0.1 ms, so a single estimate, for a sample that is nowhere smaller than
 * any of the set, is used if it fills at most half of the room. */
void sp_budget_find_largest(sp_budget *b, int64_t room, int64_t *worst);

#endif

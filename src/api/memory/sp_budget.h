/* Steps and evaluations are cut into micro-batches so that a rank stays within its
 * memory.
 *
 *     memory | fixed | activations          | batches, scratch | the same    |
 *            |       | of the larger: both  | of training      | of evaluation |
 *
 * Arenas grow to their largest use and keep that size. A step with large activations
 * and another one with large batches therefore meet in memory even though they run one
 * after the other. So activations and the rest have a bound each (`room`), and the
 * samples that a rank holds at a time fit into both. An evaluation that runs during a
 * training uses the training's activations; an eighth of the memory is reserved for its
 * batches, or the need of its largest sample if that is more.
 *
 * `memory` is run.memory_mb, or on a device without it the result of
 * sp_budgets_memory_of; sp_memory_bound chooses it, and checkpoints keep it,
 * so that a continued run cuts its steps as before. The sampler applies the bound: it
 * asks sp_budget_of_sample for the share of a sample and ends a micro-batch when the
 * shares would exceed its limit (sp_sampler_limit).
 *
 * The need of a sample is estimated only from the index, so that every rank cuts every
 * step alike without a message: its voxels at each level come from /cost, or, if the
 * shards lack that, from the ratios in the plan of the largest sample. Rank 0 plans
 * some samples as augmentation leaves them; these show the factor by which the estimate
 * can be too low. All of it is a function of deck, data and memory. On the host a
 * sample that does not fit by itself is refused before it is read; on a device it runs
 * alone, and the run ends only if the device has no memory for it.
 */
#ifndef SP_BUDGET_H
#define SP_BUDGET_H

#include "api/memory/sp_estimate.h"
#include "data/sp_sampler.h"

enum { SP_BUDGET_SOME = 8 };

/* The estimated bytes of a sample, not multiplied by excess; activations are 0 if the
 * entry is empty. */
typedef struct sp_sample_estimate {
    int64_t sample, part[SP_PARTS];
} sp_sample_estimate;

/* The budget of a training, or of its evaluations of a set. Bytes are per rank. */
typedef struct sp_budget {
    sp_estimator estimator;
    sp_sampler *sampler;   /* borrowed; NULL: there is nothing to bound */
    const sp_dataset *set; /* the sampler's */
    /* The largest sample as stored. The estimate uses its ratios for the other samples.
     */
    sp_load reference;
    /* Samples at equal distances in the set, as stored. Their own plans are the
     * estimate. Only sp_budgets_estimate plans them; else n_some is 0. */
    int64_t n_some;
    sp_load some[SP_BUDGET_SOME];
    double excess; /* greatest ratio of the bytes of a plan to those estimated */
    int64_t empty[SP_PARTS]; /* bytes of a batch without samples */
    /* [n_known] samples estimated lately, sample i at i % n_known. Belongs to the thread
     * that deals samples once the loader runs. */
    sp_sample_estimate *cached;
    int64_t n_cached;
    int64_t room[2]; /* bounds of activations and of the rest; 0: no bound */
    int64_t costliest[SP_PARTS]; /* greatest need of a step as the deck cuts it */
    int64_t largest[2]; /* greatest need of a sample: activations, and the rest */
    /* The measure of a sample that sp_budget_of_sample gives the sampler: the bytes of
     * this part, or with SP_PARTS the share of both rooms that the sample fills. */
    int part;
    int n_micro; /* micro-batches of the step with the greatest need, as it is cut */
    int n_micro_asked; /* and as only the deck would cut it */
    /* The evaluation of another set (sp_sampler.next), owned; NULL: there is no other.
     * The first budget's `costliest` and `largest` are the most of all sets. */
    struct sp_budget *next;
} sp_budget;

/* The budgets of a run. Zeroed, nothing is bounded. Must not be moved while open, since
 * the samplers hold pointers to the budgets. */
typedef struct sp_budgets {
    int64_t memory; /* bytes that a rank may use, the same on all ranks; 0: no bound */
    sp_fixed_estimate fixed;
    sp_budget train, eval;
} sp_budgets;

/* The part of a device's memory that the program uses, in whole MiB: all but a
 * sixteenth for drivers and libraries, at least 1 GiB; on devices below 8 GiB an
 * eighth. */
int64_t sp_budgets_memory_of(int64_t device_bytes);

/* Bounds what the samplers deal; comes before they are used. Collective; all ranks
 * return the same status. train or eval is NULL if the run lacks it; eval->next has
 * further sets, which are evaluated one at a time. With memory 0
 * nothing is bounded and nothing is read; otherwise rank 0 reads some samples.
 * SP_EDATA, SP_EIO; SP_EMEM names a sample that does not fit, on the host. Close after
 * a failure too. */
sp_status sp_budgets_open(sp_budgets *budgets, const sp_estimated_run *what,
                          sp_sampler *train, sp_sampler *eval, sp_comm *comm,
                          int64_t memory);
/* Estimates `fixed` and `costliest` for the steps that the deck asks for, and bounds
 * nothing. Collective, as sp_budgets_open. */
sp_status sp_budgets_estimate(sp_budgets *budgets, const sp_estimated_run *what,
                              sp_sampler *train, sp_sampler *eval, sp_comm *comm);
void sp_budgets_close(sp_budgets *budgets);

/* The budget of the evaluations of this set, or the first one if nothing is bounded. */
const sp_budget *sp_budgets_eval(const sp_budgets *budgets, const sp_dataset *set);

/* Bytes that the steps with the greatest need take, evaluations included. */
int64_t sp_budgets_need(const sp_budgets *budgets);
/* Rank 0 logs how much memory there is, out of device_bytes (0: out of the host's), the
 * greatest need of a training step, and how the step is cut; without a training an
 * evaluation's step. Without a bound it logs nothing. */
void sp_budgets_print(const sp_budgets *budgets, int64_t device_bytes);
/* Adds to the error SP_EMEM, which was raised last, the samples that memory ran out on,
 * their estimated need, the size of the memory, and whether train.recompute would help.
 * Local. */
sp_status sp_budgets_explain(sp_budgets *budgets, const sp_budget *budget,
                             const int64_t *sample, int n);

#endif

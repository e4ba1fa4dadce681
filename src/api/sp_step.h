/* One training step, the same for sptrain and spbench.
 *
 *     for each micro-batch    READ      sp_loader_next: waits for the batch
 *                             FORWARD   sp_net_forward
 *                             LOSS      sp_net_train_loss
 *                             BACKWARD  sp_net_backward; full buckets are posted
 *                             RECYCLE   sp_loader_recycle: the batch is given back
 *     then                    REDUCE    sp_bucket_wait: sums over the ranks
 *                             UPDATE    sp_optim_update, running statistics
 *                             END
 *
 * The caller's hooks follow the step: sptrain writes the phase into heartbeat.bin,
 * spbench reads its clocks and counts the work.
 */
#ifndef SP_STEP_H
#define SP_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sp_error.h"
#include "data/sp_sampler.h"
#include "net/sp_bucket.h"
#include "net/sp_optim.h"

struct sp_batch;            /* data/sp_loader.h */
struct sp_checkpoint_state; /* checkpoint/sp_checkpoint.h */
struct sp_learner;          /* api/sp_learner.h */

typedef enum sp_step_part {
    SP_STEP_READ,
    SP_STEP_FORWARD,
    SP_STEP_LOSS,
    SP_STEP_BACKWARD,
    SP_STEP_RECYCLE,
    SP_STEP_REDUCE,
    SP_STEP_UPDATE,
    SP_STEP_END,
    SP_STEP_PARTS
} sp_step_part;

typedef struct sp_step_hooks {
    /* Called when a part begins, which is when the one before it ends. batch: the
     * micro-batch, from FORWARD to RECYCLE; else NULL. A failure is the step's. */
    sp_status (*begin)(void *arg, sp_step_part part, const struct sp_batch *batch);
    /* Asked once a step, before REDUCE: does this rank want the run to stop? NULL: it
     * does not. */
    bool (*is_stop_asked)(void *arg);
    void *arg;
} sp_step_hooks;

typedef struct sp_step_result {
    double loss;      /* over all ranks' labelled voxels; NAN: the weight is 0 */
    double grad_norm; /* of the mean gradient, not clipped; NAN: not finite */
    /* over all ranks: class weights of the labelled voxels, voxels */
    sp_tail sum;
    double data_wait_s, comm_exposed_s; /* seconds that this rank waited */
    sp_position at;                     /* the place where its samples begin */
    int n_samples, n_micro;             /* sum over the ranks; micro-batches */
    int64_t cost_max, cost_sum;         /* sums over the micro-batches; see sp_batch */
    /* The latest micro-batch, of the loader; after a failure it is still on loan. */
    const struct sp_batch *batch;
    int64_t updates; /* weight updates, this one included: the optimizer's t */
    bool is_updated; /* the weights have changed */
    /* They have not, since a number was not finite. A step without a labelled voxel is
     * neither updated nor skipped. The running statistics of batch norms move in any
     * case. */
    bool is_skipped;
    bool is_stopping; /* some rank wants the run to stop */
} sp_step_result;

/* Runs one step at these rates on a learner that is open, with a loader that
 * has begun. The update is left out if the sum of weights
 * is 0, as without a labelled voxel, or if the loss or the gradient is not finite; all
 * ranks decide alike, from the same sums. After the first steps it allocates nothing.
 * Collective, not agreed: to be called within sp_session_run_or_abort. Errors of the
 * parts. */
sp_status sp_step_run(struct sp_learner *learner, sp_rates rates,
                      const sp_step_hooks *hooks, sp_step_result *result);
/* The status rc of sp_step_run with this result. To SP_EMEM it adds the samples that did
 * not fit into memory (sp_budgets_explain). Local. */
sp_status sp_step_explain(const struct sp_learner *learner, sp_status rc,
                          const sp_step_result *result);
/* Moves the state past a step; the last step of an epoch ends it, and is true here.
 * Local. */
bool sp_step_advance(struct sp_checkpoint_state *state, const sp_step_result *result,
                     int64_t epoch_samples);
/* SP_ENUMERIC if the latest train.nonfinite_limit steps were all skipped. Local. */
sp_status sp_step_check_numbers(const sp_config *config,
                                const struct sp_checkpoint_state *state);
/* True once all steps that the deck asks for are done. Pure. */
bool sp_step_is_last(const sp_config *config, const struct sp_checkpoint_state *state);
/* The samples of the whole training as it goes on from this state; INT64_MAX: too many
 * to count. With train.steps they are counted from the state on, since the steps before
 * may be of another number of ranks. The sampler is open. Local. */
int64_t sp_step_total_samples(const struct sp_learner *learner,
                              const struct sp_checkpoint_state *state);
/* Logs the samples of this rank with a loss that was not finite in the latest step,
 * number `step` in this epoch, and the samples that are mixed into them, each with its
 * largest feature (the sample is read again for it). Local. */
sp_status sp_step_name_samples(struct sp_learner *learner, int64_t step, int64_t epoch);

#endif

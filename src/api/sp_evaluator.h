/* Evaluation: passes over data.val and over each of data.val_sets, one at a time.
 *
 * Functions are collective and agreed unless they are marked local. */
#ifndef SP_EVALUATOR_H
#define SP_EVALUATOR_H

#include "api/memory/sp_budget.h"
#include "api/sp_network.h"
#include "predict/sp_view.h"

struct sp_members; /* train/sp_members.h */

/* The pass over a set; zeroed if it was not opened. */
typedef struct sp_evaluation {
    const char *name;      /* of the set in data.val_sets; NULL: data.val */
    const sp_dataset *set; /* borrowed */
    sp_views views;
    sp_sampler sampler;
    sp_loader *loader; /* its planner distributes samples by the sampler; or NULL */
} sp_evaluation;

typedef struct sp_evaluator {
    /* Borrowed: of sp_evaluator_begin, then set by the user before the opening. */
    const sp_config *config;
    sp_comm *comm;
    sp_network *network;
    sp_budgets *budgets;        /* how batches are cut; zeroed: they are not */
    const sp_buckets *buckets;  /* a training's, which lend memory; NULL: no training */
    struct sp_members *members; /* models that are averaged with this one; or NULL */
    bool is_predicting; /* logits of stored voxels are kept until they are written */
    /* Told that this rank begins to read a batch, or to compute with it; or NULL. */
    void (*on_part)(void *arg, bool is_reading);
    void *arg;

    int64_t merging_bytes; /* memory of points that wait for their other blocks */
    sp_evaluation val;
    sp_evaluation *set; /* [n_sets] of data.val_sets, in the deck's order */
    int n_sets;
} sp_evaluator;

/* Local. */
void sp_evaluator_begin(sp_evaluator *evaluator, const sp_config *config, sp_comm *comm,
                        sp_network *network, sp_budgets *budgets);
/* Opens the pass over data.val, in its own order, in the views that eval.views asks for.
 * SP_EDATA: eval.merge, and the set does not record its blocks. */
sp_status sp_evaluator_open(sp_evaluator *evaluator, const sp_data_sets *data);
/* Opens the passes over data.val_sets, whose data are open, without loaders, and chains
 * their samplers to data.val's, so that memory is estimated for all of them. */
sp_status sp_evaluator_open_sets(sp_evaluator *evaluator, const sp_data_sets *data);
/* Opens the loader of a pass unless it is open, and closes the other passes' loaders, so
 * that one pass at a time takes memory. */
sp_status sp_evaluator_turn_to(sp_evaluator *evaluator, sp_evaluation *evaluation);
/* Checks the predictions of a batch of an evaluation of `set`. SP_ENUMERIC names the
 * shard, sample and voxel if the network's last layer gave a number that is not finite,
 * and the weight if one was loaded that is not finite: even if all outputs are finite,
 * since a ReLU makes a zero of -inf, and a variance of inf makes one of any number.
 * prediction: [batch->n], from sp_net_loss. Local. */
sp_status sp_evaluator_check(const sp_network *network, const sp_dataset *set,
                             const sp_batch *batch, const int32_t *prediction);
typedef sp_status sp_evaluator_work(void *arg, const sp_batch *batch);
/* Takes the next batch of a pass and does the work on it; *batch NULL: that was all. A
 * batch that memory does not suffice for is explained (SP_EMEM). Local. */
sp_status sp_evaluator_next(const sp_evaluator *evaluator,
                            const sp_evaluation *evaluation, sp_batch **batch,
                            sp_evaluator_work *work, void *arg);
/* Does the work on every batch of a pass. Local. */
sp_status sp_evaluator_run(const sp_evaluator *evaluator,
                           const sp_evaluation *evaluation, sp_evaluator_work *work,
                           void *arg);
/* Checks that the blocks of data.val and of data.val_sets can be merged if eval.merge
 * asks for it, and measures the memory of waiting points. Local. SP_EDATA as above. */
sp_status sp_evaluator_measure_merging(sp_evaluator *evaluator,
                                       const sp_data_sets *data);
/* Closes the budgets too, which refer to its samplers; a training's loader is closed
 * before. Local. */
void sp_evaluator_close(sp_evaluator *evaluator);

#endif

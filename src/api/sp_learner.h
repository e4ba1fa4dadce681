/* What a training adds to a network: gradients and their sums over the ranks, an
 * optimizer, and a loader. Steps run on it (sp_step.h).
 *
 *     sp_learner_open    checks the labels; opens mixing, the network with the deck's
 *                        weights of classes, buckets, optimizer, loader
 *     sp_learner_close
 *
 * Functions are collective and agreed unless they are marked local. */
#ifndef SP_LEARNER_H
#define SP_LEARNER_H

#include "api/memory/sp_budget.h"
#include "api/sp_network.h"
#include "data/sp_paste.h"

typedef struct sp_learner {
    /* Borrowed, of sp_learner_begin. */
    const sp_config *config;
    const sp_dataset *set; /* the training data */
    sp_network *network;
    sp_budgets *budgets; /* how steps are cut; zeroed: they are not */
    bool is_free_loss;   /* set before open: the caller's loss may need no labels */

    sp_bank *bank;      /* of augment.paste; NULL: nothing is pasted */
    sp_buckets buckets; /* the gradients, and their sums over the ranks */
    sp_optim optim;
    sp_sampler sampler;
    sp_loader *loader; /* its planner distributes samples by the sampler; or NULL */
} sp_learner;

/* Local. */
void sp_learner_begin(sp_learner *learner, const sp_config *config,
                      const sp_dataset *set, sp_network *network, sp_budgets *budgets);
/* Checks the deck's demands on a training: SP_EUSAGE if train.lovasz_per = "step" is
 * asked of several ranks or micro-batches, which would sort their own voxels only
 * (evaluations are per sample), and if run.weights names averages that train.ema does
 * not keep. Local. */
sp_status sp_learner_check_deck(const sp_config *config, const sp_comm *comm);
/* Reads the bank of augment.paste. Fails with SP_EDATA if that does not fit the training
 * set or augment.mix_classes names no class of it, with SP_EUSAGE if augment.color_* is
 * to change colours that it does not have, or augment.elastic has finer cells than
 * voxels. Local. */
sp_status sp_learner_open_mixing(sp_learner *learner);
/* Opens the network, whose columns are chosen, and all that its training needs, with a
 * loader of n_slots batches. The transport of the device is open. SP_EDATA: the training
 * set has no label (sp_labels_check); SP_EUSAGE: sp_learner_check_deck, or train.freeze
 * or lr_layers name no layer; as sp_learner_open_mixing and sp_network_open. */
sp_status sp_learner_open(sp_learner *learner, sp_device *device,
                          const sp_data_sets *data, int n_slots);
/* Exchanges weights and running statistics with the averages of train.ema: the network
 * computes with the averages until the next call. No step or checkpoint comes between
 * the two. Local. */
void sp_learner_exchange_average(sp_learner *learner);
/* Ends the loader's threads. Local; before the evaluator is closed. */
void sp_learner_close_loader(sp_learner *learner);
/* Local; before the network is closed. */
void sp_learner_close(sp_learner *learner);

/* ---- sp_learner_resume.c ---- */

/* The ranks or nodes that have a batch of their own each (batch.per), for
 * sp_checkpoint_state.groups; 0: all ranks share one. Local. */
int64_t sp_learner_groups(const sp_learner *learner);
/* Rank 0: SP_EUSAGE with both values unless this training may continue from the
 * checkpoint at `path`, whose state and norm were read: columns, classes, data index and
 * the keys of sp_config_kept_by_resume are equal. *old, which is zeroed, becomes the
 * checkpoint's deck; it is destroyed after a failure too. Local. */
sp_status sp_learner_check_continued(const sp_learner *learner, const sp_comm *comm,
                                     const sp_checkpoint_state *state,
                                     const sp_normalization *norm, const char *path,
                                     sp_config *old);

#endif

/* The objects of include/sptrain.h, as the files of this folder see them.
 *
 *     sp_comm_public.c (src/comm), api_deck.c, api_data.c    ranks, deck, data
 *     api_training_open.c   the parts of a training, in the order that a step needs them
 *     api_training.c        steps
 *     api_training_eval.c   evaluation, metrics of the caller
 *     api_training_weights.c   weights and checkpoints
 */
#ifndef API_H
#define API_H

#include <pthread.h>

#include "api/sp_evaluator.h"
#include "api/sp_learner.h"
#include "api/sp_loops.h"
#include "api/sp_step.h"
#include "base/sp_log.h"
#include "data/sp_source.h"
#include "net/sp_metrics.h"

#include <sptrain.h> /* after base/sp_error.h, which has the status values too */

struct sp_deck {
    char *text; /* "" for the defaults */
    int n;
    char **assignment; /* [n] what sp_deck_override has set */
};

/* Reads the deck into *config, which is destroyed after a failure too. */
sp_status api_deck_config(const sp_deck *deck, sp_config *config);

struct sp_data {
    sp_dataset set;
    /* The training data that the classes and columns of this set were matched to; NULL:
     * not yet matched. */
    const sp_data *matched_to;
    sp_sample_arrays *samples; /* of data in arrays; NULL: others */
    void *rows;                /* the arrays of data that was gathered */
};

/* Sums of the caller's metric. */
typedef struct api_metrics {
    int n;
    int64_t *exact;         /* [n][SP_EXACT_WIDE] */
    double *sample, *total; /* [n] of one sample; of all, after the evaluation */
} api_metrics;

struct sp_training {
    sp_training_options options;
    sp_config config;
    sp_data *train, *validation; /* of the caller */
    sp_data_sets data;           /* their data sets, borrowed */
    sp_device device;
    sp_network network;
    sp_learner learner;
    sp_evaluator evaluator;
    sp_budgets budgets;
    sp_log_route route;
    pthread_mutex_t log_lock;
    sp_checkpoint_state state;
    int64_t total_samples; /* of the training, from its state on */
    sp_metrics metrics;
    double *iou; /* [n_classes] */
    api_metrics own;
    sp_arena scratch; /* of an evaluation's batch */
};

/* Returns SP_EUSAGE if a pointer that the caller must give is NULL. */
#define API_NEED(pointer, name)                                                        \
    do                                                                                 \
        if (!(pointer))                                                                \
            return SP_FAIL(SP_EUSAGE, "%s: " name " is NULL", __func__);               \
    while (0)

typedef struct api_caller {
    const sp_log_route *route;
    sp_loops loops;
} api_caller;

/* Every function of a training begins and ends with these, so that its lines go to the
 * training's hooks, and loops of the caller are as they were. */
api_caller api_enter(sp_training *training);
int api_leave(api_caller before, sp_status rc);

#endif

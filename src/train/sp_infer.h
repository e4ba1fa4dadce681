/* A trained network ready to run over data.val, shared by eval and predict, or over
 * samples that the caller makes (label). Network, columns and feature statistics come
 * from the checkpoint's deck; keys on the command line override them. */
#ifndef SP_INFER_H
#define SP_INFER_H

#include <limits.h>

#include "api/sp_evaluator.h"
#include "data/sp_single_batch.h"
#include "train/sp_session.h"
#include "weights/sp_weights_model.h"

typedef struct sp_infer {
    sp_session session;
    sp_device device;
    sp_data_sets data; /* data.val, and data.val_sets if they were asked for */
    sp_network network;
    sp_evaluator evaluator;
    sp_budgets budgets;
    struct sp_members *members; /* of eval.members; NULL: no member is named */
    /* The command's config with the network of the checkpoint, which is the session's
     * from sp_infer_open on; zeroed if the checkpoint holds only weights. */
    sp_config config;
    bool is_checkpoint;  /* false: the file holds only weights */
    char path[PATH_MAX]; /* path of the checkpoint */
    sp_checkpoint_state state;
    /* The checkpoint on rank 0, from its verification until its weights are loaded, so
     * that they are those that were verified; else NULL. */
    struct sp_h5 *file;
    sp_weights_model packed; /* the same of a packed model, on rank 0; else zeroed */
} sp_infer;

/* with_sets: data.val_sets are opened too. Collective, agreed. infer need not be zeroed;
 * sp_infer_close follows after a failure too. */
sp_status sp_infer_open(sp_infer *infer, const sp_command *command, bool with_sets);
/* The two halves for a caller that makes the samples. sp_infer_open_model opens a
 * session without a folder and reads the head of a model, which is a run folder (its
 * best.h5, else its newest checkpoint), a checkpoint or a packed model: config, state and norm. The
 * caller sets columns, n_columns, n_classes and class_name of the network, and may
 * open the session's folder. sp_infer_open_net then opens device and network and loads
 * the weights: SP_ENUMERIC if these are not finite. Collective, agreed; close
 * likewise. */
sp_status sp_infer_open_model(sp_infer *infer, const sp_command *command,
                              const char *model);
sp_status sp_infer_open_net(sp_infer *infer);
/* Creates a batch of one sample as the open network reads it, in these views. set,
 * which describes the samples, views and range (eval.range, or NULL) are borrowed
 * (data/sp_single_batch.h). Local. */
sp_status sp_infer_open_single(sp_infer *infer, const sp_dataset *set,
                               const sp_views *views, const sp_doubles *range,
                               sp_single_batch **single);
/* The same halves for a further model that computes beside `first`, on its device and
 * for its command, without a folder. Close it after a failure too, before `first`;
 * close is local and reports nothing. */
sp_status sp_infer_open_beside(sp_infer *infer, const sp_infer *first,
                               const char *model);
sp_status sp_infer_open_net_beside(sp_infer *infer, const sp_infer *first);
void sp_infer_close_beside(sp_infer *infer);
/* Reports rc, frees everything and returns the status to exit with. Collective. */
sp_status sp_infer_close(sp_infer *infer, sp_status rc);

#endif

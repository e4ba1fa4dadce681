/* What every command of sptrain stands on: ranks, run folder, device, data, network.
 *
 *     sp_main --config--> sp_session_open_* (in the order below) --> train
 *                                                                  | eval | predict
 *
 * Setup is collective and agreed: every function here returns the same status on all
 * ranks. Inside a step ranks cannot agree; there `is_alone` is set, and
 * sp_session_close ends all ranks by itself if this one failed (the only caller of
 * sp_comm_abort).
 */
#ifndef SP_SESSION_H
#define SP_SESSION_H

#include "run/sp_checkpoint.h"
#include "memory/sp_cut.h"
#include "data/sp_loader.h"
#include "train/sp_mapping.h"
#include "net/sp_net.h"
#include "run/sp_run.h"
#include "compute/sp_transport.h"
#include "run/sp_watchdog.h"
#include "run/sp_witness.h"

/* A parsed command line. */
typedef struct sp_command {
    const char *name; /* "train", ... */
    const char *deck; /* path, for messages; "" when read from defaults */
    int n_overrides;
    char **overrides; /* [n_overrides] "section.key=value" */
    sp_config *config;
    sp_comm *comm;
} sp_command;

typedef struct sp_session {
    const sp_command *command;
    sp_config *config; /* command's */
    sp_comm *comm;     /* command's */
    sp_run run;
    sp_witness witness;
    sp_watchdog *watchdog; /* NULL: run.watchdog_s is 0 */
    sp_mapping mapping;    /* ranks to devices; no places where none was asked for */
    sp_backend backend;
    char device[128]; /* in words */
    char cores[200];  /* of this rank where they were divided, else "" */
    /* Of the device, per rank of it, the least of all ranks: all of it, what of it is
     * for us whoever else uses it, and what was free at the start. 0: the host's. */
    int64_t memory_total, memory_own, memory_free;
    sp_transport transport; /* zeroed: none was opened */
    sp_dataset train, val;
    int *columns, n_columns;
    int n_classes;
    char **class_name; /* [n_classes] of training data or model; borrowed */
    sp_normalization norm;
    sp_graph graph;
    sp_net net;
    bool has_net;
    sp_cut cut;
    int failed_rank; /* who diagnosed an agreed failure */
    bool is_alone;   /* in a step: a failure of this rank is not known to the others */
    int64_t epoch, step; /* where the run stands, for status and heartbeat */
} sp_session;

/* Collective: agree on rc (see sp_comm_agree) and remember who failed. */
sp_status sp_session_agree(sp_session *session, sp_status rc);

/* Zeroed session of a command; run folder opened with lock. Collective. */
sp_status sp_session_open(sp_session *session, const sp_command *command,
                          bool with_folder);
/* Collective: this rank's log in the run folder, with run.rank_logs. */
sp_status sp_session_open_log(sp_session *session);
/* Collective: choose and open the device; every rank the same kind. */
sp_status sp_session_open_device(sp_session *session);
/* Collective: choose and open what sums over ranks; before the network, for
 * training. */
sp_status sp_session_open_transport(sp_session *session);
/* Collective: indexes of data.train and data.val, as asked for; columns and classes.
 * Makes the sample data first where the deck names it and it is not there. */
sp_status sp_session_open_data(sp_session *session, bool with_train, bool with_val);
/* Names of columns and classes, and, where the deck wants them and they are there, means
 * and deviations, from the set's attributes into norm. Local. */
sp_status sp_session_normalize(sp_session *session, const sp_dataset *set);
/* `code` with both lists unless the set's columns, as chosen by data.features, are
 * those that a checkpoint names; one that names none fits. Local. */
sp_status sp_session_match_columns(const sp_session *session, const sp_dataset *set,
                                   const sp_normalization *checkpoint, const char *path,
                                   sp_status code);
/* The classes of the model that norm was read from, at `path`, become the session's, and
 * the set's labels are read as they are numbered there. SP_EDATA with both lists where
 * they are not the same set. Nothing changes where the model names none. Local. */
sp_status sp_session_take_classes(sp_session *session, sp_dataset *set,
                                  const char *path);
/* Rank 0 warns of each column whose statistics in the set are far from norm's. */
void sp_session_warn_far(const sp_session *session, const sp_dataset *set);
/* Collective: SP_EDATA where not one voxel of the training set has a label. Samples are
 * read until one has: commonly one a rank. */
sp_status sp_session_check_labels(sp_session *session);
/* Collective: graph and network from the config. class_weight may be NULL. */
sp_status sp_session_open_net(sp_session *session, const float *class_weight);
/* What foresight knows of the session; backend is borrowed. */
sp_foresight sp_session_foresight(const sp_session *session, const sp_backend *backend);
/* Collective: cuts what does not fit into the memory that a rank may use: run.memory_mb,
 * else what sp_cut_memory_of leaves of the device's, or others do. It is written back to
 * run.memory_mb, so that checkpoints keep it: a continued run cuts its steps alike,
 * whatever is free by then. train, eval: NULL for none. Once, before the loaders
 * begin. */
sp_status sp_session_cut(sp_session *session, sp_sampler *train, sp_sampler *eval);
/* Collective: weights (and optimizer and state if not NULL) of a file that rank 0
 * reads. */
sp_status sp_session_load(sp_session *session, const char *path, sp_optim *optim,
                          sp_checkpoint_state *state);
/* Collective: class weights of the deck from the label counts of the training set; NULL
 * if there are none. malloc'd. */
sp_status sp_session_class_weights(sp_session *session, float **weights);
/* Those of the checkpoint that norm was read from, for eval and predict; is_named: the
 * command line names train.class_weights, which then count (a frequency is the
 * checkpoint's). */
sp_status sp_session_kept_class_weights(sp_session *session, bool is_named,
                                        float **weights);

/* Report rc (each failure once: one diagnosis on standard error, status.json), free
 * all. Returns rc, or does not return where only this rank failed. */
sp_status sp_session_close(sp_session *session, sp_status rc);

#endif

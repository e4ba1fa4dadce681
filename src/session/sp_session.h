/* Setup shared by all commands of sptrain: ranks, run folder, device, data, network.
 *
 *     sp_main --config--> sp_session_open_* (in the order below) --> train
 *                                                                  | eval | predict
 *
 * Setup is collective and agreed: every function here returns the same status on all
 * ranks unless it is marked local. Within a step ranks cannot agree; there `is_alone`
 * is set, and sp_session_close ends all ranks by sp_comm_abort if this rank failed.
 * (sp_comm itself calls sp_comm_abort when the watchdog ends a wait.)
 */
#ifndef SP_SESSION_H
#define SP_SESSION_H

#include "compute/sp_transport.h"
#include "data/sp_loader.h"
#include "memory/sp_cut.h"
#include "net/sp_net.h"
#include "run/sp_checkpoint.h"
#include "run/sp_run.h"
#include "run/sp_watchdog.h"
#include "run/sp_witness.h"
#include "session/sp_mapping.h"

/* A parsed command line and what it acts on. All pointers are borrowed. */
typedef struct sp_command {
    const char *name; /* "train", ... */
    const char *deck; /* path, for messages */
    int n_overrides;
    char **overrides; /* [n_overrides] "section.key=value" */
    const sp_config *config;
    sp_comm *comm;
} sp_command;

/* What a session settles after the start, because it depends on the machine or on the
 * checkpoint that the run continues from. The config stays as the user wrote it. */
typedef struct sp_settled {
    /* Stands for run.memory_mb: MiB that a rank may use, the same on all ranks. It is
     * the deck's, then that of the checkpoint where the deck has none, then the bound
     * that sp_session_cut chose. 0: no bound. */
    double memory_mb;
} sp_settled;

typedef struct sp_session {
    const sp_command *command;
    /* The command's, or that of sp_infer, which has the checkpoint's network. */
    const sp_config *config;
    sp_settled settled;
    sp_comm *comm; /* the command's */
    sp_run run;
    sp_witness witness;
    sp_watchdog *watchdog; /* NULL: run.watchdog_s is 0 */
    sp_mapping mapping;    /* ranks to devices; empty where no device was asked for */
    sp_backend backend;
    char device[128]; /* description of the device for messages */
    /* Cores of this rank where the node's cores were divided, else "". */
    char cores[200];
    /* Memory of the device for each rank on it; of all ranks' values the least. total:
     * all of it; own: the part that this program may use on an idle device; free: the
     * part that was free at the start. 0: the ranks compute on the host. */
    int64_t memory_total, memory_own, memory_free;
    sp_transport transport;  /* zeroed: none was opened */
    sp_dataset train, val;   /* zeroed where they were not asked for */
    int *columns, n_columns; /* [n_columns] feature columns in use */
    int n_classes;
    char **class_name; /* [n_classes] from the training data or the model; borrowed */
    sp_normalization norm; /* of the training data or the model */
    sp_graph graph;
    sp_net net;
    bool has_net;
    sp_cut cut;      /* how steps are cut into micro-batches */
    int failed_rank; /* rank that reports an agreed failure */
    /* Within a step: the others do not know of a failure of this rank. */
    bool is_alone;
    int64_t epoch, step; /* position of the run, for status and heartbeat */
} sp_session;

/* Collective: agrees on rc (see sp_comm_agree) and remembers the rank that failed. */
sp_status sp_session_agree(sp_session *session, sp_status rc);

/* Collective: zeroes the session and opens the run folder with its lock, the watchdog
 * and the witness. with_folder false: nothing is written. sp_session_close follows in
 * any case. */
sp_status sp_session_open(sp_session *session, const sp_command *command,
                          bool with_folder);
/* Collective: opens this rank's log in the run folder where run.rank_logs
 * asks for it. */
sp_status sp_session_open_log(sp_session *session);
/* Collective: chooses and opens the device, the same kind on every rank, and tests it
 * (sp_selftest.h). */
sp_status sp_session_open_device(sp_session *session);
/* Collective: chooses and opens the transport of the sums over ranks. Precedes open_net
 * in a training. */
sp_status sp_session_open_transport(sp_session *session);
/* Collective: reads the indexes of data.train and data.val, as asked for, and settles
 * columns and classes. Makes the sample data first where the deck names them and they
 * do not exist. */
sp_status sp_session_open_data(sp_session *session, bool with_train, bool with_val);
/* Copies names of columns and classes from the set's attributes into norm, and means
 * and standard deviations if the deck wants normalization and the set has them.
 * Local. */
sp_status sp_session_normalize(sp_session *session, const sp_dataset *set);
/* Compares the set's columns, as chosen by data.features, with those that the
 * checkpoint at `path` names. Where they differ, the status is `code` and the message
 * has both lists. A checkpoint without names matches any columns. Local. */
sp_status sp_session_match_columns(const sp_session *session, const sp_dataset *set,
                                   const sp_normalization *checkpoint, const char *path,
                                   sp_status code);
/* Makes the classes of the model at `path`, which norm was read from, the session's,
 * and has the set's labels renumbered as the model numbers them. SP_EDATA with both
 * lists where the names are not the same set. A model without names changes nothing.
 * Local. */
sp_status sp_session_take_classes(sp_session *session, sp_dataset *set,
                                  const char *path);
/* Warns, on rank 0, of each column whose statistics in the set are far from norm's. */
void sp_session_warn_far(const sp_session *session, const sp_dataset *set);
/* Collective: SP_EDATA where no voxel of the training set has a label. Samples are read
 * until one has: commonly one a rank. */
sp_status sp_session_check_labels(sp_session *session);
/* Collective: builds graph and network from the config, with new random weights.
 * class_weight (host, borrowed during the call) may be NULL. */
sp_status sp_session_open_net(sp_session *session, const float *class_weight);
/* The session's inputs of the memory prediction (memory/sp_foresee.h); backend is
 * borrowed. Local. */
sp_foresight sp_session_foresight(const sp_session *session, const sp_backend *backend);
/* Collective: cuts steps that do not fit into the memory that a rank may use. That is
 * run.memory_mb if it is set; else the device's memory as sp_cut_memory_of bounds it,
 * or less where other programs use the device. The bound is settled.memory_mb, which
 * checkpoints keep: a continued run cuts its steps alike, whatever memory is free by
 * then. train, eval: NULL for none. To be called once, before the loaders begin. */
sp_status sp_session_cut(sp_session *session, sp_sampler *train, sp_sampler *eval);
/* The config with the settled values in place of the deck's, as deck.resolved and
 * checkpoints have it. It borrows the config's memory and is not destroyed. Local. */
sp_config sp_session_resolved(const sp_session *session);
/* Collective: loads weights, and optimizer and state if these are not NULL, from a file
 * that rank 0 reads. state->deck is set on rank 0 alone. */
sp_status sp_session_load(sp_session *session, const char *path, sp_optim *optim,
                          sp_checkpoint_state *state);
/* Collective: class weights as the deck asks for, from the label counts of the training
 * set. *weights: [n_classes] malloc'd, NULL where classes are not weighted. */
sp_status sp_session_class_weights(sp_session *session, float **weights);
/* Class weights for eval and predict: those of the checkpoint that norm was read from.
 * is_named: the command line has train.class_weights, which then counts (where it asks
 * for weights by frequency, they are the checkpoint's). *weights as above. Local. */
sp_status sp_session_kept_class_weights(sp_session *session, bool is_named,
                                        float **weights);

/* Reports rc (each failure once: one diagnosis on standard error, status.json) and
 * frees the session. Returns rc; does not return where only this rank failed. */
sp_status sp_session_close(sp_session *session, sp_status rc);

#endif

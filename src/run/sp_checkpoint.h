/* Checkpoints (input/SCHEMA): HDF5, written under a temporary name, flushed,
 * verified, renamed. Rank 0 writes and reads; reading broadcasts.
 */
#ifndef SP_CHECKPOINT_H
#define SP_CHECKPOINT_H

#include "data/sp_sampler.h"
#include "graph/sp_graph.h"
#include "net/sp_optim.h"

/* What a checkpoint holds beside the arrays. */
typedef struct sp_checkpoint_state {
    int64_t step;         /* optimizer steps done */
    sp_position at;       /* where the next step begins */
    int64_t samples_seen; /* all ranks */
    int64_t updates;      /* optimizer's t: steps that changed the weights */
    int64_t seed;
    int64_t metrics_bytes;
    int64_t skipped;    /* steps skipped for non-finite numbers, in a row */
    uint64_t data_hash; /* sp_dataset.hash of the training set */
    double best;        /* best validation mIoU so far, NAN: none */
    char *deck;         /* resolved deck, malloc'd on reading */
} sp_checkpoint_state;

/* What eval and predict take over from the training. A part that is absent is NULL, and
 * nothing else says so: the counts are the lengths of those that are there. */
typedef struct sp_normalization {
    int n_columns; /* features, in the order that the network takes them */
    char **name;   /* [n_columns]; NULL: a file of weights, or an older version's */
    double *mean, *std; /* [n_columns]; NULL: not normalized */
    int n_classes;
    char **class_name; /* [n_classes]; NULL as name */
    char **class_code; /* [n_classes] codes of the scans; NULL: the shards had none */
    double *class_weight; /* [n_classes]; NULL: all weigh the same */
} sp_normalization;

void sp_normalization_destroy(sp_normalization *normalization);
/* Collective, agreed: that of rank 0 on all ranks; the others' is zeroed before. */
sp_status sp_normalization_bcast(sp_normalization *normalization, sp_comm *comm);

/* Rank 0 only, local. */
sp_status sp_checkpoint_write(const char *path, const sp_graph *graph,
                              const sp_checkpoint_state *state,
                              const sp_normalization *normalization, const float *param,
                              const float *running, const sp_optim *optim);
/* Rank 0 only, local: structure and all checksums. verify_weights takes a file of
 * weights alone too. */
sp_status sp_checkpoint_verify(const char *path);
sp_status sp_checkpoint_verify_weights(const char *path);
/* Rank 0 only, local: state and normalization alone (deck malloc'd). A weights-only
 * file gives step 0 and deck NULL. */
sp_status sp_checkpoint_read_state(const char *path, sp_checkpoint_state *state,
                                   sp_normalization *normalization);
void sp_checkpoint_state_destroy(sp_checkpoint_state *state);
/* Rank 0 only, local: arrays; optim NULL: weights and buffers only. A missing or
 * misshapen parameter is named (SP_EDATA). */
sp_status sp_checkpoint_read(const char *path, const sp_graph *graph, float *param,
                             float *running, sp_optim *optim);

/* Rank 0 only, local: the config of a checkpoint's deck. SP_EDATA where it is none;
 * config may be destroyed then too. */
sp_status sp_checkpoint_config(sp_config *config, const sp_checkpoint_state *state,
                               const char *path);
/* SP_EDATA unless the state's position is within an epoch of so many samples, and its
 * count of samples is that of its epochs. For the data that it was trained on. */
sp_status sp_checkpoint_check_place(const char *path, const sp_checkpoint_state *state,
                                    int64_t n_samples);

/* Rank 0 only: newest checkpoint in dir that verifies, best.h5 if no step's does; path
 * "" if there is none. Damaged ones are named, skipped and counted (n_damaged may be
 * NULL). One whose data_hash is that of `on` (NULL: any) has its place checked too.
 * path holds PATH_MAX bytes. */
sp_status sp_checkpoint_find(const char *dir, const sp_dataset *on, char *path,
                             int *n_damaged);
/* Rank 0 only: files of steps after `step` get ".old" behind their names, so that a run
 * that went back neither continues from them nor loses its own to prune. *n: how
 * many. */
sp_status sp_checkpoint_set_newer_aside(const char *dir, int64_t step, int *n);
/* Rank 0 only: does the folder have a whole best.h5 of no later step? Else it is renamed
 * likewise. */
sp_status sp_checkpoint_settle_best(const char *dir, int64_t step, bool *has_best);
/* Rank 0 only: delete what a writer that was killed left behind. */
sp_status sp_checkpoint_remove_unfinished(const char *dir);
/* Rank 0 only: delete all but the newest `keep` step files, and what is unfinished. */
sp_status sp_checkpoint_prune(const char *dir, int keep);

#endif

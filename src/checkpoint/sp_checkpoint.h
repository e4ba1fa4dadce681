/* Checkpoints (format: input/SCHEMA) are HDF5 files, written under a temporary name,
 * flushed, verified and renamed. Only rank 0 touches the files; sp_network_load
 * broadcasts the weights that it has read. Errors unless said otherwise: SP_EIO for the
 * file system, SP_EDATA for the contents, SP_EMEM. */
#ifndef SP_CHECKPOINT_H
#define SP_CHECKPOINT_H

#include "comm/sp_comm.h"
#include "data/sp_sampler.h"
#include "deck/sp_deck.h"

struct sp_calibration; /* checkpoint/sp_calibration.h */
struct sp_dataset;     /* data/sp_shard.h */
struct sp_graph;       /* net/sp_graph.h */
struct sp_h5;          /* h5/sp_h5.h */
struct sp_optim;       /* net/sp_optim.h */
struct sp_recipe;      /* data/sp_recipe.h */

/* State of a run that a checkpoint stores besides its arrays. */
typedef struct sp_checkpoint_state {
    int64_t step;          /* optimizer steps done */
    sp_position at;        /* place in the data where the next step begins */
    int64_t samples_seen;  /* by all ranks, since the first step */
    int64_t updates;       /* steps of the optimizer that changed the weights: its t */
    int64_t seed;          /* train.seed */
    int64_t metrics_bytes; /* length of metrics.jsonl when it was written */
    int64_t skipped;       /* latest steps in a row skipped for non-finite numbers */
    uint64_t data_hash;    /* sp_dataset.hash of the training set */
    uint64_t val_hash;     /* hash of the data of best; 0: an older file, or no data */
    int64_t eval_due;      /* 1: the evaluation at this step was given up for a stop */
    int64_t groups;        /* nodes or ranks (batch.per) that have a batch of their own;
                            * 0: the world has one batch, or an older file */
    double best;           /* best validation mIoU so far; NAN: not evaluated */
    char *deck;            /* resolved deck; malloc'd when it was read */
} sp_checkpoint_state;

/* Properties of the training data that eval and predict need: columns, classes and
 * feature statistics. An absent part is a NULL pointer, and no flag repeats that; a
 * count is the length of the arrays that are present. */
typedef struct sp_normalization {
    int n_columns; /* features, in the order of the network's input */
    /* [n_columns]; NULL: a weights-only file, or written by an older version */
    char **name;
    double *mean, *std; /* [n_columns]; NULL: not normalized */
    int n_classes;
    char **class_name; /* [n_classes]; NULL for the same reasons as name */
    /* [n_classes] class codes of the original scans; NULL: not in the shards */
    char **class_code;
    double *class_weight; /* [n_classes]; NULL: all classes have equal weight */
    /* How the scans of the training became samples; NULL: not in the shards, or an
     * older file. */
    struct sp_recipe *recipe;
    struct sp_calibration *calibration; /* NULL: the model was not calibrated */
} sp_normalization;

/* Frees the arrays and zeroes the struct. Local. */
void sp_normalization_destroy(sp_normalization *normalization);
/* Writes the normalization without its calibration to bytes, or reads it into a zeroed
 * one. Local. */
struct sp_serial;
void sp_normalization_serialize(struct sp_serial *serial,
                                sp_normalization *normalization);
/* Collective, agreed: copies rank 0's normalization to all ranks; the other ranks pass
 * a zeroed one. */
sp_status sp_normalization_bcast(sp_normalization *normalization, sp_comm *comm);

/* The arrays of a checkpoint, in host memory, borrowed. */
typedef struct sp_checkpoint_arrays {
    const float *param, *running;
    const struct sp_optim *optim; /* its kept values; NULL: only weights and buffers */
    /* Called with `arg` when all arrays are in the file, so that they may change,
     * before the rest of the work. Not called after a failure before that. NULL: no
     * callback. */
    void (*on_written)(void *arg);
    void *arg;
} sp_checkpoint_arrays;

/* Rank 0 only, local. Writes `path` atomically: a reader finds the old file or the
 * whole new one. */
sp_status sp_checkpoint_write(const char *path, const struct sp_graph *graph,
                              const sp_checkpoint_state *state,
                              const sp_normalization *normalization,
                              const sp_checkpoint_arrays *arrays);
/* Local. Writes a weights-only file, for run.init_from and run.checkpoint, which
 * atomically replaces the one at `path`. has [n_params + n_buffers] of the graph, its
 * parameters first: false leaves one out; NULL: all are written. */
sp_status sp_checkpoint_write_weights(const char *path, const struct sp_graph *graph,
                                      const float *param, const float *running,
                                      const bool *has);
/* Rank 0 only, local. Replaces the calibration of the checkpoint at `path`, atomically;
 * all else in the file stays. SP_EUSAGE: it holds only weights. */
sp_status sp_checkpoint_write_calibration(const char *path,
                                          const struct sp_calibration *calibration);
/* Demands on a file beyond its structure and its checksums. A diverged training can
 * have written intact files with numbers that are not finite. */
typedef enum sp_checkpoint_demand {
    SP_INTACT,
    SP_FINITE, /* parameters and buffers are finite, and no variance is negative */
} sp_checkpoint_demand;

/* Rank 0 only, local: checks the structure, all checksums and the demands. *file stays
 * open, so that the two functions with _open in their names read the file that was
 * verified, whatever becomes of the path. The caller closes it (sp_h5_close); NULL
 * after a failure. sp_checkpoint_open_weights accepts a weights-only file too; its
 * numbers must always be finite. */
sp_status sp_checkpoint_open(struct sp_h5 **file, const char *path,
                             sp_checkpoint_demand demand);
sp_status sp_checkpoint_open_weights(struct sp_h5 **file, const char *path,
                                     sp_checkpoint_demand demand);
/* The same without keeping the file open. */
sp_status sp_checkpoint_verify_weights(const char *path, sp_checkpoint_demand demand);
/* Local: words the first number that SP_FINITE refuses, as "/params/a/bias: element 3
 * is nan"; "" if all are accepted. param, running: flat buffers in host memory. */
enum { SP_CHECKPOINT_FAULT = 384 };
void sp_checkpoint_find_fault(const struct sp_graph *graph, const float *param,
                              const float *running, char fault[SP_CHECKPOINT_FAULT]);
/* Rank 0 only, local: only state and normalization (deck malloc'd). A weights-only file
 * gives step 0 and deck NULL. */
sp_status sp_checkpoint_read_state(const char *path, sp_checkpoint_state *state,
                                   sp_normalization *normalization);
sp_status sp_checkpoint_read_open_state(struct sp_h5 *file, sp_checkpoint_state *state,
                                        sp_normalization *normalization);
void sp_checkpoint_state_destroy(sp_checkpoint_state *state);
/* Rank 0 only, local: reads the arrays into host memory, laid out as the graph's flat
 * buffers, and the state (deck malloc'd); optim, state NULL: without them. An optimizer
 * that did not write the file is unchanged. A missing or misshapen parameter is named
 * (SP_EDATA). */
sp_status sp_checkpoint_read(const char *path, const struct sp_graph *graph,
                             float *param, float *running, struct sp_optim *optim,
                             sp_checkpoint_state *state);
/* The same of the weights and buffers that `use` names, from an open file. SP_EDATA too
 * if the file has no averages. */
sp_status sp_checkpoint_read_model(struct sp_h5 *file, const struct sp_graph *graph,
                                   sp_weights_use use, float *param, float *running);
/* The groups of these weights and buffers: "/params" or "/ema", ... SP_EDATA if the
 * file lacks them. */
sp_status sp_checkpoint_groups(struct sp_h5 *file, sp_weights_use use,
                               const char **params, const char **buffers);

/* Rank 0 only, local: reads the weights and buffers that another training begins with.
 * A checkpoint gives the weights that its deck's run.weights names. Layers that `skip`
 * names (sp_graph_is_named) keep the caller's values. SP_EDATA as above; if the first
 * layer does not fit the number of columns, the message has the columns of the model
 * and of `data`; if only the classes of the last layer do not fit, it has the value of
 * run.init_skip that leaves it out. */
sp_status sp_checkpoint_read_init(const char *path, const struct sp_graph *graph,
                                  const sp_normalization *data, const sp_strings *skip,
                                  float *param, float *running);

/* Rank 0 only, local: parses the deck that a checkpoint stores. SP_EDATA if it is not a
 * deck; config may be destroyed in that case too. */
sp_status sp_checkpoint_config(sp_config *config, const sp_checkpoint_state *state,
                               const char *path);
/* SP_EDATA unless the state's position lies within an epoch of n_samples samples and
 * its number of samples seen agrees with its epochs. Meaningful only for the data set
 * that the checkpoint was trained on. */
sp_status sp_checkpoint_check_place(const char *path, const sp_checkpoint_state *state,
                                    int64_t n_samples);

/* Rank 0 only: opens the newest checkpoint in dir that verifies, best.h5 if no step's
 * file does, as sp_checkpoint_open does; path becomes "" and *file NULL if no file
 * does. Damaged files are named in warnings, skipped and counted; one that the system
 * cannot read is SP_EIO, since it may be whole. A run may go on in the folder: a file
 * that it deletes or replaces meanwhile is not damaged, and the search begins again.
 * on: the data set of a training that is to continue: numbers must be finite, and if a
 * file has the data_hash of `on`, its place is checked too (sp_checkpoint_check_place).
 * on NULL: both checks are left out. path holds PATH_MAX bytes. */
sp_status sp_checkpoint_find(struct sp_h5 **file, const char *dir,
                             const struct sp_dataset *on, char *path, int *n_damaged);
/* Rank 0 only: opens likewise the model of a run's folder for evaluation and
 * prediction: best.h5, else the newest that verifies. SP_EUSAGE, with the advice in the
 * message, if the run has no such file. */
sp_status sp_checkpoint_open_run(struct sp_h5 **file, const char *run_dir,
                                 const char *advice, char *path);
/* Rank 0 only: the same for a model that is a run folder, or a file, which is opened as
 * sp_checkpoint_open_weights does. */
sp_status sp_checkpoint_open_model(struct sp_h5 **file, const char *model,
                                   sp_checkpoint_demand demand, char *path);
/* Rank 0 only: appends ".old" (if that exists ".old2", ...) to the names of the files
 * of steps after `step`, so that a run that went back to `step` neither continues from
 * them nor loses its own files to prune. *n: number of files renamed. */
sp_status sp_checkpoint_set_newer_aside(const char *dir, int64_t step, int *n);
/* Rank 0 only: *has_best says whether the folder has a valid best.h5 of `step` or
 * before. A best.h5 that is damaged or of a later step is renamed likewise; one that
 * cannot be read is SP_EIO. */
sp_status sp_checkpoint_check_best(const char *dir, int64_t step, bool *has_best);
/* Rank 0 only: deletes the temporary files that a killed writer left. */
sp_status sp_checkpoint_remove_unfinished(const char *dir);
/* Rank 0 only: deletes all step files but the newest `keep`, and temporary files. */
sp_status sp_checkpoint_prune(const char *dir, int keep);

#endif

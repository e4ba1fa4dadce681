/* sptrain: sparse 3D convolutional networks on point clouds, as a library.
 *
 *     sp_comm      ranks: a communicator of MPI that the caller has, or one rank
 *        |         without MPI
 *     sp_deck      what to do: network, optimizer, schedule, augmentation, device, as
 *        |         text with the keys of `sptrain --keys`
 *     sp_data      samples: voxel shards, arrays of the caller, or a callback
 *        |
 *     sp_training  device, network, optimizer and loader, opened together from the
 *        |         three above: sp_training_step until sp_training_is_done, with
 *        |         sp_training_evaluate and sp_training_save in between
 *     sp_model     prediction, from a checkpoint or packed model; needs no other object
 *
 * The caller's own code enters at five points: sp_data_create_source (data), sp_loss_fn
 * (a loss over all logits that a rank holds in a step, which may communicate over the
 * ranks), sp_metric_fn (sums over the ranks), and step_end and evaluation_end of
 * sp_hooks. examples/ has a program for each.
 *
 * Link with `pkg-config --cflags --libs sptrain`. The section "Prediction" by itself
 * needs neither MPI nor HDF5: `pkg-config --cflags --libs sptrain-predict`.
 *
 * Rules for all functions:
 *   - The library never prints, exits, catches signals or reads the environment. Lines
 *     of the log go to the hooks of sp_training, and nowhere without them. OpenMP's
 *     settings of the calling thread and its floating-point environment (rounding, small
 *     numbers, traps) are as before when a function returns; inside of it, in callbacks
 *     too, that environment is the default one.
 *   - A function that can fail returns a status, 0 (SP_OK) after success, and
 *     sp_error_text has the message. A function that creates an object sets it to NULL
 *     after a failure. Destroying NULL does nothing. A pointer may be NULL if the
 *     comment says so; else NULL is SP_EUSAGE, and functions without a status return 0
 *     for it (sp_training_is_done 1).
 *   - "Collective" means: all ranks of the object's communicator call it, in the same
 *     order. All ranks then return the same status, unless the comment says otherwise.
 *     Other functions are local.
 *   - Two threads may use two objects at the same time, if each object has a
 *     communicator of its own. One object is used by one thread at a time.
 *   - Pointers that are passed in are borrowed for the call, unless the comment names
 *     another time.
 *   - Numbers: coordinates are voxel indices (int32, x y z), features float32 without
 *     normalization, labels classes from 0 or SP_NO_LABEL.
 */
#ifndef SPTRAIN_H
#define SPTRAIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Status values; the programs exit with them too. */
#ifndef SP_ERROR_H /* a file of the library itself has them already */
enum {
    SP_OK = 0,
    SP_EUSAGE = 2,   /* an argument or the deck is wrong */
    SP_EDATA = 3,    /* input data are wrong */
    SP_EIO = 4,      /* the file system failed */
    SP_EMEM = 5,     /* memory ran out */
    SP_EMPI = 6,     /* a rank or MPI was lost */
    SP_EDEVICE = 7,  /* the device failed */
    SP_ENUMERIC = 8, /* numbers are not finite */
    SP_ELIMIT = 75   /* stopped on request */
};
#endif
enum { SP_NO_LABEL = -1 };

/* The message of the calling thread's last failure; "" if nothing failed. Valid until
 * the next failure of this thread. Never NULL. */
const char *sp_error_text(void);
/* The version of the library, as "0.1.0". */
const char *sp_version(void);

/* ---- Prediction ----
 *
 *     sp_model *model;
 *     if (sp_model_open(&model, "model.spm", NULL) != 0)
 *         puts(sp_error_text());
 *     sp_model_describe(model, &info);       columns, classes, voxel size
 *     sp_model_predict(model, n, coords, features, logits, labels);
 *     sp_model_close(model);
 *
 * `sptrain weights export MODEL --packed -o model.spm` makes the file. A model computes
 * on the CPU, by the code and to the bits of `sptrain predict`.
 */

typedef struct sp_model sp_model;

typedef struct sp_model_options {
    int threads;        /* 0: all cores of the caller; at most 4096 */
    const char *device; /* NULL: "cpu", which is the only one */
} sp_model_options;

typedef struct sp_model_info {
    int n_features, n_classes;
    double voxel_size;                /* metre */
    const char *const *feature_names; /* [n_features], owned by the model */
    const char *const *class_names;   /* [n_classes], owned by the model */
} sp_model_info;

/* Opens a packed model, or with the full library a checkpoint or a run folder too (its
 * best.h5, else its newest checkpoint). options NULL: zeros. *model is NULL after a
 * failure. SP_EUSAGE (2): an option, or a folder without a checkpoint; SP_EDATA (3):
 * the file is missing, damaged, of another kind, or names no columns; SP_EIO (4),
 * SP_EMEM (5). Cost: reads the whole file. */
int sp_model_open(sp_model **model, const char *path, const sp_model_options *options);
/* Fills info; its names live as long as the model. SP_EUSAGE: a pointer is NULL. */
int sp_model_describe(const sp_model *model, sp_model_info *info);
/* Predicts the classes of one sample:
 *   n         number of voxels, less than 2^30; 0 is allowed and does nothing
 *   coords    [n][3] voxel indices x, y, z of info.voxel_size, each voxel once, in any
 *             order; -2^19 to 2^19 - 1
 *   features  [n][n_features] in the order of info.feature_names, as the shards have
 *             them: the model normalizes them
 *   logits    [n][n_classes], written as the last layer has them: a temperature of
 *             `sptrain calibrate` does not divide them; NULL: not wanted
 *   labels    [n] the class of the greatest logit, the first of several; NULL likewise
 * Rows of logits and labels are the caller's rows. Several threads may use one model;
 * they wait for each other, and models of their own run at the same time. Memory is
 * kept for the largest sample so far. A child that was forked after a model was opened
 * opens models and predicts in one thread; other objects are not for such a child.
 * After a failure logits and labels are undefined and the model can be used again.
 * SP_EUSAGE: a pointer is NULL; SP_EDATA: a coordinate out of range or twice, or a
 * feature that is not finite, with its row; SP_ENUMERIC (8): an output is not finite;
 * SP_EMEM. */
int sp_model_predict(sp_model *model, int64_t n, const int32_t *coords,
                     const float *features, float *logits, uint16_t *labels);
/* Frees the model; NULL does nothing. No thread may be using it. */
void sp_model_close(sp_model *model);

/* ---- Ranks ---- */

typedef struct sp_comm sp_comm;

/* Creates a world of one rank, without MPI. SP_EMEM. */
int sp_comm_create_self(sp_comm **comm);
#ifdef MPI_VERSION /* mpi.h was included before this file */
/* Creates a communicator from one group's communicator of MPI, which is duplicated and
 * may be freed. Collective over `of`. MPI has been initialized with MPI_THREAD_FUNNELED
 * at least, with which only the main thread may use such a communicator. Threads that
 * each use one at the same time need MPI_THREAD_MULTIPLE. All later calls with this
 * communicator come from one thread. Errors of MPI within the library are returned as
 * SP_EMPI; the other ranks may then wait for ever, so the caller ends them (MPI_Abort).
 * SP_EUSAGE: MPI is not in use, serves too few threads, or `of` is an
 * intercommunicator; SP_EMPI, SP_EMEM. */
int sp_comm_create_mpi(sp_comm **comm, MPI_Comm of);
#endif
/* The same for a communicator of Fortran. */
int sp_comm_create_mpi_fortran(sp_comm **comm, int of);
/* Collective; comes after the objects that use the communicator are destroyed, and
 * before MPI_Finalize. */
void sp_comm_destroy(sp_comm *comm);
/* This rank, from 0, and the number of ranks. */
int sp_comm_rank(const sp_comm *comm);
int sp_comm_size(const sp_comm *comm);
/* Replaces values [n] by their sums over the ranks, the same bits on all of them; for
 * losses of the caller. Collective. SP_EMPI, SP_EMEM. */
int sp_comm_sum(sp_comm *comm, double *values, int64_t n);

/* ---- Deck ---- */

typedef struct sp_deck sp_deck;

/* Creates a deck from text in the form of a deck file ("train: { lr = 0.1; };"), which
 * may not include files; NULL: all keys have their defaults. `sptrain --keys` and
 * sptrain-deck(5) have the keys. Of section run these keys count: device, devices,
 * oversubscribe, threads, memory_mb, wgmma, transport, reduce_wire, watchdog_s (of
 * NCCL), bucket_mb, overlap, init_skip; the others belong to the program. Without the
 * key data.voxel_size the data's own voxels are used. The caller's objects take the
 * place of other keys. sp_training_create refuses data.folds, since the data of all
 * folds would be trained on. It warns of data.test, data.val_sets, eval.merge,
 * eval.views, eval.members, run.init_from and run.init_norm, and ignores data.train and
 * data.val, which a deck of `sptrain` has. SP_EUSAGE with the line, the key and the
 * nearest valid name; SP_EMEM. */
int sp_deck_create(sp_deck **deck, const char *text);
/* Sets one key, as "train.lr=0.1". Does not change objects that exist. Keys that need
 * each other may be set in any order: sp_training_create checks them together.
 * SP_EUSAGE, SP_EMEM; the deck is then unchanged. */
int sp_deck_override(sp_deck *deck, const char *assignment);
/* Local; trainings that were created from the deck have a copy. */
void sp_deck_destroy(sp_deck *deck);

/* ---- Data ---- */

typedef struct sp_data sp_data;

/* What all samples of a data set have in common. No two features and no two classes
 * have the same name. Borrowed during the call. */
typedef struct sp_data_about {
    double voxel_size; /* metre; edge of a voxel of the coordinates, at most 1e9 */
    int n_features, n_classes;
    const char *const *feature_names; /* [n_features]; NULL: "f0", "f1", ... */
    const char *const *class_names;   /* [n_classes]; NULL: "class0", ... */
    /* [n_features] statistics to normalize features; both NULL: features are used
     * without normalization. */
    const double *feature_mean, *feature_std;
} sp_data_about;

/* One sample. coords [n][3] voxel indices in [-2^19, 2^19), each once, in any order;
 * features [n][n_features]; labels [n] class or SP_NO_LABEL. n = 0 is allowed. */
typedef struct sp_sample_arrays {
    int64_t n;
    const int32_t *coords;
    const float *features;
    const int32_t *labels;
} sp_sample_arrays;

/* Opens the voxel shards (input/SCHEMA) that the patterns [n] name, as the key
 * data.train does. Collective. SP_EDATA, SP_EIO, SP_EMEM. */
int sp_data_open_shards(sp_data **data, sp_comm *comm, int n,
                        const char *const *patterns);
/* Creates a data set from arrays of the caller. samples [n_samples] is copied, but not
 * the arrays in it: they stay unchanged until the data set is destroyed. Each rank
 * passes all samples, in the same order (sp_data_create_gathered does it otherwise),
 * since each step deals them to the ranks. SP_EUSAGE, SP_EDATA (a coordinate, label or
 * feature is out of range, with its place), SP_EMEM. Cost: one pass over the arrays. */
int sp_data_create_arrays(sp_data **data, const sp_data_about *about, int64_t n_samples,
                          const sp_sample_arrays *samples);
/* Creates a data set from the samples that each rank has: rank 0's, then rank 1's, and
 * so on. Each rank gets a copy of all, and the caller's arrays are not used any more.
 * Collective. Errors as above, agreed. */
int sp_data_create_gathered(sp_data **data, sp_comm *comm, const sp_data_about *about,
                            int64_t n_samples, const sp_sample_arrays *samples);
/* Gives sample i of a data set to the library: fills coords [n][3], features
 * [n][n_features] and labels [n], where n = n_voxels[i]. Called by threads of the
 * library, several at a time, for any i and in any order; the same i always gives the
 * same sample, on every rank. Returns 0; another value is a failure of the step that
 * wanted the sample (SP_EDATA). */
typedef int sp_read_fn(void *arg, int64_t i, int32_t *coords, float *features,
                       int32_t *labels);
/* Creates a data set from a callback. n_voxels [n_samples], the sizes of the samples,
 * is copied: steps are balanced over the ranks by them. `arg` is borrowed until the
 * data set is destroyed. SP_EUSAGE, SP_EMEM. */
int sp_data_create_source(sp_data **data, const sp_data_about *about, int64_t n_samples,
                          const int64_t *n_voxels, sp_read_fn *read, void *arg);
/* The number of samples, and of voxels in all of them. */
int64_t sp_data_n_samples(const sp_data *data);
int64_t sp_data_n_voxels(const sp_data *data);
/* Writes all samples to one voxel shard, which `sptrain` and sp_data_open_shards read.
 * Called on one rank. SP_EIO, SP_EDATA, SP_EMEM. */
int sp_data_write_shard(const sp_data *data, const char *path);
/* Local; comes after the trainings that use the data are destroyed. */
void sp_data_destroy(sp_data *data);

/* ---- Training ---- */

typedef struct sp_training sp_training;

/* One optimizer step, over all ranks; the same on all of them. */
typedef struct sp_step_info {
    int64_t step;     /* number of the step, from 1 */
    int64_t epoch;    /* number of its epoch, from 0 */
    int64_t samples;  /* samples since the first step */
    double loss;      /* mean over the labelled voxels; NaN without any */
    double grad_norm; /* of the mean gradient, before clipping */
    double lr;        /* learning rate of the step */
    int is_epoch_end; /* 1: the next step begins a new epoch */
    int is_skipped;   /* 1: a number was not finite, and the weights are unchanged */
    int is_stopping;  /* 1: should_stop of a rank asked for the end */
} sp_step_info;

/* The results of an evaluation, the same on all ranks. Arrays belong to the training
 * and are valid until its next call. */
typedef struct sp_scores {
    int64_t n_samples, n_voxels; /* voxels with a label */
    double loss;                 /* mean over them */
    double miou;                 /* mean IoU over the classes that occur, 0 to 1 */
    double accuracy;             /* share of the voxels */
    int n_classes, n_metrics;
    const int64_t *confusion; /* [n_classes][n_classes] truth, prediction: voxels */
    const double *iou;        /* [n_classes]; NaN if a class does not occur */
    const double *metrics;    /* [n_metrics] the sums of the caller's metric */
} sp_scores;

/* The output of a network on this rank. All arrays are in host memory and valid during
 * the call. Rows are ordered by sample and within a sample in an order of the
 * library. */
typedef struct sp_logits {
    int64_t n;
    int n_classes;
    const float *logits;       /* [n][n_classes] outputs of the last layer */
    const int32_t *labels;     /* [n] class or SP_NO_LABEL */
    int n_samples;             /* samples on this rank; 0 is possible */
    const int64_t *sample;     /* [n_samples] their numbers in the data set */
    const int64_t *sample_row; /* [n_samples + 1] rows of sample b begin at [b] */
} sp_logits;

/* A loss of the caller, instead of train.loss. Called on every rank in every step, also
 * on a rank without samples, from the thread that calls sp_training_step, so it may
 * communicate over the ranks (sp_comm_sum, MPI). The loss of a step is L = S / W, the
 * sums over the ranks of *loss_sum and *weight_sum.
 *   gradient    [n][n_classes] written: dS/dlogits, by this rank's logits, of the S of
 *               all ranks, without the division by W
 *   *loss_sum, *weight_sum   this rank's parts; both are 0 on a rank without samples
 * W is a constant, which does not depend on the logits. The data need no labels.
 * Returns 0; another value is a failure of the step on this rank (SP_EUSAGE). */
typedef int sp_loss_fn(void *arg, const sp_logits *logits, float *gradient,
                       double *loss_sum, double *weight_sum);
/* A metric of the caller. Called in an evaluation for each sample, with n_samples = 1;
 * sums [n_metrics] are 0 before, are rounded to multiples of 2^-72, and are added up
 * exactly over all samples of all ranks: the result does not depend on the number of
 * ranks or on the order. |sum| of a sample is below 2^192. */
typedef void sp_metric_fn(void *arg, const sp_logits *logits, double *sums);

/* Functions of the caller; each may be NULL. arg is passed to all of them. Texts and
 * structs that they get are valid during the call. They do not call functions of the
 * same training. These and all other callbacks return: an exception of C++ or a longjmp
 * through the library is undefined. */
typedef struct sp_hooks {
    void *arg;
    /* A line of the log without a newline. level 0: information, of rank 0; 1: a
     * warning, of any rank. Any thread of the library calls it, one at a time. */
    void (*log)(void *arg, int level, const char *line);
    /* Samples done of an evaluation, over all ranks. */
    void (*progress)(void *arg, const char *what, int64_t done, int64_t total);
    /* Asked once a step: not 0 if this rank wants the training to stop. The step ends
     * as usual, and is_stopping is set on all ranks. */
    int (*should_stop)(void *arg);
    /* Called at the end of each step and of each evaluation, on every rank. */
    void (*step_end)(void *arg, const sp_step_info *step);
    void (*evaluation_end)(void *arg, const sp_scores *scores);
} sp_hooks;

/* Zero it, then set the fields you need. comm, deck and train are needed. Objects and
 * functions are borrowed until the training is destroyed; `deck` is copied. All ranks
 * have the same deck (but for run.threads and run.devices), data, loss and
 * n_metrics. */
typedef struct sp_training_options {
    sp_comm *comm;
    const sp_deck *deck;
    sp_data *train;
    sp_data *validation; /* NULL: sp_training_evaluate fails */
    sp_hooks hooks;
    /* NULL: train.loss. A step is then one micro-batch on each rank: batch.accumulate
     * is 1, and a step that does not fit into memory or batch.voxel_budget fails
     * (SP_EUSAGE). */
    sp_loss_fn *loss;
    void *loss_arg;
    int n_metrics;
    sp_metric_fn *metric; /* NULL if n_metrics is 0 */
    void *metric_arg;
} sp_training_options;

/* Opens device, network with initial weights, optimizer and loader as the deck says,
 * and places the training at its beginning. Collective. With the same deck and data the
 * weights after a step are the same bits as in `sptrain`. SP_EUSAGE, SP_EDATA, SP_EMEM,
 * SP_EDEVICE, SP_EMPI. */
int sp_training_create(sp_training **training, const sp_training_options *options);
/* Every rank destroys its own; deck, data and communicator stay. */
void sp_training_destroy(sp_training *training);
/* Not 0 once all steps of the deck (train.epochs or train.steps) are done. */
int sp_training_is_done(const sp_training *training);
/* Runs one step; *info may be NULL. Collective, but not agreed: a rank that fails
 * returns, and the others may wait for it, so the caller ends the ranks then. After the
 * first steps nothing is allocated. SP_EUSAGE if the training is done; SP_ENUMERIC on
 * all ranks if it was the last of train.nonfinite_limit steps in a row that were
 * skipped; SP_EDATA: a sample cannot be read; SP_EMEM, SP_EMPI, SP_EDEVICE. */
int sp_training_step(sp_training *training, sp_step_info *info);
/* Evaluates the weights on all samples of `validation` (within eval.range), each once
 * and as stored: views, merged blocks, further models and averaged weights (eval.views,
 * eval.merge, eval.members, train.ema, train.average_tail) are evaluated by `sptrain
 * eval` on a saved checkpoint. *scores may be NULL. Collective; agreed as far as
 * numbers that are not finite are concerned (SP_ENUMERIC). SP_EUSAGE without validation
 * data; SP_EDATA, SP_EMEM, SP_EMPI, SP_EDEVICE. */
int sp_training_evaluate(sp_training *training, sp_scores *scores);
/* Writes a checkpoint, which `sptrain` and sp_training_load continue and sp_model_open
 * reads; a reader finds the old file or the new one. Collective. SP_EIO, SP_EMEM. */
int sp_training_save(sp_training *training, const char *path);
/* Continues from a checkpoint of the same deck and data: the following steps are the
 * bits of a training that was never interrupted. Other keys than those of the network,
 * batch.size, batch.per and train.seed may have changed. Collective. SP_EDATA,
 * SP_EUSAGE: it is of another network, batch or seed, or of other data. */
int sp_training_load(sp_training *training, const char *path);
/* Takes over weights and statistics of a checkpoint or a file of weights, and nothing
 * else; of a training with run.weights = "ema" the averages. Collective. SP_EDATA: they
 * do not fit. After a failure of this function or of sp_training_load the training is
 * as it was. */
int sp_training_load_weights(sp_training *training, const char *path);
/* The number of weights, and a copy of them: weights [n_weights], host memory, in the
 * order of the network's layers. Local. SP_EDEVICE. */
int64_t sp_training_n_weights(const sp_training *training);
int sp_training_weights(sp_training *training, float *weights);

#ifdef __cplusplus
}
#endif
#endif

/* The parts of a training or an evaluation: device, transport, data and network;
 * loaders that feed the network; buckets and an optimizer that train it. The user opens
 * the ones it needs in this order; sp_resources_free frees all. Users are the library's
 * objects (include/sptrain.h; sp_training.c) and the commands of the programs, which
 * open a session with it (train/sp_session.h: sp_resources_open, _close).
 *
 *     sp_resources_begin           deck, ranks
 *        open_device               rank --> device or cores     (sp_resources_device.c)
 *        open_transport            sums over the ranks
 *        open_data                 shards, columns, classes       (sp_resources_data.c)
 *        open_net, load            graph, network, weights
 *        open_training             buckets, optimizer, loaders
 *        open_evaluation           the loader of data.val
 *        cut                       micro-batches that fit into the memory
 *     sp_resources_free
 *
 * The users decide about the rest, such as when a training evaluates, saves and stops.
 * Functions are collective and agreed unless they are marked local. */
#ifndef SP_RESOURCES_H
#define SP_RESOURCES_H

#include "api/memory/sp_budget.h"
#include "api/sp_placement.h"
#include "checkpoint/sp_checkpoint.h"
#include "compute/sp_transport.h"
#include "data/sp_loader.h"
#include "net/sp_net.h"
#include "net/sp_optim.h"
#include "predict/sp_view.h"

struct sp_members; /* train/sp_members.h */
struct sp_session; /* train/sp_session.h */

/* Values that are determined after the start, because they depend on the machine or on
 * the checkpoint that a run continues from. The config stays as the user wrote it. */
typedef struct sp_resolved {
    /* Instead of run.memory_mb: MiB that a rank may use, the same on all ranks. It is
     * the deck's, then the checkpoint's if the deck has none, then the bound that
     * sp_resources_bound_memory chose. 0: no bound. */
    double memory_mb;
    /* Instead of train.bf16_sums: this process's order of sums. SP_SUMS_AUTO: its
     * device has one order only, or its precision. */
    sp_bf16_sums bf16_sums;
} sp_resolved;

/* Allowed in a program, but not for a library in another program's process. */
typedef struct sp_liberties {
    bool binds; /* binds the process to its share of the node's cores */
    /* Has a child process try wgmma on a device (train/sp_wgmma_probe.h); NULL: no
     * trial. */
    sp_status (*try_wgmma)(int device);
} sp_liberties;

/* Memory of the device for each rank on it, of all ranks' values the least. 0: the
 * ranks compute on the host. */
typedef struct sp_device_memory {
    int64_t total;
    int64_t own;  /* the part that this program may use on an idle device */
    int64_t free; /* the part that was free at the start */
} sp_device_memory;

/* The pass over a set: over data.val, which training, eval and predict make, or a set of
 * data.val_sets; zeroed if it was not opened. */
typedef struct sp_evaluation {
    const sp_dataset *set; /* borrowed */
    sp_views views;
    int64_t merging_bytes; /* memory of points that wait for their other blocks */
    sp_sampler sampler;
    sp_loader *loader; /* its planner distributes samples by the sampler */
} sp_evaluation;

/* A set of data.val_sets. */
typedef struct sp_val_set {
    char *name;
    sp_dataset data;
    sp_evaluation evaluation; /* without a loader while another set's has one */
} sp_val_set;

typedef struct sp_resources {
    const sp_config *config; /* borrowed */
    sp_comm *comm;           /* borrowed */
    sp_resolved resolved;
    sp_liberties may;
    bool is_predicting; /* logits of stored voxels are kept until they are written */
    int64_t step;       /* steps done, for messages; 0: not known */
    struct sp_session *session; /* a program's; NULL in the library */
    /* Models that are averaged with this one (train/sp_members.h); NULL: no others. */
    struct sp_members *members;
    /* Weights that the rank holds: of the other models, which the estimate of memory
     * adds, set by the caller of sp_resources_open_net; of all with this one. */
    int64_t beside_bytes, weight_bytes;

    sp_placement placement; /* ranks to devices; empty if no device was asked for */
    sp_backend backend;
    char device[128]; /* description of the device for messages */
    /* Cores of this rank if the node's cores were divided, else "". */
    char cores[200];
    sp_device_memory memory;
    sp_transport transport; /* zeroed: not opened */

    sp_dataset train, val, test; /* zeroed if they were not asked for */
    sp_val_set *val_set;         /* [n_val_sets] in the deck's order */
    int n_val_sets;
    int *columns, n_columns; /* [n_columns] feature columns in use */
    sp_vectors vectors;      /* those among them that turn, for the loaders */
    struct sp_bank *bank;    /* of augment.paste; NULL: nothing is pasted */
    int n_classes;
    char **class_name; /* [n_classes] from the training data or the model; borrowed */
    sp_normalization norm; /* of the training data or the model */

    sp_graph graph;
    sp_net net;
    /* The first number of the loaded weights that is not finite, as
     * sp_checkpoint_find_fault words it; "": all are. */
    char fault[SP_CHECKPOINT_FAULT];
    sp_budgets budgets; /* how steps are cut into micro-batches */

    sp_buckets buckets; /* the gradients, and their sums over the ranks */
    sp_optim optim;
    sp_sampler sampler;
    sp_loader *loader; /* its planner distributes samples by the sampler; or NULL */

    sp_evaluation evaluation; /* the present one: of data.val, unless exchanged */
} sp_resources;

/* Zeroes the resources. Local. */
void sp_resources_begin(sp_resources *resources, const sp_config *config,
                        sp_comm *comm);
/* Ends the users of other ranks or threads: loaders and sums over ranks. Local. */
void sp_resources_end_work(sp_resources *resources);
/* Frees everything, after sp_resources_end_work. Local. */
void sp_resources_free(sp_resources *resources);
/* The config with the resolved values instead of the deck's, as checkpoints have it. It
 * borrows the config's memory and is not destroyed. Local. */
sp_config sp_resources_resolved(const sp_resources *resources);

/* ---- sp_resources_device.c ---- */

/* Chooses and opens the device, the same kind on every rank, and tests it
 * (sp_selftest.h). */
sp_status sp_resources_open_device(sp_resources *resources);
/* Chooses and opens the transport of the sums over ranks. Precedes open_net in a
 * training. */
sp_status sp_resources_open_transport(sp_resources *resources);
/* The threads of this rank that compute: run.threads, or by default the node's cores
 * divided by its ranks, or fewer if the launcher bound this rank to fewer. Local. */
int sp_resources_threads(const sp_resources *resources);
/* The inputs of the memory prediction (api/memory/sp_estimate.h); backend is borrowed.
 * Local. */
sp_estimated_run sp_resources_estimated_run(const sp_resources *resources,
                                            const sp_backend *backend);
/* Cuts steps that do not fit into the memory that a rank may use. That is run.memory_mb
 * if it is set; else the device's memory as sp_budgets_memory_of bounds it, or less if
 * other programs use the device. The bound is resolved.memory_mb, which checkpoints
 * keep: a continued run cuts its steps alike, whatever memory is free by then. Bounds
 * the samplers of the loaders that are open, so it is called once, before these
 * begin. */
sp_status sp_resources_bound_memory(sp_resources *resources);
/* *bytes becomes the bound of a rank if the ranks of its host may together need more
 * memory than it has, else 0. train or eval may be NULL. Rank 0 reads a few samples
 * unless the memory certainly suffices. Collective, agreed. SP_EMPI. */
sp_status sp_resources_bound_host(sp_resources *resources, const sp_estimated_run *what,
                                  sp_sampler *train, sp_sampler *eval, int64_t *bytes);

/* ---- sp_resources_data.c ---- */

/* Reads the indexes of data.train and data.val, as asked for, and determines columns
 * and classes. */
sp_status sp_resources_open_data(sp_resources *resources, bool with_train,
                                 bool with_val);
/* Reads the indexes of data.val_sets, after open_data. A training's open_data has done so
 * if it opened data.val. SP_EDATA: a set without labels or samples. Collective, agreed. */
sp_status sp_resources_open_set_data(sp_resources *resources);
/* The same with data sets that are open already and fit each other; val NULL: without
 * one. Moves them into the resources. */
sp_status sp_resources_use_data(sp_resources *resources, const sp_dataset *train,
                                const sp_dataset *val);
/* Determines which of the columns in use, of these names (NULL: not known), are
 * vectors, and logs it. Local. */
void sp_resources_find_vectors(sp_resources *resources, const sp_recipe *recipe,
                               char *const *name);
/* Copies names of columns and classes from the set's attributes into norm, and means
 * and standard deviations if the deck wants normalization and the set has them, or
 * another file will give them (run.init_norm). Local. */
sp_status sp_resources_normalize(sp_resources *resources, const sp_dataset *set);
/* Compares the set's columns, as chosen by data.features, with those that the
 * checkpoint at `path` names. If they differ, the status is `code` and the message
 * has both lists. A checkpoint without names matches any columns. Local. */
sp_status sp_resources_match_columns(const sp_resources *resources,
                                     const sp_dataset *set,
                                     const sp_normalization *checkpoint,
                                     const char *path, sp_status code);
/* Compares the classes of a model with the resources'. A model without names, of an
 * older version or with only weights, is equal to all. Local. */
sp_match sp_resources_compare_classes(const sp_resources *resources,
                                      const sp_normalization *model);
/* Fails with `code` and the class names of the model at `path` and of data.train.
 * Local. */
sp_status sp_resources_refuse_classes(const sp_resources *resources,
                                      const sp_normalization *model, const char *path,
                                      sp_status code);
/* Gives the resources the classes of the model at `path`, which norm was read from, and
 * has the set's labels renumbered as the model numbers them. SP_EDATA with both lists
 * if the names are not the same set. A model without names changes nothing. Local. */
sp_status sp_resources_take_classes(sp_resources *resources, sp_dataset *set,
                                    const char *path);
/* Warns, on rank 0, of each column with statistics in the set far from norm's. */
void sp_resources_warn_far(const sp_resources *resources, const sp_dataset *set);

/* ---- sp_resources_resume.c ---- */

/* The ranks or nodes that have a batch of their own each (batch.per), for
 * sp_checkpoint_state.groups; 0: all ranks share one. After open_training. Local. */
int64_t sp_resources_groups(const sp_resources *resources);
/* Rank 0: SP_EUSAGE with both values unless a training of these resources may continue
 * from the checkpoint at `path`, whose state and norm were read: columns, classes, data
 * index and the keys of sp_config_kept_by_resume are equal. *old, which is zeroed,
 * becomes the checkpoint's deck; it is destroyed after a failure too. Local. */
sp_status sp_resources_check_continued(const sp_resources *resources,
                                       const sp_checkpoint_state *state,
                                       const sp_normalization *norm, const char *path,
                                       sp_config *old);

/* ---- sp_resources_labels.c ---- */

/* SP_EDATA if the training set has no sample, or no voxel of it has a label. Samples
 * are read until one has: commonly one a rank. */
sp_status sp_resources_check_labels(sp_resources *resources);
/* Adds the labels of all voxels of a set that has labels to count [n_classes], on every
 * rank. *is_known is false if there are too many to read at a start, or a sample cannot
 * be read; count is then of no use. Collective. SP_EMPI. */
sp_status sp_resources_count_labels(sp_resources *resources, const sp_dataset *set,
                                    int64_t *count, bool *is_known);
/* Checks the deck's demands on a training: SP_EUSAGE if train.lovasz_per = "step" is
 * asked of several ranks or micro-batches, which would sort their own voxels only
 * (evaluations are per sample), and if run.weights names averages that train.ema does
 * not keep. Local. */
sp_status sp_resources_check_training(const sp_resources *resources);
/* Exchanges weights and running statistics with the averages of train.ema: the network
 * computes with the averages until the next call. No step or checkpoint comes between
 * the two. Local. */
void sp_resources_exchange_average(sp_resources *resources);
/* SP_EDATA if the deck lists class weights, but not one for each class. Local. */
sp_status sp_resources_check_class_weights(const sp_resources *resources);
/* Reads the bank of augment.paste. Fails with SP_EDATA if that does not fit the training
 * set or augment.mix_classes names no class of it, with SP_EUSAGE if augment.color_* is
 * to change colours that it does not have, or augment.elastic has finer cells than
 * voxels. Local. */
sp_status sp_resources_check_mixing(sp_resources *resources);
/* Class weights for the deck, from the label counts of the training set. *weights:
 * [n_classes] malloc'd, NULL if classes are not weighted. */
sp_status sp_resources_class_weights(sp_resources *resources, float **weights);
/* Class weights for eval and predict: the checkpoint's that norm was read from.
 * is_named: the command line has train.class_weights, which then counts (if it asks for
 * weights by frequency, they are the checkpoint's). *weights as above. Local. */
sp_status sp_resources_kept_class_weights(sp_resources *resources, bool is_named,
                                          float **weights);

/* ---- sp_resources.c ---- */

/* Builds graph and network from the config, with new random weights; is_loaded: the
 * caller loads weights, which are zero until then. class_weight (host, borrowed during
 * the call) may be NULL. SP_EMEM before anything is allocated if the weights do not fit
 * into the host's memory, or into run.memory_mb. */
sp_status sp_resources_open_net(sp_resources *resources, const float *class_weight,
                                bool is_loaded);
/* The same for a training, with the class weights that its deck asks for. SP_EUSAGE:
 * sp_resources_check_training, or train.freeze or lr_layers name no layer. */
sp_status sp_resources_open_trained_net(sp_resources *resources);
/* Opens the parts that a training adds to the network: buckets, optimizer, and a loader
 * of n_slots batches. */
sp_status sp_resources_open_training(sp_resources *resources, int n_slots);
/* Opens the loader of a pass over data.val, in its own order, in the views that
 * eval.views asks for. SP_EDATA: eval.merge, and the set does not record its blocks. */
sp_status sp_resources_open_evaluation(sp_resources *resources);
/* Opens the samplers of data.val_sets, whose data are open, and chains them to data.val's, `first`, so that
 * memory is estimated for all of them. Collective, agreed. */
sp_status sp_resources_open_val_sets(sp_resources *resources, sp_sampler *first);
/* Exchanges the present evaluation with another one's, and closes its loader, so that
 * one evaluation at a time takes memory. A second call exchanges them back. Local. */
void sp_resources_exchange_evaluation(sp_resources *resources, sp_evaluation *other);
/* Opens the loader of the present evaluation if that was closed. Collective, agreed. */
sp_status sp_resources_reopen_evaluation(sp_resources *resources);
/* After a training: closes its loaders and opens a loader for a pass over data.test,
 * which replaces data.val. Collective, agreed. */
sp_status sp_resources_turn_to_test(sp_resources *resources);
/* Checks that the blocks of data.val and of data.val_sets can be merged if eval.merge
 * asks for it, and measures the memory of waiting points. Local. SP_EDATA as above. */
sp_status sp_resources_measure_merging(sp_resources *resources);
/* A file that weights are loaded from, and the parts to load. */
typedef struct sp_weights_source {
    /* Rank 0 opens it: for only the weights that a training begins with (layers of
     * run.init_skip get initial ones), or for a state. NULL: `file` is open. */
    const char *path;
    struct sp_h5 *file; /* on rank 0 (sp_checkpoint_open_weights); NULL elsewhere */
    /* On rank 0 a packed model that was read, in place of a file (weights/sp_packed.h);
     * else NULL. */
    const struct sp_weights_model *packed;
    /* Filled, with the optimizer; its deck is set only on rank 0. NULL: weights. */
    sp_checkpoint_state *state;
    /* The weights that are there stay after a failure, and a number that is not finite is
     * one (SP_EDATA). Needs host memory for the weights of the file. */
    bool is_all_or_nothing;
} sp_weights_source;

/* Loads the weights of a file, if not is_all_or_nothing those that are not finite too,
 * and resources->fault names the first of them. */
sp_status sp_resources_load(sp_resources *resources, const sp_weights_source *from);
/* Compares the weights of all ranks, which should be the same bits (sp_replica.h);
 * `step` is for the message. */
sp_status sp_resources_check_replicas(sp_resources *resources, int64_t step);

#endif

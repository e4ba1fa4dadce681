/* A network with the columns that it reads, the classes that it knows and its weights.
 *
 *     sp_network_use_columns   data --> columns, vectors among them, classes
 *     sp_network_normalize     data --> statistics of the columns
 *       or from a model        sp_network_match_columns, _take_classes
 *     sp_network_open          graph, memory, new weights
 *     sp_network_load          the weights of a file
 *     sp_network_close
 *
 * The first half (sp_network_match.c) is local; opening and loading are collective and
 * agreed. */
#ifndef SP_NETWORK_H
#define SP_NETWORK_H

#include "api/sp_data_sets.h"
#include "api/sp_device.h"
#include "checkpoint/sp_checkpoint.h"
#include "data/sp_loader.h"
#include "net/sp_net.h"
#include "net/sp_optim.h"

typedef struct sp_network {
    int *columns, n_columns; /* [n_columns] feature columns in use, owned */
    sp_vectors vectors;      /* those among them that turn, for the loaders */
    int n_classes;
    char **class_name; /* [n_classes] from the training data or the model; borrowed */
    sp_normalization norm; /* of the training data or the model */
    sp_graph graph;
    sp_net net;
    int64_t step; /* steps that its weights were trained, for messages; 0: not known */
    /* The first number of the loaded weights that is not finite, as
     * sp_checkpoint_find_fault words it; "": all are. */
    char fault[SP_CHECKPOINT_FAULT];
    /* Weights that the rank holds: of the models that are averaged with this one, which
     * the estimate of memory adds, set before sp_network_open; of all with this one. */
    int64_t beside_bytes, weight_bytes;
} sp_network;

/* ---- sp_network_match.c ---- */

/* Chooses the columns that data.features asks for, and takes the set's classes, whose
 * names are borrowed. SP_EUSAGE, SP_EMEM. */
sp_status sp_network_use_columns(sp_network *network, const sp_config *config,
                                 const sp_dataset *set);
/* Determines which of the columns in use, of these names (NULL: not known), are
 * vectors, and logs it. */
void sp_network_find_vectors(sp_network *network, const sp_recipe *recipe,
                             char *const *name);
/* Copies names of columns and classes from the set's attributes into norm, and means
 * and standard deviations if the deck wants normalization and the set has them, or
 * another file will give them (run.init_norm). */
sp_status sp_network_normalize(sp_network *network, const sp_config *config,
                               const sp_dataset *set);
/* Compares the set's columns, as chosen by data.features, with those that the
 * checkpoint at `path` names. If they differ, the status is `code` and the message
 * has both lists. A checkpoint without names matches any columns. */
sp_status sp_network_match_columns(const sp_network *network, const sp_dataset *set,
                                   const sp_normalization *checkpoint, const char *path,
                                   sp_status code);
/* Compares the classes of a model with the network's. A model without names, of an
 * older version or with only weights, is equal to all. */
sp_match sp_network_compare_classes(const sp_network *network,
                                    const sp_normalization *model);
/* Fails with `code` and the class names of the model at `path` and of the set. */
sp_status sp_network_refuse_classes(const sp_network *network, const sp_dataset *set,
                                    const sp_normalization *model, const char *path,
                                    sp_status code);
/* Gives the network the classes of the model at `path`, which norm was read from, and
 * has the set's labels renumbered as the model numbers them. SP_EDATA with both lists
 * if the names are not the same set. A model without names changes nothing. */
sp_status sp_network_match_classes(sp_network *network, sp_dataset *set,
                                   const char *path);
/* Warns, on rank 0, of each column with statistics in the set far from norm's. */
void sp_network_warn_far(const sp_network *network, const sp_dataset *set);

/* ---- sp_network.c ---- */

/* Builds graph and network from the config, with new random weights; is_loaded: the
 * caller loads weights, which are zero until then. The device's transport, if it is
 * open, makes it a network to train. class_weight (host, borrowed during the call) may
 * be NULL; data are those that the rank holds besides. SP_EMEM before anything is
 * allocated if the weights do not fit into the host's memory, or into run.memory_mb. */
sp_status sp_network_open(sp_network *network, const sp_config *config,
                          sp_device *device, const sp_data_sets *data,
                          const float *class_weight, bool is_loaded);
/* A loader's options for this network on samples of `set`, in their own order and
 * views; borrows both. Local. */
sp_loader_options sp_network_loader(const sp_network *network, const sp_config *config,
                                    const sp_dataset *set);
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
    sp_optim *optim;
    /* The weights that are there stay after a failure, and a number that is not finite is
     * one (SP_EDATA). Needs host memory for the weights of the file. */
    bool is_all_or_nothing;
} sp_weights_source;

/* Loads the weights of a file, if not is_all_or_nothing those that are not finite too,
 * and network->fault names the first of them. */
sp_status sp_network_load(sp_network *network, const sp_config *config,
                          const sp_weights_source *from);
/* Rank 0, local: writes a checkpoint of the present state (sp_checkpoint_write), whose
 * deck is text. SP_EIO, SP_EMEM, SP_EDEVICE. */
sp_status sp_network_save(const sp_network *network, const sp_optim *optim,
                          const sp_checkpoint_state *state, const char *path);
/* Compares the weights of all ranks, which should be the same bits (sp_replica.h);
 * `step` is for the message. */
sp_status sp_network_check_replicas(const sp_network *network, int64_t step);
/* Local. */
void sp_network_close(sp_network *network);

#endif

/* The labels of the data: their check, their counts, and the weights of classes. */
#ifndef SP_LABELS_H
#define SP_LABELS_H

#include "api/sp_network.h"

/* SP_EDATA if the training set has no sample, or no voxel of it has a label. Samples
 * are read until one has: commonly one a rank. Collective, agreed. */
sp_status sp_labels_check(const sp_config *config, sp_comm *comm,
                          const sp_dataset *set);
/* Adds the labels of all voxels of a set that has labels to count [n_classes], on every
 * rank. *is_known is false if there are too many to read at a start, or a sample cannot
 * be read; count is then of no use. Collective. SP_EMPI. */
sp_status sp_labels_count(sp_comm *comm, const sp_dataset *set, int n_classes,
                          int64_t *count, bool *is_known);
/* SP_EDATA if the deck lists class weights, but not one for each class. Local. */
sp_status sp_labels_check_weights(const sp_config *config, int n_classes);
/* Class weights for the deck, from the label counts of the training set. *weights:
 * [n_classes] malloc'd, NULL if classes are not weighted; kept in network->norm, which
 * checkpoints store. Collective, agreed. */
sp_status sp_labels_weights(const sp_config *config, sp_comm *comm,
                            const sp_dataset *set, sp_network *network,
                            float **weights);
/* Class weights for eval and predict: the checkpoint's that norm was read from.
 * is_named: the command line has train.class_weights, which then counts (if it asks for
 * weights by frequency, they are the checkpoint's). *weights as above. Local. */
sp_status sp_labels_kept_weights(const sp_config *config, const sp_network *network,
                                 bool is_named, float **weights);

#endif

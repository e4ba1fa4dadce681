/* Fine-tuning: a training that begins with the weights of another one, of all layers or
 * of some.
 *
 *     run.init_from     sp_init_weights   weights and statistics of layers; the layers
 *                                         of run.init_skip are initialized
 *     run.init_norm     sp_init_norm_of   statistics of the features
 *     train.freeze, train.lr_layers       net/sp_graph.h; logged by sp_init_report
 */
#ifndef SP_INIT_H
#define SP_INIT_H

#include "train/sp_session.h"

/* Loads the weights of run.init_from and logs what moved where. Collective, agreed.
 * SP_EDATA: they do not fit, or are not finite; SP_EUSAGE: keys that contradict. */
sp_status sp_init_weights(sp_session *session, sp_network *network,
                          const sp_dataset *train);
/* Refuses for `sptrain check` what sp_init_weights would refuse, and logs the same,
 * with a graph and without a net. Collective, agreed. */
sp_status sp_init_check(sp_session *session, sp_network *network,
                        const sp_dataset *train);
/* Checks keys of fine-tuning that need a source, if no source is given. Local. */
sp_status sp_init_check_keys(const sp_config *config);
/* With run.init_norm = "source" fills the means and deviations of the features with
 * those that the checkpoint at `path` was trained with, by the columns' names; else
 * does nothing. Collective, agreed. SP_EDATA: it does not have them. */
sp_status sp_init_norm_of(const sp_session *session, sp_network *network,
                          const char *path);
/* Logs which layers are frozen, and which have another learning rate. Local; prints on
 * rank 0. */
void sp_init_report(const sp_config *config, const sp_graph *graph);

#endif

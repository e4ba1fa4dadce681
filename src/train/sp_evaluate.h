/* Exact evaluation: every voxel (and raw point) of a data set is counted once. */
#ifndef SP_EVALUATE_H
#define SP_EVALUATE_H

#include "net/sp_metrics.h"
#include "session/sp_session.h"

/* Opens sampler and loader for a pass over `set` in its own order. To be called on all
 * ranks; the status is each rank's own. The caller closes both, after a failure too. */
sp_status sp_evaluate_open(sp_session *session, const sp_dataset *set,
                           sp_sampler *sampler, sp_loader **loader);
/* Checks the predictions of a batch of `set`. SP_ENUMERIC names shard, sample and voxel
 * for which the network's last layer gave a number that is not finite. prediction:
 * [batch->n], from sp_net_loss. Local. */
sp_status sp_evaluate_check(const sp_session *session, const sp_dataset *set,
                            const sp_batch *batch, const int32_t *prediction);
/* Runs one pass over session->val and sums the confusion matrices over the ranks.
 * Collective; ranks do not wait for each other before the end of the pass, where all of
 * them learn of a network that is not finite (SP_ENUMERIC). */
sp_status sp_evaluate_pass(sp_session *session, sp_loader *loader, sp_metrics *metrics);

#endif

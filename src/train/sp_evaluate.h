/* Exact evaluation: every voxel (and raw point) of a data set once. */
#ifndef SP_EVALUATE_H
#define SP_EVALUATE_H

#include "net/sp_metrics.h"
#include "train/sp_session.h"

/* Loader of a pass over `set` in its own order. Collective in the sense that all ranks
 * open. */
sp_status sp_evaluate_open(sp_session *session, const sp_dataset *set,
                           sp_sampler *sampler, sp_loader **loader);
/* SP_ENUMERIC names shard, sample and voxel of a batch of `set` for which the network's
 * last layer gave something that is not finite. prediction [batch->n] of sp_net_loss.
 * Local. */
sp_status sp_evaluate_check(const sp_session *session, const sp_dataset *set,
                            const sp_batch *batch, const int32_t *prediction);
/* One pass over session->val, confusion matrices reduced over ranks. Collective; ranks do not meet before
 * the end of the pass, where all of them learn of a network that is not finite. */
sp_status sp_evaluate_pass(sp_session *session, sp_loader *loader, sp_metrics *metrics);

#endif

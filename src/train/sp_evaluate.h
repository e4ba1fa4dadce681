/* Exact evaluation: every voxel (and raw point) of a data set once. */
#ifndef SP_EVALUATE_H
#define SP_EVALUATE_H

#include "net/sp_metrics.h"
#include "train/sp_session.h"

/* Loader of a pass over `set` in its own order. Collective in the sense that all ranks
 * open. */
sp_status sp_evaluate_open(sp_session *session, const sp_dataset *set,
                           sp_sampler *sampler, sp_loader **loader);
/* One pass, confusion matrices reduced over ranks. Collective; ranks do not meet before
 * the end of the pass. */
sp_status sp_evaluate_pass(sp_session *session, sp_loader *loader, sp_metrics *metrics);

#endif

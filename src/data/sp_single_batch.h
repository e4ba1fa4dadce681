/* A batch of one sample that the caller has in memory, for prediction without shards.
 *
 *     sample --sp_single_batch_fill--> batch in the backend's memory, with its plan
 *                                (by the code that fills the slots of sp_loader)
 *       sp_net_forward ... --> sp_single_batch_recycle
 *
 * Two of them may be used in turn, so that a thread fills one while the network
 * computes on the other. Local. */
#ifndef SP_SINGLE_BATCH_H
#define SP_SINGLE_BATCH_H

#include "data/sp_loader.h"
#include "data/sp_mix.h"
#include "data/sp_voxel.h"

typedef struct sp_single_batch sp_single_batch;

/* Creates it from the options of a loader. sampler, columns, is_training, with_points
 * and n_slots are ignored: a sample has n_columns features. Of the set it uses
 * voxel_size and, for messages, the path of the first shard. All is borrowed. SP_EDATA:
 * data.voxel_size is not a multiple of the set's; SP_EMEM. */
sp_status sp_single_batch_create(sp_single_batch **single,
                                 const sp_loader_options *options);
void sp_single_batch_destroy(sp_single_batch *single);
/* Makes the batch of a sample, which is borrowed until sp_single_batch_recycle, as view
 * number `view` of the options shows it. batch->row_of leads from its stored voxels to
 * rows. Any thread. SP_EDATA; SP_EMEM; SP_EDEVICE. */
sp_status sp_single_batch_fill(sp_single_batch *single, const sp_sample *sample,
                               int view);
/* Gives the filled batch to the thread that computes on it, and takes it back. */
sp_status sp_single_batch_use(sp_single_batch *single, sp_batch **batch);
sp_status sp_single_batch_recycle(sp_single_batch *single);

/* Plans a sample as a loader of these options does in that epoch, and counts the plan.
 * Of the options it uses set, config, spec, backend (of the host), n_columns,
 * is_training and range.
 *   stored  the sample and, with a mix (else NULL), its partner; crops shorten them
 *   room    most bytes of the plan and of what planning needs meanwhile; 0: no bound
 * Local. SP_EDATA, SP_EMEM; *counts is written in any case. */
sp_status sp_single_batch_count(const sp_loader_options *options, sp_sample stored[2],
                                sp_mix *mix, int64_t epoch, int64_t room,
                                sp_plan_counts *counts);

#endif

/* Predictions from several views and overlapping blocks, used by evaluation and
 * prediction if eval.views or eval.merge asks for it (predict/sp_merge.h).
 *
 *     loader: each micro-batch once a view
 *       --forward--> logits --sp_merging_add--> sums of the voxels of the batch
 *           after the last view: classes of voxels, or with eval.merge
 *           --sp_merger_add, sp_merging_exchange--> sums of points, on their owners
 */
#ifndef SP_MERGING_H
#define SP_MERGING_H

#include "api/sp_evaluator.h"
#include "predict/sp_merger.h"

/* Zero it before the first use. */
typedef struct sp_merging {
    const sp_evaluator *evaluator; /* borrowed, as is its pass */
    const sp_evaluation *of;
    bool is_on;       /* views, blocks or models are merged */
    bool is_mean;     /* there are several views or models */
    bool with_blocks; /* eval.merge: the merger is open */
    sp_merger merger;
    sp_arena arena; /* the two below, of a batch, and logits on the host */
    size_t kept;    /* bytes of the arena that stay until the next batch */
    uint64_t *sum;  /* [stored voxels][n_classes] by batch->row_of_at */
    int32_t *label; /* [stored voxels] after the last view: the mean's label */
} sp_merging;

/* Copies logits of a device to the host, into memory of the arena; logits on the host
 * are not copied. Local. SP_EMEM, SP_EDEVICE. */
sp_status sp_merging_fetch(sp_backend *backend, sp_arena *arena, sp_tensor *logits);
/* Opens it as the keys say; without them is_on is false and only is_last, which is then
 * true, and destroy may be called. `done` gets the merged points. The evaluation's
 * loader is open. Collective, agreed. SP_EDATA, SP_EMEM. Destroy after a failure
 * too. */
sp_status sp_merging_open(sp_merging *merging, const sp_evaluator *evaluator,
                          const sp_evaluation *of, sp_merger_done *done, void *arg);
void sp_merging_destroy(sp_merging *merging);
/* True if the merging averages several views or models. Local. */
bool sp_merging_is_mean(const sp_evaluator *evaluator, const sp_evaluation *of);
/* True for the last view of a micro-batch. */
bool sp_merging_is_last(const sp_merging *merging, const sp_batch *batch);
/* Adds the logits of one view, which are finite and in backend memory. After the last
 * view sum and label are complete. Local. SP_EMEM, SP_EDEVICE. */
sp_status sp_merging_add(sp_merging *merging, const sp_batch *batch, sp_tensor logits);
/* Adds sample b of a batch to the merger (sp_merger_add), after its last view.
 * Local. */
sp_status sp_merging_add_sample(sp_merging *merging, const sp_batch *batch, int b,
                                const void *payload, size_t bytes);
/* Exchanges the added samples (sp_merger_exchange). Every rank calls it for each
 * micro-batch, after its last view. Collective, agreed. */
sp_status sp_merging_exchange(sp_merging *merging, const sp_batch *batch);

#endif

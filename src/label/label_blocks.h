/* The blocks of one scan, predicted by all ranks, to the classes of its points.
 *
 *     rank that computed a block    sums of its voxels --sp_merger_add--> owners of the
 *                                   points (predict/sp_merger.h)
 *     owner of a block              sums of its points, complete --label_result_put-->
 *                                   classes and fields, 2 bytes and more a point
 *     writers                       get their rows' classes, and place them
 *
 * The pieces of the scan are described to the merger as a data set. */
#ifndef LABEL_BLOCKS_H
#define LABEL_BLOCKS_H

#include "label/label_cut.h"
#include "label/label_result.h"
#include "predict/sp_merger.h"

typedef struct label_blocks {
    sp_comm *comm;        /* borrowed */
    label_deal deal;      /* which rank gets the class of a row */
    label_result *result; /* borrowed; the scan's, on a writer */
    sp_dataset set;       /* describes the pieces; its arrays are these: */
    sp_shard shard;
    sp_spans *points; /* of the pieces */
    sp_spans *scan;   /* of the pieces: all the same text, at 0 */
    sp_block *block;  /* [n_pieces] */
    sp_merger merger;
    label_result some;    /* of one block, on its way */
    sp_gather_buffer *to; /* [comm->size] points labelled since the last round */
    int64_t *n_to;        /* [comm->size] points of the block at hand */
    sp_gather_buffer received;
} label_blocks;

/* Opens the blocks of a scan that was cut. result: open, on the writers of the deal.
 * Collective, agreed. Must not be moved while open; close in any case. */
sp_status label_blocks_open(label_blocks *blocks, const label_cut *cut,
                            const label_model *model, const label_options *options,
                            const label_deal *deal, label_result *result);
void label_blocks_close(label_blocks *blocks);
/* Adds a block that this rank has predicted: sample->id is its number, and it has its
 * context. sum [sample->n][n_classes]: as label_net_run makes it; mark
 * [sample->n_points] as in label_sample. Local. SP_EMEM. */
sp_status label_blocks_add(label_blocks *blocks, const sp_sample *sample,
                           const uint64_t *sum, const uint32_t *mark);
/* Ends a round: the blocks 0 .. n_passed - 1 were all added. Points that are complete
 * reach their writers. Collective, not agreed. */
sp_status label_blocks_exchange(label_blocks *blocks, int64_t n_passed);

#endif

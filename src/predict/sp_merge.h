/* Merged prediction: the class probabilities of a point as the mean over the views of a
 * sample (predict/sp_view.h) and the weighted mean over the samples that contain it,
 * which are overlapping blocks of one scan.
 *
 *     logits of a view --sp_merge_view--> sum over the views, of each stored voxel
 *       --sp_merge_points, times the weight of the voxel in its block-->
 *     sum over the blocks, of each point --sp_merge_result--> class, confidence, ...
 *
 * All sums are integers: a probability counts in units of 2^-30, a weight in units of
 * 2^-16. So they depend on neither the order of blocks and views nor on the rank that
 * adds, and no order has to be kept. A sum of 64 bits holds SP_MAX_VIEWS views of 2048
 * blocks that contain one point.
 *
 * The weight of a voxel is s(tx) s(ty) with
 *
 *     tx = min(x - x0, x1 - x) / (2 margin)      from 0 to 1, ty likewise
 *     s(t) = t^2 (3 - 2 t)
 *
 * where (x, y) is the voxel's mean point (its centre without subvoxel positions) and
 * (x0, y0) .. (x1, y1) the block with its margin. It falls to 0, with its slope, at the
 * end of the block, where context is one-sided; since s(t) + s(1 - t) = 1, the weights
 * of two neighbours add up to 1. A weight is at least one unit, so that every point has
 * a prediction.
 *
 * The class with the greatest logit gets one unit more, in each view. A point of one
 * block and one view therefore has the class of the plain prediction, even if rounding
 * makes two probabilities equal.
 */
#ifndef SP_MERGE_H
#define SP_MERGE_H

#include "compute/sp_tensor.h"
#include "data/sp_shard.h"

enum {
    SP_MERGE_ONE = 1 << 30,   /* units of the probability 1 */
    SP_MERGE_WEIGHT = 1 << 16 /* units of the weight 1 */
};

/* The prediction of a point (or voxel). */
typedef struct sp_merged {
    int32_t label;    /* of the greatest probability, the lowest of several */
    float confidence; /* that probability */
} sp_merged;

/* weight [sample->n]: the weights of the sample's stored voxels in its block, 1 ..
 * SP_MERGE_WEIGHT units. block NULL: the sample is a whole scan, and all are equal.
 * voxel_size: the shards', in metre. Local, pure. */
void sp_merge_weigh(const sp_sample *sample, double voxel_size, const sp_block *block,
                    uint32_t *weight);
/* Adds the probabilities of one view, softmax(logits / temperature), to
 * sum [n][logits.c], of stored voxels, which the caller zeroes before the first view.
 * row_of [n]: the row of logits that each stored voxel became, -1: no row. The logits
 * are finite, fp32, in host memory. Local. */
void sp_merge_view(sp_tensor logits, double temperature, const int32_t *row_of,
                   int64_t n, uint64_t *sum);
/* Adds the probabilities of a block's points to `sum` [.][c]. Its rows are points of
 * the scan (or of a part of it): point i of the block is its row to[i] (NULL: i).
 *   voxel_sum    [.][c] from sp_merge_view
 *   weight       [.] of the voxels, from sp_merge_weigh; NULL: SP_MERGE_WEIGHT
 *   point_voxel  [n_points] row of the point's voxel in its sample
 * Points of the block's margin count like the others. Local. */
void sp_merge_points(const uint64_t *voxel_sum, int c, const uint32_t *weight,
                     int64_t n_points, const uint32_t *point_voxel, const uint32_t *to,
                     uint64_t *sum);
/* The prediction from a sum [c] of voxels or of points. probability [c] (may be NULL)
 * becomes the probabilities. A sum of zeros, of a point in no block, has class
 * SP_IGNORE, confidence 0 and probabilities 0. Pure. */
sp_merged sp_merge_result(const uint64_t *sum, int c, float *probability);
/* The entropy of its probabilities, - sum p ln p, from 0 to ln c; 0 for a sum of zeros.
 * It costs as much as the rest of a point's result. Pure. */
float sp_merge_entropy(const uint64_t *sum, int c);

/* Only the class of that prediction, at less cost. Pure. */
int32_t sp_merge_class(const uint64_t *sum, int c);

/* Writes logits [c] with the probabilities as softmax: their logarithms, at least
 * log(half a unit). The class of the prediction has the greatest logit, the first of
 * several, even if float32 would make two of them equal. Pure. */
void sp_merge_logits(const uint64_t *sum, int c, float *logits);

#endif

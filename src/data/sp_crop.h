/* Crops of stored samples (augment.range, augment.crop): rows are left out before a
 * sample is mixed and augmented. In an evaluation eval.range leaves rows out too, but
 * the stored sample keeps them (data/sp_loader_slot.c). Local; pure functions of their
 * arguments.
 *
 *     stored rows --augment.range--> rows in a box of the scan's coordinates
 *         --augment.crop--> rows near one of them, which is drawn
 *
 * A sphere or a box (edges along the axes) is about the position of a row, each with
 * the same probability. augment.crop_size bounds it in metre. Of the rows within it
 * augment.crop_voxels are kept, the nearest ones (as Pointcept's SphereCrop): in a
 * sphere by distance, in a box by the greatest of the distances in the axes, each
 * divided by the box's half edge. Without crop_size the box is a cube; an axis with
 * edge 0 has no bound and does not count. Of rows at the same distance the first stored
 * ones are kept. A row's position is its mean point (/subvoxel), else its voxel's
 * middle.
 *
 * A crop keeps the row it is about, so only augment.range can leave a sample without
 * rows; the caller warns then. The draws are keyed by (seed, epoch, sample), from a
 * stream of their own. */
#ifndef SP_CROP_H
#define SP_CROP_H

#include "data/sp_shard.h"

/* How one sample is cropped in one epoch. */
typedef struct sp_crop {
    bool is_cropped; /* by augment.crop; augment.range always counts */
    double centre;   /* in [0, 1): the row that it is about, of the rows in range */
} sp_crop;

sp_crop sp_crop_draw(const sp_config *config, uint64_t seed, uint64_t epoch,
                     int64_t sample);
/* True if the deck crops samples. */
bool sp_crop_is_on(const sp_config *config);
/* The most rows that are left of n stored rows, whatever is drawn; n if config is NULL.
 */
int64_t sp_crop_most(const sp_config *config, int64_t n);
/* The work of a sample, of this share of its rows; config as above. */
int64_t sp_crop_cost(const sp_config *config, const sp_dataset *set, int64_t sample);
/* True if sp_crop_most is all that can be said of a sample: it may be left with all of
 * these rows or with one. */
bool sp_crop_is_vague(const sp_config *config);
/* True if a row's position is within range [6]: augment.range or eval.range. */
bool sp_crop_is_within(const sp_doubles *range, double voxel_size,
                       const sp_sample *sample, int64_t row);
/* Leaves rows out of a sample with c feature columns, in place; the others keep their
 * order. Allocates 16 bytes a row in the arena and gives them back. SP_EMEM. */
sp_status sp_crop_apply(const sp_config *config, const sp_crop *crop, double voxel_size,
                        int c, sp_arena *arena, sp_sample *sample);

#endif

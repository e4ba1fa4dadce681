/* Augmentation and voxelization of one sample. Local, pure functions of their
 * arguments.
 *
 * Turns by multiples of 90 degrees without scaling are exact moves on the stored grid.
 * Other turns and scales move the position coord + (subvoxel + 1/2) / 256 and find its
 * voxel anew; rows that meet in one voxel are merged. Both act about the centre of the
 * sample's bounding box; where the result would leave the coordinate range it is
 * shifted back into it.
 */
#ifndef SP_VOXEL_H
#define SP_VOXEL_H

#include "compute/sp_tensor.h"
#include "data/sp_shard.h"
#include "deck/sp_deck.h"

/* *factor becomes the voxel edge of the network (data.voxel_size) over that of the set,
 * a whole number. SP_EDATA with the key's place and a file of the set where it is none.
 */
sp_status sp_voxel_factor(const sp_config *config, const sp_dataset *set,
                          double *factor);

/* What is done to the coordinates of one sample in one epoch. */
typedef struct sp_augment {
    bool flip_x, flip_y; /* before the turn */
    double angle; /* about z, radians; a multiple of pi/2 without subvoxel positions */
    double scale;
    double drop;   /* probability with which a stored voxel is left out */
    double jitter; /* standard deviation of noise on normalized features */
    uint64_t seed, epoch, sample;
} sp_augment;

/* Draw from the deck's ranges; keyed by (seed, epoch, sample). Each key draws from a
 * place of its own, so that switching one off leaves the others' draws as they were. */
sp_augment sp_augment_draw(const sp_config *config, bool has_subvoxel, uint64_t seed,
                           uint64_t epoch, int64_t sample);
/* The identity. */
sp_augment sp_augment_none(void);

/* A voxelized sample in the caller's arrays. */
typedef struct sp_voxels {
    int32_t n;
    int32_t *coords; /* [n][3] */
    float *features; /* [n][c] */
    int32_t *labels; /* [n] */
    int32_t *row_of; /* [in->n] voxel of each stored row, -1 dropped */
} sp_voxels;

/* Apply `aug`, then merge to voxels `factor` >= 1 times the stored edge (1: as stored):
 * features are means weighted equally, labels the majority of the labelled rows (ties
 * SP_IGNORE), coordinates unique and in [-2^19, 2^19). Voxels stand in the order of
 * their first stored row.
 *   c          feature columns of `in`
 *   mean, std  [c] features become (x - mean) / std, a std of 0 counting as 1; NULL: as
 *              they are
 *   arena      out's arrays are taken from it; scratch is given back
 * The noise of jitter is normal, cut at 5.77 deviations.
 * Errors: SP_EDATA a turned sample wider than the coordinate range, an angle or scale
 * that needs subvoxel positions the sample lacks; SP_EMEM arena full. */
sp_status sp_voxelize(const sp_sample *in, const sp_augment *aug, double factor, int c,
                      const double *mean, const double *std, sp_arena *arena,
                      sp_voxels *out);

#endif

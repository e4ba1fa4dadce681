/* Voxelization of one sample, augmented or as stored. Local; pure functions of their
 * arguments.
 *
 *     stored rows --> drop, range --> sp_augment_move --> voxelize --> features, labels
 *
 * data/sp_augment.h moves rows and features. Rows that meet in one voxel are
 * merged. The features of a voxel are unchanged, but for vectors, before they are
 * normalized: normals are mirrored and turned too, and positions move as the voxels do,
 * so that they do not contradict them. sp_recipe_vectors finds their columns by the
 * words in data/sp_recipe_vectors.c. */
#ifndef SP_VOXEL_H
#define SP_VOXEL_H

#include "base/sp_arena.h"
#include "data/sp_augment.h"
#include "data/sp_shard.h"
#include "deck/sp_deck.h"

/* Sets *factor to the edge of the network's voxels (data.voxel_size) over the set's
 * voxel edge, a whole number. SP_EDATA with the key's place and a file of the set if it
 * is not whole. */
sp_status sp_voxel_factor(const sp_config *config, const sp_dataset *set,
                          double *factor);

/* A voxelized sample. Its arrays are in the caller's arena. */
typedef struct sp_voxels {
    int32_t n;
    int32_t *coords; /* [n][3] */
    float *features; /* [n][c] */
    int32_t *labels; /* [n] */
    int32_t *row_of; /* [in->n] the voxel of each stored row; -1: left out */
} sp_voxels;

/* Applies `aug`, then merges to voxels `factor` >= 1 times the stored edge (1: as
 * stored). The features of a voxel are the mean of its rows, each with equal weight;
 * its label is the majority of the labelled rows (SP_IGNORE if two labels are equally
 * frequent). Coordinates are unique and in [-2^19, 2^19). Voxels are in the order of
 * their first stored row.
 *   c          feature columns of `in`
 *   mean, std  [c] features become (x - mean) / std (a std of 0 counts as 1) and
 *              positions turn about the mean; NULL: features are unchanged and
 *              positions turn about 0
 *   arena      gives the memory of out's arrays; scratch taken from it is given back
 * The noise of jitter is normal, cut off at 5.77 standard deviations. Errors: SP_EDATA:
 * a turned sample is wider than the coordinate range, or an angle or scale needs
 * subvoxel positions that the sample lacks; SP_EMEM: the arena is full. */
sp_status sp_voxelize(const sp_sample *in, const sp_augment *aug, double factor, int c,
                      const double *mean, const double *std, sp_arena *arena,
                      sp_voxels *out);

#endif

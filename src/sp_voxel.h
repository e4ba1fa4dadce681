/* Augmentation and voxelization of one sample. Local, pure functions of their arguments. */
#ifndef SP_VOXEL_H
#define SP_VOXEL_H

#include "sp_deck.h"
#include "sp_shard.h"
#include "sp_tensor.h"

/* What is done to the coordinates of one sample in one epoch. */
typedef struct sp_augment {
    bool flip_x, flip_y;
    double angle; /* about z, radians; a multiple of pi/2 without subvoxel positions */
    double scale;
    double drop, jitter;
    uint64_t seed, epoch, sample;
} sp_augment;

/* Draw from the deck's ranges; keyed by (seed, epoch, sample). */
sp_augment sp_augment_draw(const sp_config *config, bool has_subvoxel, uint64_t seed,
                           uint64_t epoch, int64_t sample);
/* The identity. */
sp_augment sp_augment_none(void);

/* A voxelized sample in the caller's arrays. */
typedef struct sp_voxels {
    int32_t n;
    int32_t *coords;  /* [n][3] */
    float *features;  /* [n][c] */
    int32_t *labels;  /* [n] */
    int32_t *row_of;  /* [in->n] voxel of each stored row, -1 dropped */
} sp_voxels;

/* Apply `aug`, then merge to voxels `factor` times the stored edge (1: as stored): features
 * are means weighted equally, labels the majority (ties SP_IGNORE), coordinates unique and in
 * [-2^19, 2^19). out's arrays are taken from arena. c: feature columns. SP_EDATA. */
sp_status sp_voxelize(const sp_sample *in, const sp_augment *aug, double factor, int c,
                      const double *mean, const double *std, sp_arena *arena,
                      sp_voxels *out);

#endif

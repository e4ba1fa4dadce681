/* Augmentation of one sample: what is drawn, where it moves voxels, what it does to
 * features. Local; pure functions of their arguments.
 *
 *     deck, (seed, epoch, sample) --sp_augment_draw--> sp_augment
 *     stored rows --sp_augment_move--> coordinates, which data/sp_voxel.h merges
 *     features of voxels --sp_augment_turn--> vectors turned --normalized-->
 *         --sp_augment_jitter--> noisy
 *
 * Turns by multiples of 90 degrees without scaling are exact moves on the stored grid.
 * Other turns and scales move the position coord + (subvoxel + 1/2) / 256 and find its
 * voxel anew. Both act about the centre of the sample's bounding box. Where the result
 * would leave the coordinate range it is shifted back into it. */
#ifndef SP_AUGMENT_H
#define SP_AUGMENT_H

#include "compute/sp_tensor.h"
#include "deck/sp_deck.h"
#include "recipe/sp_recipe.h"

/* The augmentation of one sample in one epoch. */
typedef struct sp_augment {
    bool flip_x, flip_y; /* mirrors the axis, before the turn */
    /* The turn about z in radians; a multiple of pi/2 without subvoxel positions. */
    double angle;
    double scale;
    double drop;   /* the probability with which a stored voxel is left out */
    double jitter; /* the standard deviation of the noise on normalized features */
    uint64_t seed, epoch, sample;
    /* The feature columns that move as the voxels do; NULL: none. Borrowed. */
    const sp_vectors *vectors;
} sp_augment;

/* Draws an augmentation from the deck's ranges, keyed by (seed, epoch, sample). Each
 * deck key draws from a stream of its own, so that switching one off leaves the others'
 * draws as they were. */
sp_augment sp_augment_draw(const sp_config *config, bool has_subvoxel, uint64_t seed,
                           uint64_t epoch, int64_t sample);
/* The augmentation that changes nothing. */
sp_augment sp_augment_none(void);

/* The voxels of a sample as stored. Borrowed. */
typedef struct sp_rows {
    int64_t id; /* of the sample, for messages */
    int32_t n;
    const int32_t *coords;   /* [n][3] in [-2^19, 2^19) */
    const uint8_t *subvoxel; /* [n][3]; NULL: there is none */
} sp_rows;

typedef struct sp_moved {
    const int32_t *coords; /* [n][3] in [-2^19, 2^19), in the arena or those of rows */
    bool is_merged;        /* rows may have met in one voxel */
} sp_moved;

/* Moves rows, to voxels `factor` >= 1 times the stored edge (1: as stored). The arena
 * gives out->coords. Errors: SP_EDATA: the turned sample is wider than the coordinate
 * range, or an angle or scale needs subvoxel positions that the sample lacks; SP_EMEM:
 * the arena is full. */
sp_status sp_augment_move(const sp_augment *augment, const sp_rows *rows, double factor,
                          sp_arena *arena, sp_moved *out);
/* Mirrors and turns the vectors among features [n][c] as the voxels, and scales
 * positions, about mean [c] where one is known (NULL: about 0). Whole quarter turns are
 * exact. */
void sp_augment_turn(const sp_augment *augment, float *features, int64_t n, int c,
                     const double *mean);
/* Adds noise to n normalized numbers: normal, cut off at 5.77 standard deviations. */
void sp_augment_jitter(const sp_augment *augment, float *features, int64_t n);

#endif

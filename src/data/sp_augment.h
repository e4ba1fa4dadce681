/* Augmentation of one sample: its random draws, its moves of voxels, and its changes of
 * features. Local; pure functions of their arguments.
 *
 *     deck, (seed, epoch, sample) --sp_augment_draw--> sp_augment
 *     stored rows --sp_augment_move--> coordinates, which data/sp_voxel.h merges
 *     features of voxels --sp_augment_turn--> positions and normals moved
 *         --sp_color_change--> other colours (data/sp_color.h)
 *         --normalized--> --sp_augment_jitter--> noisy
 *
 * A sample is mirrored, turned about z, then about x and y (tilts), scaled, and moved
 * by one vector (shift); then its voxels are displaced one by one (elastic
 * distortions, noise). All of it acts about the centre of the sample's bounding box.
 * Only mirrors and turns by multiples of 90 degrees are exact moves on the stored grid.
 * All else moves the position coord + (subvoxel + 1/2) / 256 and finds its voxel anew.
 * If the result would leave the coordinate range it is shifted back into it.
 *
 * An elastic distortion displaces a voxel by magnitude times a smooth field: each node
 * of a grid of edge `granularity` has three standard normal deviates, which are
 * averaged twice over three nodes in each axis and interpolated trilinearly (as
 * Pointcept's and MinkowskiEngine's ElasticDistortion). The averages have a standard
 * deviation of 0.114. The grid has no border and begins at the sample's centre; its
 * nodes are pure functions of (seed, epoch, sample, node), so that they are computed
 * only near voxels. All distortions use a voxel's position before the first
 * distortion. */
#ifndef SP_AUGMENT_H
#define SP_AUGMENT_H

#include "base/sp_arena.h"
#include "data/sp_color.h"
#include "data/sp_recipe.h"
#include "deck/sp_deck.h"

/* The augmentation of one sample in one epoch. */
typedef struct sp_augment {
    bool flip_x, flip_y; /* mirrors the axis, before the turn */
    /* The turn about z in radians; a multiple of pi/2 without subvoxel positions. */
    double angle;
    /* These need subvoxel positions. */
    double tilt_x, tilt_y; /* turns in radians, x first */
    double scale;
    double shift[3];
    double noise, noise_clip; /* standard deviation in an axis; its bound or 0 */
    sp_doubles elastic;       /* [n] granularity and magnitude by turns. Borrowed. */
    double edge;   /* of the network's voxels; the unit of all lengths is the same */
    double drop;   /* the probability that a stored voxel is left out */
    double jitter; /* the standard deviation of the noise on normalized features */
    /* Rows outside of this box of the scan's coordinates are left out (eval.range), or
     * NULL. Borrowed. */
    const sp_doubles *range;
    double stored_edge; /* of the shards' voxels, for `range` */
    bool is_mixed;      /* stored rows may have the same coordinates (data/sp_mix.h) */
    uint64_t seed, epoch, sample;
    /* The feature columns that move as the voxels do, or NULL. Borrowed. */
    const sp_vectors *vectors;
    /* The changes of colours, and the columns that are colours, or NULL. Borrowed. */
    sp_color color;
    const sp_colors *colors;
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
    const uint8_t *subvoxel; /* [n][3]; NULL: not stored */
} sp_rows;

typedef struct sp_moved {
    const int32_t *coords; /* [n][3] in [-2^19, 2^19), in the arena, or rows' own */
    bool is_merged;        /* rows may have met in one voxel */
    /* [n][3] how far single rows were moved at last, in the unit of augment->edge; in
     * the arena. NULL if no row was. */
    float *displacement;
} sp_moved;

/* Moves rows, to voxels `factor` >= 1 times the stored edge (1: as stored). The arena
 * gives the arrays of *out. Errors: SP_EDATA: the moved sample is wider than the
 * coordinate range, or a move needs subvoxel positions that the sample lacks; SP_EMEM:
 * the arena is full. */
sp_status sp_augment_move(const sp_augment *augment, const sp_rows *rows, double factor,
                          sp_arena *arena, sp_moved *out);
/* Mirrors, turns and tilts the vectors among features [n][c] as the voxels, and scales
 * and shifts positions, about mean [c] if it is known (NULL: about 0). Whole quarter
 * turns are exact. A vector without z is not tilted. */
void sp_augment_turn(const sp_augment *augment, float *features, int64_t n, int c,
                     const double *mean);
/* Adds displacements d [n][3] to the positions among features [n][c]. Normals stay. */
void sp_augment_displace(const sp_augment *augment, const float *d, float *features,
                         int64_t n, int c);
/* The most bytes that sp_augment_move allocates in its arena for n rows. is_displaced:
 * it displaces voxels one by one. */
int64_t sp_augment_bytes(int64_t n, bool is_displaced);
/* sp_augment_merges: the deck moves rows off the stored grid, so that they may meet in
 * one voxel if the shards have subvoxel positions. sp_augment_displaces: it displaces
 * voxels one by one. */
bool sp_augment_merges(const sp_config *config);
bool sp_augment_displaces(const sp_config *config);
/* Adds noise to n normalized numbers: normal, cut off at 5.77 standard deviations. */
void sp_augment_jitter(const sp_augment *augment, float *features, int64_t n);

#endif

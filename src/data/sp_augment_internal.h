/* Inside of sp_augment. */
#ifndef SP_AUGMENT_INTERNAL_H
#define SP_AUGMENT_INTERNAL_H

#include "data/sp_augment.h"

/* pi / 2 */
#define QUARTER 1.57079632679489661923
/* No normal deviate of sp_rng_normals is larger. */
#define NORMAL_MOST 5.78

enum { BATCH = 256 /* rows or numbers that get random numbers at a time */ };

/* A map of positions in stored voxels: p = shift + m * (position - centre), in units of
 * the new voxel. */
typedef struct affine {
    double m[3][3], centre[3], shift[3];
} affine;

/* Sets v to m * (position - centre) of row i. Without a subvoxel position it is the
 * voxel's middle. */
static inline void affine_turn(const affine *f, const sp_rows *rows, int32_t i,
                               double v[3])
{
    const int32_t *c = rows->coords + 3 * (int64_t)i;
    const uint8_t *sub = rows->subvoxel ? rows->subvoxel + 3 * (int64_t)i : NULL;
    double d[3];

    for (int a = 0; a < 3; a++)
        d[a] = c[a] - f->centre[a] + (sub ? (sub[a] + 0.5) / 256 : 0.5);
    for (int a = 0; a < 3; a++)
        v[a] = f->m[a][0] * d[0] + f->m[a][1] * d[1] + f->m[a][2] * d[2];
}

/* The turns about x, then about y, of a sample. */
void sp_augment_tilts(const sp_augment *augment, double m[3][3]);
/* True if voxels are displaced one by one. */
bool sp_augment_is_displaced(const sp_augment *augment);
/* The greatest displacement in an axis, in the unit of augment->edge. */
double sp_augment_reach(const sp_augment *augment);
/* Adds the displacements of the rows to d [n][3], in the unit of augment->edge. spare
 * [2 n] is overwritten; the arena's memory is given back. SP_EMEM. */
sp_status sp_augment_displacements(const sp_augment *augment, const sp_rows *rows,
                                   const affine *f, int32_t *spare, sp_arena *arena,
                                   float *d);

#endif

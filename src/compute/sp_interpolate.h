/* The weights of trilinear interpolation from a coarse level to a finer one, for all
 * backends.
 *
 * A coarse voxel stands at its least corner, as in TorchSparse's calc_ti_weights. A
 * finer voxel lies at f in [0, 1)^3 within its ancestor p, in edges of coarse voxels:
 *
 *     p + (0,1) ----- p + (1,1)      the weight of p + d is the product over the axes
 *         |   o           |          of f (d = 1) or 1 - f (d = 0)
 *         p --------- p + (1,0)      y[o] = sum w x[p + d] / sum w, over the voxels
 *                                    p + d that exist. p exists and f < 1.
 */
#ifndef SP_INTERPOLATE_H
#define SP_INTERPOLATE_H

#include "compute/sp_backend.h"

/* The ancestors of the rows of a fine level, `steps` levels above it. */
typedef struct sp_lineage {
    int32_t n; /* fine rows */
    int steps;
    const uint64_t *key;                  /* [n] */
    const int32_t *parent[SP_MAX_LEVELS]; /* [steps] each level's, from the fine one */
} sp_lineage;

static inline sp_lineage sp_lineage_of(const sp_interpolate_args *a)
{
    sp_lineage of;

    of.n = a->level[0].n;
    of.steps = a->steps;
    of.key = a->level[0].key;
    for (int l = 0; l < a->steps; l++)
        of.parent[l] = a->level[l].parent;
    return of;
}

static inline SP_HOST_DEVICE int32_t sp_lineage_ancestor(const sp_lineage *of,
                                                         int32_t row)
{
    for (int l = 0; l < of->steps; l++)
        row = of->parent[l][row];
    return row;
}

/* The first fine row whose ancestor is `row` or a later one; n without one. Rows and
 * their ancestors rise together. */
static inline SP_HOST_DEVICE int32_t sp_lineage_first(const sp_lineage *of, int32_t row)
{
    int32_t lo = 0, hi = of->n;

    while (lo < hi) {
        const int32_t middle = lo + (hi - lo) / 2;

        if (sp_lineage_ancestor(of, middle) < row)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

/* Writes the place f of a fine row within its ancestor. Exact. */
static inline SP_HOST_DEVICE void sp_lineage_place(const sp_lineage *of, int32_t row,
                                                   float f[3])
{
    const uint64_t key = of->key[row];

    for (int a = 0; a < 3; a++) {
        uint32_t u = 0;

        for (int b = 0; b < of->steps; b++)
            u |= (uint32_t)(key >> (3 * b + a) & 1) << b;
        f[a] = (float)u / (float)(1u << of->steps);
    }
}

/* The weight of offset k of the coarse level's 2^3 map. */
static inline SP_HOST_DEVICE float sp_lineage_weight(const float f[3], int k)
{
    const float x = k & 1 ? f[0] : 1 - f[0], y = k & 2 ? f[1] : 1 - f[1];

    return x * y * (k & 4 ? f[2] : 1 - f[2]);
}

#endif

/* Checks of a recipe that was read from a mutant, for kinds of files that hold one. */
#ifndef RECIPE_CHECKS_H
#define RECIPE_CHECKS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/sp_recipe.h"
#include "torture/fuzz/fuzz.h"

/* A fault unless both say the same, which their bytes tell. */
static inline void fuzz_same_recipe(sp_recipe *got, sp_recipe *want)
{
    sp_serial a = {0}, b = {0};

    sp_recipe_serialize(&a, &got);
    sp_recipe_serialize(&b, &want);
    if (a.rc != SP_OK || b.rc != SP_OK || a.size != b.size ||
        memcmp(a.data, b.data, a.size) != 0)
        fuzz_fault("another recipe, and nobody noticed");
    free(a.data);
    free(b.data);
}

/* Numbers that are accepted must be fit to convert scans with. */
static inline void fuzz_sane_recipe(const sp_recipe *r)
{
    if (!r)
        return;
    if (!(r->voxel_size > 0) || !isfinite(r->voxel_size) || !(r->block >= 0) ||
        !isfinite(r->block) || !(r->overlap >= 0 && r->overlap <= r->block) ||
        !(r->height_percentile >= 0 && r->height_percentile <= 100) || r->n_columns < 1)
        fuzz_fault("voxel size %g, block %g, overlap %g: taken", r->voxel_size,
                   r->block, r->overlap);
    for (int i = 0; i < r->n_columns; i++)
        if (!isfinite(r->divisor[i]) || r->divisor[i] == 0 || !r->column[i] ||
            !r->source[i])
            fuzz_fault("divisor %g of a column was taken", r->divisor[i]);
}

#endif

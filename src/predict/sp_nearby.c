#include "predict/sp_nearby.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"

enum {
    AXIS_BITS = 21,
    AXIS_ZERO = 1 << 20,
    AROUND = 27,
    PASSES = 2,
    PARALLEL_FROM = 1 << 14
};

struct sp_nearby_cell {
    uint64_t key; /* of its coordinates; 0: the place is free */
    uint64_t n;   /* voxels */
    uint64_t sum; /* of their x */
    uint64_t mean;
};

/* ---- the table ---- */

/* Never 0: a coordinate is above -AXIS_ZERO. */
static uint64_t key_of(const int32_t c[3])
{
    uint64_t key = 0;

    for (int a = 0; a < 3; a++)
        key = key << AXIS_BITS | (uint64_t)(c[a] + AXIS_ZERO);
    return key;
}

/* The place of a cell, or the free one that it would have. */
static struct sp_nearby_cell *find_cell(const sp_nearby *t, const int32_t c[3])
{
    const uint64_t key = key_of(c);
    size_t at = (size_t)((key * 0x9e3779b97f4a7c15u) >> 32) & (t->size - 1);

    while (t->cell[at].key != 0 && t->cell[at].key != key)
        at = (at + 1) & (t->size - 1);
    return &t->cell[at];
}

static void cell_of(const int32_t *coords, int edge, int32_t c[3])
{
    for (int a = 0; a < 3; a++)
        c[a] = coords[a] / edge - (coords[a] % edge < 0);
}

static sp_status fill_cells(sp_nearby *t, const int32_t *coords, int64_t n, int edge,
                            const uint64_t *x)
{
    t->size = 64;
    while (t->size < 2 * (size_t)n)
        t->size *= 2;
    if (!sp_list_reserve(&t->cell, &t->room, t->size * sizeof *t->cell))
        return SP_FAIL(SP_EMEM, "no memory for the surroundings of voxels: %zu bytes",
                       t->size * sizeof *t->cell);
    memset(t->cell, 0, t->size * sizeof *t->cell);
    for (int64_t i = 0; i < n; i++) {
        struct sp_nearby_cell *cell;
        int32_t c[3];

        cell_of(coords + 3 * i, edge, c);
        cell = find_cell(t, c);
        cell->key = key_of(c);
        cell->n++;
        cell->sum += x[i];
    }
    return SP_OK;
}

/* ---- means ---- */

static uint64_t mean_around(const sp_nearby *t, uint64_t key)
{
    const uint64_t mask = (1u << AXIS_BITS) - 1;
    uint64_t n = 0, sum = 0;

    for (int k = 0; k < AROUND; k++) {
        const int32_t c[3] = {(int32_t)(key >> 2 * AXIS_BITS) - AXIS_ZERO + k / 9 - 1,
                              (int32_t)(key >> AXIS_BITS & mask) - AXIS_ZERO +
                                  k / 3 % 3 - 1,
                              (int32_t)(key & mask) - AXIS_ZERO + k % 3 - 1};
        const struct sp_nearby_cell *cell = find_cell(t, c);

        n += cell->n; /* 0 if it is free */
        sum += cell->sum;
    }
    return (sum + n / 2) / n;
}

static void run_pass(sp_nearby *t)
{
#pragma omp parallel for schedule(static) if (t->size >= PARALLEL_FROM)
    for (size_t at = 0; at < t->size; at++)
        if (t->cell[at].key)
            t->cell[at].mean = mean_around(t, t->cell[at].key);
    for (size_t at = 0; at < t->size; at++)
        t->cell[at].sum = t->cell[at].n * t->cell[at].mean;
}

sp_status sp_nearby_mean(sp_nearby *t, const int32_t *coords, int64_t n, int edge,
                         uint64_t *x)
{
    assert(edge >= 1 && n >= 0 && (n == 0 || (coords && x)));
    SP_TRY(fill_cells(t, coords, n, edge, x));
    for (int pass = 0; pass < PASSES; pass++)
        run_pass(t);
    for (int64_t i = 0; i < n; i++) {
        int32_t c[3];

        cell_of(coords + 3 * i, edge, c);
        x[i] = find_cell(t, c)->mean;
    }
    return SP_OK;
}

void sp_nearby_destroy(sp_nearby *t)
{
    free(t->cell);
    *t = (sp_nearby){0};
}

/* Trilinear interpolation (compute/sp_interpolate.h). In the forward pass threads share
 * tiles of coarse rows, whose fine rows are consecutive. The gradient adds into rows
 * that several tiles share, so there threads share columns. The gradients of the fine
 * rows of one coarse row are summed in fp32 for each of its neighbours, before they are
 * added. */
#include "compute/sp_interpolate.h"

#include <assert.h>
#include <string.h>

#include "cpu/cpu_isa.h"

enum { COLUMNS = 16, CORNERS = 8 };

/* The neighbours of each coarse row of a tile, -1 if absent. */
typedef int32_t corners[SP_TILE][CORNERS];

static void interpolate_find(const sp_map *m, int t, corners at)
{
    assert(m->K == CORNERS);
    memset(at, 0xff, sizeof(corners));
    for (int k = 0; k < CORNERS; k++)
        for (int p = m->start[t * CORNERS + k]; p < m->start[t * CORNERS + k + 1]; p++)
            at[m->out[p] - m->tile_row[t]][k] = m->in[p];
}

/* Writes the weights of a fine row, whose sum is 1, and 0 where no voxel is. */
static void interpolate_weigh(const sp_lineage *of, int32_t row,
                              const int32_t at[CORNERS], float w[CORNERS])
{
    float f[3], sum = 0;

    sp_lineage_place(of, row, f);
    for (int k = 0; k < CORNERS; k++) {
        w[k] = at[k] < 0 ? 0 : sp_lineage_weight(f, k);
        sum += w[k];
    }
    for (int k = 0; k < CORNERS; k++)
        w[k] /= sum;
}

static void interpolate_row(const sp_interpolate_args *a, int32_t row,
                            const int32_t at[CORNERS], const float w[CORNERS])
{
    for (int j0 = 0; j0 < a->y.c; j0 += COLUMNS) {
        const int n = (int)sp_least(COLUMNS, a->y.c - j0);
        float sum[COLUMNS] = {0};

        for (int k = 0; k < CORNERS; k++)
            for (int j = 0; w[k] > 0 && j < n; j++)
                sum[j] += w[k] * sp_get(a->x, at[k], j0 + j);
        for (int j = 0; j < n; j++)
            sp_put(a->y, row, j0 + j, sum[j]);
    }
}

sp_status sp_cpu_interpolate(sp_backend *be, const sp_interpolate_args *a)
{
    const sp_lineage of = sp_lineage_of(a);
    const sp_map *m = a->map;

    assert(sp_interpolate_is_sound(a, a->x, a->y));
#pragma omp parallel for num_threads(be->threads) if (m->n_tiles > 1)
    for (int t = 0; t < m->n_tiles; t++) {
        const int32_t first = m->tile_row[t], end = m->tile_row[t + 1];
        int32_t row = sp_lineage_first(&of, first), up;
        float w[CORNERS];
        corners at;

        interpolate_find(m, t, at);
        for (; row < of.n && (up = sp_lineage_ancestor(&of, row)) < end; row++) {
            interpolate_weigh(&of, row, at[up - first], w);
            interpolate_row(a, row, at[up - first], w);
        }
    }
    return SP_OK;
}

/* Adds what coarse row `up` collected for its neighbours, in columns j0 .. j0 + n - 1.
 */
static void interpolate_add(const sp_interpolate_args *a, const int32_t at[CORNERS],
                            int j0, int n, float sum[CORNERS][COLUMNS])
{
    for (int k = 0; k < CORNERS; k++)
        for (int j = 0; at[k] >= 0 && j < n; j++)
            sp_put(a->dx, at[k], j0 + j, sp_get(a->dx, at[k], j0 + j) + sum[k][j]);
}

/* The columns j0 .. j0 + n - 1 of the gradient. */
static void interpolate_grad_columns(const sp_interpolate_args *a, const sp_lineage *of,
                                     int j0, int n)
{
    const sp_map *m = a->map;
    float w[CORNERS], g[COLUMNS], sum[CORNERS][COLUMNS];
    int32_t row = 0;
    corners at;

    for (int t = 0; t < m->n_tiles; t++) {
        interpolate_find(m, t, at);
        for (int32_t up = m->tile_row[t]; up < m->tile_row[t + 1]; up++) {
            const int32_t *own = at[up - m->tile_row[t]];

            memset(sum, 0, sizeof sum);
            for (; row < of->n && sp_lineage_ancestor(of, row) == up; row++) {
                interpolate_weigh(of, row, own, w);
                for (int j = 0; j < n; j++)
                    g[j] = sp_get(a->dy, row, j0 + j);
                for (int k = 0; k < CORNERS; k++)
                    for (int j = 0; w[k] > 0 && j < n; j++)
                        sum[k][j] += w[k] * g[j];
            }
            interpolate_add(a, own, j0, n, sum);
        }
    }
}

sp_status sp_cpu_interpolate_grad(sp_backend *be, const sp_interpolate_args *a)
{
    const sp_lineage of = sp_lineage_of(a);

    assert(sp_interpolate_is_sound(a, a->dx, a->dy));
#pragma omp parallel for num_threads(be->threads) if (a->dy.c > COLUMNS)
    for (int j = 0; j < a->dy.c; j += COLUMNS)
        interpolate_grad_columns(a, &of, j, (int)sp_least(COLUMNS, a->dy.c - j));
    return SP_OK;
}

/* Trilinear interpolation by plain loops, with weights in double. */
#include <assert.h>

#include "cpu/cpu.h"
#include "reference/ref_backend.h"

/* The coarse row that row `up` has at offset k, or -1. */
static int32_t neighbour(const sp_map *m, int32_t up, int k)
{
    for (int t = 0; t < m->n_tiles; t++)
        for (int p = m->start[t * m->K + k]; p < m->start[t * m->K + k + 1]; p++)
            if (m->out[p] == up)
                return m->in[p];
    return -1;
}

/* Writes neighbours and weights of a fine row. */
static void weigh(const sp_interpolate_args *a, int32_t row, int32_t from[8],
                  double w[8])
{
    const uint64_t key = a->level[0].key[row];
    double f[3] = {0}, sum = 0;
    int32_t up = row;

    for (int l = 0; l < a->steps; l++) {
        for (int i = 0; i < 3; i++)
            f[i] += (double)(key >> (3 * l + i) & 1) * (1 << l) / (1 << a->steps);
        up = a->level[l].parent[up];
    }
    for (int k = 0; k < 8; k++) {
        from[k] = neighbour(a->map, up, k);
        w[k] = from[k] < 0 ? 0 : 1;
        for (int i = 0; i < 3; i++)
            w[k] *= k >> i & 1 ? f[i] : 1 - f[i];
        sum += w[k];
    }
    for (int k = 0; k < 8; k++)
        w[k] /= sum;
}

sp_status sp_ref_interpolate(sp_backend *be, const sp_interpolate_args *a)
{
    int32_t from[8];
    double w[8];

    assert(sp_interpolate_is_sound(a, a->x, a->y));
    (void)be;
    for (int32_t o = 0; o < a->y.n; o++) {
        weigh(a, o, from, w);
        for (int j = 0; j < a->y.c; j++) {
            double sum = 0;

            for (int k = 0; k < 8; k++)
                sum += from[k] < 0 ? 0 : w[k] * (double)sp_row(a->x, from[k])[j];
            sp_row(a->y, o)[j] = (float)sum;
        }
    }
    return SP_OK;
}

sp_status sp_ref_interpolate_grad(sp_backend *be, const sp_interpolate_args *a)
{
    int32_t from[8];
    double w[8];

    assert(sp_interpolate_is_sound(a, a->dx, a->dy));
    (void)be;
    for (int32_t o = 0; o < a->dy.n; o++) {
        weigh(a, o, from, w);
        for (int k = 0; k < 8; k++)
            for (int j = 0; from[k] >= 0 && j < a->dy.c; j++)
                sp_row(a->dx, from[k])[j] += (float)w[k] * sp_row(a->dy, o)[j];
    }
    return SP_OK;
}

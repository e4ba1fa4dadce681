/* Pooling by plain loops. */
#include <assert.h>
#include <string.h>

#include "cpu/cpu.h"

/* Offsets, then pairs are visited in order, and the first of equal values wins. */
static void max_pair(const sp_pool_args *a, int32_t in, int32_t out)
{
    const float *x = sp_row(a->x, in);
    float *y = sp_row(a->y, out);
    int32_t *at = a->argmax + (size_t)out * a->y.c;

    for (int j = 0; j < a->y.c; j++)
        if (at[j] < 0 || x[j] > y[j]) {
            y[j] = x[j];
            at[j] = in;
        }
}

/* Counts the pairs of output row o of tile t. */
static int count_pairs(const sp_map *m, int t, int32_t o)
{
    int count = 0;

    for (int p = m->start[t * m->K]; p < m->start[(t + 1) * m->K]; p++)
        count += m->out[p] == o;
    return count;
}

static void mean_tile(const sp_pool_args *a, int t)
{
    const sp_map *m = a->map;

    for (int p = m->start[t * m->K]; p < m->start[(t + 1) * m->K]; p++)
        for (int j = 0; j < a->y.c; j++)
            sp_row(a->y, m->out[p])[j] += sp_row(a->x, m->in[p])[j];
    for (int32_t o = m->tile_row[t]; o < m->tile_row[t + 1]; o++) {
        int count = count_pairs(m, t, o);
        for (int j = 0; count && j < a->y.c; j++)
            sp_row(a->y, o)[j] /= (float)count;
    }
}

sp_status sp_ref_pool(sp_backend *be, const sp_pool_args *a)
{
    const sp_map *m = a->map;

    assert(sp_pool_is_sound(a));
    (void)be;
    for (int64_t i = 0; i < a->y.n; i++)
        memset(sp_row(a->y, i), 0, (size_t)a->y.c * sizeof(float));
    if (a->is_max)
        memset(a->argmax, 0xff, (size_t)a->y.n * a->y.c * sizeof *a->argmax);
    for (int t = 0; t < m->n_tiles; t++)
        if (!a->is_max)
            mean_tile(a, t);
        else
            for (int p = m->start[t * m->K]; p < m->start[(t + 1) * m->K]; p++)
                max_pair(a, m->in[p], m->out[p]);
    return SP_OK;
}

static void max_grad(const sp_pool_args *a)
{
    for (int64_t o = 0; o < a->dy.n; o++)
        for (int j = 0; j < a->dy.c; j++) {
            int32_t i = a->argmax[o * a->dy.c + j];
            if (i >= 0)
                sp_row(a->dx, i)[j] += sp_row(a->dy, o)[j];
        }
}

static void mean_grad_tile(const sp_pool_args *a, int t)
{
    const sp_map *m = a->map;

    for (int32_t o = m->tile_row[t]; o < m->tile_row[t + 1]; o++) {
        int count = count_pairs(m, t, o);
        for (int p = m->start[t * m->K]; p < m->start[(t + 1) * m->K]; p++)
            for (int j = 0; m->out[p] == o && j < a->dy.c; j++)
                sp_row(a->dx, m->in[p])[j] += sp_row(a->dy, o)[j] / (float)count;
    }
}

sp_status sp_ref_pool_grad(sp_backend *be, const sp_pool_args *a)
{
    assert(sp_pool_grad_is_sound(a));
    (void)be;
    if (a->is_max)
        max_grad(a);
    else
        for (int t = 0; t < a->map->n_tiles; t++)
            mean_grad_tile(a, t);
    return SP_OK;
}

static float channel_mean(sp_tensor x, int32_t row, int32_t end, int j)
{
    double sum = 0;

    for (int32_t i = row; i < end; i++)
        sum += sp_row(x, i)[j];
    return row < end ? (float)(sum / (end - row)) : 0;
}

static int32_t channel_argmax(sp_tensor x, int32_t row, int32_t end, int j)
{
    int32_t at = row < end ? row : -1;

    for (int32_t i = row; i < end; i++)
        if (sp_row(x, i)[j] > sp_row(x, at)[j])
            at = i;
    return at;
}

sp_status sp_ref_global_pool(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                             int n_samples, int32_t *argmax, sp_tensor y)
{
    assert(sp_samples_cover(sample_row, n_samples, x.n) && y.n == n_samples);
    (void)be;
    for (int b = 0; b < n_samples; b++)
        for (int j = 0; j < x.c; j++) {
            int32_t row = sample_row[b], end = sample_row[b + 1], at;
            if (!argmax) {
                sp_row(y, b)[j] = channel_mean(x, row, end, j);
                continue;
            }
            at = argmax[(size_t)b * x.c + j] = channel_argmax(x, row, end, j);
            sp_row(y, b)[j] = at < 0 ? 0 : sp_row(x, at)[j];
        }
    return SP_OK;
}

sp_status sp_ref_global_pool_grad(sp_backend *be, sp_tensor dy,
                                  const int32_t *sample_row, int n_samples,
                                  const int32_t *argmax, sp_tensor dx)
{
    assert(sp_samples_cover(sample_row, n_samples, dx.n) && dy.n == n_samples);
    (void)be;
    for (int b = 0; b < n_samples; b++)
        for (int j = 0; j < dy.c; j++) {
            int32_t row = sample_row[b], end = sample_row[b + 1];
            float g = sp_row(dy, b)[j];
            int32_t at = argmax ? argmax[(size_t)b * dy.c + j] : -1;
            if (argmax && at >= 0)
                sp_row(dx, at)[j] += g;
            for (int32_t i = row; !argmax && i < end; i++)
                sp_row(dx, i)[j] += g / (float)(end - row);
        }
    return SP_OK;
}

sp_status sp_ref_broadcast(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                           int n_samples, sp_tensor y)
{
    assert(sp_samples_cover(sample_row, n_samples, y.n) && x.n == n_samples);
    (void)be;
    for (int b = 0; b < n_samples; b++)
        for (int32_t i = sample_row[b]; i < sample_row[b + 1]; i++)
            memcpy(sp_row(y, i), sp_row(x, b), (size_t)x.c * sizeof(float));
    return SP_OK;
}

sp_status sp_ref_broadcast_grad(sp_backend *be, sp_tensor dy, const int32_t *sample_row,
                                int n_samples, sp_tensor dx)
{
    assert(sp_samples_cover(sample_row, n_samples, dy.n) && dx.n == n_samples);
    (void)be;
    for (int b = 0; b < n_samples; b++)
        for (int j = 0; j < dy.c; j++) {
            double sum = 0;
            for (int32_t i = sample_row[b]; i < sample_row[b + 1]; i++)
                sum += sp_row(dy, i)[j];
            sp_row(dx, b)[j] += (float)sum;
        }
    return SP_OK;
}

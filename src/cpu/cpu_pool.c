/* Pooling. In forward passes threads share tiles. Gradients add into rows that several
 * outputs share, so there threads share columns, and every sum keeps its order. In bf16
 * a mean is formed in fp32 and rounded once; a gradient is rounded each time that
 * something is added to it in memory. */
#include <assert.h>
#include <string.h>

#include "cpu/cpu_isa.h"

enum { COLUMNS = 16 /* columns of one piece of work: a cache line of a row */ };

/* Counts the pairs of each output row of tile t. */
static void pool_count_pairs(const sp_map *m, int t, int32_t count[SP_TILE])
{
    memset(count, 0, SP_TILE * sizeof *count);
    for (int p = m->start[t * m->K]; p < m->start[(t + 1) * m->K]; p++)
        count[m->out[p] - m->tile_row[t]]++;
}

/* The values of a tile of the output while they are formed, COLUMNS at a time. */
typedef float part[SP_TILE][COLUMNS];

/* Adds the pairs of tile t to columns j0 .. j1 - 1, or takes their maximum. */
static void pool_pairs(const sp_pool_args *a, int t, int j0, int j1, part y)
{
    const sp_map *m = a->map;
    float x[COLUMNS];

    for (int p = m->start[t * m->K]; p < m->start[(t + 1) * m->K]; p++) {
        const int32_t in = m->in[p], out = m->out[p];
        float *restrict to = y[out - m->tile_row[t]];
        for (int j = j0; j < j1; j++)
            x[j - j0] = sp_get(a->x, in, j);
        if (!a->is_max) {
            for (int j = 0; j < j1 - j0; j++)
                to[j] += x[j];
            continue;
        }
        int32_t *restrict at = a->argmax + (size_t)out * (size_t)a->y.c + j0;
        for (int j = 0; j < j1 - j0; j++) {
            const bool is_new = (at[j] < 0) | (x[j] > to[j]);
            to[j] = is_new ? x[j] : to[j];
            at[j] = is_new ? in : at[j];
        }
    }
}

static void pool_columns(const sp_pool_args *a, int t, int j0, int j1)
{
    const sp_map *m = a->map;
    int32_t count[SP_TILE];
    part y;

    memset(y, 0, sizeof y);
    pool_pairs(a, t, j0, j1, y);
    if (!a->is_max)
        pool_count_pairs(m, t, count);
    for (int32_t o = m->tile_row[t]; o < m->tile_row[t + 1]; o++) {
        const int i = o - m->tile_row[t], n = a->is_max ? 1 : count[i];
        for (int j = j0; j < j1; j++)
            sp_put(a->y, o, j, n > 1 ? y[i][j - j0] / (float)n : y[i][j - j0]);
    }
}

sp_status sp_cpu_pool(sp_backend *be, const sp_pool_args *a)
{
    const sp_map *m = a->map;
    const int c = a->y.c;

    assert(sp_pool_is_sound(a));
#pragma omp parallel for num_threads(be->threads) if (m->n_tiles > 1)
    for (int t = 0; t < m->n_tiles; t++) {
        for (int32_t o = m->tile_row[t]; a->is_max && o < m->tile_row[t + 1]; o++)
            memset(a->argmax + (size_t)o * (size_t)c, 0xff,
                   (size_t)c * sizeof *a->argmax);
        for (int j = 0; j < c; j += COLUMNS)
            pool_columns(a, t, j, (int)sp_least(j + COLUMNS, c));
    }
    return SP_OK;
}

static void add_to(sp_tensor t, int64_t i, int j, float v)
{
    sp_put(t, i, j, sp_get(t, i, j) + v);
}

static void max_grad(const sp_pool_args *a, int j0, int j1)
{
    for (int64_t o = 0; o < a->dy.n; o++) {
        const int32_t *at = a->argmax + o * a->dy.c;
        for (int j = j0; j < j1; j++)
            if (at[j] >= 0)
                add_to(a->dx, at[j], j, sp_get(a->dy, o, j));
    }
}

static void mean_grad(const sp_pool_args *a, int j0, int j1)
{
    const sp_map *m = a->map;
    int32_t count[SP_TILE];

    for (int t = 0; t < m->n_tiles; t++) {
        pool_count_pairs(m, t, count);
        for (int p = m->start[t * m->K]; p < m->start[(t + 1) * m->K]; p++) {
            const float n = (float)count[m->out[p] - m->tile_row[t]];
            for (int j = j0; j < j1; j++)
                add_to(a->dx, m->in[p], j, sp_get(a->dy, m->out[p], j) / n);
        }
    }
}

sp_status sp_cpu_pool_grad(sp_backend *be, const sp_pool_args *a)
{
    const int c = a->dy.c;

    assert(sp_pool_grad_is_sound(a));
#pragma omp parallel for num_threads(be->threads) if (c > COLUMNS)
    for (int j = 0; j < c; j += COLUMNS)
        if (a->is_max)
            max_grad(a, j, (int)sp_least(j + COLUMNS, c));
        else
            mean_grad(a, j, (int)sp_least(j + COLUMNS, c));
    return SP_OK;
}

/* ---- over whole samples ---- */

/* Sums columns j0 .. j1 - 1 over rows row .. end - 1, in double. */
static void columns_sum(sp_tensor x, int32_t row, int32_t end, int j0, int j1,
                        double *sum)
{
    memset(sum, 0, COLUMNS * sizeof *sum);
    for (int32_t i = row; i < end; i++)
        for (int j = j0; j < j1; j++)
            sum[j - j0] += sp_get(x, i, j);
}

/* Finds the maxima of columns j0 .. j1 - 1 and their rows. */
static void columns_max(sp_tensor x, int32_t row, int32_t end, int j0, int j1,
                        float *top, int32_t *at)
{
    for (int j = j0; j < j1; j++) {
        at[j - j0] = row < end ? row : -1;
        top[j - j0] = row < end ? sp_get(x, row, j) : 0;
    }
    for (int32_t i = row; i < end; i++)
        for (int j = j0; j < j1; j++) {
            const float v = sp_get(x, i, j);
            if (v > top[j - j0]) {
                top[j - j0] = v;
                at[j - j0] = i;
            }
        }
}

/* Writes columns j0 .. of row b of y. at [c] NULL: means. */
static void global_columns(sp_tensor x, int32_t row, int32_t end, int j0, int32_t *at,
                           sp_tensor y, int b)
{
    const int j1 = (int)sp_least(j0 + COLUMNS, x.c);
    float value[COLUMNS];
    double sum[COLUMNS];

    if (at) {
        columns_max(x, row, end, j0, j1, value, at + j0);
    } else {
        columns_sum(x, row, end, j0, j1, sum);
        for (int j = 0; j < j1 - j0; j++)
            value[j] = row < end ? (float)(sum[j] / (end - row)) : 0;
    }
    for (int j = j0; j < j1; j++)
        sp_put(y, b, j, value[j - j0]);
}

sp_status sp_cpu_global_pool(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                             int n_samples, int32_t *argmax, sp_tensor y)
{
    assert(sp_samples_cover(sample_row, n_samples, x.n) && y.n == n_samples);
#pragma omp parallel for collapse(2) num_threads(be->threads)
    for (int b = 0; b < n_samples; b++)
        for (int j = 0; j < x.c; j += COLUMNS)
            global_columns(x, sample_row[b], sample_row[b + 1], j,
                           argmax ? argmax + (size_t)b * (size_t)x.c : NULL, y, b);
    return SP_OK;
}

sp_status sp_cpu_global_pool_grad(sp_backend *be, sp_tensor dy,
                                  const int32_t *sample_row, int n_samples,
                                  const int32_t *argmax, sp_tensor dx)
{
    assert(sp_samples_cover(sample_row, n_samples, dx.n) && dy.n == n_samples);
#pragma omp parallel for num_threads(be->threads)
    for (int b = 0; b < n_samples; b++) {
        const int32_t *at = argmax ? argmax + (size_t)b * (size_t)dy.c : NULL;
        const int32_t row = sample_row[b], end = sample_row[b + 1];
        for (int32_t i = row; !at && i < end; i++)
            for (int j = 0; j < dy.c; j++)
                add_to(dx, i, j, sp_get(dy, b, j) / (float)(end - row));
        for (int j = 0; at && j < dy.c; j++)
            if (at[j] >= 0)
                add_to(dx, at[j], j, sp_get(dy, b, j));
    }
    return SP_OK;
}

sp_status sp_cpu_broadcast(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                           int n_samples, sp_tensor y)
{
    assert(sp_samples_cover(sample_row, n_samples, y.n) && x.n == n_samples);
    for (int b = 0; b < n_samples; b++)
#pragma omp parallel for num_threads(be->threads)
        for (int32_t i = sample_row[b]; i < sample_row[b + 1]; i++)
            memcpy(sp_row_bytes(y, i), sp_row_bytes(x, b),
                   (size_t)x.c * sp_elem_bytes(x.elem));
    return SP_OK;
}

static void add_columns_sum(sp_tensor dy, int32_t row, int32_t end, int j0,
                            sp_tensor dx, int b)
{
    const int j1 = (int)sp_least(j0 + COLUMNS, dy.c);
    double sum[COLUMNS];

    columns_sum(dy, row, end, j0, j1, sum);
    for (int j = j0; j < j1; j++)
        add_to(dx, b, j, (float)sum[j - j0]);
}

sp_status sp_cpu_broadcast_grad(sp_backend *be, sp_tensor dy, const int32_t *sample_row,
                                int n_samples, sp_tensor dx)
{
    assert(sp_samples_cover(sample_row, n_samples, dy.n) && dx.n == n_samples);
#pragma omp parallel for collapse(2) num_threads(be->threads)
    for (int b = 0; b < n_samples; b++)
        for (int j = 0; j < dy.c; j += COLUMNS)
            add_columns_sum(dy, sample_row[b], sample_row[b + 1], j, dx, b);
    return SP_OK;
}

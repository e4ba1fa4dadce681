/* Pooling. In forward passes threads share tiles. Gradients add into rows that several
 * outputs share, so there threads share columns, and every sum keeps its order. */
#include <string.h>

#include "cpu/cpu_isa.h"

enum { COLUMNS = 16 /* columns of one piece of work: a cache line of a row */ };

/* Counts the pairs of each output row of tile t. */
static void count_pairs(const sp_map *m, int t, int32_t count[SP_TILE])
{
    memset(count, 0, SP_TILE * sizeof *count);
    for (int p = m->start[t * m->K]; p < m->start[(t + 1) * m->K]; p++)
        count[m->out[p] - m->tile_row[t]]++;
}

static void max_tile(const sp_pool_args *a, int t)
{
    const sp_map *m = a->map;
    const int c = a->y.c;

    for (int p = m->start[t * m->K]; p < m->start[(t + 1) * m->K]; p++) {
        const int32_t in = m->in[p], out = m->out[p];
        const float *restrict x = sp_row(a->x, in);
        float *restrict y = sp_row(a->y, out);
        int32_t *restrict at = a->argmax + (size_t)out * (size_t)c;
        for (int j = 0; j < c; j++) {
            const bool is_new = (at[j] < 0) | (x[j] > y[j]);
            y[j] = is_new ? x[j] : y[j];
            at[j] = is_new ? in : at[j];
        }
    }
}

static void mean_tile(const sp_pool_args *a, int t)
{
    const sp_map *m = a->map;
    int32_t count[SP_TILE];

    for (int p = m->start[t * m->K]; p < m->start[(t + 1) * m->K]; p++) {
        const float *restrict x = sp_row(a->x, m->in[p]);
        float *restrict y = sp_row(a->y, m->out[p]);
        for (int j = 0; j < a->y.c; j++)
            y[j] += x[j];
    }
    count_pairs(m, t, count);
    for (int32_t o = m->tile_row[t]; o < m->tile_row[t + 1]; o++) {
        const int n = count[o - m->tile_row[t]];
        float *y = sp_row(a->y, o);
        for (int j = 0; n > 1 && j < a->y.c; j++)
            y[j] /= (float)n;
    }
}

sp_status sp_cpu_pool(sp_backend *be, const sp_pool_args *a)
{
    const sp_map *m = a->map;
    const size_t c = (size_t)a->y.c;

#pragma omp parallel for num_threads(be->threads) if (m->n_tiles > 1)
    for (int t = 0; t < m->n_tiles; t++) {
        for (int32_t o = m->tile_row[t]; o < m->tile_row[t + 1]; o++) {
            memset(sp_row(a->y, o), 0, c * sizeof(float));
            if (a->is_max)
                memset(a->argmax + (size_t)o * c, 0xff, c * sizeof *a->argmax);
        }
        if (a->is_max)
            max_tile(a, t);
        else
            mean_tile(a, t);
    }
    return SP_OK;
}

static void max_grad(const sp_pool_args *a, int j0, int j1)
{
    for (int64_t o = 0; o < a->dy.n; o++) {
        const int32_t *at = a->argmax + o * a->dy.c;
        const float *dy = sp_row(a->dy, o);
        for (int j = j0; j < j1; j++)
            if (at[j] >= 0)
                sp_row(a->dx, at[j])[j] += dy[j];
    }
}

static void mean_grad(const sp_pool_args *a, int j0, int j1)
{
    const sp_map *m = a->map;
    int32_t count[SP_TILE];

    for (int t = 0; t < m->n_tiles; t++) {
        count_pairs(m, t, count);
        for (int p = m->start[t * m->K]; p < m->start[(t + 1) * m->K]; p++) {
            const float n = (float)count[m->out[p] - m->tile_row[t]];
            const float *restrict dy = sp_row(a->dy, m->out[p]);
            float *restrict dx = sp_row(a->dx, m->in[p]);
            for (int j = j0; j < j1; j++)
                dx[j] += dy[j] / n;
        }
    }
}

sp_status sp_cpu_pool_grad(sp_backend *be, const sp_pool_args *a)
{
    const int c = a->dy.c;

#pragma omp parallel for num_threads(be->threads) if (c > COLUMNS)
    for (int j = 0; j < c; j += COLUMNS)
        if (a->is_max)
            max_grad(a, j, (int)sp_cpu_least(j + COLUMNS, c));
        else
            mean_grad(a, j, (int)sp_cpu_least(j + COLUMNS, c));
    return SP_OK;
}

/* ---- over whole samples ---- */

/* Sums columns j0 .. j1 - 1 over rows row .. end - 1, in double. */
static void columns_sum(sp_tensor x, int32_t row, int32_t end, int j0, int j1,
                        double *sum)
{
    memset(sum, 0, COLUMNS * sizeof *sum);
    for (int32_t i = row; i < end; i++) {
        const float *v = sp_row(x, i);
        for (int j = j0; j < j1; j++)
            sum[j - j0] += v[j];
    }
}

static void columns_max(sp_tensor x, int32_t row, int32_t end, int j0, int j1, float *y,
                        int32_t *at)
{
    for (int j = j0; j < j1; j++) {
        at[j] = row < end ? row : -1;
        y[j] = row < end ? sp_row(x, row)[j] : 0;
    }
    for (int32_t i = row; i < end; i++) {
        const float *v = sp_row(x, i);
        for (int j = j0; j < j1; j++)
            if (v[j] > y[j]) {
                y[j] = v[j];
                at[j] = i;
            }
    }
}

static void global_columns(sp_tensor x, int32_t row, int32_t end, int j0, int32_t *at,
                           float *y)
{
    const int j1 = (int)sp_cpu_least(j0 + COLUMNS, x.c);
    double sum[COLUMNS];

    if (at) {
        columns_max(x, row, end, j0, j1, y, at);
        return;
    }
    columns_sum(x, row, end, j0, j1, sum);
    for (int j = j0; j < j1; j++)
        y[j] = row < end ? (float)(sum[j - j0] / (end - row)) : 0;
}

sp_status sp_cpu_global_pool(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                             int n_samples, int32_t *argmax, sp_tensor y)
{
#pragma omp parallel for collapse(2) num_threads(be->threads)
    for (int b = 0; b < n_samples; b++)
        for (int j = 0; j < x.c; j += COLUMNS)
            global_columns(x, sample_row[b], sample_row[b + 1], j,
                           argmax ? argmax + (size_t)b * (size_t)x.c : NULL,
                           sp_row(y, b));
    return SP_OK;
}

static void add_mean_grad(sp_tensor dy, int b, int32_t row, int32_t end, sp_tensor dx)
{
    for (int32_t i = row; i < end; i++) {
        const float *restrict g = sp_row(dy, b);
        float *restrict to = sp_row(dx, i);
        for (int j = 0; j < dy.c; j++)
            to[j] += g[j] / (float)(end - row);
    }
}

sp_status sp_cpu_global_pool_grad(sp_backend *be, sp_tensor dy,
                                  const int32_t *sample_row, int n_samples,
                                  const int32_t *argmax, sp_tensor dx)
{
#pragma omp parallel for num_threads(be->threads)
    for (int b = 0; b < n_samples; b++) {
        const int32_t *at = argmax ? argmax + (size_t)b * (size_t)dy.c : NULL;
        if (!at)
            add_mean_grad(dy, b, sample_row[b], sample_row[b + 1], dx);
        for (int j = 0; at && j < dy.c; j++)
            if (at[j] >= 0)
                sp_row(dx, at[j])[j] += sp_row(dy, b)[j];
    }
    return SP_OK;
}

sp_status sp_cpu_broadcast(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                           int n_samples, sp_tensor y)
{
    for (int b = 0; b < n_samples; b++)
#pragma omp parallel for num_threads(be->threads)
        for (int32_t i = sample_row[b]; i < sample_row[b + 1]; i++)
            memcpy(sp_row(y, i), sp_row(x, b), (size_t)x.c * sizeof(float));
    return SP_OK;
}

static void add_columns_sum(sp_tensor dy, int32_t row, int32_t end, int j0, float *dx)
{
    const int j1 = (int)sp_cpu_least(j0 + COLUMNS, dy.c);
    double sum[COLUMNS];

    columns_sum(dy, row, end, j0, j1, sum);
    for (int j = j0; j < j1; j++)
        dx[j] += (float)sum[j - j0];
}

sp_status sp_cpu_broadcast_grad(sp_backend *be, sp_tensor dy, const int32_t *sample_row,
                                int n_samples, sp_tensor dx)
{
#pragma omp parallel for collapse(2) num_threads(be->threads)
    for (int b = 0; b < n_samples; b++)
        for (int j = 0; j < dy.c; j += COLUMNS)
            add_columns_sum(dy, sample_row[b], sample_row[b + 1], j, sp_row(dx, b));
    return SP_OK;
}

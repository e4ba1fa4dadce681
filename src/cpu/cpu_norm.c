/* Batch norm. Sums are formed in parallel over spans of rows that depend only on the
 * sample, and the spans' sums are added in order, so the result does not depend on the
 * number of threads. */
#include <assert.h>
#include <string.h>

#include "compute/sp_norm.h"
#include "cpu/cpu_isa.h"

/* The doubles of one sum: two of each channel in each span of each tile. */
static size_t sums_size(int c, int64_t n)
{
    return (size_t)n * 2 * SP_CPU_SPANS * (size_t)c;
}

size_t sp_cpu_sums_bytes(int c, int64_t n, int n_sums)
{
    return (size_t)n_sums * sums_size(c, n) * sizeof(double) +
           (size_t)n * sizeof(sp_cpu_span);
}

sp_status sp_cpu_alloc_sums(sp_backend *be, int c, const int32_t *sample_row,
                            int n_samples, sp_cpu_sums *sums, int n_sums)
{
    const int n = sp_cpu_spans(sample_row, n_samples, SP_TILE, NULL);
    const size_t parts = sums_size(c, n);
    double *at;
    sp_cpu_span *tile;

    SP_TRY(sp_cpu_scratch(be, sp_cpu_sums_bytes(c, n, n_sums), (void **)&at));
    tile = (sp_cpu_span *)(at + (size_t)n_sums * parts);
    sp_cpu_spans(sample_row, n_samples, SP_TILE, tile);
    for (int i = 0; i < n_sums; i++)
        sums[i] =
            (sp_cpu_sums){.n = n, .c = c, .tile = tile, .part = at + (size_t)i * parts};
    return SP_OK;
}

void sp_cpu_sum_span(const sp_cpu_isa *isa, sp_tensor x, const sp_cpu_sums *s, int i)
{
    const sp_cpu_span *tile = &s->tile[i / SP_CPU_SPANS];
    const int64_t row = tile->row + i % SP_CPU_SPANS * SP_CPU_ROW_BLOCK;
    const int64_t end = sp_least(row + SP_CPU_ROW_BLOCK, tile->end);
    double *part = s->part + (size_t)i * 2 * (size_t)s->c;

    if (row >= end)
        return;
    if (s->norm)
        isa->norm_grad_sums(s->norm, row, end, part);
    else
        isa->norm_sums(x, row, end, part);
}

void sp_cpu_add_sums(const sp_cpu_sums *s, int n_samples, double *sums)
{
    const size_t size = 2 * (size_t)s->c;

    memset(sums, 0, (size_t)n_samples * size * sizeof *sums);
    for (int t = 0; t < s->n; t++) {
        const double *part = s->part + (size_t)t * SP_CPU_SPANS * size;
        double *to = sums + (size_t)s->tile[t].sample * size;
        for (int32_t row = s->tile[t].row; row < s->tile[t].end;
             row += SP_CPU_ROW_BLOCK, part += size)
            for (size_t j = 0; j < size; j++)
                to[j] += part[j];
    }
}

/* Sums over all rows of x; norm: see sp_cpu_sums. */
static sp_status norm_sum_rows(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                               int n_samples, const sp_norm_grad_args *norm,
                               double *sums)
{
    const sp_cpu_isa *isa = sp_cpu_rows_of(be, x.elem);
    sp_cpu_sums s;

    SP_TRY(sp_cpu_alloc_sums(be, x.c, sample_row, n_samples, &s, 1));
    s.norm = norm;
#pragma omp parallel for num_threads(sp_cpu_threads_of(be, x))
    for (int i = 0; i < s.n * SP_CPU_SPANS; i++)
        sp_cpu_sum_span(isa, x, &s, i);
    sp_cpu_add_sums(&s, n_samples, sums);
    return SP_OK;
}

sp_status sp_cpu_norm_sums(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                           int n_samples, double *sums)
{
    assert(sp_tensor_is_sound(x) && sums);
    assert(sp_samples_cover(sample_row, n_samples, x.n));
    return norm_sum_rows(be, x, sample_row, n_samples, NULL, sums);
}

sp_status sp_cpu_norm_apply(sp_backend *be, const sp_norm_args *a)
{
    const sp_cpu_isa *isa = sp_cpu_rows_of(be, a->x.elem);
    const int64_t n = a->x.n, size = SP_CPU_ROW_BLOCK,
                  n_blocks = sp_cpu_blocks(n, size);

    assert(sp_norm_is_sound(a));
    if (a->finish)
        SP_TRY(sp_cpu_norm_finish(be, a->finish));
#pragma omp parallel for num_threads(sp_cpu_threads_of(be, a->x))
    for (int64_t i = 0; i < n_blocks; i++)
        isa->norm_apply(a, i * size, sp_least((i + 1) * size, n));
    return SP_OK;
}

void sp_cpu_norm_grad_scale(const sp_norm_grad_args *a)
{
    const int c = a->x.c;

    for (int b = 0; b < a->n_samples; b++)
        for (int j = 0; j < c; j++)
            a->sums[(size_t)(2 * b + 1) * (size_t)c + (size_t)j] *= a->inv_std[j];
}

sp_status sp_cpu_norm_grad_sums(sp_backend *be, const sp_norm_grad_args *a)
{
    assert(sp_norm_grad_sums_are_sound(a));
    SP_TRY(norm_sum_rows(be, a->x, a->sample_row, a->n_samples, a, a->sums));
    sp_cpu_norm_grad_scale(a);
    return SP_OK;
}

sp_status sp_cpu_norm_grad_apply(sp_backend *be, const sp_norm_grad_args *a)
{
    const sp_cpu_isa *isa = sp_cpu_rows_of(be, a->x.elem);
    const int64_t n = a->x.n, size = SP_CPU_ROW_BLOCK,
                  n_blocks = sp_cpu_blocks(n, size);

    assert(sp_norm_grad_is_sound(a));
    if (a->finish)
        SP_TRY(sp_cpu_norm_grad_finish(be, a->finish));
#pragma omp parallel for num_threads(sp_cpu_threads_of(be, a->x))
    for (int64_t i = 0; i < n_blocks; i++)
        isa->norm_grad_apply(a, i * size, sp_least((i + 1) * size, n));
    return SP_OK;
}

/* ---- too short to gain from vectors or threads ---- */

sp_status sp_cpu_norm_finish(sp_backend *be, const sp_norm_finish_args *a)
{
    assert(sp_norm_finish_is_sound(a));
    (void)be;
    for (int j = 0; j < a->c; j++)
        sp_norm_finish_channel(a, j, sp_norm_add_parts(&a->sums, a->c, j));
    return SP_OK;
}

sp_status sp_cpu_norm_grad_finish(sp_backend *be, const sp_norm_grad_finish_args *a)
{
    assert(sp_norm_grad_finish_is_sound(a));
    (void)be;
    for (int j = 0; j < a->c; j++)
        sp_norm_grad_finish_channel(a, j, sp_norm_add_parts(&a->all, a->c, j),
                                    sp_norm_add_parts(&a->own, a->c, j));
    return SP_OK;
}

sp_status sp_cpu_add_samples(sp_backend *be, const double *sums, int n_samples, int m,
                             double n_rows, double *out, bool is_added)
{
    assert(n_samples >= 0 && m >= 0 && out);
    (void)be;
    for (int j = 0; j < m; j++) {
        double sum = 0;
        for (int b = 0; b < n_samples; b++)
            sum += sums[(size_t)b * (size_t)m + (size_t)j];
        out[j] = is_added ? out[j] + sum : sum;
    }
    out[m] = is_added ? out[m] + n_rows : n_rows;
    return SP_OK;
}

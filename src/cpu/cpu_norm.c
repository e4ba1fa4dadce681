/* Batch norm. Sums are formed in parallel over spans of rows that depend on the sample
 * alone, and the spans' sums are added in order, so the result does not depend on the
 * number of threads. */
#include <assert.h>
#include <string.h>

#include "compute/sp_norm.h"
#include "cpu/cpu_isa.h"

/* Spans and their partial sums, in one scratch block. */
typedef struct parts {
    int n;
    sp_cpu_span *span; /* [n] */
    double *sums;      /* [n][2][c] */
} parts;

static sp_status take_parts(sp_backend *be, const int32_t *sample_row, int n_samples,
                            int c, parts *p)
{
    void *at;
    size_t sums;

    p->n = sp_cpu_spans(sample_row, n_samples, SP_CPU_ROW_BLOCK, NULL);
    sums = (size_t)p->n * 2 * (size_t)c;
    SP_TRY(sp_cpu_scratch(be, sums * sizeof(double) + (size_t)p->n * sizeof *p->span,
                          &at));
    p->sums = at;
    p->span = (sp_cpu_span *)(p->sums + sums);
    sp_cpu_spans(sample_row, n_samples, SP_CPU_ROW_BLOCK, p->span);
    return SP_OK;
}

static void add_parts(const parts *p, int n_samples, int c, double *sums)
{
    memset(sums, 0, (size_t)n_samples * 2 * (size_t)c * sizeof *sums);
    for (int i = 0; i < p->n; i++) {
        const double *part = p->sums + (size_t)i * 2 * (size_t)c;
        double *to = sums + (size_t)p->span[i].sample * 2 * (size_t)c;
        for (int j = 0; j < 2 * c; j++)
            to[j] += part[j];
    }
}

sp_status sp_cpu_norm_sums(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                           int n_samples, double *sums)
{
    const sp_cpu_isa *isa = sp_cpu_rows_of(be, x.elem);
    parts p;

    assert(sp_tensor_is_sound(x) && sums);
    assert(sp_samples_cover(sample_row, n_samples, x.n));
    SP_TRY(take_parts(be, sample_row, n_samples, x.c, &p));
#pragma omp parallel for num_threads(be->threads) if (p.n > 1)
    for (int i = 0; i < p.n; i++)
        isa->norm_sums(x, p.span[i].row, p.span[i].end,
                       p.sums + (size_t)i * 2 * (size_t)x.c);
    add_parts(&p, n_samples, x.c, sums);
    return SP_OK;
}

sp_status sp_cpu_norm_apply(sp_backend *be, const sp_norm_args *a)
{
    const sp_cpu_isa *isa = sp_cpu_rows_of(be, a->x.elem);
    const int64_t n = a->x.n, size = SP_CPU_ROW_BLOCK,
                  n_blocks = sp_cpu_blocks(n, size);

    assert(sp_norm_is_sound(a));
    if (a->finish)
        SP_TRY(sp_cpu_norm_finish(be, a->finish));
#pragma omp parallel for num_threads(be->threads) if (n_blocks > 1)
    for (int64_t i = 0; i < n_blocks; i++)
        isa->norm_apply(a, i * size, sp_cpu_least((i + 1) * size, n));
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
    const sp_cpu_isa *isa = sp_cpu_rows_of(be, a->x.elem);
    const int c = a->x.c;
    parts p;

    assert(sp_norm_grad_sums_are_sound(a));
    SP_TRY(take_parts(be, a->sample_row, a->n_samples, c, &p));
#pragma omp parallel for num_threads(be->threads) if (p.n > 1)
    for (int i = 0; i < p.n; i++)
        isa->norm_grad_sums(a, p.span[i].row, p.span[i].end,
                            p.sums + (size_t)i * 2 * (size_t)c);
    add_parts(&p, a->n_samples, c, a->sums);
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
#pragma omp parallel for num_threads(be->threads) if (n_blocks > 1)
    for (int64_t i = 0; i < n_blocks; i++)
        isa->norm_grad_apply(a, i * size, sp_cpu_least((i + 1) * size, n));
    return SP_OK;
}

/* ---- what is too short to gain from vectors or threads ---- */

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

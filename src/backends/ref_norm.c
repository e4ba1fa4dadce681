/* Batch norm by plain loops. */
#include <assert.h>

#include "compute/sp_norm.h"
#include "cpu/cpu.h"

sp_status sp_ref_norm_sums(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                           int n_samples, double *sums)
{
    assert(sp_tensor_is_sound(x) && sums);
    assert(sp_samples_cover(sample_row, n_samples, x.n));
    (void)be;
    for (int b = 0; b < n_samples; b++, sums += 2 * x.c)
        for (int j = 0; j < x.c; j++) {
            double sum = 0, squares = 0;
            for (int32_t i = sample_row[b]; i < sample_row[b + 1]; i++) {
                double v = sp_row(x, i)[j];
                sum += v;
                squares += v * v;
            }
            sums[j] = sum;
            sums[x.c + j] = squares;
        }
    return SP_OK;
}

sp_status sp_ref_norm_apply(sp_backend *be, const sp_norm_args *a)
{
    assert(sp_norm_is_sound(a));
    if (a->finish)
        SP_TRY(sp_ref_norm_finish(be, a->finish));
    for (int64_t i = 0; i < a->x.n; i++)
        for (int j = 0; j < a->x.c; j++) {
            float v = sp_row(a->x, i)[j] * a->scale[j] + a->shift[j];
            if (a->res.data)
                v += sp_row(a->res, i)[j];
            sp_row(a->y, i)[j] = v > 0 ? v : a->slope * v;
        }
    return SP_OK;
}

/* Is the output of the activation positive? */
static bool is_up(const sp_norm_grad_args *a, int64_t i, int j)
{
    if (a->scale)
        return sp_row(a->x, i)[j] * a->scale[j] + a->shift[j] > 0;
    return sp_row(a->y, i)[j] > 0;
}

/* Sums channel j over sample b, and turns dy into g on the way. */
static void grad_sums_channel(const sp_norm_grad_args *a, int b, int j, double *sums)
{
    double sum = 0, dot = 0;

    for (int32_t i = a->sample_row[b]; i < a->sample_row[b + 1]; i++) {
        float *g = sp_row(a->dy, i) + j;
        if (a->slope != 1 && !is_up(a, i, j))
            *g *= a->slope;
        sum += *g;
        dot += *g * (((double)sp_row(a->x, i)[j] - a->mean[j]) * a->inv_std[j]);
    }
    sums[j] = sum;
    sums[a->x.c + j] = dot;
}

sp_status sp_ref_norm_grad_sums(sp_backend *be, const sp_norm_grad_args *a)
{
    assert(sp_norm_grad_sums_are_sound(a));
    (void)be;
    for (int b = 0; b < a->n_samples; b++)
        for (int j = 0; j < a->x.c; j++)
            grad_sums_channel(a, b, j, a->sums + (size_t)b * 2 * a->x.c);
    return SP_OK;
}

sp_status sp_ref_norm_grad_apply(sp_backend *be, const sp_norm_grad_args *a)
{
    assert(sp_norm_grad_is_sound(a));
    if (a->finish)
        SP_TRY(sp_ref_norm_grad_finish(be, a->finish));
    for (int64_t i = 0; i < a->x.n; i++)
        for (int j = 0; j < a->x.c; j++) {
            float v =
                a->a[j] * sp_row(a->dy, i)[j] + a->b[j] * sp_row(a->x, i)[j] + a->c[j];
            float *dx = sp_row(a->dx, i) + j;
            *dx = a->is_added ? *dx + v : v;
        }
    return SP_OK;
}

sp_status sp_ref_norm_finish(sp_backend *be, const sp_norm_finish_args *a)
{
    assert(sp_norm_finish_is_sound(a));
    (void)be;
    for (int j = 0; j < a->c; j++)
        sp_norm_finish_channel(a, j, sp_norm_add_parts(&a->sums, a->c, j));
    return SP_OK;
}

sp_status sp_ref_norm_grad_finish(sp_backend *be, const sp_norm_grad_finish_args *a)
{
    assert(sp_norm_grad_finish_is_sound(a));
    (void)be;
    for (int j = 0; j < a->c; j++)
        sp_norm_grad_finish_channel(a, j, sp_norm_add_parts(&a->all, a->c, j),
                                    sp_norm_add_parts(&a->own, a->c, j));
    return SP_OK;
}

sp_status sp_ref_add_samples(sp_backend *be, const double *sums, int n_samples, int m,
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

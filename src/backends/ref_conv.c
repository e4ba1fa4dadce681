/* Convolution by plain loops over pairs. */
#include <assert.h>

#include "cpu/cpu.h"

size_t sp_ref_conv_pack_floats(const sp_backend *be, int K, int c_in, int c_out,
                               bool is_grad_input)
{
    (void)be, (void)K, (void)c_in, (void)c_out, (void)is_grad_input;
    return 0;
}

sp_status sp_ref_conv_pack(sp_backend *be, const sp_pack_args *args, int n_args)
{
    assert(n_args >= 0 && (args || n_args == 0));
    (void)be, (void)args, (void)n_args;
    return SP_OK;
}

/* y += W[k]^T x of one pair. */
static void add_forward(const sp_conv_args *a, int k, int64_t in, int64_t out)
{
    const float *x = sp_row(a->x, in), *w = a->w + (size_t)k * a->x.c * a->y.c;
    float *y = sp_row(a->y, out);

    for (int i = 0; i < a->x.c; i++)
        for (int j = 0; j < a->y.c; j++)
            y[j] += x[i] * w[(size_t)i * a->y.c + j];
}

/* dx += W[k] dy of one pair; here x is dy and y is dx. */
static void add_grad_input(const sp_conv_args *a, int k, int64_t in, int64_t out)
{
    int at = a->is_mirrored ? a->map->K - 1 - k : k;
    const float *dy = sp_row(a->x, in), *w = a->w + (size_t)at * a->x.c * a->y.c;
    float *dx = sp_row(a->y, out);

    for (int i = 0; i < a->y.c; i++)
        for (int j = 0; j < a->x.c; j++)
            dx[i] += w[(size_t)i * a->x.c + j] * dy[j];
}

typedef void add_pair(const sp_conv_args *a, int k, int64_t in, int64_t out);

static void begin_rows(const sp_conv_args *a)
{
    for (int64_t i = 0; i < a->y.n; i++)
        for (int j = 0; j < a->y.c; j++) {
            float *y = sp_row(a->y, i) + j;
            *y = (a->is_added ? *y : 0) + (a->bias ? a->bias[j] : 0);
        }
}

static sp_status over_pairs(const sp_conv_args *a, add_pair *add)
{
    const sp_map *m = a->map;

    assert(m ? m->n_in == a->x.n && m->n_out == a->y.n : a->x.n == a->y.n);
    begin_rows(a);
    if (!m)
        for (int64_t i = 0; i < a->y.n; i++)
            add(a, 0, i, i);
    else
        for (int t = 0; t < m->n_tiles; t++)
            for (int k = 0; k < m->K; k++)
                for (int p = m->start[t * m->K + k]; p < m->start[t * m->K + k + 1];
                     p++)
                    add(a, k, m->in[p], m->out[p]);
    return SP_OK;
}

sp_status sp_ref_conv_forward(sp_backend *be, const sp_conv_args *args)
{
    assert(sp_conv_is_sound(args));
    (void)be;
    return over_pairs(args, add_forward);
}

sp_status sp_ref_conv_forward_norm_sums(sp_backend *be, const sp_conv_args *conv,
                                        const int32_t *sample_row, int n_samples,
                                        double *sums)
{
    assert(sp_conv_is_sound(conv) && sums);
    SP_TRY(sp_ref_conv_forward(be, conv));
    return sp_ref_norm_sums(be, conv->y, sample_row, n_samples, sums);
}

sp_status sp_ref_conv_forward_norm_apply(sp_backend *be, const sp_conv_args *conv,
                                         const sp_norm_args *norm)
{
    assert(sp_conv_is_sound(conv) && sp_norm_is_sound(norm));
    assert(norm->x.data == conv->y.data && norm->y.data == conv->y.data);
    SP_TRY(be->ops->conv_forward(be, conv));
    return be->ops->norm_apply(be, norm);
}

sp_status sp_ref_join(sp_backend *be)
{
    (void)be;
    return SP_OK;
}

sp_status sp_ref_conv_grad_input(sp_backend *be, const sp_conv_args *args)
{
    assert(sp_conv_is_sound(args));
    (void)be;
    return over_pairs(args, add_grad_input);
}

sp_status sp_ref_conv_grad_input_norm_sums(sp_backend *be, const sp_conv_args *conv,
                                           const sp_norm_grad_args *norm,
                                           const sp_norm_grad_args *residual)
{
    assert(sp_conv_is_sound(conv) && norm->sums);
    assert(!residual || (residual->slope == 1 && residual->dy.data == norm->dy.data));
    SP_TRY(be->ops->conv_grad_input(be, conv));
    SP_TRY(be->ops->norm_grad_sums(be, norm));
    return residual ? be->ops->norm_grad_sums(be, residual) : SP_OK;
}

/* dW[k] += x dy^T of one pair. */
static void add_grad_weight(const sp_conv_wgrad_args *a, int k, int64_t in, int64_t out)
{
    const float *x = sp_row(a->x, in), *dy = sp_row(a->dy, out);
    float *dw = a->dw + (size_t)k * a->x.c * a->dy.c;

    for (int i = 0; i < a->x.c; i++)
        for (int j = 0; j < a->dy.c; j++)
            dw[(size_t)i * a->dy.c + j] += x[i] * dy[j];
}

sp_status sp_ref_conv_grad_weight(sp_backend *be, const sp_conv_wgrad_args *a)
{
    const sp_map *m = a->map;
    int32_t row = sp_cpu_first_row(m, a->sample_row, a->sample0);
    int32_t end = sp_cpu_first_row(m, a->sample_row, a->sample1);

    assert(sp_conv_wgrad_is_sound(a));
    (void)be;
    for (int32_t o = row; a->dbias && o < end; o++)
        for (int j = 0; j < a->dy.c; j++)
            a->dbias[j] += sp_row(a->dy, o)[j];
    for (int32_t o = row; !m && o < end; o++)
        add_grad_weight(a, 0, o, o);
    if (!m)
        return SP_OK;
    for (int t = m->sample_tile[a->sample0]; t < m->sample_tile[a->sample1]; t++)
        for (int k = 0; k < m->K; k++)
            for (int p = m->start[t * m->K + k]; p < m->start[t * m->K + k + 1]; p++)
                add_grad_weight(a, k, m->in[p], m->out[p]);
    return SP_OK;
}

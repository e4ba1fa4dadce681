/* The norms that a convolution is fused with: the sums behind its forward pass, and the
 * norm before it, whose first backward pass follows the input gradient. */
#ifndef CONV_NORM_H
#define CONV_NORM_H

#include "gpu/conv_case.h"

/* Fails unless the parts' sums are those of a and of a b, to 1e-12 of the sums of
 * magnitudes; in bf16, where 16 rows are summed in fp32, to 2^-21. */
static inline void norm_check_sums(sp_backend *be, sp_tensor a, sp_tensor b,
                                   const double *device)
{
    const double tolerance = be->precision == SP_BF16 ? 0x1p-21 : 1e-12;
    const int tiles = be->ops->fused_parts(a.n, 1).n;
    const size_t n = 2 * (size_t)tiles * (size_t)a.c;
    double *part = test_alloc((n + 1) * sizeof *part);

    OK(be->ops->download(be, part, device, n * sizeof *part)); /* to its end */
    for (int s = 0; s < 2; s++)
        for (int j = 0; j < a.c; j++) {
            double want = 0, got = 0, size = 0;

            for (int64_t i = 0; i < a.n; i++) {
                const double v = fx_at(a, i, j) * (s ? (double)fx_at(b, i, j) : 1);
                want += v;
                size += fabs(v);
            }
            for (int t = 0; t < tiles; t++)
                got += part[(2 * t + s) * a.c + j];
            if (!(fabs(got - want) <= tolerance * size))
                fail_msg("sum %d of channel %d of [%d][%d]: %.17g, expected %.17g", s,
                         j, (int)a.n, a.c, got, want);
        }
}

static inline double *norm_room_for_sums(sp_backend *be, int64_t n, int c)
{
    return cu_room(be, 2 * sizeof(double) * (size_t)be->ops->fused_parts(n, 1).n *
                           (size_t)c);
}

/* A norm before the convolution, with random x, y and vectors. */
typedef struct norm_case {
    sp_tensor x, act, xhat;
    float *vector; /* mean, 1 / std, scale, shift */
    sp_norm_grad_args device;
    int column; /* first channel of the gradient */
} norm_case;

static inline norm_case norm_make(sp_backend *be, const conv_case *p, sp_tensor like,
                                  int c, float slope, bool is_bf16, bool has_scale,
                                  uint64_t seed)
{
    const size_t n = (size_t)c;
    norm_case m = {.x = case_tensor(p->precision, like.n, c, like.ld + 8, seed),
                   .act = case_tensor(p->precision, like.n, c, like.ld, seed + 1),
                   .xhat = fx_tensor(like.n, c, c, seed),
                   .vector = fx_floats(4 * n, seed + 2)};
    const float *vector = cu_copy(be, m.vector, 4 * n * sizeof *vector);

    m.device = (sp_norm_grad_args){.x = cu_put(be, m.x, is_bf16),
                                   .y = cu_put(be, m.act, is_bf16),
                                   .slope = slope,
                                   .mean = vector,
                                   .inv_std = vector + n,
                                   .sums = norm_room_for_sums(be, like.n, c)};
    if (has_scale) {
        m.device.scale = vector + 2 * n;
        m.device.shift = vector + 3 * n;
    }
    for (int64_t i = 0; i < like.n; i++)
        for (int j = 0; j < c; j++)
            m.xhat.data[i * c + j] = (fx_at(m.x, i, j) - m.vector[j]) * m.vector[c + j];
    return m;
}

/* Multiplies the gradient, rows of `ld`, by the derivative of the activation. */
static inline void norm_mask(const norm_case *m, int ld, double *g)
{
    const int c = m->x.c;
    const float *scale = m->vector + 2 * c, *shift = m->vector + 3 * c;

    for (int64_t i = 0; i < m->x.n; i++)
        for (int j = 0; j < c; j++) {
            const float side = m->device.scale ? fx_at(m->x, i, j) * scale[j] + shift[j]
                                               : fx_at(m->act, i, j);
            g[i * ld + m->column + j] *= side > 0 ? 1 : m->device.slope;
        }
}

#endif

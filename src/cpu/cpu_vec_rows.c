/* Passes over rows: batch norm, activations, updates. They are bound by memory, so
 * plain loops that the compiler vectorises suffice; only the sums in double are written
 * with vectors, to keep them in registers. A channel's sum is one chain, row after row,
 * so the block of columns that a channel falls into does not change it. Compiled
 * without contraction: fused operations are written out. */
#include "cpu/cpu_vec.h"

#include <math.h>

/* ---- sums ---- */

enum { HALF = LANES / 2, WIDE = 4 /* vectors of doubles at a time */ };
typedef double dvec __attribute__((vector_size(8 * HALF)));
typedef float hvec __attribute__((vector_size(4 * HALF)));
typedef int32_t hmask __attribute__((vector_size(4 * HALF)));

INLINE hvec load_h(const float *p)
{
    hvec v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* The widest vectors use the intrinsic by name, because gcc 12 converts them in halves.
 */
INLINE dvec to_double(hvec v)
{
#if LANES == 16
    return (dvec)_mm512_cvtps_pd((__m256)v);
#else
    return __builtin_convertvector(v, dvec);
#endif
}

INLINE dvec load_d(const float *p)
{
    return to_double(load_h(p));
}

INLINE void columns_sums(const float *x, size_t ld, int64_t n, double *sum,
                         double *squares, const int width)
{
    dvec s[WIDE] = {{0}}, q[WIDE] = {{0}};

    for (int64_t i = 0; i < n; i++, x += ld) {
        UNROLL
        for (int j = 0; j < width; j++) {
            dvec v = load_d(x + j * HALF);
            s[j] += v;
            q[j] += v * v;
        }
    }
    memcpy(sum, s, (size_t)width * sizeof *s);
    memcpy(squares, q, (size_t)width * sizeof *q);
}

void ISA(norm_sums)(sp_tensor x, int64_t row, int64_t end, double *sums)
{
    const float *at = sp_row(x, row);
    const size_t ld = (size_t)x.ld;
    int j = 0;

    for (; j + WIDE * HALF <= x.c; j += WIDE * HALF)
        columns_sums(at + j, ld, end - row, sums + j, sums + x.c + j, WIDE);
    for (; j + HALF <= x.c; j += HALF)
        columns_sums(at + j, ld, end - row, sums + j, sums + x.c + j, 1);
    for (; j < x.c; j++) {
        double s = 0, q = 0;
        for (int64_t i = row; i < end; i++) {
            double v = sp_row(x, i)[j];
            s += v;
            q += v * v;
        }
        sums[j] = s;
        sums[x.c + j] = q;
    }
}

/* Turns dy into g = dy * act'(y). */
static void mask_rows(const sp_norm_grad_args *a, int64_t row, int64_t end)
{
    const float slope = a->slope;

    for (int64_t i = row; slope != 1 && i < end; i++) {
        const float *restrict y = sp_row(a->y, i);
        float *restrict g = sp_row(a->dy, i);
        for (int j = 0; j < a->dy.c; j++)
            g[j] = y[j] > 0 ? g[j] : slope * g[j];
    }
}

/* g * act'(y) of a vector. */
INLINE hvec mask_h(hvec g, hvec y, float slope)
{
    const hmask up = (hmask)(y > (hvec){0});
    const hvec low = g * ((hvec){0} + slope);

    return (hvec)(((hmask)g & up) | ((hmask)low & ~up));
}

/* Operands of the backward sums over a block of columns of n rows. */
typedef struct grad_columns {
    const float *x, *y, *mean; /* y NULL: g already includes act'(y) */
    float *g, slope;
    size_t ld_g, ld_x, ld_y;
    int64_t n;
    double *sum, *dot;
} grad_columns;

INLINE void columns_grad_sums(grad_columns c, const int width, const bool is_masking)
{
    dvec s[2 * WIDE] = {{0}}, q[2 * WIDE] = {{0}}, mean[2 * WIDE];

    UNROLL
    for (int j = 0; j < width; j++)
        mean[j] = load_d(c.mean + j * HALF);
    for (int64_t i = 0; i < c.n; i++, c.g += c.ld_g, c.x += c.ld_x) {
        UNROLL
        for (int j = 0; j < width; j++) {
            hvec v = load_h(c.g + j * HALF);
            if (is_masking) {
                v = mask_h(v, load_h(c.y + (size_t)i * c.ld_y + j * HALF), c.slope);
                memcpy(c.g + j * HALF, &v, sizeof v);
            }
            dvec g = to_double(v), x = load_d(c.x + j * HALF);
            s[j] += g;
            q[j] += g * (x - mean[j]);
        }
    }
    memcpy(c.sum, s, (size_t)width * sizeof *s);
    memcpy(c.dot, q, (size_t)width * sizeof *q);
}

/* Narrow rows, whose sums fit the registers, are masked and summed in one pass. Wider
 * ones are masked by a pass of their own first: masking them within passes over a few
 * columns each would take twice as long. */
void ISA(norm_grad_sums)(const sp_norm_grad_args *a, int64_t row, int64_t end,
                         double *sums)
{
    const int c = a->x.c;
    const bool is_narrow = c == WIDE * HALF || c == 2 * WIDE * HALF;
    int j = 0;

    if (!is_narrow)
        mask_rows(a, row, end);
    for (int width; j + HALF <= c; j += width * HALF) {
        grad_columns at = {.g = sp_row(a->dy, row) + j,
                           .x = sp_row(a->x, row) + j,
                           .mean = a->mean + j,
                           .slope = a->slope,
                           .ld_g = (size_t)a->dy.ld,
                           .ld_x = (size_t)a->x.ld,
                           .ld_y = (size_t)a->y.ld,
                           .n = end - row,
                           .sum = sums + j,
                           .dot = sums + c + j};
        if (is_narrow && a->slope != 1)
            at.y = sp_row(a->y, row) + j;
        width = is_narrow ? c / HALF : j + WIDE * HALF <= c ? WIDE : 1;
        if (at.y && width == WIDE)
            columns_grad_sums(at, WIDE, true);
        else if (at.y)
            columns_grad_sums(at, 2 * WIDE, true);
        else if (width == 2 * WIDE)
            columns_grad_sums(at, 2 * WIDE, false);
        else if (width == WIDE)
            columns_grad_sums(at, WIDE, false);
        else
            columns_grad_sums(at, 1, false);
    }
    for (; j < c; j++) {
        double s = 0, q = 0;
        for (int64_t i = row; i < end; i++) {
            double g = sp_row(a->dy, i)[j];
            s += g;
            q += g * ((double)sp_row(a->x, i)[j] - a->mean[j]);
        }
        sums[j] = s;
        sums[c + j] = q;
    }
}

/* ---- rows ----
 * The output may be the input row: element j depends on elements j alone, so the loops
 * are marked IVDEP. */

void ISA(norm_apply)(const sp_norm_args *a, int64_t row, int64_t end)
{
    const float *scale = a->scale, *shift = a->shift, slope = a->slope;
    const int c = a->x.c;

    for (int64_t i = row; i < end; i++) {
        const float *x = sp_row(a->x, i);
        float *y = sp_row(a->y, i);
        if (a->res.data) {
            const float *res = sp_row(a->res, i);
            IVDEP
            for (int j = 0; j < c; j++) {
                float v = fma_f(x[j], scale[j], shift[j]) + res[j];
                y[j] = v > 0 ? v : slope * v;
            }
        } else {
            IVDEP
            for (int j = 0; j < c; j++) {
                float v = fma_f(x[j], scale[j], shift[j]);
                y[j] = v > 0 ? v : slope * v;
            }
        }
    }
}

void ISA(norm_grad_apply)(const sp_norm_grad_args *args, int64_t row, int64_t end)
{
    const float *a = args->a, *b = args->b, *c = args->c;
    const int n = args->x.c;

    for (int64_t i = row; i < end; i++) {
        const float *g = sp_row(args->dy, i), *x = sp_row(args->x, i);
        float *dx = sp_row(args->dx, i);
        if (args->is_added) {
            IVDEP
            for (int j = 0; j < n; j++)
                dx[j] += fma_f(a[j], g[j], fma_f(b[j], x[j], c[j]));
        } else {
            IVDEP
            for (int j = 0; j < n; j++)
                dx[j] = fma_f(a[j], g[j], fma_f(b[j], x[j], c[j]));
        }
    }
}

void ISA(relu)(sp_tensor x, float slope, sp_tensor y, int64_t row, int64_t end)
{
    for (int64_t i = row; i < end; i++) {
        const float *from = sp_row(x, i);
        float *to = sp_row(y, i);
        IVDEP
        for (int j = 0; j < x.c; j++)
            to[j] = from[j] > 0 ? from[j] : slope * from[j];
    }
}

void ISA(relu_grad)(sp_tensor y, float slope, sp_tensor dy, sp_tensor dx, bool is_added,
                    int64_t row, int64_t end)
{
    for (int64_t i = row; i < end; i++) {
        const float *out = sp_row(y, i), *g = sp_row(dy, i);
        float *to = sp_row(dx, i);
        if (is_added) {
            IVDEP
            for (int j = 0; j < y.c; j++)
                to[j] += out[j] > 0 ? g[j] : slope * g[j];
        } else {
            IVDEP
            for (int j = 0; j < y.c; j++)
                to[j] = out[j] > 0 ? g[j] : slope * g[j];
        }
    }
}

void ISA(add)(sp_tensor x, sp_tensor y, int64_t row, int64_t end)
{
    for (int64_t i = row; i < end; i++) {
        const float *from = sp_row(x, i);
        float *to = sp_row(y, i);
        IVDEP
        for (int j = 0; j < x.c; j++)
            to[j] += from[j];
    }
}

/* ---- dropout ---- */

enum { BLOCKS = LANES / 2 /* blocks of the generator at a time, four channels each */ };
typedef uint64_t uvec __attribute__((vector_size(8 * BLOCKS)));

/* Products of the lower 32-bit halves. */
INLINE uvec mul_u32(uvec a, uvec b)
{
#if LANES == 16
    return (uvec)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif LANES == 8
    return (uvec)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
    return (a & 0xffffffff) * (b & 0xffffffff);
#endif
}

/* The words of BLOCKS blocks of the generator from `block` on, equal to those of
 * sp_rng_block. Only lower halves of the lanes are used; the upper ones hold leftovers
 * of the products. */
INLINE void philox(const sp_rng *rng, uint64_t block, uint32_t word[4 * BLOCKS])
{
    const uvec m0 = (uvec){0} + 0xD2511F53u, m1 = (uvec){0} + 0xCD9E8D57u;
    uint32_t k0 = rng->key[0], k1 = rng->key[1];
    uvec at = (uvec){0} + block;

    for (int l = 0; l < BLOCKS; l++)
        at[l] += (uint64_t)l;
    uvec c[4] = {at, at >> 32, (uvec){0} + rng->hi[0], (uvec){0} + rng->hi[1]};
    for (int i = 0; i < 10; i++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        uvec p0 = mul_u32(m0, c[0]), p1 = mul_u32(m1, c[2]);
        c[0] = (p1 >> 32) ^ c[1] ^ k0;
        c[1] = p1;
        c[2] = (p0 >> 32) ^ c[3] ^ k1;
        c[3] = p0;
    }
    for (int l = 0; l < BLOCKS; l++)
        for (int i = 0; i < 4; i++)
            word[4 * l + i] = (uint32_t)c[i][l];
}

void ISA(dropout)(const sp_rng *rng, uint64_t block, float p, const float *x, int c,
                  float *y)
{
    const float scale = p < 1 ? 1 / (1 - p) : 0;
    uint32_t word[4 * BLOCKS];

    for (int at = 0; at < c; at += 4 * BLOCKS) {
        const int width = min_i(4 * BLOCKS, c - at);
        philox(rng, block + (uint64_t)at / 4, word);
        IVDEP
        for (int j = 0; j < width; j++)
            y[at + j] = sp_rng_to_unit(word[j]) >= p ? x[at + j] * scale : 0;
    }
}

/* ---- update ---- */

void ISA(sgd)(const sp_optim_args *a, int64_t at, int64_t end)
{
    const float scale = (float)a->g_scale, decay = (float)a->weight_decay;
    const float lr = (float)a->lr, momentum = (float)a->momentum;
    const float *restrict g = a->g;
    float *restrict w = a->w, *restrict v = a->m;

    if (momentum == 0)
        for (int64_t i = at; i < end; i++)
            w[i] = fma_f(-lr, fma_f(decay, w[i], g[i] * scale), w[i]);
    else if (a->nesterov)
        for (int64_t i = at; i < end; i++) {
            float d = fma_f(decay, w[i], g[i] * scale);
            v[i] = fma_f(momentum, v[i], d);
            w[i] = fma_f(-lr, fma_f(momentum, v[i], d), w[i]);
        }
    else
        for (int64_t i = at; i < end; i++) {
            v[i] = fma_f(momentum, v[i], fma_f(decay, w[i], g[i] * scale));
            w[i] = fma_f(-lr, v[i], w[i]);
        }
}

void ISA(adamw)(const sp_optim_args *a, int64_t at, int64_t end)
{
    const float scale = (float)a->g_scale, beta1 = (float)a->beta1,
                beta2 = (float)a->beta2;
    const float rest1 = (float)(1 - a->beta1), rest2 = (float)(1 - a->beta2);
    const float keep = (float)(1 - a->lr * a->weight_decay), eps = (float)a->eps;
    const double t = (double)(a->t + 1);
    const float step = (float)(a->lr / (1 - pow(a->beta1, t)));
    const float root = (float)(1 / sqrt(1 - pow(a->beta2, t)));
    const float *restrict g = a->g;
    float *restrict w = a->w, *restrict m = a->m, *restrict v = a->v;

    for (int64_t i = at; i < end; i++) {
        float d = g[i] * scale;
        m[i] = fma_f(beta1, m[i], rest1 * d);
        v[i] = fma_f(beta2, v[i], rest2 * d * d);
        w[i] =
            fma_f(-step, m[i] / fma_f(__builtin_sqrtf(v[i]), root, eps), keep * w[i]);
    }
}

/* Sums in 16 chains, by i modulo 16, which are added up in order. */
double ISA(sum_squares)(const float *g, int64_t n)
{
    double lane[16] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++)
            lane[j] += (double)g[i + j] * g[i + j];
    for (; i < n; i++)
        lane[i % 16] += (double)g[i] * g[i];
    for (int j = 0; j < 16; j++)
        sum += lane[j];
    return sum;
}

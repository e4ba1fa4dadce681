/* Passes over rows: batch norm, activations, dropout. They are bound by memory: plain
 * loops that the compiler vectorises suffice; only the sums in double are written with
 * vectors, to keep them in registers. A channel's sum is one chain, row after row, so
 * the block of columns that a channel falls into does not change it. Compiled without
 * contraction: fused operations are written out.
 *
 * This is a template: cpu_vec_rows.c includes it for tensors of fp32, and
 * bf16/bf16_rows.c, which defines ROWS_OF_BF16, for those of bf16. There values are
 * widened as they are read, computed in fp32 and rounded once as they are stored. Sums
 * are those of the values that are stored. */
#ifndef SP_CPU_VEC_ROWS_H
#define SP_CPU_VEC_ROWS_H

#include "cpu/cpu_vec.h"

#include <math.h>

enum { HALF = LANES / 2, WIDE = 4 /* vectors of doubles at a time */ };
typedef double dvec __attribute__((vector_size(8 * HALF)));
typedef float hvec __attribute__((vector_size(4 * HALF)));
typedef int32_t hmask __attribute__((vector_size(4 * HALF)));

/* ---- elements ---- */

#ifdef ROWS_OF_BF16
typedef uint16_t elem;
typedef uint16_t qvec __attribute__((vector_size(2 * HALF)));
typedef uint32_t uhvec __attribute__((vector_size(4 * HALF)));
#define ROWS(name) ISA(bf16_##name)
#define row_of     sp_row_bf16
#define get        sp_bf16_to_float
#define put        sp_bf16_of
/* Fused on every processor, so that all versions compute the same bits. */
#define FMA __builtin_fmaf
INLINE hvec load_h(const elem *p)
{
    qvec v;

    memcpy(&v, p, sizeof v);
    return (hvec)(__builtin_convertvector(v, uhvec) << 16);
}
/* Returns the values as they are stored. */
INLINE hvec store_h(elem *p, hvec v)
{
    /* sp_bf16_of of each lane */
    const uhvec bits = (uhvec)v;
    const uhvec is_nan = (uhvec)((bits & 0x7fffffffu) > 0x7f800000u);
    const uhvec near = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const uhvec half = (is_nan & (bits >> 16 | 0x40)) | (~is_nan & near);
    const qvec q = __builtin_convertvector(half, qvec);

    memcpy(p, &q, sizeof q);
    return (hvec)(half << 16);
}
#else
typedef float elem;
#define ROWS(name) ISA(name)
#define row_of     sp_row
#define get(v)     (v)
#define put(v)     (v)
#define FMA        fma_f
INLINE hvec load_h(const elem *p)
{
    hvec v;

    memcpy(&v, p, sizeof v);
    return v;
}
INLINE hvec store_h(elem *p, hvec v)
{
    memcpy(p, &v, sizeof v);
    return v;
}
#endif

/* ---- sums ---- */

INLINE hvec load_f(const float *p)
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

INLINE dvec load_d(const elem *p)
{
    return to_double(load_h(p));
}

INLINE void columns_sums(const elem *x, size_t ld, int64_t n, double *sum,
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

void ROWS(norm_sums)(sp_tensor x, int64_t row, int64_t end, double *sums)
{
    const elem *at = row_of(x, row);
    const size_t ld = (size_t)x.ld;
    int j = 0;

    for (; j + WIDE * HALF <= x.c; j += WIDE * HALF)
        columns_sums(at + j, ld, end - row, sums + j, sums + x.c + j, WIDE);
    for (; j + HALF <= x.c; j += HALF)
        columns_sums(at + j, ld, end - row, sums + j, sums + x.c + j, 1);
    for (; j < x.c; j++) {
        double s = 0, q = 0;
        for (int64_t i = row; i < end; i++) {
            double v = get(row_of(x, i)[j]);
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
        const elem *restrict y = row_of(a->y, i);
        elem *restrict g = row_of(a->dy, i);
        for (int j = 0; j < a->dy.c; j++)
            g[j] = get(y[j]) > 0 ? g[j] : put(slope * get(g[j]));
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
    const elem *x, *y; /* y NULL: g already includes act'(y) */
    const float *mean;
    elem *g;
    float slope;
    size_t ld_g, ld_x, ld_y;
    int64_t n;
    double *sum, *dot;
} grad_columns;

INLINE void columns_grad_sums(grad_columns c, const int width, const bool is_masking)
{
    dvec s[2 * WIDE] = {{0}}, q[2 * WIDE] = {{0}}, mean[2 * WIDE];

    UNROLL
    for (int j = 0; j < width; j++)
        mean[j] = to_double(load_f(c.mean + j * HALF));
    for (int64_t i = 0; i < c.n; i++, c.g += c.ld_g, c.x += c.ld_x) {
        UNROLL
        for (int j = 0; j < width; j++) {
            hvec v = load_h(c.g + j * HALF);
            if (is_masking) {
                v = mask_h(v, load_h(c.y + (size_t)i * c.ld_y + j * HALF), c.slope);
                v = store_h(c.g + j * HALF, v);
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
void ROWS(norm_grad_sums)(const sp_norm_grad_args *a, int64_t row, int64_t end,
                          double *sums)
{
    const int c = a->x.c;
    const bool is_narrow = c == WIDE * HALF || c == 2 * WIDE * HALF;
    int j = 0;

    if (!is_narrow)
        mask_rows(a, row, end);
    for (int width; j + HALF <= c; j += width * HALF) {
        grad_columns at = {.g = row_of(a->dy, row) + j,
                           .x = row_of(a->x, row) + j,
                           .mean = a->mean + j,
                           .slope = a->slope,
                           .ld_g = (size_t)a->dy.ld,
                           .ld_x = (size_t)a->x.ld,
                           .ld_y = (size_t)a->y.ld,
                           .n = end - row,
                           .sum = sums + j,
                           .dot = sums + c + j};
        if (is_narrow && a->slope != 1)
            at.y = row_of(a->y, row) + j;
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
            double g = get(row_of(a->dy, i)[j]);
            s += g;
            q += g * ((double)get(row_of(a->x, i)[j]) - a->mean[j]);
        }
        sums[j] = s;
        sums[c + j] = q;
    }
}

/* ---- rows ----
 * The output may be the input row: element j depends on elements j alone, so the loops
 * are marked IVDEP. */

void ROWS(norm_apply)(const sp_norm_args *a, int64_t row, int64_t end)
{
    const float *scale = a->scale, *shift = a->shift, slope = a->slope;
    const int c = a->x.c;

    for (int64_t i = row; i < end; i++) {
        const elem *x = row_of(a->x, i);
        elem *y = row_of(a->y, i);
        if (a->res.data) {
            const elem *res = row_of(a->res, i);
            IVDEP
            for (int j = 0; j < c; j++) {
                float v = FMA(get(x[j]), scale[j], shift[j]) + get(res[j]);
                y[j] = put(v > 0 ? v : slope * v);
            }
        } else {
            IVDEP
            for (int j = 0; j < c; j++) {
                float v = FMA(get(x[j]), scale[j], shift[j]);
                y[j] = put(v > 0 ? v : slope * v);
            }
        }
    }
}

void ROWS(norm_grad_apply)(const sp_norm_grad_args *args, int64_t row, int64_t end)
{
    const float *a = args->a, *b = args->b, *c = args->c;
    const int n = args->x.c;

    for (int64_t i = row; i < end; i++) {
        const elem *g = row_of(args->dy, i), *x = row_of(args->x, i);
        elem *dx = row_of(args->dx, i);
        if (args->is_added) {
            IVDEP
            for (int j = 0; j < n; j++)
                dx[j] =
                    put(get(dx[j]) + FMA(a[j], get(g[j]), FMA(b[j], get(x[j]), c[j])));
        } else {
            IVDEP
            for (int j = 0; j < n; j++)
                dx[j] = put(FMA(a[j], get(g[j]), FMA(b[j], get(x[j]), c[j])));
        }
    }
}

void ROWS(relu)(sp_tensor x, float slope, sp_tensor y, int64_t row, int64_t end)
{
    for (int64_t i = row; i < end; i++) {
        const elem *from = row_of(x, i);
        elem *to = row_of(y, i);
        IVDEP
        for (int j = 0; j < x.c; j++)
            to[j] = get(from[j]) > 0 ? from[j] : put(slope * get(from[j]));
    }
}

void ROWS(relu_grad)(sp_tensor y, float slope, sp_tensor dy, sp_tensor dx,
                     bool is_added, int64_t row, int64_t end)
{
    for (int64_t i = row; i < end; i++) {
        const elem *out = row_of(y, i), *g = row_of(dy, i);
        elem *to = row_of(dx, i);
        if (is_added) {
            IVDEP
            for (int j = 0; j < y.c; j++)
                to[j] =
                    put(get(to[j]) + (get(out[j]) > 0 ? get(g[j]) : slope * get(g[j])));
        } else {
            IVDEP
            for (int j = 0; j < y.c; j++)
                to[j] = get(out[j]) > 0 ? g[j] : put(slope * get(g[j]));
        }
    }
}

void ROWS(add)(sp_tensor x, sp_tensor y, int64_t row, int64_t end)
{
    for (int64_t i = row; i < end; i++) {
        const elem *from = row_of(x, i);
        elem *to = row_of(y, i);
        IVDEP
        for (int j = 0; j < x.c; j++)
            to[j] = put(get(to[j]) + get(from[j]));
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

void ROWS(dropout)(const sp_rng *rng, uint64_t block, float p, const void *x, int c,
                   void *y)
{
    const elem *from = x;
    elem *to = y;
    const float scale = p < 1 ? 1 / (1 - p) : 0;
    uint32_t word[4 * BLOCKS];

    for (int at = 0; at < c; at += 4 * BLOCKS) {
        const int width = min_i(4 * BLOCKS, c - at);
        philox(rng, block + (uint64_t)at / 4, word);
        IVDEP
        for (int j = 0; j < width; j++)
            to[at + j] =
                put(sp_rng_to_unit(word[j]) >= p ? get(from[at + j]) * scale : 0);
    }
}

#endif

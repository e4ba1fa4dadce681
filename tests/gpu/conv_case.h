/* Convolution problems on small random batches, in a precision of the device, and their
 * answers by loops in double over the map's pairs. Operands are rounded to the
 * precision beforehand, so that what is left is the rounding of sums and of bf16
 * results. */
#ifndef CONV_CASE_H
#define CONV_CASE_H

#include "fixtures/test.h"

#include "cuda/conv/cuda_tile.h"
#include "gpu/cuda_fixture.h"

/* The error of a sum of n products, over the largest result. In units of 2^-24, half a
 * unit of the last place of a float below the next power of two:
 *
 * fp32. Each addition rounds to nearest, by at most one unit and by 0.3 in the mean
 * square. n of them add up like steps to random sides: sqrt(n) is three standard
 * deviations.
 *
 * Tensor cores add 16 bytes of operands at a time (A100, the fewest), so they make A =
 * n / 4 (tf32) or n / 8 (bf16) additions. Each cuts its result towards zero, by 1 unit
 * of the sum so far on average, and all cut in one direction. The sum so far of
 * products of either sign grows as the square root of their number, to 2 / 3 of the
 * last one on average, and has 3 / 4 of the size of the power of two above it: A / 2
 * units. Each addition also cuts what it adds, 8 products or fewer of either sign, by
 * up to 1 unit each. That has a standard deviation below 1.75 with the result's, so
 * that 7 sqrt(A) are four deviations. Two units are for the first and the last
 * rounding. */
static inline double case_tolerance(sp_precision precision, int64_t n)
{
    const double additions = ceil((double)n / (precision == SP_TF32 ? 4 : 8));
    const double units =
        precision == SP_FP32 ? sqrt((double)n) : additions / 2 + 7 * sqrt(additions);

    return ldexp(units + 2, -24);
}

/* The same for the weight gradient of `pairs` pairs of one of K offsets: sums over the
 * pairs of an item, which are added in fp32. */
static inline double case_wgrad_tolerance(const sp_backend *be, int64_t pairs, int K,
                                          int c_in, int c_out)
{
    const bool is_wgmma =
        cuda_wgrad_choose(be->is_wgmma && be->precision == SP_BF16, c_in, c_out)
            .is_wgmma;
    const int item = cuda_wgrad_item(c_in, c_out, K, is_wgmma);
    const double n_items = ceil((double)pairs / item);

    return case_tolerance(be->precision, pairs < item ? pairs : item) +
           ldexp(sqrt(n_items), -24);
}

typedef struct conv_case {
    const conv_kind *kind;
    sp_precision precision;
    fx_level level[2];
    sp_map map, back; /* back: in and out exchanged */
    int K, c_in, c_out;
    sp_tensor x, dy; /* input and output side */
    float *w, *bias;
} conv_case;

static inline float case_round(sp_precision precision, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    if (precision == SP_BF16)
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    if (precision == SP_TF32)
        bits = (bits + 0x1000) & 0xffffe000u;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Makes values that rows of the precision's type hold exactly. */
static inline sp_tensor case_tensor(sp_precision precision, int64_t n, int c, int ld,
                                    uint64_t seed)
{
    sp_tensor t = fx_tensor(n, c, ld, seed);

    for (int64_t i = 0; i < n * ld; i++)
        if (t.data[i] != FX_GUARD)
            t.data[i] = case_round(precision, t.data[i]);
    return t;
}

/* Rows are `pad` longer than c, rounded up to whole chunks, or to an odd pitch where
 * pad is odd. */
static inline int case_pitch(int c, int pad)
{
    return pad % 2 ? (c + pad) | 1 : (c + pad + 7) / 8 * 8;
}

static inline conv_case case_make(const conv_kind *k, sp_precision precision,
                                  int n_samples, const int *rows, int c_in, int c_out,
                                  int pad)
{
    conv_case p = {.kind = k, .precision = precision, .c_in = c_in, .c_out = c_out};

    p.level[0] = fx_voxels(n_samples, rows, 3);
    p.level[1] = fx_coarser(&p.level[0]);
    p.map = fx_map(&p.level[k->in], &p.level[k->out], k->kernel, k->is_swapped);
    p.back = fx_map(&p.level[k->out], &p.level[k->in], k->kernel,
                    k->in == k->out && !k->is_swapped);
    p.K = p.map.K;
    p.x = fx_tensor(p.map.n_in, c_in, case_pitch(c_in, pad), 1);
    p.dy = fx_tensor(p.map.n_out, c_out, case_pitch(c_out, pad % 2 ? pad + 2 : 2 * pad),
                     2);
    p.w = fx_floats((size_t)p.K * c_in * c_out, 3);
    p.bias = fx_floats((size_t)c_out, 4);
    return p;
}

/* Whether the input gradient uses the forward map. */
static inline bool case_is_mirrored(const conv_case *p)
{
    return p->kind->has_map && p->map.is_full;
}

/* ---- answers: [n][c] doubles, added to what is there ---- */

/* A pair of the forward map. */
typedef struct case_pair {
    int32_t in, out;
    int k;
} case_pair;

static inline case_pair *case_pairs(const conv_case *p, int *n)
{
    case_pair *pairs = test_alloc(((size_t)p->map.pairs + 1) * sizeof *pairs);

    *n = 0;
    for (int t = 0; t < p->map.n_tiles; t++)
        for (int k = 0; k < p->K; k++)
            for (int32_t at = p->map.start[t * p->K + k];
                 at < p->map.start[t * p->K + k + 1]; at++)
                pairs[(*n)++] = (case_pair){p->map.in[at], p->map.out[at], k};
    return pairs;
}

/* The most pairs of one row of the output (by = 0), of the input (1), or of one offset
 * (2). */
static inline int64_t case_most_pairs(const conv_case *p, int by)
{
    int32_t *count = test_alloc(
        ((size_t)p->map.n_in + (size_t)p->map.n_out + (size_t)p->K) * sizeof *count);
    int64_t most = 0;
    int n;
    case_pair *pair = case_pairs(p, &n);

    for (int m = 0; m < n; m++) {
        const int at = by == 0 ? pair[m].out : by == 1 ? pair[m].in : pair[m].k;
        most = ++count[at] > most ? count[at] : most;
    }
    return most;
}

static inline double case_x(const conv_case *p, int64_t row, int i)
{
    return case_round(p->precision, fx_at(p->x, row, i));
}

static inline double case_dy(const conv_case *p, int64_t row, int o)
{
    return case_round(p->precision, fx_at(p->dy, row, o));
}

static inline double case_w(const conv_case *p, int k, int i, int o)
{
    return case_round(p->precision, p->w[((size_t)k * p->c_in + i) * p->c_out + o]);
}

static inline void case_forward(const conv_case *p, double *y)
{
    int n;
    case_pair *pair = case_pairs(p, &n);

    for (int m = 0; m < n; m++)
        for (int i = 0; i < p->c_in; i++) {
            const double x = case_x(p, pair[m].in, i);
            for (int o = 0; o < p->c_out; o++)
                y[(size_t)pair[m].out * p->c_out + o] += x * case_w(p, pair[m].k, i, o);
        }
}

static inline void case_grad_input(const conv_case *p, double *dx)
{
    int n;
    case_pair *pair = case_pairs(p, &n);

    for (int m = 0; m < n; m++)
        for (int i = 0; i < p->c_in; i++) {
            double sum = 0;
            for (int o = 0; o < p->c_out; o++)
                sum += case_w(p, pair[m].k, i, o) * case_dy(p, pair[m].out, o);
            dx[(size_t)pair[m].in * p->c_in + i] += sum;
        }
}

/* Sums over output rows row .. end - 1; db stands behind dw. */
static inline void case_grad_weight(const conv_case *p, int row, int end, double *dw)
{
    double *db = dw + (size_t)p->K * p->c_in * p->c_out;
    int n;
    case_pair *pair = case_pairs(p, &n);

    for (int m = 0; m < n; m++)
        for (int i = 0; i < p->c_in; i++) {
            const double x = case_x(p, pair[m].in, i);
            double *to = dw + ((size_t)pair[m].k * p->c_in + i) * p->c_out;
            if (pair[m].out < row || pair[m].out >= end)
                continue;
            for (int o = 0; o < p->c_out; o++)
                to[o] += x * case_dy(p, pair[m].out, o);
        }
    for (int r = row; r < end; r++)
        for (int o = 0; o < p->c_out; o++)
            db[o] += p->precision == SP_BF16 ? case_dy(p, r, o) : fx_at(p->dy, r, o);
}

static inline double *case_doubles(sp_tensor from, bool is_kept)
{
    double *d = test_alloc(((size_t)from.n * from.c + 1) * sizeof *d);

    for (int64_t i = 0; is_kept && i < from.n; i++)
        for (int j = 0; j < from.c; j++)
            d[i * from.c + j] = fx_at(from, i, j);
    return d;
}

/* Fails where got differs from want by more than `tolerance` of the largest result.
 * is_bf16: results were rounded to bf16, half a unit of whose last place is at most
 * 2^-8 of the value. */
static inline void case_same(const char *what, const conv_case *p, double tolerance,
                             sp_tensor got, double *want, bool is_bf16)
{
    double largest = 1;

    for (int64_t i = 0; i < got.n * got.c; i++)
        largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < got.n; i++)
        for (int j = 0; j < got.c; j++) {
            const double w = want[i * got.c + j], g = fx_at(got, i, j);
            const double most =
                tolerance * largest + (is_bf16 ? ldexp(fabs(w), -8) : 0);
            if (!(fabs(g - w) <= most))
                fail_msg("%s %s, %s, %d -> %d channels: [%d][%d] of [%d][%d] is %g, "
                         "expected %g to %g",
                         p->kind->name, what, sp_precision_word[p->precision], p->c_in,
                         p->c_out, (int)i, j, (int)got.n, got.c, g, w, most);
        }
    fx_guards(got);
}

/* ---- the cases that every operation of a convolution is held to ---- */

/* A test's comparison of one case with its answer; the arguments are those of
 * case_make. */
typedef void case_check(const conv_kind *k, int n_samples, const int *rows, int c_in,
                        int c_out, int pad);

/* Numbers of channels below, at and above the widths of tiles. */
static const int case_channels[] = {1,  3,  4,  8,   16,  20,  32,
                                    48, 64, 96, 128, 160, 256, 300};
enum { CASE_CHANNEL_COUNTS = sizeof case_channels / sizeof *case_channels };

static inline void case_each_map_and_row_count(case_check *check)
{
    static const int rows[] = {0, 1, 31, 33, 127};

    for (int k = 0; k < CONV_KINDS; k++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            check(&conv_kinds[k], 1, &rows[i], k == CONV_5 ? 4 : 20, 24, 0);
}

/* No row can be copied by copies of 16 bytes. */
static inline void case_rows_off_the_grid(case_check *check)
{
    const int rows[] = {50};

    check(&conv_kinds[CONV_3], 1, rows, 7, 9, 1);
    check(&conv_kinds[CONV_DOWN], 1, rows, 33, 20, 3);
}

/* ---- on the device ---- */

static inline sp_backend case_open(int order, sp_precision precision)
{
    sp_backend be = cu_open(order);

    be.precision = precision;
    return be;
}

static inline const float *case_packed(sp_backend *be, const conv_case *p,
                                       bool is_grad_input)
{
    const size_t n =
        be->ops->conv_pack_floats(be, p->K, p->c_in, p->c_out, is_grad_input);
    const size_t weights = (size_t)p->K * p->c_in * p->c_out;
    float *packed = cu_room(be, n * sizeof(float));

    const sp_pack_args a = {cu_copy(be, p->w, weights * sizeof(float)),
                            p->K,
                            p->c_in,
                            p->c_out,
                            is_grad_input,
                            is_grad_input && case_is_mirrored(p),
                            packed};

    OK(be->ops->conv_pack(be, &a, 1));
    return packed;
}

#endif

/* Softmax cross-entropy of a range of rows, with its gradient. The exponentials are in
 * float (relative error 3e-7); their sum, the logarithm and the sums over rows are in
 * double. Vectors run along the classes; the last one of a row is masked. */
#include "cpu/cpu_vec.h"

#include <math.h>

enum { ROWS = 64 /* rows of one pass: they stay in L1 */ };

/* ---- operations over the lanes of a vector ---- */

/* Exchanges lanes l and l ^ step. */
INLINE vec vec_swap(vec v, const int step)
{
    ivec from;

    UNROLL
    for (int l = 0; l < LANES; l++)
        from[l] = l ^ step;
    return SHUFFLE(v, from);
}
INLINE dvec swap_d(dvec v, const int step)
{
    lvec from;

    UNROLL
    for (int l = 0; l < HALF; l++)
        from[l] = l ^ step;
    return SHUFFLE(v, from);
}

INLINE float largest_lane(vec v)
{
    if (LANES > 8)
        v = larger(v, vec_swap(v, 8));
    if (LANES > 4)
        v = larger(v, vec_swap(v, 4));
    v = larger(v, vec_swap(v, 2));
    return larger(v, vec_swap(v, 1))[0];
}
INLINE double sum_lanes(dvec v)
{
    if (HALF > 4)
        v += swap_d(v, 4);
    if (HALF > 2)
        v += swap_d(v, 2);
    return (v + swap_d(v, 1))[0];
}

/* exp(x) for x <= 0, bounded below by exp(-87); NaN stays NaN. x = n ln 2 + r with
 * |r| <= ln 2 / 2, a Taylor polynomial of degree 7 for exp(r) (truncation below 1e-8),
 * and n added to the exponent. */
INLINE vec exp_v(vec x)
{
    const vec magic =
        set1(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    vec n, r, e;
    ivec bits;

    x = larger(set1(-87.0f), x);
    n = fma_v(x, set1(1.44269504f), magic);
    bits = ((ivec)n << 23) + 0x3f800000;
    n -= magic;
    /* ln 2 in two parts, the first exact in 9 bits */
    r = fma_v(n, set1(-0.693359375f), x);
    r = fma_v(n, set1(2.12194440e-4f), r);
    e = fma_v(r, set1(1.0f / 5040), set1(1.0f / 720));
    e = fma_v(r, e, set1(1.0f / 120));
    e = fma_v(r, e, set1(1.0f / 24));
    e = fma_v(r, e, set1(1.0f / 6));
    e = fma_v(r, e, set1(0.5f));
    e = fma_v(r, e, set1(1.0f));
    e = fma_v(r, e, set1(1.0f));
    return e * (vec)bits;
}

/* ---- one row of n classes ---- */

/* Loads lanes at .. at + LANES - 1, with `other` beyond the row's end. Whole vectors
 * are loaded unmasked, because portable C loads masked ones lane by lane. */
INLINE vec row_load(const float *z, int at, int n, vec other)
{
    const vmask m = first_lanes(min_i(LANES, n - at));

    return at + LANES <= n ? load(z + at) : pick(m, load_m(z + at, m), other);
}
INLINE void row_store(float *z, int at, int n, vec v)
{
    if (at + LANES <= n)
        store(z + at, v);
    else
        store_m(z + at, first_lanes(n - at), v);
}

/* The index of the row's largest element, the lowest of equal ones. A NaN is never the
 * largest, unless it comes first. *is_finite: all elements are finite. The sum of x - x
 * shows it, as x - x is 0 only for finite x. */
INLINE int vec_argmax(const float *z, int n, bool *is_finite)
{
    const vec first = set1(z[0]);
    vec top = first, nought = set1(0);

    for (int at = 0; at < n; at += LANES) {
        const vec x = row_load(z, at, n, first);
        top = larger(x, top);
        nought += x - x;
    }
    *is_finite = sum_lanes(fold(nought)) == 0;
    top = set1(largest_lane(top));
    for (int at = 0; at < n; at += LANES) {
        const int lane = first_equal(row_load(z, at, n, first), top);
        if (lane < LANES)
            return at + lane;
    }
    return 0;
}

/* Sum of exp(z - top); the terms are stored in e if it is not NULL. */
INLINE double sum_exp(const float *z, int n, float top, float *e)
{
    dvec lane = {0};

    for (int at = 0; at < n; at += LANES) {
        const vec part = exp_v(row_load(z, at, n, set1(top)) - set1(top));
        lane += fold(at + LANES <= n ? part : pick(first_lanes(n - at), part, set1(0)));
        if (e)
            row_store(e, at, n, part);
    }
    return sum_lanes(lane);
}

/* dz = weight * (p - target), from the terms exp(z - top) that dz holds. */
INLINE void row_grad(const sp_loss_args *a, float *dz, int label, double sum,
                     float weight)
{
    const int C = a->logits.c;
    const float scale = (float)(weight / sum);
    const float others = -weight * a->rule.smoothing / (float)C;

    for (int at = 0; at < C; at += LANES) {
        const vec e = row_load(dz, at, C, set1(0));
        row_store(dz, at, C, fma_v(e, set1(scale), set1(others)));
    }
    dz[label] -= weight * (1 - a->rule.smoothing);
}

/* The loss of a row without the logarithm of its sum of exponentials. */
INLINE double row_below(const sp_loss_args *a, const float *z, int label, int best)
{
    const int C = a->logits.c;
    const double top = z[best], below = (1.0 - a->rule.smoothing) * (top - z[label]);
    double all = 0;

    if (a->rule.smoothing == 0)
        return below;
    for (int j = 0; j < C; j++)
        all += top - z[j];
    return below + a->rule.smoothing * all / C;
}

/* Each step is done for all rows before the next one, because a row is one long chain
 * of dependent operations, and shorter pieces of several rows overlap in the processor.
 */
static void rows_loss(const sp_loss_args *a, const int32_t *best, int64_t row, int n,
                      double *sums)
{
    const int32_t *label = a->label + row;
    const int C = a->logits.c;
    double sum[ROWS];

    for (int i = 0; i < n; i++) {
        const float *z = sp_row(a->logits, row + i);
        float *dz = a->dlogits.data ? sp_row(a->dlogits, row + i) : NULL;
        sum[i] = sum_exp(z, C, z[best[i]], dz);
    }
    for (int i = 0; i < n; i++) {
        if (label[i] == SP_IGNORE)
            continue;
        const float weight = a->class_weight ? a->class_weight[label[i]] : 1;
        const float *z = sp_row(a->logits, row + i);
        sums[0] += weight * (log(sum[i]) + row_below(a, z, label[i], best[i]));
        sums[1] += weight;
    }
    for (int i = 0; a->dlogits.data && i < n; i++) {
        float *dz = sp_row(a->dlogits, row + i);
        if (label[i] == SP_IGNORE)
            memset(dz, 0, (size_t)C * sizeof *dz);
        else
            row_grad(a, dz, label[i], sum[i],
                     a->class_weight ? a->class_weight[label[i]] : 1);
    }
}

void ISA(loss)(const sp_loss_args *a, int32_t *prediction, int64_t row, int64_t end,
               double *sums)
{
    const int C = a->logits.c;
    int32_t best[ROWS];
    bool is_finite;

    sums[0] = sums[1] = 0;
    for (int64_t i = row; i < end; i += ROWS) {
        const int n = (int)sp_least(ROWS, end - i);
        for (int j = 0; j < n; j++) {
            best[j] = vec_argmax(sp_row(a->logits, i + j), C, &is_finite);
            prediction[i + j] = is_finite ? best[j] : SP_IGNORE;
        }
        if (a->label)
            rows_loss(a, best, i, n, sums);
        else if (a->dlogits.data)
            for (int j = 0; j < n; j++)
                memset(sp_row(a->dlogits, i + j), 0, (size_t)C * sizeof(float));
    }
}

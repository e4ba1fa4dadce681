/* Softmax cross-entropy of a range of rows with its gradient, a row at a time: the
 * exponentials in float (3e-7 relative), their sum, the logarithm and the sums over
 * rows in double. */
#include "cpu_vec.h"

#include <math.h>

enum { CHUNK = 64 /* classes between memory and registers */ };

/* exp(x) for x <= 0, no less than exp(-87); NaN stays NaN. x = n ln 2 + r, |r| <= ln 2
 * / 2, a Taylor polynomial of degree 7 for exp(r) (truncation below 1e-8), n added to
 * the exponent. */
INLINE float exp_f(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float n, r, e;
    int32_t bits;

    x = x < -87.0f ? -87.0f : x;
    n = fma_f(x, 1.44269504f, magic);
    memcpy(&bits, &n, sizeof bits);
    n -= magic;
    r = fma_f(n, -0.693359375f, x); /* ln 2 in two parts, the first exact in 9 bits */
    r = fma_f(n, 2.12194440e-4f, r);
    e = fma_f(r, 1.0f / 5040, 1.0f / 720);
    e = fma_f(r, e, 1.0f / 120);
    e = fma_f(r, e, 1.0f / 24);
    e = fma_f(r, e, 1.0f / 6);
    e = fma_f(r, e, 0.5f);
    e = fma_f(r, e, 1.0f);
    e = fma_f(r, e, 1.0f);
    bits = (int32_t)((uint32_t)bits << 23) + 0x3f800000;
    memcpy(&n, &bits, sizeof n);
    return e * n;
}

/* Sum of exp(z - top); the terms go to e where it is not NULL. */
static double sum_exp(const float *z, int n, float top, float *e)
{
    float part[CHUNK];
    double sum = 0;

    for (int at = 0; at < n; at += CHUNK) {
        const int width = min_i(CHUNK, n - at);
        for (int j = 0; j < width; j++)
            part[j] = exp_f(z[at + j] - top);
        for (int j = 0; j < width; j++)
            sum += part[j];
        if (e)
            memcpy(e + at, part, (size_t)width * sizeof *e);
    }
    return sum;
}

static int argmax(const float *z, int n)
{
    int at = 0;

    for (int j = 1; j < n; j++)
        at = z[j] > z[at] ? j : at;
    return at;
}

/* dz = weight * (p - target), from the terms exp(z - top) that stand in dz. */
static void row_grad(const sp_loss_args *a, float *dz, int label, double sum,
                     float weight)
{
    const int C = a->logits.c;
    const float scale = (float)(weight / sum);
    const float others = -weight * a->smoothing / (float)C;

    for (int j = 0; j < C; j++)
        dz[j] = fma_f(dz[j], scale, others);
    dz[label] -= weight * (1 - a->smoothing);
}

static void row_loss(const sp_loss_args *a, int64_t i, int label, int best,
                     double *sums)
{
    const float *z = sp_row(a->logits, i), top = z[best];
    const float weight = a->class_weight ? a->class_weight[label] : 1;
    const int C = a->logits.c;
    float *dz = a->dlogits.data ? sp_row(a->dlogits, i) : NULL;
    const double sum = sum_exp(z, C, top, dz);
    double below = (1.0 - a->smoothing) * ((double)top - z[label]);

    if (a->smoothing != 0) {
        double all = 0;
        for (int j = 0; j < C; j++)
            all += (double)top - z[j];
        below += a->smoothing * all / C;
    }
    sums[0] += weight * (log(sum) + below);
    sums[1] += weight;
    if (dz)
        row_grad(a, dz, label, sum, weight);
}

void ISA(loss)(const sp_loss_args *a, int32_t *prediction, int64_t row, int64_t end,
               double *sums)
{
    const int C = a->logits.c;

    sums[0] = sums[1] = 0;
    for (int64_t i = row; i < end; i++) {
        const int label = a->label ? a->label[i] : SP_IGNORE;
        const int best = argmax(sp_row(a->logits, i), C);
        if (prediction)
            prediction[i] = best;
        if (label != SP_IGNORE)
            row_loss(a, i, label, best, sums);
        else if (a->dlogits.data)
            memset(sp_row(a->dlogits, i), 0, (size_t)C * sizeof(float));
    }
}

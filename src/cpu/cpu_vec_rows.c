/* Passes over tensors of fp32 (cpu_vec_rows.inc), and over the flat vectors of the
 * optimizer. Compiled without contraction: fused operations are written out. */
#include "cpu/cpu_vec.h"

typedef float elem;
#define ROWS(name) ISA(name)
#define row_of     sp_row
#define get(v)     (v)
#define put(v)     (v)
#define FMA        fma_f
#define FMA_H      fma_h
#define MOST_ZERO  0
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

#include "cpu/cpu_vec_rows.inc"

/* ---- update ---- */

void ISA(sgd)(const sp_optim_args *a, int64_t at, int64_t end)
{
    const float scale = (float)a->g_scale, decay = (float)a->weight_decay;
    const float lr = (float)a->lr, momentum = (float)a->momentum;
    const float share = (float)(a->t > 0 ? 1 - a->dampening : 1);
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
            v[i] = fma_f(momentum, v[i], share * fma_f(decay, w[i], g[i] * scale));
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

/* Update rules by plain loops, in double. */
#include <assert.h>
#include <math.h>

#include "cpu/cpu.h"

static double decay_of(const sp_optim_args *a, int64_t i)
{
    return a->spared && a->spared[i / SP_SPARED_RUN] ? 0 : a->weight_decay;
}

sp_status sp_ref_sgd(sp_backend *be, const sp_optim_args *a)
{
    assert(sp_update_is_sound(a));
    (void)be;
    for (int64_t i = 0; i < a->n; i++) {
        double g = a->g[i] * a->g_scale + decay_of(a, i) * a->w[i], step = g;
        if (a->momentum != 0) {
            a->m[i] = (float)(a->momentum * a->m[i] + g);
            step = a->nesterov ? g + a->momentum * a->m[i] : a->m[i];
        }
        a->w[i] = (float)(a->w[i] - a->lr * step);
    }
    return SP_OK;
}

sp_status sp_ref_adamw(sp_backend *be, const sp_optim_args *a)
{
    const double fix1 = 1 - pow(a->beta1, (double)(a->t + 1));
    const double fix2 = 1 - pow(a->beta2, (double)(a->t + 1));

    assert(sp_update_is_sound(a) && a->m && a->v);
    (void)be;
    for (int64_t i = 0; i < a->n; i++) {
        double g = a->g[i] * a->g_scale, w = a->w[i] * (1 - a->lr * decay_of(a, i));
        a->m[i] = (float)(a->beta1 * a->m[i] + (1 - a->beta1) * g);
        a->v[i] = (float)(a->beta2 * a->v[i] + (1 - a->beta2) * g * g);
        w -= a->lr * (a->m[i] / fix1) / (sqrt(a->v[i] / fix2) + a->eps);
        a->w[i] = (float)w;
    }
    return SP_OK;
}

sp_status sp_ref_sum_squares(sp_backend *be, const float *g, int64_t n, double *sum)
{
    assert(n >= 0 && (g || n == 0) && sum);
    (void)be;
    *sum = 0;
    for (int64_t i = 0; i < n; i++)
        *sum += (double)g[i] * g[i];
    return SP_OK;
}

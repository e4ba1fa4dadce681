/* Loss by plain loops, in double. */
#include <assert.h>
#include <math.h>

#include "cpu/cpu.h"

static int argmax(const float *z, int n)
{
    int at = 0;

    for (int j = 1; j < n; j++)
        if (z[j] > z[at])
            at = j;
    return at;
}

static bool is_finite(const float *z, int n)
{
    for (int j = 0; j < n; j++)
        if (!isfinite(z[j]))
            return false;
    return true;
}

/* Returns l = - sum_j target[j] log p[j] of row i and writes its gradient,
 * weight * (p - target). */
static double row_loss(const sp_loss_args *a, int64_t i, int label, float weight)
{
    const float *z = sp_row(a->logits, i);
    const int C = a->logits.c;
    const double top = z[argmax(z, C)];
    double sum = 0, loss = 0;

    for (int j = 0; j < C; j++)
        sum += exp(z[j] - top);
    for (int j = 0; j < C; j++) {
        double target = (j == label) * (1.0 - a->smoothing) + (double)a->smoothing / C;
        double log_p = z[j] - top - log(sum);
        loss -= target == 0 ? 0 : target * log_p;
        if (a->dlogits.data)
            sp_row(a->dlogits, i)[j] = (float)(weight * (exp(log_p) - target));
    }
    return loss;
}

static void row(const sp_loss_args *a, int64_t i, double *sums)
{
    const int C = a->logits.c, label = a->label ? a->label[i] : SP_IGNORE;
    const float *z = sp_row(a->logits, i);
    const int best = is_finite(z, C) ? argmax(z, C) : SP_IGNORE;

    if (a->prediction)
        a->prediction[i] = best;
    if (label == SP_IGNORE) {
        for (int j = 0; a->dlogits.data && j < C; j++)
            sp_row(a->dlogits, i)[j] = 0;
        return;
    }
    float weight = a->class_weight ? a->class_weight[label] : 1;
    sums[0] += weight * row_loss(a, i, label, weight);
    sums[1] += weight;
    if (a->confusion && best != SP_IGNORE)
        a->confusion[(size_t)label * C + best]++;
}

sp_status sp_ref_loss(sp_backend *be, const sp_loss_args *a)
{
    assert(sp_loss_is_sound(a));
    (void)be;
    for (int b = 0; b < a->n_samples; b++) {
        a->sums[2 * b] = a->sums[2 * b + 1] = 0;
        for (int32_t i = a->sample_row[b]; i < a->sample_row[b + 1]; i++)
            row(a, i, a->sums + 2 * b);
    }
    return SP_OK;
}

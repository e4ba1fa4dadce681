/* What follows from the sums of a batch norm, one channel at a time, in double: shared
 * by the backends so that they compute the same.
 *
 *     xhat = (x - mean) r     y = act(scale x + shift [+ residual])
 *     r = 1 / sqrt(var + eps)
 *     dx = A g + B x + C      A = gamma r, B = -gamma r^2 sum(g xhat) / N,
 *                             C = -A sum(g) / N - B mean
 * with g the gradient behind the activation and N the rows of the scope.
 */
#ifndef SP_NORM_H
#define SP_NORM_H

#include <math.h>

#include "sp_backend.h"

#define SP_NORM_EPS      1e-5
#define SP_NORM_MOMENTUM 0.1

static inline SP_HOST_DEVICE void sp_norm_affine(const sp_norm_finish_args *a, int j,
                                                 double mean, double var)
{
    const double r = 1 / sqrt(var + SP_NORM_EPS), scale = (double)a->gamma[j] * r;

    a->mean[j] = (float)mean;
    a->inv_std[j] = (float)r;
    a->scale[j] = (float)scale;
    a->shift[j] = (float)((double)a->beta[j] - mean * scale);
}

/* A batch that is not finite (its difference to itself is not 0) is kept out: its step
 * is not taken, and one such number would stay in the running statistics for good. */
static inline SP_HOST_DEVICE void sp_norm_move_running(const sp_norm_finish_args *a,
                                                       int j, double mean, double var,
                                                       double n)
{
    const double keep = 1 - SP_NORM_MOMENTUM;
    float *to_mean = a->running_mean + j, *to_var = a->running_var + j;

    if (!(n > 0) || !(mean - mean == 0) || !(var - var == 0))
        return;
    *to_mean = (float)(keep * (double)*to_mean + SP_NORM_MOMENTUM * mean);
    if (n > 1)
        *to_var =
            (float)(keep * (double)*to_var + SP_NORM_MOMENTUM * var * n / (n - 1));
}

/* norm_finish of channel j. Variance from E[x^2] - E[x]^2 in double keeps 1e-9 of its
 * value while |mean| < 1e3 standard deviations. */
static inline SP_HOST_DEVICE void sp_norm_finish_channel(const sp_norm_finish_args *a,
                                                         int j)
{
    double rows, n, mean, var;

    if (!a->sums) {
        sp_norm_affine(a, j, (double)a->running_mean[j], (double)a->running_var[j]);
        return;
    }
    rows = a->sums[2 * a->c];
    n = rows > 0 ? rows : 1;
    mean = a->sums[j] / n;
    var = a->sums[a->c + j] / n - mean * mean;
    if (var < 0)
        var = 0; /* rounding; NaN stays */
    sp_norm_affine(a, j, mean, var);
    sp_norm_move_running(a, j, mean, var, rows);
}

/* norm_grad_finish of channel j. */
static inline SP_HOST_DEVICE void sp_norm_grad_finish_channel(
    const sp_norm_grad_finish_args *a, int j)
{
    const int c = a->c;
    const double rows = a->all[2 * c], n = rows > 0 ? rows : 1;
    const double r = (double)a->inv_std[j], A = (double)a->gamma[j] * r;
    const double B = -A * r * a->all[c + j] / n;

    a->abc[j] = (float)A;
    a->abc[c + j] = (float)B;
    a->abc[2 * c + j] = (float)(-A * a->all[j] / n - B * (double)a->mean[j]);
    if (!a->own)
        return;
    a->dbeta[j] += (float)a->own[j];
    a->dgamma[j] += (float)a->own[c + j];
}

#endif

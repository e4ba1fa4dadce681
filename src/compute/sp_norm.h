/* The arithmetic of a batch norm after its sums, one channel at a time, in double. The
 * backends share it, so that they compute the same.
 *
 *     xhat = (x - mean) r     y = act(scale x + shift [+ residual])
 *     r = 1 / sqrt(var + eps)
 *     dx = A g + B x + C      A = gamma r, B = -gamma r^2 sum(g xhat) / N,
 *                             C = -A sum(g) / N - B mean
 * with g the gradient after the activation and N the rows of the scope.
 */
#ifndef SP_NORM_H
#define SP_NORM_H

#include <math.h>

#include "compute/sp_backend.h"

/* The two sums of one channel and the number of rows that they cover. */
typedef struct sp_norm_sums {
    double first, second, rows;
} sp_norm_sums;

static inline SP_HOST_DEVICE double sp_norm_rows(const sp_sums *s, int c)
{
    return s->n_rows < 0 ? s->part[(size_t)s->n_parts * 2 * (size_t)c] : s->n_rows;
}

/* Adds the parts of channel j one after another. */
static inline sp_norm_sums sp_norm_add_parts(const sp_sums *s, int c, int j)
{
    sp_norm_sums sums = {0, 0, 0};

    for (int i = 0; s->part && i < s->n_parts; i++) {
        sums.first += s->part[(2 * (size_t)i) * (size_t)c + (size_t)j];
        sums.second += s->part[(2 * (size_t)i + 1) * (size_t)c + (size_t)j];
    }
    if (s->part)
        sums.rows = sp_norm_rows(s, c);
    return sums;
}

static inline SP_HOST_DEVICE void sp_norm_affine(const sp_norm_finish_args *a, int j,
                                                 double mean, double var)
{
    const double r = 1 / sqrt(var + a->eps), scale = (double)a->gamma[j] * r;

    a->mean[j] = (float)mean;
    a->inv_std[j] = (float)r;
    a->scale[j] = (float)scale;
    a->shift[j] = (float)((double)a->beta[j] - mean * scale);
}

/* A batch statistic that is not finite (its difference to itself is not 0), or not
 * finite as a float, does not enter: it would stay in the running statistics for good.
 */
static inline SP_HOST_DEVICE void sp_norm_move_running(const sp_norm_finish_args *a,
                                                       int j, double mean, double var,
                                                       double n)
{
    const double share = a->momentum, keep = 1 - share;
    float to_mean, to_var = a->running_var[j];

    to_mean = (float)(keep * (double)a->running_mean[j] + share * mean);
    if (n > 1)
        to_var = (float)(keep * (double)to_var + share * var * n / (n - 1));
    if (!(n > 0) || !(to_mean - to_mean == 0) || !(to_var - to_var == 0))
        return;
    a->running_mean[j] = to_mean;
    a->running_var[j] = to_var;
}

/* norm_finish of channel j. Sums of x and x^2 in double serve instead of counts, means
 * and squared deviations, because they can be added in any order and are accurate
 * enough. The relative error of var + eps is below 32 * 2^-52 (1 + mean^2 / (var +
 * eps)); measured, it is 3e-9 if the mean is 10^3 standard deviations and 3e-7 if it is
 * 10^4, against 1e-12 of squared deviations (tests/unit/compute/test_norm_accuracy.c).
 * Normalized values are equally far from the exact ones in both forms, 2e-6 and 5e-4,
 * since storing x, scale and shift as fp32 costs more. */
static inline SP_HOST_DEVICE void sp_norm_finish_channel(const sp_norm_finish_args *a,
                                                         int j, sp_norm_sums sums)
{
    double n, mean, var;

    if (!a->sums.part) {
        sp_norm_affine(a, j, (double)a->running_mean[j], (double)a->running_var[j]);
        return;
    }
    n = sums.rows > 0 ? sums.rows : 1;
    mean = sums.first / n;
    var = sums.second / n - mean * mean;
    if (var < 0)
        var = 0; /* negative by rounding; NaN stays */
    sp_norm_affine(a, j, mean, var);
    sp_norm_move_running(a, j, mean, var, sums.rows);
}

/* norm_grad_finish of channel j. */
static inline SP_HOST_DEVICE void sp_norm_grad_finish_channel(
    const sp_norm_grad_finish_args *a, int j, sp_norm_sums all, sp_norm_sums own)
{
    const int c = a->c;
    const double n = all.rows > 0 ? all.rows : 1;
    const double r = (double)a->inv_std[j], A = (double)a->gamma[j] * r;
    const double B = -A * r * all.second / n;

    a->abc[j] = (float)A;
    a->abc[c + j] = (float)B;
    a->abc[2 * c + j] = (float)(-A * all.first / n - B * (double)a->mean[j]);
    if (!a->own.part)
        return;
    a->dbeta[j] = (a->is_added ? a->dbeta[j] : 0) + (float)own.first;
    a->dgamma[j] = (a->is_added ? a->dgamma[j] : 0) + (float)own.second;
}

#endif

#include "train/sp_calibrate_moments.h"

#include <assert.h>
#include <math.h>

/* The mean variance times this is added to each. Features hardly vary in most directions
 * on one tile; a small ridge makes every change there, on another tile, infinitely far
 * (tests/results/doubt.txt). */
#define RIDGE 3

/* L of a symmetric matrix, in place of its lower triangle; false if L does not exist.
 */
static bool cholesky(double *a, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double sum = a[i * n + j];

            for (int k = 0; k < j; k++)
                sum -= a[i * n + k] * a[j * n + k];
            if (i == j && !(sum > 0))
                return false;
            a[i * n + j] = i == j ? sqrt(sum) : sum / a[j * n + j];
        }
    return true;
}

/* The inverse of L, a lower triangle too, in its place. */
static void invert_triangle(double *a, int n)
{
    for (int i = 0; i < n; i++) {
        const double own = 1 / a[i * n + i];

        for (int j = 0; j < i; j++) {
            double sum = 0;

            for (int k = j; k < i; k++)
                sum += a[i * n + k] * a[k * n + j];
            a[i * n + j] = -sum * own;
        }
        a[i * n + i] = own;
    }
}

/* The covariance of class k from the sums of its features and of their products, in the
 * lower triangle of `to`. */
static void fill_covariance(const sp_calibration *c, int k, const double *product,
                            double *to)
{
    const int d = c->n_features;
    const double *mean = c->mean + (size_t)k * (size_t)d;

    for (int i = 0; i < d; i++)
        for (int j = 0; j <= i; j++)
            to[i * d + j] = *product++ / c->count[k] - mean[i] * mean[j];
}

/* Fills the means and the covariances of the classes. */
static void fill_moments(const double *sum, sp_calibration *c)
{
    const size_t d = (size_t)c->n_features, n = (size_t)c->n_classes;

    for (size_t k = 0; k < n; k++) {
        if (c->count[k] <= 0)
            continue;
        for (size_t i = 0; i < d; i++)
            c->mean[k * d + i] = sum[k * d + i] / c->count[k];
        fill_covariance(c, (int)k, sum + n * d + k * (d * (d + 1) / 2),
                        c->whiten + k * d * d);
    }
}

/* Adds the ridge to the covariances: the mean variance over features and voxels. */
static void add_ridge(sp_calibration *c, double n_voxels)
{
    const size_t d = (size_t)c->n_features, n = (size_t)c->n_classes;
    double trace = 0;

    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < d; i++)
            trace += c->count[k] / n_voxels * c->whiten[k * d * d + i * (d + 1)];
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < d; i++)
            c->whiten[k * d * d + i * (d + 1)] += RIDGE * trace / (double)d + 1e-30;
}

/* Applies W to the mean of a class. From the last row on, as row i needs the ones before
 * it. */
static void whiten_mean(const double *w, int d, double *mean)
{
    for (int i = d - 1; i >= 0; i--) {
        double sum = 0;

        for (int j = 0; j <= i; j++)
            sum += w[i * d + j] * mean[j];
        mean[i] = sum;
    }
}

bool sp_calibrate_moments(sp_calibration *c, const double *sum, int64_t n_voxels)
{
    const size_t d = (size_t)c->n_features;

    assert(d > 0 && n_voxels > 0);
    fill_moments(sum, c);
    add_ridge(c, (double)n_voxels);
    for (size_t k = 0; k < (size_t)c->n_classes; k++) {
        double *w = c->whiten + k * d * d;

        if (!cholesky(w, (int)d))
            return false;
        invert_triangle(w, (int)d);
        whiten_mean(w, (int)d, c->mean + k * d);
    }
    return true;
}

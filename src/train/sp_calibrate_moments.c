#include "train/sp_calibrate_moments.h"

#include <assert.h>
#include <math.h>

/* Share of the mean variance that is added to each. */
#define RIDGE 1e-3

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

/* Fills the means, and the covariance that the classes share in its lower triangle. */
static void fill_moments(const double *sum, int64_t n_voxels, sp_calibration *c)
{
    const int d = c->n_features;
    const double *product = sum + (size_t)c->n_classes * (size_t)d;
    double trace = 0;

    for (int k = 0; k < c->n_classes; k++)
        for (int i = 0; i < d; i++)
            c->mean[k * d + i] = c->count[k] > 0 ? sum[k * d + i] / c->count[k] : 0;
    for (int i = 0; i < d; i++)
        for (int j = 0; j <= i; j++) {
            double x = *product++;

            for (int k = 0; k < c->n_classes; k++)
                x -= c->count[k] * c->mean[k * d + i] * c->mean[k * d + j];
            c->whiten[i * d + j] = x / (double)n_voxels;
            trace += i == j ? c->whiten[i * d + i] : 0;
        }
    /* A feature that never varies would make every change of it infinitely far. */
    for (int i = 0; i < d; i++)
        c->whiten[i * d + i] += RIDGE * trace / d + 1e-30;
}

/* Applies W to the means. From the last row on, as row i needs the ones before it. */
static void whiten_means(sp_calibration *c)
{
    const int d = c->n_features;

    for (int k = 0; k < c->n_classes; k++)
        for (int i = d - 1; i >= 0; i--) {
            double sum = 0;

            for (int j = 0; j <= i; j++)
                sum += c->whiten[i * d + j] * c->mean[k * d + j];
            c->mean[k * d + i] = sum;
        }
}

bool sp_calibrate_moments(sp_calibration *c, const double *sum, int64_t n_voxels)
{
    assert(c->n_features > 0 && n_voxels > 0);
    fill_moments(sum, n_voxels, c);
    if (!cholesky(c->whiten, c->n_features))
        return false;
    invert_triangle(c->whiten, c->n_features);
    whiten_means(c);
    return true;
}

#include "vox/vox_step.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

/* With fewer points a step may be chance; from MANY_POINTS on any step is reported. */
enum { LEAST_POINTS = 16, MANY_POINTS = 1000 };
/* Six digits leave 1e5 to 1e6 steps between zero and a coordinate, float32 more. */
#define ROUNDED 5e4

static int64_t divisor_of(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* The greatest common step of the coordinates `a`, which must be whole multiples of
 * `unit`; 0 if they are not, or if it is at most `least`. */
static double step_in(const vox_cloud *cloud, int a, double unit, double least)
{
    const double first = round(cloud->xyz[a] / unit);
    int64_t step = 0;

    for (int64_t i = 0; i < cloud->n; i++) {
        const double x = cloud->xyz[3 * i + a] / unit, whole = round(x);
        /* float32 and decimal fractions are multiples only nearly */
        const double error = fmin(fmax(1e-7 * fabs(x), 1e-6), 0.01);

        if (fabs(x) >= 0x1p52 || fabs(x - whole) > error)
            return 0;
        step = divisor_of(step, (int64_t)fabs(whole - first));
        if (step > 0 && (double)step * unit <= least * (1 + 1e-6))
            return 0;
    }
    return (double)step * unit;
}

static double find_step(const vox_cloud *cloud, int a, double voxel_size)
{
    const double decimal = pow(10, floor(log10(voxel_size)) - 2);
    const double binary = ldexp(1, (int)floor(log2(voxel_size)) - 4);
    double step = fmax(step_in(cloud, a, decimal, voxel_size),
                       step_in(cloud, a, binary, voxel_size));
    double low = INFINITY, high = -INFINITY;

    if (step <= 0)
        return 0;
    for (int64_t i = 0; i < cloud->n; i++) {
        low = fmin(low, cloud->xyz[3 * i + a]);
        high = fmax(high, cloud->xyz[3 * i + a]);
    }
    if (high - low < 1.5 * step) /* a plane, or two of them */
        return 0;
    return cloud->n >= MANY_POINTS || fmax(fabs(low), fabs(high)) >= ROUNDED * step
               ? step
               : 0;
}

void vox_find_steps(const vox_cloud *cloud, double voxel_size, double step[3])
{
    assert(cloud && voxel_size > 0);
    for (int a = 0; a < 3; a++)
        step[a] = cloud->n >= LEAST_POINTS ? find_step(cloud, a, voxel_size) : 0;
}

bool vox_list_steps(const double step[3], double voxel_size, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (int a = 0; a < 3 && used < bytes; a++)
        if (step[a] > 0)
            used += (size_t)snprintf(text + used, bytes - used,
                                     "%s%c in steps of %.6g (%.0f %% of the rows of "
                                     "voxels stay empty)",
                                     used ? ", " : "", 'x' + a, step[a],
                                     100 - 100 * voxel_size / step[a]);
    return used > 0;
}

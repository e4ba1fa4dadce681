#include "vox/vox_voxelize.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A number of voxels that a double counts exactly; at more the grid refuses the points.
 */
#define FARTHEST (INT64_C(1) << 52)

/* Maps a double to an integer with the same ordering. */
static uint64_t voxelize_key_of(double x)
{
    const uint64_t sign = UINT64_C(1) << 63;
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits & sign ? ~bits : bits | sign;
}

static double voxelize_of_key(uint64_t key)
{
    const uint64_t sign = UINT64_C(1) << 63;
    double x;

    key = key & sign ? key & ~sign : ~key;
    memcpy(&x, &key, sizeof x);
    return x;
}

/* The least key of a z that is above this one, or this one if there is no other. */
static uint64_t key_after(const vox_cloud *cloud, uint64_t key)
{
    uint64_t after = UINT64_MAX;

    for (int64_t i = 0; i < cloud->n; i++) {
        const uint64_t other = voxelize_key_of(cloud->xyz[3 * i + 2]);

        after = other > key && other < after ? other : after;
    }
    return after < UINT64_MAX ? after : key;
}

/* The z of this rank, from 0, among the points in rising order, and in *next the z of
 * the next rank, or the same for the last one. Each pass finds the next digit of its
 * key, 12 bits and then 13, so the time grows with the number of points and no copy is
 * sorted. */
static double z_of_rank(const vox_cloud *cloud, int64_t rank, double *next)
{
    enum { BITS = 13, FIRST = 64 - 12 };
    int64_t n[1 << BITS];
    uint64_t found = 0;
    bool is_last_of_key = false;

    assert(0 <= rank && rank < cloud->n);
    for (int shift = FIRST; shift >= 0; shift -= BITS) {
        int digit = 0;

        memset(n, 0, sizeof n);
        for (int64_t i = 0; i < cloud->n; i++) {
            const uint64_t key = voxelize_key_of(cloud->xyz[3 * i + 2]);

            if (shift == FIRST || key >> (shift + BITS) == found)
                n[key >> shift & ((1 << BITS) - 1)]++;
        }
        while (rank >= n[digit])
            rank -= n[digit++];
        is_last_of_key = rank + 1 == n[digit];
        found = found << BITS | (uint64_t)digit;
    }
    *next = voxelize_of_key(is_last_of_key ? key_after(cloud, found) : found);
    return voxelize_of_key(found);
}

/* The 2nd percentile of z, linear between the two nearest points. */
static double ground_level(const vox_cloud *cloud)
{
    const double at = 0.02 * (double)(cloud->n - 1);
    const int64_t low = (int64_t)at;
    double next;
    const double z = z_of_rank(cloud, low, &next);

    return z + (at - (double)low) * (next - z);
}

static void add_heights(const vox_options *o, vox_cloud *cloud)
{
    double level;

    for (int f = 0; f < o->n_features; f++) {
        if (o->feature[f].kind != VOX_HEIGHT)
            continue;
        level = ground_level(cloud);
        for (int64_t i = 0; i < cloud->n; i++)
            cloud->features[i * o->n_features + f] =
                (float)((cloud->xyz[3 * i + 2] - level) / o->feature[f].divisor);
    }
}

static void voxelize_add_counts(const vox_options *o, sp_grid *grid)
{
    for (int f = 0; f < o->n_features; f++)
        for (int64_t i = 0; o->feature[f].kind == VOX_COUNT && i < grid->sample.n; i++)
            grid->sample.features[i * o->n_features + f] =
                (float)(grid->count[i] / o->feature[f].divisor);
}

/* Checks that features are finite: in float32, as they are stored, a large value
 * becomes infinite. */
static sp_status voxelize_check_features(const vox_options *o, const sp_sample *s)
{
    for (int64_t i = 0; i < s->n * o->n_features; i++) {
        const int32_t *c = s->coords + 3 * (i / o->n_features);

        if (!isfinite(s->features[i]))
            return SP_FAIL(SP_EDATA,
                           "feature %s of the voxel at %.12g, %.12g, %.12g m does not "
                           "fit float32; give it a /DIVISOR",
                           o->feature[i % o->n_features].name,
                           s->origin[0] + c[0] * o->voxel_size,
                           s->origin[1] + c[1] * o->voxel_size,
                           s->origin[2] + c[2] * o->voxel_size);
    }
    return SP_OK;
}

/* Places the origin of the sample. Blocks of a scan are on one grid of voxels and of
 * the coarser cells of a network, independent of their points. */
static void voxelize_place(const vox_options *o, const vox_cloud *cloud,
                           sp_grid_options *grid)
{
    for (int a = 0; a < 3; a++) {
        double low = INFINITY, voxels;

        for (int64_t i = 0; i < cloud->n; i++) { /* fmin is a call, for NaN */
            const double x = cloud->xyz[3 * i + a];

            low = low < x ? low : x;
        }
        if (o->buffer > 0) { /* the cells of an area, with any division into files */
            const double cell = o->voxel_size * (double)o->alignment;

            grid->origin[a] = floor(low / cell) * cell;
            continue;
        }
        grid->origin[a] = cloud->is_block ? cloud->corner[a] : floor(low);
        voxels = floor((low - grid->origin[a]) / o->voxel_size);
        if (cloud->is_block && voxels < (double)FARTHEST)
            grid->begin[a] = (int64_t)voxels / o->alignment * o->alignment;
    }
}

static sp_points points_of(const vox_options *o, const vox_cloud *cloud)
{
    return (sp_points){.n = cloud->n,
                       .xyz = cloud->xyz,
                       .features = cloud->features,
                       .c = o->n_features,
                       .label = cloud->label,
                       .index = cloud->index,
                       .is_owned = cloud->is_owned,
                       .home = cloud->is_block ? cloud->home : NULL,
                       .home_row = cloud->is_block ? cloud->home_row : NULL};
}

sp_status vox_voxelize(const vox_options *o, vox_cloud *cloud, sp_grid *grid)
{
    const sp_points points = points_of(o, cloud);
    sp_grid_options options = {.voxel_size = o->voxel_size,
                               .ignore_conflicts = o->ignore_conflicts != 0,
                               .with_points = o->with_points,
                               .without_cost = o->without_cost};
    sp_status rc;

    assert(cloud->n > 0 && o->voxel_size > 0);
    assert(!cloud->is_block || o->alignment > 0);
    voxelize_place(o, cloud, &options);
    add_heights(o, cloud);
    rc = sp_grid_points(grid, &points, &options);
    if (rc == SP_EDATA && o->block <= 0)
        return SP_FAIL(rc, "%s (--block cuts large scans)", sp_error_last()->message);
    SP_TRY(rc);
    voxelize_add_counts(o, grid);
    return voxelize_check_features(o, &grid->sample);
}

sp_status vox_locate(const vox_options *o, const vox_cloud *cloud, sp_grid *grid)
{
    const sp_points points = points_of(o, cloud);
    sp_grid_options options = {.voxel_size = o->voxel_size};

    memcpy(options.origin, grid->sample.origin, sizeof options.origin);
    return sp_grid_locate(grid, &points, &options);
}

/* ---- the grid of the coordinates ---- */

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

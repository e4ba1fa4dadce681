#include "vox/vox_voxelize.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* A number of voxels that a double counts exactly; at more the grid refuses the points.
 */
#define FARTHEST (INT64_C(1) << 52)

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The 2nd percentile of z, linear between the two nearest points. */
static sp_status ground_level(const vox_cloud *cloud, double *level)
{
    double *z = malloc((size_t)cloud->n * sizeof *z + 1), at, rest;
    int64_t low;

    if (!z)
        return SP_FAIL(SP_EMEM, "no memory for %" PRId64 " heights", cloud->n);
    for (int64_t i = 0; i < cloud->n; i++)
        z[i] = cloud->xyz[3 * i + 2];
    qsort(z, (size_t)cloud->n, sizeof *z, compare_numbers);
    at = 0.02 * (double)(cloud->n - 1);
    low = (int64_t)at;
    rest = at - (double)low;
    *level = z[low] + (low + 1 < cloud->n ? rest * (z[low + 1] - z[low]) : 0);
    free(z);
    return SP_OK;
}

static sp_status add_heights(const vox_options *o, vox_cloud *cloud)
{
    double level = 0;

    for (int f = 0; f < o->n_features; f++) {
        if (o->feature[f].kind != VOX_HEIGHT)
            continue;
        SP_TRY(ground_level(cloud, &level));
        for (int64_t i = 0; i < cloud->n; i++)
            cloud->features[i * o->n_features + f] =
                (float)((cloud->xyz[3 * i + 2] - level) / o->feature[f].divisor);
    }
    return SP_OK;
}

static void add_counts(const vox_options *o, sp_grid *grid)
{
    for (int f = 0; f < o->n_features; f++)
        for (int64_t i = 0; o->feature[f].kind == VOX_COUNT && i < grid->sample.n; i++)
            grid->sample.features[i * o->n_features + f] =
                (float)(grid->count[i] / o->feature[f].divisor);
}

/* Checks that features are finite: they are stored as float32, where a large value
 * becomes infinite. */
static sp_status check_features(const vox_options *o, const sp_sample *s)
{
    for (int64_t i = 0; i < s->n * o->n_features; i++)
        if (!isfinite(s->features[i]))
            return SP_FAIL(SP_EDATA,
                           "feature %s does not fit float32; give it a /DIVISOR",
                           o->feature[i % o->n_features].name);
    return SP_OK;
}

/* Places the origin of the sample. Blocks of a scan are on one grid of voxels and of
 * the coarser cells of a network, wherever their points begin. */
static void place(const vox_options *o, const vox_cloud *cloud, sp_grid_options *grid)
{
    for (int a = 0; a < 3; a++) {
        double low = INFINITY, voxels;

        for (int64_t i = 0; i < cloud->n; i++)
            low = fmin(low, cloud->xyz[3 * i + a]);
        grid->origin[a] = cloud->is_block ? cloud->corner[a] : floor(low);
        voxels = floor((low - grid->origin[a]) / o->voxel_size);
        if (cloud->is_block && voxels < (double)FARTHEST)
            grid->begin[a] = (int64_t)voxels / o->alignment * o->alignment;
    }
}

sp_status vox_voxelize(const vox_options *o, vox_cloud *cloud, sp_grid *grid)
{
    sp_points points = {.n = cloud->n,
                        .xyz = cloud->xyz,
                        .features = cloud->features,
                        .c = o->n_features,
                        .label = cloud->label,
                        .index = cloud->index,
                        .is_owned = cloud->is_owned,
                        .home = cloud->is_block ? cloud->home : NULL,
                        .home_row = cloud->is_block ? cloud->home_row : NULL};
    sp_grid_options options = {.voxel_size = o->voxel_size,
                               .ignore_conflicts = o->ignore_conflicts,
                               .with_points = o->with_points};

    assert(cloud->n > 0 && o->voxel_size > 0);
    assert(!cloud->is_block || o->alignment > 0);
    place(o, cloud, &options);
    SP_TRY(add_heights(o, cloud));
    SP_TRY(sp_grid_points(grid, &points, &options));
    add_counts(o, grid);
    return check_features(o, &grid->sample);
}

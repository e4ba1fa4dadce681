/* A scene is a pure function of seed and index, holds all classes in sane shares, and
 * no single feature tells them apart. */
#include "fixtures/test.h"

#include "scan/scene/sp_scene.h"

enum { SCENES = 12 };

static const sp_scene_options options = {
    .seed = 3, .extent = 20, .voxel_size = 0.5, .with_points = true};

TEST(same_seed_same_sample)
{
    CLOSED_BY(sp_grid_destroy) sp_grid a = {0}, b = {0};
    sp_scene_options other = options;
    size_t n;

    OK(sp_scene_make(&options, 5, &a));
    OK(sp_scene_make(&options, 4, &b)); /* buffers are reused */
    assert_true(a.sample.n != b.sample.n ||
                memcmp(a.sample.coords, b.sample.coords, (size_t)a.sample.n * 12) != 0);
    OK(sp_scene_make(&options, 5, &b));
    n = (size_t)a.sample.n;
    assert_int_equal(a.sample.n, b.sample.n);
    assert_int_equal(a.sample.n_points, b.sample.n_points);
    assert_memory_equal(a.sample.coords, b.sample.coords, n * 12);
    assert_memory_equal(a.sample.features, b.sample.features, n * 12);
    assert_memory_equal(a.sample.labels, b.sample.labels, n * 4);
    assert_memory_equal(a.sample.subvoxel, b.sample.subvoxel, n * 3);
    assert_memory_equal(a.sample.point_voxel, b.sample.point_voxel,
                        (size_t)a.sample.n_points * 4);
    other.seed = 4;
    OK(sp_scene_make(&other, 5, &b));
    assert_true(a.sample.n != b.sample.n ||
                memcmp(a.sample.coords, b.sample.coords, n * 12) != 0);
}

/* Sums for each class over some scenes; the last row is for ignored voxels. */
static double share[SP_LANDSCAPE_CLASSES + 1],
    mean[SP_LANDSCAPE_CLASSES + 1][SP_SCENE_FEATURES];
static double voxels;

BEFORE_ALL(make_shares)
{
    CLOSED_BY(sp_grid_destroy) sp_grid grid = {0};
    int c;

    for (int s = 0; s < SCENES; s++) {
        OK(sp_scene_make(&options, s, &grid));
        assert_in_range(grid.sample.n, 1500, 5000);
        voxels += (double)grid.sample.n;
        for (int64_t i = 0; i < grid.sample.n; i++) {
            c = grid.sample.labels[i] < 0 ? SP_LANDSCAPE_CLASSES
                                          : grid.sample.labels[i];
            share[c]++;
            for (int a = 0; a < SP_SCENE_FEATURES; a++)
                mean[c][a] += grid.sample.features[SP_SCENE_FEATURES * i + a];
        }
    }
    for (c = 0; c <= SP_LANDSCAPE_CLASSES; c++)
        for (int a = 0; a < SP_SCENE_FEATURES; a++)
            mean[c][a] /= share[c];
}

TEST(classes_are_balanced)
{
    static const double lo[] = {0.35, 0.05, 0.05, 0.01, 0.01, 0.0001};
    static const double hi[] = {0.80, 0.40, 0.40, 0.15, 0.15, 0.0200};

    for (int c = 0; c <= SP_LANDSCAPE_CLASSES; c++) {
        assert_true(share[c] / voxels > lo[c]);
        assert_true(share[c] / voxels < hi[c]);
    }
}

TEST(features_mean_something)
{
    assert_true(mean[SP_GROUND][1] < 2);
    assert_true(mean[SP_GROUND][2] < 1.4);
    assert_true(mean[SP_VEGETATION][2] > 1.8);
    assert_true(mean[SP_WIRE][1] > 7);
    /* the feature alone does not tell all: buildings are as high as trees, and echo
     * like ground */
    assert_true(fabs(mean[SP_BUILDING][1] - mean[SP_VEGETATION][1]) < 3);
    assert_true(fabs(mean[SP_BUILDING][2] - mean[SP_GROUND][2]) < 0.3);
}

/* The mean point of a voxel lies where /subvoxel says: recomputing the height feature's
 * spread within a voxel from z agrees to the resolution of 1/256. */
TEST(subvoxel_is_consistent)
{
    CLOSED_BY(sp_grid_destroy) sp_grid grid = {0};
    double base = NAN, z, gap;

    OK(sp_scene_make(&options, 0, &grid));
    for (int64_t i = 0; i < grid.sample.n; i++) {
        z = 0.5 * (grid.sample.coords[3 * i + 2] +
                   (grid.sample.subvoxel[3 * i + 2] + 0.5) / 256);
        gap = z - grid.sample.features[SP_SCENE_FEATURES * i + 1];
        base = isnan(base) ? gap : base; /* z - height is one number of the scene */
        assert_true(fabs(gap - base) <= 0.5 / 256 + 1e-5);
    }
}

TEST(options_are_checked)
{
    sp_scene_options o = options;
    CLOSED_BY(sp_grid_destroy) sp_grid grid = {0};

    o.extent = 3;
    FAILS(sp_scene_make(&o, 0, &grid), SP_EUSAGE, "extent of a scene: 3 m");
    o = options;
    o.voxel_size = NAN;
    assert_int_equal(sp_scene_make(&o, 0, &grid), SP_EUSAGE);
    o.voxel_size = 1e-6;
    assert_int_equal(sp_scene_make(&o, 0, &grid), SP_EDATA);
}

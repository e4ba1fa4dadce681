/* A scene is a pure function of seed and index, is seen along scan lines with what
 * buildings hide missing, and holds all classes, which no single feature tells apart. */
#include "fixtures/test.h"

#include <complex.h>

#include "scan/scene/sp_scene.h"

enum { SCENES = 12, CELLS = 128 };

static const sp_scene_options options = {
    .seed = 3, .extent = 20, .voxel_size = 0.5, .with_points = true};

TEST(same_seed_same_sample)
{
    CLOSED_BY(sp_grid_destroy) sp_grid a = {0}, b = {0};
    sp_scene_options other = options;
    size_t n;

    OK(sp_scene_make(&options, 5, &a));
    OK(sp_scene_make(&options, 4, &b)); /* buffers are reused */
    assert_int_not_equal(a.sample.n_points, b.sample.n_points);
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
    assert_int_not_equal(a.sample.n_points, b.sample.n_points);
}

TEST(classes_and_features_mean_something)
{
    static const double lo[] = {0.35, 0.05, 0.05, 0.01, 0.01, 0.0001};
    static const double hi[] = {0.80, 0.40, 0.40, 0.15, 0.15, 0.0200};
    double share[SP_SCENE_CLASSES + 1] = {0}, voxels = 0;
    double mean[SP_SCENE_CLASSES + 1][SP_SCENE_FEATURES] = {{0}};
    CLOSED_BY(sp_grid_destroy) sp_grid grid = {0};

    for (int s = 0; s < SCENES; s++) {
        OK(sp_scene_make(&options, s, &grid));
        assert_in_range(grid.sample.n, 1500, 5000);
        voxels += (double)grid.sample.n;
        for (int64_t i = 0; i < grid.sample.n; i++) {
            const int label = grid.sample.labels[i];
            const int c = label < 0 ? SP_SCENE_CLASSES : label;

            share[c]++;
            for (int a = 0; a < SP_SCENE_FEATURES; a++)
                mean[c][a] += grid.sample.features[SP_SCENE_FEATURES * i + a];
        }
    }
    for (int c = 0; c <= SP_SCENE_CLASSES; c++) {
        assert_true(share[c] / voxels > lo[c] && share[c] / voxels < hi[c]);
        for (int a = 0; a < SP_SCENE_FEATURES; a++)
            mean[c][a] /= share[c];
    }
    assert_true(mean[SP_GROUND][1] < 2);
    assert_true(mean[SP_GROUND][2] < 1.4);
    assert_true(mean[SP_VEGETATION][2] > 1.8);
    assert_true(mean[SP_WIRE][1] > 7);
    /* the feature alone does not tell all: buildings are as high as trees, and echo
     * like ground */
    assert_true(fabs(mean[SP_BUILDING][1] - mean[SP_VEGETATION][1]) < 3);
    assert_true(fabs(mean[SP_BUILDING][2] - mean[SP_GROUND][2]) < 0.3);
}

/* The scanner looks to larger y. Ground is counted in the metre before each row of
 * cells of 0.5 m with a building, and in the metre after it. */
TEST(ground_behind_a_building_is_hidden)
{
    const sp_scene_options wide = {.seed = 3, .extent = CELLS / 2};
    int64_t before = 0, after = 0;

    for (int s = 0; s < SCENES; s++) {
        static int cell[CELLS][CELLS][2]; /* [x][y] points of ground, of buildings */
        CLOSED_BY(sp_scene_points_destroy) sp_scene_points p = {0};

        memset(cell, 0, sizeof cell);
        OK(sp_scene_scan(&wide, s, &p));
        for (int64_t i = 0; i < p.n; i++)
            if (p.label[i] == SP_GROUND || p.label[i] == SP_BUILDING)
                cell[(int)(2 * p.xyz[3 * i])][(int)(2 * p.xyz[3 * i + 1])]
                    [p.label[i] == SP_BUILDING]++;
        for (int x = 0; x < CELLS; x++)
            for (int y = 3; y < CELLS - 4; y++)
                for (int k = 0; k < 2; k++) {
                    if (!cell[x][y][1] && cell[x][y + 1][1])
                        before += cell[x][y - k][0];
                    if (cell[x][y][1] && !cell[x][y + 1][1])
                        after += cell[x][y + 1 + k][0];
                }
    }
    printf("%lld before, %lld after\n", (long long)before, (long long)after);
    assert_true(before > 1000);
    assert_true(after < before / 3);
}

/* Lines are 0.32 m apart and equally skewed: of the right skew, the places of points
 * across the lines are nearly equal but for multiples of that. */
TEST(points_lie_on_scan_lines)
{
    CLOSED_BY(sp_scene_points_destroy) sp_scene_points p = {0};
    double best = 0;

    OK(sp_scene_scan(&options, 0, &p));
    for (double skew = -0.4; skew < 0.4; skew += 0.001) {
        double complex sum = 0;

        for (int64_t i = 0; i < p.n; i++)
            sum +=
                cexp(I * 6.2831853 * (p.xyz[3 * i] - skew * p.xyz[3 * i + 1]) / 0.32);
        best = fmax(best, cabs(sum) / (double)p.n);
    }
    assert_true(best > 0.6 && best < 0.95); /* with noise, so not 1 */
}

TEST(scenes_of_4_and_of_300_metres)
{
    for (int is_large = 0; is_large < 2; is_large++) {
        const sp_scene_options o = {.seed = 9, .extent = is_large ? 300 : 4};
        const double area = o.extent * o.extent;
        CLOSED_BY(sp_scene_points_destroy) sp_scene_points p = {0};
        int64_t n[SP_SCENE_CLASSES + 1] = {0}, below = 0;

        OK(sp_scene_scan(&o, 2, &p));
        assert_true((double)p.n > 7 * area && (double)p.n < 30 * area);
        for (int64_t i = 0; i < p.n; i++) {
            const double *at = p.xyz + 3 * i;

            assert_true(fmin(at[0], at[1]) >= 0 && fmax(at[0], at[1]) < o.extent);
            n[p.label[i] < 0 ? SP_SCENE_CLASSES : p.label[i]]++;
            below += p.features[SP_SCENE_FEATURES * i + 1] < 0;
        }
        /* heights are above the 2nd percentile */
        assert_true(fabs((double)below / (double)p.n - 0.02) < 0.01);
        for (int c = 0; c <= SP_SCENE_CLASSES && is_large; c++)
            assert_true(n[c] > 100);
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

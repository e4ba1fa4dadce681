/* A crop keeps the rows that its definition names, as a plain reference finds them.
 * Its centres are drawn evenly, and no crop but a range is empty. */
#include "fixtures/test.h"

#include <stdlib.h>

#include "base/sp_rng.h"
#include "data/sp_crop.h"
#include "data/sp_voxel.h"

enum { N = 400, C = 2 };

static int32_t coords[3 * N], labels[N];
static uint8_t subvoxel[3 * N];
static float features[C * N];
static sp_sample sample;
static sp_config config;
static sp_arena arena;
static const double voxel = 0.5;

BEFORE_ALL(create)
{
    OK(sp_arena_create(&arena, (size_t)1 << 20, "test"));
    OK(sp_config_read(&config, NULL, 0, NULL));
    free(config.augment.range.at); /* tests have lists of their own */
    free(config.augment.crop_size.at);
    config.augment.range = config.augment.crop_size = (sp_doubles){0};
}

/* Distinct voxels in a box of 16 x 20 x 12; feature 0 is the row's number. */
static void fill(bool has_subvoxel)
{
    sp_rng rng = sp_rng_open(5, SP_RNG_SCENE, 0, 0);
    int32_t cell = 0;

    for (int i = 0; i < N; i++) {
        cell += 1 + (int32_t)(sp_rng_u32(&rng) % 9);
        coords[3 * i] = cell % 16 - 8;
        coords[3 * i + 1] = cell / 16 % 20 - 10;
        coords[3 * i + 2] = cell / 320;
        for (int k = 0; k < 3; k++)
            subvoxel[3 * i + k] = (uint8_t)sp_rng_u32(&rng);
        labels[i] = i % 7 - 1;
        features[C * i] = (float)i;
        features[C * i + 1] = (float)labels[i];
    }
    sample = (sp_sample){.n = N,
                         .coords = coords,
                         .labels = labels,
                         .features = features,
                         .subvoxel = has_subvoxel ? subvoxel : NULL,
                         .origin = {100, -50, 3}};
}

static void begin(void)
{
    sp_arena_reset(&arena);
    config.augment.range.n = config.augment.crop_size.n = 0;
    config.augment.crop = SP_CROP_NONE;
    config.augment.crop_voxels = 0;
    config.augment.crop_p = 1;
    fill(true);
}

static void set_list(sp_doubles *list, int n, const double *at)
{
    static double room[2][6];
    double *to = room[list == &config.augment.range];

    memcpy(to, at, (size_t)n * sizeof *at);
    *list = (sp_doubles){n, to};
}

/* The position of a stored row in metres. */
static double place(int row, int axis)
{
    const double inside =
        sample.subvoxel ? (subvoxel[3 * row + axis] + 0.5) / 256 : 0.5;

    return (coords[3 * row + axis] + inside) * voxel + sample.origin[axis];
}

static void crop(const sp_crop *how)
{
    OK(sp_crop_apply(&config, how, voxel, C, &arena, &sample));
    assert_int_equal(arena.used, 0);
}

/* The rows that are left, in their order, with all that belongs to them. */
static void check_rows(const bool *is_kept)
{
    static int32_t c[3 * N], l[N];
    static uint8_t s[3 * N];
    static float f[C * N];
    const int64_t n = sample.n;
    int64_t i = 0;

    memcpy(c, coords, sizeof c);
    memcpy(l, labels, sizeof l);
    memcpy(s, subvoxel, sizeof s);
    memcpy(f, features, sizeof f);
    fill(sample.subvoxel != NULL);
    for (int row = 0; row < N; row++) {
        if (!is_kept[row])
            continue;
        assert_true(i < n);
        assert_memory_equal(c + 3 * i, coords + 3 * row, 3 * sizeof *c);
        assert_memory_equal(f + C * i, features + C * row, C * sizeof *f);
        assert_int_equal(l[i], labels[row]);
        if (sample.subvoxel)
            assert_memory_equal(s + 3 * i, subvoxel + 3 * row, 3);
        i++;
    }
    assert_int_equal(i, n);
}

TEST_AFTER(begin, a_range_keeps_its_box)
{
    const double range[] = {98, -52, 4, 102, -49, 5.2};
    bool is_kept[N];
    int n = 0;

    for (int i = 0; i < N; i++) {
        is_kept[i] = true;
        for (int a = 0; a < 3; a++)
            is_kept[i] =
                is_kept[i] && range[a] <= place(i, a) && place(i, a) < range[a + 3];
        n += is_kept[i];
    }
    assert_true(n > 20 && n < N / 2);
    set_list(&config.augment.range, 6, range);
    crop(&(sp_crop){0});
    assert_int_equal(sample.n, n);
    check_rows(is_kept);
}

/* An evaluation leaves out the same rows as a training, but the sample keeps them. */
TEST_AFTER(begin, eval_range_leaves_out_the_same_rows)
{
    const double at[] = {99, -49, 3, 101.3, -46.2, 1e6};
    const sp_doubles range = {6, (double *)(uintptr_t)at};
    sp_augment aug = sp_augment_none();
    sp_arena voxels = {0};
    sp_voxels out;
    int32_t n = 0;

    aug.range = &range;
    aug.stored_edge = voxel;
    OK(sp_arena_create(&voxels, 0, "voxels"));
    OK(sp_voxelize(&sample, &aug, 1, C, NULL, NULL, &voxels, &out));
    for (int i = 0; i < N; i++) {
        const bool is_in = sp_crop_is_within(&range, voxel, &sample, i);

        assert_int_equal(out.row_of[i], is_in ? n : -1);
        if (is_in)
            assert_memory_equal(out.features + C * n++, features + C * i,
                                C * sizeof *features);
    }
    assert_int_equal(out.n, n);
    assert_true(n > 0 && n < N);
    assert_int_equal(sample.n, N);
    set_list(&config.augment.range, 6, at);
    crop(&(sp_crop){0});
    assert_int_equal(sample.n, n);
    sp_arena_destroy(&voxels);
}

TEST_AFTER(begin, a_range_far_away_keeps_nothing)
{
    const double range[] = {0, 0, 0, 1, 1, 1};

    config.augment.crop = SP_CROP_SPHERE;
    config.augment.crop_voxels = 10;
    set_list(&config.augment.range, 6, range);
    crop(&(sp_crop){true, 0.5});
    assert_int_equal(sample.n, 0);
}

/* ---- sphere and box ---- */

static double distance(bool is_sphere, const double *edges, int row, int centre)
{
    double sum = 0, most = 0;

    for (int a = 0; a < 3; a++) {
        const double d = fabs(place(row, a) - place(centre, a));

        sum += d * d;
        if (edges[a] > 0 && 2 * d / edges[a] > most)
            most = 2 * d / edges[a];
    }
    return is_sphere ? sqrt(sum) * 2 / edges[0] : most;
}

/* Keeps of the rows within `limit` the `most` nearest ones. */
static void check_crop(bool is_sphere, const double *size, int64_t voxels, double u)
{
    const double cube[3] = {1, 1, 1}, twice[3] = {size ? 2 * size[0] : 1};
    const double *edges = !size ? cube : is_sphere ? twice : size;
    const int centre = (int)(u * N);
    bool is_kept[N];
    int nearer, n = 0;

    for (int i = 0; i < N; i++) {
        const double d = distance(is_sphere, edges, i, centre);

        nearer = 0;
        for (int j = 0; j < N; j++) {
            const double e = distance(is_sphere, edges, j, centre);

            nearer += e < d - 1e-12 || (fabs(e - d) <= 1e-12 && j < i);
        }
        is_kept[i] = (!size || d <= 1) && (voxels == 0 || nearer < voxels);
        n += is_kept[i];
    }
    assert_true(n > 0 && n < N);
    config.augment.crop = is_sphere ? SP_CROP_SPHERE : SP_CROP_BOX;
    config.augment.crop_voxels = voxels;
    config.augment.crop_size.n = 0;
    if (size)
        set_list(&config.augment.crop_size, is_sphere ? 1 : 3, size);
    crop(&(sp_crop){true, u});
    assert_int_equal(sample.n, n);
    check_rows(is_kept);
}

TEST_AFTER(begin, spheres_and_boxes_keep_the_nearest_rows)
{
    const double radius[] = {2.1}, edges[] = {3, 4, 2.5}, column[] = {3, 3, 0};

    for (int has_subvoxel = 0; has_subvoxel < 2; has_subvoxel++)
        for (double u = 0; u < 1; u += 0.19) {
            fill(has_subvoxel);
            check_crop(true, radius, 0, u);
            check_crop(true, NULL, 37, u);
            check_crop(true, radius, 20, u);
            check_crop(false, edges, 0, u);
            check_crop(false, NULL, 37, u);
            check_crop(false, edges, 12, u);
            check_crop(false, column, 0, u);
            check_crop(false, column, 25, u);
        }
}

TEST_AFTER(begin, a_crop_has_one_row_at_least)
{
    const double tiny[] = {1e-9};

    config.augment.crop = SP_CROP_SPHERE;
    set_list(&config.augment.crop_size, 1, tiny);
    for (int e = 0; e < 200; e++) {
        const sp_crop how = sp_crop_draw(&config, 1, (uint64_t)e, 3);

        fill(true);
        crop(&how);
        assert_int_equal(sample.n, 1);
    }
    fill(true);
    sample.n = 0;
    crop(&(sp_crop){true, 0});
    assert_int_equal(sample.n, 0);
}

/* ---- draws ---- */

TEST_AFTER(begin, centres_are_any_row_alike)
{
    enum { DRAWS = 8000, PARTS = 10 };
    int n_cropped = 0, part[PARTS] = {0};

    config.augment.crop = SP_CROP_BOX;
    config.augment.crop_voxels = 1;
    config.augment.crop_p = 0.3;
    for (int e = 0; e < DRAWS; e++) {
        const sp_crop how = sp_crop_draw(&config, 9, (uint64_t)e / 8, e % 8);

        assert_true(how.centre >= 0 && how.centre < 1);
        n_cropped += how.is_cropped;
        part[(int)(how.centre * PARTS)]++;
    }
    /* five standard deviations */
    assert_true(abs(n_cropped - DRAWS * 3 / 10) < 205);
    for (int k = 0; k < PARTS; k++)
        assert_true(abs(part[k] - DRAWS / PARTS) < 135);
    config.augment.crop = SP_CROP_NONE;
    assert_false(sp_crop_draw(&config, 9, 0, 0).is_cropped);
}

TEST_AFTER(begin, the_most_rows_are_known_for_certain_crops_only)
{
    assert_false(sp_crop_is_on(&config));
    assert_int_equal(sp_crop_most(&config, 100), 100);
    config.augment.crop = SP_CROP_SPHERE;
    config.augment.crop_voxels = 30;
    assert_true(sp_crop_is_on(&config) && !sp_crop_is_vague(&config));
    assert_int_equal(sp_crop_most(&config, 100), 30);
    assert_int_equal(sp_crop_most(&config, 20), 20);
    config.augment.crop_p = 0.9;
    assert_int_equal(sp_crop_most(&config, 100), 100);
    assert_true(sp_crop_is_vague(&config));
}

/* Augmentation moves voxels as stated and merging agrees with a plain map. */
#include "fixtures/test.h"

#include "base/sp_rng.h"
#include "compute/sp_backend.h"
#include "data/sp_voxel.h"

enum { N = 3000, C = 2 };

typedef struct fixture {
    sp_arena arena;
    int32_t coords[3 * N], labels[N];
    float features[C * N];
    uint8_t subvoxel[3 * N];
    sp_sample sample;
} fixture;

static fixture f;
static sp_augment aug; /* of the test; none as it begins */
static sp_voxels v;    /* the result */

/* Distinct voxels, about every second cell of a box at `at`, with labels 0 .. 3 or
 * ignore. */
static void fill(int32_t at)
{
    sp_rng rng = sp_rng_open(5, SP_RNG_SCENE, 0, 0);
    int32_t cell = 0;

    for (int i = 0; i < N; i++) {
        cell += 1 + (int32_t)(sp_rng_u32(&rng) % 2);
        f.coords[3 * i] = at + cell % 21;
        f.coords[3 * i + 1] = at + cell / 21 % 32;
        f.coords[3 * i + 2] = cell / (21 * 32);
        f.labels[i] = (int32_t)(sp_rng_u32(&rng) % 5) - 1;
        for (int a = 0; a < C; a++)
            f.features[C * i + a] = sp_rng_to_unit(sp_rng_u32(&rng));
        for (int a = 0; a < 3; a++)
            f.subvoxel[3 * i + a] = (uint8_t)sp_rng_u32(&rng);
    }
    f.sample = (sp_sample){.id = 4,
                           .n = N,
                           .coords = f.coords,
                           .labels = f.labels,
                           .features = f.features,
                           .subvoxel = f.subvoxel};
}

BEFORE_ALL(create_arena)
{
    OK(sp_arena_create(&f.arena, (size_t)64 << 20, "test"));
}

static void begin(void)
{
    sp_arena_reset(&f.arena);
    fill(-9);
    aug = sp_augment_none();
}

/* The map that sp_voxelize must equal: it finds all rows of a voxel by comparing
 * coordinates. */
static void check_against_rows(const int32_t *expected)
{
    int32_t row, next = 0;
    static int32_t votes[4 * N], members[N];
    static double sums[C * N];

    memset(votes, 0, sizeof votes);
    memset(members, 0, sizeof members);
    memset(sums, 0, sizeof sums);
    for (int32_t i = 0; i < N; i++) {
        row = v.row_of[i];
        if (row < 0)
            continue;
        assert_true(row <= next && row < v.n); /* numbered by first row */
        next += row == next;
        assert_memory_equal(v.coords + 3 * row, expected + 3 * i, 12);
        members[row]++;
        for (int32_t a = 0; a < C; a++)
            sums[C * row + a] += f.features[C * i + a];
        if (f.labels[i] >= 0)
            votes[4 * row + f.labels[i]]++;
    }
    assert_int_equal(next, v.n);
    for (row = 0; row < v.n; row++) {
        int best = 0, winner = SP_IGNORE;

        for (int32_t a = 0; a < 4; a++)
            if (votes[4 * row + a] > best) {
                best = votes[4 * row + a];
                winner = a;
            } else if (best && votes[4 * row + a] == best) {
                winner = SP_IGNORE;
            }
        assert_int_equal(v.labels[row], winner);
        for (int32_t a = 0; a < C; a++)
            assert_true(fabs(v.features[C * row + a] -
                             sums[C * row + a] / members[row]) < 1e-6);
        for (int32_t i = 0; i < row && v.n < 1000; i++) /* unique */
            assert_memory_not_equal(v.coords + 3 * i, v.coords + 3 * row, 12);
    }
}

static void run(double factor)
{
    OK(sp_voxelize(&f.sample, &aug, factor, C, NULL, NULL, &f.arena, &v));
}

TEST_AFTER(begin, identity_copies)
{
    double mean[C] = {0.5, 0.25}, std[C] = {2, 0};

    OK(sp_voxelize(&f.sample, &aug, 1, C, mean, std, &f.arena, &v));
    assert_int_equal(v.n, N);
    assert_memory_equal(v.coords, f.coords, sizeof f.coords);
    assert_memory_equal(v.labels, f.labels, sizeof f.labels);
    for (int i = 0; i < N; i++) {
        assert_int_equal(v.row_of[i], i);
        assert_true(v.features[C * i] == (float)((f.features[C * i] - 0.5) / 2));
        assert_true(v.features[C * i + 1] == (float)(f.features[C * i + 1] - 0.25));
    }
}

/* All eight symmetries of the square are bijective and carry labels and features along;
 * four quarter turns of one sample agree with the formula. */
TEST_AFTER(begin, quarter_turns_stay_on_the_grid)
{
    static const int cosine[] = {1, 0, -1, 0}, sine[] = {0, 1, 0, -1};
    int32_t dx = 0, dy = 0, x, y;

    for (int with_subvoxel = 0; with_subvoxel < 2; with_subvoxel++)
        for (int turn = -3; turn < 6; turn++)
            for (int flips = 0; flips < 4; flips++) {
                sp_arena_reset(&f.arena);
                f.sample.subvoxel = with_subvoxel ? f.subvoxel : NULL;
                aug.angle = turn * 1.57079632679489661923;
                aug.flip_x = flips & 1;
                aug.flip_y = flips >> 1;
                run(1);
                assert_int_equal(v.n, N);
                for (int i = 0; i < N; i++) {
                    int32_t sx = f.coords[3 * i] * (aug.flip_x ? -1 : 1);
                    int32_t sy = f.coords[3 * i + 1] * (aug.flip_y ? -1 : 1);

                    x = cosine[turn & 3] * sx - sine[turn & 3] * sy;
                    y = sine[turn & 3] * sx + cosine[turn & 3] * sy;
                    if (i == 0) {
                        dx = v.coords[0] - x;
                        dy = v.coords[1] - y;
                    }
                    assert_int_equal(v.coords[3 * i], x + dx);
                    assert_int_equal(v.coords[3 * i + 1], y + dy);
                    assert_int_equal(v.coords[3 * i + 2], f.coords[3 * i + 2]);
                }
                assert_memory_equal(v.labels, f.labels, sizeof f.labels);
                assert_memory_equal(v.features, f.features, sizeof f.features);
            }
}

TEST_AFTER(begin, flips_mirror_in_place)
{
    aug.flip_x = true;
    run(1);
    for (int i = 0; i < N; i++) /* the box -9 .. 11 mirrored onto itself */
        assert_int_equal(v.coords[3 * i], 2 - f.coords[3 * i]);
}

static int32_t floor_of(int32_t c, int d)
{
    return (int32_t)floor((double)c / d);
}

TEST_AFTER(begin, factor_merges_blocks)
{
    static int32_t expected[3 * N];

    for (int factor = 2; factor < 9; factor++) {
        sp_arena_reset(&f.arena);
        for (int i = 0; i < 3 * N; i++)
            expected[i] = floor_of(f.coords[i], factor);
        run(factor * (1 + 1e-9));
        assert_true(v.n < N);
        check_against_rows(expected);
    }
}

/* A turn by any angle and a scale agree with the formula in plain doubles. */
TEST_AFTER(begin, free_turns_merge)
{
    static int32_t expected[3 * N];
    double p[3], centre[3] = {-9 + 21 / 2.0, -9 + 32 / 2.0, 0}, factor;
    int top = 0;

    for (int i = 0; i < N; i++)
        top = f.coords[3 * i + 2] > top ? f.coords[3 * i + 2] : top;
    centre[2] = (top + 1) / 2.0;
    for (factor = 1; factor < 4; factor++) {
        sp_arena_reset(&f.arena);
        aug.angle = 0.7 * factor;
        aug.scale = 0.97;
        aug.flip_y = factor == 2;
        for (int i = 0; i < N; i++) {
            for (int a = 0; a < 3; a++)
                p[a] = f.coords[3 * i + a] + (f.subvoxel[3 * i + a] + 0.5) / 256 -
                       centre[a];
            p[1] *= aug.flip_y ? -1 : 1;
            expected[3 * i] = (int32_t)floor(
                (centre[0] + 0.97 * (cos(aug.angle) * p[0] - sin(aug.angle) * p[1])) /
                factor);
            expected[3 * i + 1] = (int32_t)floor(
                (centre[1] + 0.97 * (sin(aug.angle) * p[0] + cos(aug.angle) * p[1])) /
                factor);
            expected[3 * i + 2] = (int32_t)floor((centre[2] + 0.97 * p[2]) / factor);
        }
        run(factor);
        assert_true(v.n < N && v.n > N / 100);
        check_against_rows(expected);
    }
}

TEST_AFTER(begin, drop_is_keyed_and_fair)
{
    sp_voxels first;
    int kept = 0, row = 0;

    aug.drop = 0.25;
    aug.seed = 3;
    run(1);
    first = v;
    run(1);
    assert_memory_equal(v.row_of, first.row_of, N * sizeof *v.row_of);
    for (int i = 0; i < N; i++)
        if (v.row_of[i] >= 0) {
            assert_int_equal(v.row_of[i], row);
            assert_memory_equal(v.coords + 3 * row, f.coords + 3 * i, 12);
            assert_int_equal(v.labels[row], f.labels[i]);
            row++;
            kept++;
        }
    assert_int_equal(v.n, kept);
    assert_in_range(kept, (int)(0.72 * N), (int)(0.78 * N)); /* 3.8 sigma */
    aug.sample = 1;
    run(1);
    assert_memory_not_equal(v.row_of, first.row_of, N * sizeof *v.row_of);
    aug.drop = 1;
    run(2);
    assert_int_equal(v.n, 0);
}

TEST_AFTER(begin, jitter_has_the_stated_width)
{
    double sum = 0, squares = 0, d;

    aug.jitter = 0.1;
    run(1);
    for (int i = 0; i < N * C; i++) {
        d = v.features[i] - f.features[i];
        sum += d;
        squares += d * d;
    }
    assert_true(fabs(sum / (N * C)) < 0.005);
    assert_true(fabs(sqrt(squares / (N * C)) - 0.1) < 0.004);
}

TEST_AFTER(begin, box_at_the_edge_is_shifted_in)
{
    fill(SP_COORD_LIMIT - 32);
    for (int is_turn = 0; is_turn < 2; is_turn++) {
        aug.angle = is_turn ? 1.57079632679489661923 : 0.8;
        aug.scale = is_turn ? 1 : 1.05;
        run(1);
        for (int i = 0; i < 3 * v.n; i++)
            assert_in_range(v.coords[i] + SP_COORD_LIMIT, 0, 2 * SP_COORD_LIMIT - 1);
    }
}

TEST_AFTER(begin, what_cannot_be_done_is_said)
{
    f.sample.subvoxel = NULL;
    aug.angle = 0.3;
    FAILS(sp_voxelize(&f.sample, &aug, 1, C, NULL, NULL, &f.arena, &v), SP_EDATA,
          "sample 4 has no subvoxel");
    f.sample.subvoxel = f.subvoxel;
    f.coords[0] = f.coords[1] = -SP_COORD_LIMIT;
    f.coords[3] = f.coords[4] = SP_COORD_LIMIT - 1;
    FAILS(sp_voxelize(&f.sample, &aug, 1, C, NULL, NULL, &f.arena, &v), SP_EDATA,
          "sample 4 is");
}

TEST_AFTER(begin, empty_sample_is_legal)
{
    f.sample.n = 0;
    aug.angle = 0.3;
    aug.drop = 0.5;
    run(2);
    assert_int_equal(v.n, 0);
}

/* Edges of shards of 0.5 m become these by whole factors, to one in a million. */
TEST(voxels_are_merged_by_whole_factors)
{
    static const struct {
        double edge, factor; /* 0: refused */
    } cases[] = {{0.5, 1},      {1.5, 3},      {0.5000004, 1}, {0.500001, 0},
                 {0.25, 0},     {0.7, 0},      {1.500002, 0},  {524288, 1 << 20},
                 {524288.5, 0}, {1.4999996, 3}};
    char path[] = "a.h5";
    sp_shard shard = {.path = path};
    const sp_dataset set = {.voxel_size = 0.5, .shard = &shard};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sp_config config = {.data.voxel_size = cases[i].edge};
        double factor;

        assert_int_equal(sp_voxel_factor(&config, &set, &factor),
                         cases[i].factor > 0 ? SP_OK : SP_EDATA);
        assert_true(cases[i].factor == 0 || factor == cases[i].factor);
    }
}

/* Draws repeat, differ by sample and epoch, and do not disturb each other. */
TEST_AFTER(begin, draws_are_keyed)
{
    double range[2] = {0.9, 1.1};
    sp_config config;
    sp_augment a, b;
    int flips = 0;

    memset(&config, 0, sizeof config);
    config.augment.rotate_z = true;
    config.augment.rotate_max = 180;
    config.augment.rotate_p = 1;
    config.augment.scale = (sp_doubles){2, range};
    a = sp_augment_draw(&config, true, 1, 2, 3);
    config.augment.flip = true;
    b = sp_augment_draw(&config, true, 1, 2, 3);
    assert_true(a.angle == b.angle && a.scale == b.scale);
    assert_true(a.scale >= 0.9 && a.scale <= 1.1);
    assert_true(sp_augment_draw(&config, true, 1, 2, 4).angle != a.angle);
    assert_true(sp_augment_draw(&config, true, 1, 3, 3).angle != a.angle);
    for (int i = 0; i < 1000; i++) {
        b = sp_augment_draw(&config, false, 1, 2, i);
        flips += b.flip_x;
        assert_true(b.scale == 1);
        assert_true(fabs(remainder(b.angle, 1.57079632679489661923)) < 1e-9);
    }
    assert_in_range(flips, 420, 580);
}

/* Normals of equal length in all directions: after any augmentation the normal of a row
 * is the direction between the places of two rows that it was before, so that it moves
 * with the voxels. */
TEST_AFTER(begin, normals_move_with_the_voxels)
{
    enum { ROWS = 2, SIZE = 40 };
    static const double angles[] = {
        0, 1.57079632679489661923, 3.14159265358979323846, -1.57079632679489661923, 0.5,
        4};
    int32_t coords[] = {0, 0, 0, SIZE, SIZE / 4, 0}, labels[] = {0, 0};
    uint8_t subvoxel[] = {128, 128, 128, 128, 128, 128};
    /* columns: 7, y / 4, x, z; both rows have the direction from the first to the other
     */
    const float features[] = {7, 2.5F, SIZE, 3, 7, 2.5F, SIZE, 3};
    const sp_vectors vectors = {.n = 1, .at = {{.x = 2, .y = 1, .z = -1, .divisor = {1, 4, 1}}}};
    const sp_sample s = {.n = ROWS,
                         .coords = coords,
                         .features = (float *)(uintptr_t)features,
                         .labels = labels,
                         .subvoxel = subvoxel};

    for (size_t k = 0; k < 4 * sizeof angles / sizeof *angles; k++) {
        aug = sp_augment_none();
        aug.angle = angles[k / 4];
        aug.flip_x = k & 1;
        aug.flip_y = k & 2;
        aug.vectors = &vectors;
        sp_arena_reset(&f.arena);
        OK(sp_voxelize(&s, &aug, 1, 4, NULL, NULL, &f.arena, &v));
        assert_int_equal(v.n, ROWS);
        for (int row = 0; row < ROWS; row++) {
            const float *at = v.features + 4 * row;

            /* coordinates are whole voxels */
            assert_true(fabs(at[2] - (v.coords[3] - v.coords[0])) <= 1.001);
            assert_true(fabs(4 * at[1] - (v.coords[4] - v.coords[1])) <= 1.001);
            assert_true(fabs(hypot(at[2], 4 * at[1]) - hypot(SIZE, 10)) < 1e-4);
            assert_true(at[0] == 7 && at[3] == 3);
            if (k < 16) /* on the grid: exact */
                assert_true(at[2] == v.coords[3] - v.coords[0] &&
                            4 * at[1] == v.coords[4] - v.coords[1]);
        }
        aug.vectors = NULL; /* columns that are no normals stay */
        sp_arena_reset(&f.arena);
        OK(sp_voxelize(&s, &aug, 1, 4, NULL, NULL, &f.arena, &v));
        assert_memory_equal(v.features, features, sizeof features);
    }
}

/* Positions are scaled too, and all of it happens about their mean. */
TEST_AFTER(begin, positions_move_with_the_voxels)
{
    int32_t coords[] = {0, 0, 0, 40, 10, 20}, labels[] = {0, 0};
    uint8_t subvoxel[] = {128, 128, 128, 128, 128, 128};
    /* columns: z, y / 4, x, in voxels of 1 m far from 0 */
    float features[] = {7, 1000, 3000, 27, 1002.5F, 3040};
    const double mean[] = {17, 1001.25, 3020}, std[] = {1, 0.25, 1};
    const sp_vectors vectors = {
        .n = 1, .at = {{.x = 2, .y = 1, .z = 0, .divisor = {1, 4, 1}, .is_position = true}}};
    const sp_sample s = {.n = 2,
                         .coords = coords,
                         .features = features,
                         .labels = labels,
                         .subvoxel = subvoxel};

    for (int k = 0; k < 16; k++) {
        aug = sp_augment_none();
        aug.angle = 0.7 * (k / 4);
        aug.flip_x = k & 1;
        aug.flip_y = k & 2;
        aug.scale = 1 + 0.125 * (k / 4);
        aug.vectors = &vectors;
        sp_arena_reset(&f.arena);
        OK(sp_voxelize(&s, &aug, 1, 3, mean, std, &f.arena, &v));
        assert_int_equal(v.n, 2);
        for (int a = 0; a < 3; a++) { /* z, y, x; coordinates are whole voxels */
            const double from = v.features[a], to = v.features[3 + a];

            assert_true(fabs(to - from - (v.coords[5 - a] - v.coords[2 - a])) <= 1.001);
            assert_true(fabs(from + to) < 1e-3);
        }
        assert_true(fabs(v.features[3] - 10 * aug.scale) < 1e-5);
        assert_true(fabs(hypot(v.features[4], v.features[5]) -
                         aug.scale * hypot(20, 5)) < 1e-3);
    }
}

/* Tilts, shifts, elastic distortions and noise are what the header says, in plain
 * doubles: voxels, positions and normals follow them alike, and draws have the stated
 * range, probability and width. */
#include "fixtures/test.h"

#include "base/sp_rng.h"
#include "compute/sp_plan.h"
#include "data/sp_voxel.h"

/* columns: 1, then x, y, z in m by divisors, then a normal by divisors, z first */
enum { N = 2000, C = 7 };
#define PI 3.14159265358979323846

static const double edge = 0.25; /* of stored voxels in m */
static const sp_vectors vectors = {
    .n = 2,
    .at = {{.x = 1, .y = 2, .z = 3, .divisor = {2, 1, 4}, .is_position = true},
           {.x = 5, .y = 6, .z = 4, .divisor = {1, 2, 0.5}}}};

static sp_arena arena;
static int32_t coords[3 * N], labels[N];
static uint8_t subvoxel[3 * N];
static float features[C * N];
static sp_sample sample;
static double centre[3], mean[C], std[C]; /* centre of the box, in stored voxels */
static sp_augment aug;
static sp_voxels v;

BEFORE_ALL(create_arena)
{
    OK(sp_arena_create(&arena, (size_t)64 << 20, "test"));
}

/* The position of a row in stored voxels. */
static void place_of(int i, double p[3])
{
    for (int a = 0; a < 3; a++)
        p[a] = coords[3 * i + a] + (subvoxel[3 * i + a] + 0.5) / 256;
}

/* A cloud in a box of 60 x 50 x 20 voxels. */
static void begin(void)
{
    sp_rng rng = sp_rng_open(7, SP_RNG_SCENE, 0, 0);
    static const int32_t size[3] = {60, 50, 20};
    static const double divisor[3] = {2, 1, 4};
    double p[3];

    sp_arena_reset(&arena);
    for (int i = 0; i < N; i++) {
        for (int a = 0; a < 3; a++) {
            coords[3 * i + a] = -7 + (int32_t)(sp_rng_u32(&rng) % (uint32_t)size[a]);
            subvoxel[3 * i + a] = (uint8_t)sp_rng_u32(&rng);
        }
        for (int a = 0; a < 3 && i < 2; a++) /* the corners of the box */
            coords[3 * i + a] = -7 + i * (size[a] - 1);
        place_of(i, p);
        features[C * i] = 1;
        for (int a = 0; a < 3; a++)
            features[C * i + 1 + a] = (float)(p[a] * edge / divisor[a]);
        for (int a = 0; a < 3; a++)
            features[C * i + 4 + a] = 2 * sp_rng_to_unit(sp_rng_u32(&rng)) - 1;
        labels[i] = (int32_t)(sp_rng_u32(&rng) % 3);
    }
    for (int a = 0; a < 3; a++) {
        centre[a] = -7 + size[a] / 2.0;
        mean[1 + a] = centre[a] * edge / divisor[a];
    }
    for (int a = 0; a < C; a++)
        std[a] = 1;
    sample = (sp_sample){.id = 4,
                         .n = N,
                         .coords = coords,
                         .labels = labels,
                         .features = features,
                         .subvoxel = subvoxel};
    aug = sp_augment_none();
    aug.seed = 11;
    aug.epoch = 2;
    aug.sample = 4;
    aug.edge = edge;
    aug.vectors = &vectors;
}

static void rotate(double p[3], int from, int to, double angle)
{
    const double a = p[from], b = p[to];

    p[from] = cos(angle) * a - sin(angle) * b;
    p[to] = sin(angle) * a + cos(angle) * b;
}

/* Mirrors, turns and tilts a vector. */
static void turn(double p[3])
{
    p[0] *= aug.flip_x ? -1 : 1;
    p[1] *= aug.flip_y ? -1 : 1;
    rotate(p, 0, 1, aug.angle);
    rotate(p, 1, 2, aug.tilt_x);
    rotate(p, 2, 0, aug.tilt_y);
}

/* The position of a row in m about the centre, before its displacement. */
static void turned_place(int i, double p[3])
{
    place_of(i, p);
    for (int a = 0; a < 3; a++)
        p[a] -= centre[a];
    turn(p);
    for (int a = 0; a < 3; a++)
        p[a] *= aug.scale * edge;
}

/* ---- the smooth field ---- */

static double node_of(int distortion, const int64_t at[3], int axis)
{
    const sp_rng rng = sp_rng_open(aug.seed, SP_RNG_ELASTIC, aug.epoch, aug.sample);
    uint64_t node = (uint64_t)distortion;
    float normal[4];

    for (int a = 0; a < 3; a++)
        node = node << 20 | (uint64_t)(at[a] + (1 << 19));
    sp_rng_normals(&rng, 4 * node, 4, normal);
    return normal[axis];
}

static double smooth_node(int distortion, const int64_t at[3], int axis)
{
    static const double weight[5] = {1, 2, 3, 2, 1};
    double sum = 0;

    for (int k = 0; k < 125; k++) {
        const int d[3] = {k / 25, k / 5 % 5, k % 5};
        const int64_t node[3] = {at[0] + d[0] - 2, at[1] + d[1] - 2, at[2] + d[2] - 2};

        sum += weight[d[0]] * weight[d[1]] * weight[d[2]] / 729 *
               node_of(distortion, node, axis);
    }
    return sum;
}

/* The displacement of a place in m about the centre, by all distortions. */
static double elastic_at(const double p[3], int axis)
{
    double sum = 0;

    for (int k = 0; k < aug.elastic.n / 2; k++)
        for (int corner = 0; corner < 8; corner++) {
            double w = aug.elastic.at[2 * k + 1];
            int64_t node[3];

            for (int a = 0; a < 3; a++) {
                const double x = p[a] / aug.elastic.at[2 * k];
                const int up = corner >> a & 1;

                node[a] = (int64_t)floor(x) + up;
                w *= up ? x - floor(x) : 1 - (x - floor(x));
            }
            sum += w * smooth_node(k, node, axis);
        }
    return sum;
}

TEST_AFTER(begin, elastic_fields_are_smoothed_noise)
{
    double pairs[] = {0.5, 0.4, 2, 1.6}, p[3];
    const sp_rows rows = {.id = 4, .n = N, .coords = coords, .subvoxel = subvoxel};
    sp_moved moved;

    aug.angle = 0.4;
    aug.tilt_x = 0.1;
    aug.elastic = (sp_doubles){4, pairs};
    OK(sp_augment_move(&aug, &rows, 1, &arena, &moved));
    assert_true(moved.is_merged && moved.displacement);
    for (int i = 0; i < N; i += 13) {
        turned_place(i, p);
        for (int a = 0; a < 3; a++)
            assert_true(fabs(moved.displacement[3 * i + a] - elastic_at(p, a)) < 2e-5);
    }
}

/* Rows in another order get the same displacements: nothing depends on the cache. */
TEST_AFTER(begin, elastic_fields_do_not_depend_on_the_order)
{
    double pairs[] = {0.3, 1};
    sp_rows rows = {.id = 4, .n = N, .coords = coords, .subvoxel = subvoxel};
    static int32_t backwards[3 * N];
    static uint8_t sub_backwards[3 * N];
    sp_moved a, b;

    for (int i = 0; i < N; i++) {
        memcpy(backwards + 3 * i, coords + 3 * (N - 1 - i), 3 * sizeof *coords);
        memcpy(sub_backwards + 3 * i, subvoxel + 3 * (N - 1 - i), 3);
    }
    aug.elastic = (sp_doubles){2, pairs};
    OK(sp_augment_move(&aug, &rows, 1, &arena, &a));
    rows.coords = backwards;
    rows.subvoxel = sub_backwards;
    OK(sp_augment_move(&aug, &rows, 1, &arena, &b));
    for (int i = 0; i < N; i++)
        assert_memory_equal(a.displacement + 3 * i, b.displacement + 3 * (N - 1 - i),
                            12);
    aug.epoch++;
    OK(sp_augment_move(&aug, &rows, 1, &arena, &a));
    assert_memory_not_equal(a.displacement, b.displacement, 12 * N);
}

/* The averages of 25 nodes have the deviation (19 / 81)^(3 / 2) of one. */
TEST_AFTER(begin, elastic_fields_have_the_stated_width)
{
    double pairs[] = {edge, 1}, squares = 0, sum = 0;
    const sp_rows rows = {.id = 4, .n = N, .coords = coords, .subvoxel = subvoxel};
    sp_moved moved;

    memset(subvoxel, 128, sizeof subvoxel);
    for (int i = 0; i < 3 * N; i++) /* rows far apart, on nodes */
        coords[i] *= 6;
    OK((aug.elastic = (sp_doubles){2, pairs},
        sp_augment_move(&aug, &rows, 1, &arena, &moved)));
    for (int i = 0; i < 3 * N; i++) {
        sum += moved.displacement[i];
        squares += moved.displacement[i] * moved.displacement[i];
    }
    assert_true(fabs(sum / (3 * N)) < 0.01);
    /* between the width on nodes and in the middle of cells */
    assert_in_range((int)(1e4 * sqrt(squares / (3 * N))), 850, 1180);
}

/* ---- noise ---- */

TEST_AFTER(begin, noise_is_normal_and_clipped)
{
    const sp_rows rows = {.id = 4, .n = N, .coords = coords, .subvoxel = subvoxel};
    double sum = 0, squares = 0;
    sp_moved all, clipped;
    int n_clipped = 0;

    aug.noise = 0.005;
    OK(sp_augment_move(&aug, &rows, 1, &arena, &all));
    aug.noise_clip = 0.01;
    OK(sp_augment_move(&aug, &rows, 1, &arena, &clipped));
    for (int i = 0; i < 3 * N; i++) {
        const float d = all.displacement[i];

        sum += d;
        squares += d * d;
        n_clipped += fabsf(d) > 0.01F;
        assert_true(clipped.displacement[i] == fminf(fmaxf(d, -0.01F), 0.01F));
    }
    assert_true(fabs(sum / (3 * N)) < 3e-4);
    assert_true(fabs(sqrt(squares / (3 * N)) / 0.005 - 1) < 0.04);
    assert_in_range(n_clipped, (int)(0.034 * 3 * N), (int)(0.058 * 3 * N)); /* 4.6 % */
}

/* ---- voxels, positions and normals ---- */

/* Demands that voxels, positions and normals are where plain doubles put them. */
static void check_all(double factor)
{
    const sp_rows rows = {.id = 4, .n = N, .coords = coords, .subvoxel = subvoxel};
    static double sums[C * N];
    static int members[N];
    const double new_edge = factor * edge;
    sp_moved moved;
    int n_near = 0;

    aug.edge = new_edge;
    sp_arena_reset(&arena);
    OK(sp_voxelize(&sample, &aug, factor, C, mean, std, &arena, &v));
    OK(sp_augment_move(&aug, &rows, factor, &arena, &moved));
    memset(sums, 0, sizeof sums);
    memset(members, 0, sizeof members);
    for (int i = 0; i < N; i++) {
        static const int order[3] = {1, 2, 0}; /* of the normal's columns 4, 5, 6 */
        const int32_t row = v.row_of[i];
        double p[3], n[3];

        turned_place(i, p);
        members[row]++;
        for (int a = 0; a < 3; a++) {
            const double at = p[a] + centre[a] * edge + aug.shift[a] +
                              (moved.displacement ? moved.displacement[3 * i + a] : 0);
            const double cell = at / new_edge;

            if (fabs(cell - nearbyint(cell)) > 1e-6)
                assert_int_equal(v.coords[3 * row + a], (int)floor(cell));
            else
                n_near++;
            sums[C * row + a] += at - centre[a] * edge;
        }
        for (int a = 0; a < 3; a++) /* columns 5, 6, 4 are x, y, z */
            n[a] = features[C * i + 4 + order[a]] * vectors.at[1].divisor[a];
        turn(n);
        for (int a = 0; a < 3; a++)
            sums[C * row + 3 + a] += n[a];
    }
    assert_true(n_near < 10);
    for (int row = 0; row < v.n; row++) {
        const float *x = v.features + C * row;

        assert_true(x[0] == 1);
        for (int a = 0; a < 3; a++) {
            const sp_vector *q = &vectors.at[0], *n = &vectors.at[1];
            const int column = a == 0 ? n->x : a == 1 ? n->y : n->z;

            assert_true(fabs(x[1 + a] * q->divisor[a] -
                             sums[C * row + a] / members[row]) < 1e-5);
            assert_true(fabs(x[column] * n->divisor[a] -
                             sums[C * row + 3 + a] / members[row]) < 1e-5);
        }
    }
}

TEST_AFTER(begin, all_moves_together)
{
    double pairs[] = {0.5, 0.4, 2, 1.6};

    for (int k = 0; k < 32; k++) {
        aug.flip_x = k & 1;
        aug.angle = k & 2 ? 0.9 : 0;
        aug.tilt_x = k & 4 ? -0.2 : 0;
        aug.tilt_y = k & 4 ? 0.1 : 0;
        aug.scale = k & 2 ? 1.1 : 1;
        for (int a = 0; a < 3; a++)
            aug.shift[a] = k & 8 ? 0.3 - 0.21 * a : 0;
        aug.noise = k & 16 ? 0.1 : 0;
        aug.elastic = (sp_doubles){k & 16 ? 4 : 0, pairs};
        if (k >= 2)
            check_all(k % 3 == 1 ? 2 : 1);
    }
}

/* Where no vector is known features stay, and voxels move all the same. */
TEST_AFTER(begin, other_columns_stay)
{
    aug.vectors = NULL;
    aug.tilt_x = 0.3;
    aug.noise = 0.01;
    aug.shift[2] = 9;
    sample.n = 1;
    OK(sp_voxelize(&sample, &aug, 1, C, NULL, NULL, &arena, &v));
    assert_int_equal(v.n, 1);
    assert_memory_equal(v.features, features, C * sizeof *features);
}

/* The row of a sample without extent stays in its voxel but for shift and noise; it may
 * lie at any border of the range. */
TEST_AFTER(begin, one_voxel_and_none)
{
    double pairs[] = {1, 3};

    aug.elastic = (sp_doubles){2, pairs};
    aug.noise = 0.2;
    aug.tilt_y = 0.4;
    for (int k = 0; k < 8; k++) {
        for (int a = 0; a < 3; a++) {
            coords[a] = k >> a & 1 ? SP_COORD_LIMIT - 1 : -SP_COORD_LIMIT;
            aug.shift[a] = k >> a & 1 ? 1e9 : -1e9;
        }
        sample.n = 1;
        OK(sp_voxelize(&sample, &aug, 1, C, NULL, NULL, &arena, &v));
        assert_int_equal(v.n, 1);
        for (int a = 0; a < 3; a++)
            assert_in_range(v.coords[a] + SP_COORD_LIMIT, 0, 2 * SP_COORD_LIMIT - 1);
        sample.n = 0;
        OK(sp_voxelize(&sample, &aug, 1, C, NULL, NULL, &arena, &v));
        assert_int_equal(v.n, 0);
    }
    pairs[1] = 1e6;
    sample.n = 1;
    FAILS(sp_voxelize(&sample, &aug, 1, C, NULL, NULL, &arena, &v), SP_EDATA,
          "sample 4 is");
    SAYS("more than the coordinate range");
    pairs[1] = 1;
    sample.subvoxel = NULL;
    FAILS(sp_voxelize(&sample, &aug, 1, C, NULL, NULL, &arena, &v), SP_EDATA,
          "has no subvoxel");
}

/* The foreseen bytes hold what is taken. */
TEST_AFTER(begin, bytes_are_foreseen)
{
    double pairs[] = {0.3, 1};
    const sp_rows rows = {.id = 4, .n = N, .coords = coords, .subvoxel = subvoxel};
    sp_arena small;
    sp_moved moved;

    aug.noise = 0.01;
    aug.elastic = (sp_doubles){2, pairs};
    /* alignment of four arrays */
    OK(sp_arena_create(&small, (size_t)sp_augment_bytes(N, true) + 4 * 256, "test"));
    OK(sp_augment_move(&aug, &rows, 1, &small, &moved));
    sp_arena_destroy(&small);
}

/* ---- draws ---- */

static sp_config plain(void)
{
    return (sp_config){.data.voxel_size = 0.05,
                       .augment.rotate_max = 180,
                       .augment.rotate_p = 1,
                       .augment.tilt_p = 1,
                       .augment.elastic_p = 1,
                       .augment.drop_p = 1};
}

enum { DRAWS = 4000 };

TEST(draws_have_range_and_probability)
{
    double pairs[] = {0.2, 0.4}, most = 0, tilt = 0, squares = 0;
    sp_config c = plain();
    int turns = 0, tilts_x = 0, both = 0, drops = 0, elastics = 0;

    c.augment.rotate_z = true;
    c.augment.rotate_max = 30;
    c.augment.rotate_p = 0.5;
    c.augment.tilt = 180.0 / 64;
    c.augment.tilt_p = 0.5;
    c.augment.shift = 0.1;
    c.augment.drop = 0.2;
    c.augment.drop_p = 0.2;
    c.augment.noise = 0.005;
    c.augment.noise_clip = 0.02;
    c.augment.elastic = (sp_doubles){2, pairs};
    c.augment.elastic_p = 0.95;
    for (int i = 0; i < DRAWS; i++) {
        const sp_augment a = sp_augment_draw(&c, true, 1, 2, i);

        turns += a.angle != 0;
        tilts_x += a.tilt_x != 0;
        both += a.tilt_x != 0 && a.tilt_y != 0;
        drops += a.drop > 0;
        elastics += a.elastic.n > 0;
        assert_true(a.drop == 0 || a.drop == 0.2);
        assert_true(a.noise == 0.005 && a.noise_clip == 0.02 && a.edge == 0.05);
        most = fmax(most, fabs(a.angle));
        tilt = fmax(tilt, fmax(fabs(a.tilt_x), fabs(a.tilt_y)));
        for (int k = 0; k < 3; k++)
            squares += a.shift[k] * a.shift[k];
    }
    assert_in_range(turns, 1870, 2130); /* 4 sigma and more */
    assert_in_range(tilts_x, 1870, 2130);
    assert_in_range(both, 880, 1120); /* independent of each other */
    assert_in_range(drops, 690, 910);
    assert_in_range(elastics, 3740, 3860);
    assert_true(most <= PI / 6 && most > 0.99 * PI / 6);
    assert_true(tilt <= PI / 64 && tilt > 0.99 * PI / 64);
    assert_true(fabs(sqrt(squares / (3 * DRAWS)) - 0.1) < 0.003);
}

/* Without subvoxel positions a sample stays on its grid. */
TEST(draws_stay_on_the_grid_without_subvoxel)
{
    static const struct {
        double most;
        int quarters; /* a bit for each of -1, 0, 1 and 2 quarter turns */
    } cases[] = {{45, 2}, {90, 7}, {179, 7}, {180, 15}};
    double pairs[] = {0.2, 0.4};
    sp_config c = plain();

    c.augment.rotate_z = true;
    c.augment.tilt = 10;
    c.augment.shift = 1;
    c.augment.noise = 1;
    c.augment.elastic = (sp_doubles){2, pairs};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int seen = 0;

        c.augment.rotate_max = cases[k].most;
        for (int i = 0; i < 100; i++) {
            const sp_augment a = sp_augment_draw(&c, false, 1, 2, i);
            const int quarter = (int)nearbyint(a.angle / (PI / 2));

            assert_true(fabs(a.angle - quarter * (PI / 2)) < 1e-12);
            assert_true(a.tilt_x == 0 && a.tilt_y == 0 && a.shift[0] == 0);
            assert_true(a.noise == 0 && a.elastic.n == 0);
            seen |= 1 << ((quarter + 1) & 3);
        }
        assert_int_equal(seen, cases[k].quarters);
    }
}

/* A draw depends on seed, epoch and sample, and on no key but its own. */
TEST(draws_do_not_disturb_each_other)
{
    double range[] = {0.9, 1.1};
    sp_config c = plain(), d;
    sp_augment a, b;

    c.augment.rotate_z = c.augment.flip = true;
    c.augment.scale = (sp_doubles){2, range};
    d = c;
    d.augment.tilt = 5;
    d.augment.shift = 2;
    d.augment.noise = 1;
    d.augment.drop = 0.5;
    d.augment.drop_p = 0.5;
    for (int i = 0; i < 100; i++) {
        a = sp_augment_draw(&c, true, 5, 6, i);
        b = sp_augment_draw(&d, true, 5, 6, i);
        assert_true(a.angle == b.angle && a.scale == b.scale);
        assert_true(a.flip_x == b.flip_x && a.flip_y == b.flip_y);
        a = sp_augment_draw(&d, true, 5, 7, i);
        assert_true(a.tilt_x != b.tilt_x && a.shift[1] != b.shift[1]);
    }
}

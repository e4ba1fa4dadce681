/* Gridding agrees with a quadratic reference, and its cost columns with plain counting.
 */
#include "fixtures/test.h"

#include "base/sp_rng.h"
#include "compute/sp_backend.h"
#include <unistd.h>

#include "scan/sp_gridding.h"

enum { N = 1500, C = 2 };

static double xyz[3 * N];
static float features[C * N];
static int32_t label[N];
static uint64_t source_row[N];
static uint8_t is_owned[N];

static sp_points points; /* of the test */

static void make_points(void)
{
    sp_rng rng = sp_rng_open(1, SP_RNG_SCENE, 0, 0);

    for (int i = 0; i < N; i++) {
        for (int a = 0; a < 3; a++)
            xyz[3 * i + a] = 1e6 + sp_rng_uniform(&rng, -2, a == 2 ? 1 : 3);
        for (int a = 0; a < C; a++)
            features[C * i + a] = (float)sp_rng_unit(&rng);
        label[i] = (int32_t)(sp_rng_u32(&rng) % 4) - 1;
        source_row[i] = 7 * (uint64_t)i;
        is_owned[i] = sp_rng_u32(&rng) % 3 > 0;
    }
    points = (sp_points){.n = N,
                         .xyz = xyz,
                         .features = features,
                         .c = C,
                         .label = label,
                         .index = source_row};
}

static const sp_grid_options options = {
    .voxel_size = 0.5, .origin = {1e6, 1e6, 1e6}, .with_points = true};

static void voxel_of(int i, int32_t c[3])
{
    for (int a = 0; a < 3; a++)
        c[a] = (int32_t)floor((xyz[3 * i + a] - 1e6) / 0.5);
}

static int find_row(const sp_sample *s, const int32_t c[3])
{
    int found = -1;

    for (int row = 0; row < s->n; row++)
        if (memcmp(s->coords + 3 * row, c, 12) == 0) {
            assert_int_equal(found, -1); /* unique */
            found = row;
        }
    return found;
}

/* Recomputes one voxel from all points. */
static void check_row(const sp_grid *grid, int row, bool ignore_conflicts)
{
    const sp_sample *s = &grid->sample;
    double at[3] = {0, 0, 0}, f[C] = {0, 0};
    int votes[3] = {0, 0, 0}, n = 0, kinds = 0, winner = SP_IGNORE, best = 0;
    int32_t c[3];

    for (int i = 0; i < N; i++) {
        voxel_of(i, c);
        if (memcmp(c, s->coords + 3 * row, 12) != 0)
            continue;
        n++;
        for (int a = 0; a < 3; a++)
            at[a] += (xyz[3 * i + a] - 1e6) / 0.5 - c[a];
        for (int a = 0; a < C; a++)
            f[a] += features[C * i + a];
        if (label[i] >= 0)
            votes[label[i]]++;
    }
    assert_int_equal(grid->count[row], n);
    for (int a = 0; a < 3; a++) {
        assert_int_equal(s->subvoxel[3 * row + a], (int)floor(at[a] / n * 256));
        kinds += votes[a] > 0;
        if (votes[a] > best)
            best = votes[a], winner = a;
        else if (best && votes[a] == best)
            winner = SP_IGNORE;
    }
    for (int a = 0; a < C; a++)
        assert_true(fabs(s->features[C * row + a] - f[a] / n) < 1e-6);
    assert_int_equal(s->labels[row],
                     ignore_conflicts && kinds > 1 ? SP_IGNORE : winner);
}

TEST_AFTER(make_points, rows_equal_the_reference)
{
    sp_grid_options o = options;
    CLOSED_BY(sp_grid_destroy) sp_grid grid = {0};
    int row;
    int32_t c[3];

    for (int is_second = 0; is_second < 2; is_second++) {
        o.ignore_conflicts = is_second;
        OK(sp_grid_points(&grid, &points, &o));
        assert_int_equal(grid.sample.n_points, N);
        for (int i = 0; i < N; i++) {
            voxel_of(i, c);
            row = find_row(&grid.sample, c);
            assert_true(row >= 0);
            assert_int_equal(grid.sample.point_voxel[i], row);
            assert_int_equal(grid.sample.point_labels[i], label[i]);
            assert_int_equal(grid.sample.point_index[i], 7 * i);
        }
        for (row = 0; row < grid.sample.n; row++)
            check_row(&grid, row, o.ignore_conflicts);
    }
}

TEST_AFTER(make_points, context_points_leave_the_map)
{
    CLOSED_BY(sp_grid_destroy) sp_grid grid = {0}, all = {0};
    int64_t at = 0;

    OK(sp_grid_points(&all, &points, &options));
    points.is_owned = is_owned;
    OK(sp_grid_points(&grid, &points, &options));
    assert_int_equal(grid.sample.n, all.sample.n);
    for (int64_t i = 0; i < N; i++)
        if (is_owned[i]) {
            assert_int_equal(grid.sample.point_voxel[at], all.sample.point_voxel[i]);
            assert_int_equal(grid.sample.point_index[at++], 7 * i);
        }
    assert_int_equal(grid.sample.n_points, at);
}

/* Some of the points find the voxels that all have made; a point elsewhere finds no voxel. */
TEST_AFTER(make_points, points_find_known_voxels)
{
    CLOSED_BY(sp_grid_destroy) sp_grid all = {0}, some = {0};
    const sp_sample *s = &all.sample;

    OK(sp_grid_points(&all, &points, &options));
    OK(sp_grid_reserve(&some, s->n));
    memcpy(some.sample.coords, s->coords, 3 * (size_t)s->n * sizeof *s->coords);
    points.n = N / 3;
    points.features = NULL;
    OK(sp_grid_locate(&some, &points, &options));
    assert_int_equal(some.sample.n, s->n);
    assert_int_equal(some.sample.n_points, N / 3);
    for (int i = 0; i < N / 3; i++) {
        assert_int_equal(some.sample.point_voxel[i], s->point_voxel[i]);
        assert_int_equal(some.sample.point_index[i], 7 * i);
    }
    xyz[3 * (N / 3) - 1] += 5;
    assert_int_equal(sp_grid_locate(&some, &points, &options), SP_EDATA);
    assert_non_null(strstr(sp_error_last()->message, "was not in the scan when"));
}

static void swap(void *a, void *b, size_t bytes)
{
    char kept[3 * sizeof *xyz];

    memcpy(kept, a, bytes);
    memcpy(a, b, bytes);
    memcpy(b, kept, bytes);
}

/* Rows and everything in them do not depend on the order of the points. */
TEST_AFTER(make_points, order_of_points_does_not_matter)
{
    CLOSED_BY(sp_grid_destroy) sp_grid a = {0}, b = {0};

    OK(sp_grid_points(&a, &points, &options));
    for (int i = 0, j = N - 1; i < j; i++, j--) {
        swap(xyz + 3 * i, xyz + 3 * j, 3 * sizeof *xyz);
        swap(features + C * i, features + C * j, C * sizeof *features);
        swap(label + i, label + j, sizeof *label);
    }
    OK(sp_grid_points(&b, &points, &options));
    assert_int_equal(a.sample.n, b.sample.n);
    assert_memory_equal(a.sample.coords, b.sample.coords, (size_t)a.sample.n * 12);
    assert_memory_equal(a.sample.labels, b.sample.labels, (size_t)a.sample.n * 4);
}

/* Points on faces belong to the voxel above, below 0 too, and `begin` is subtracted. */
TEST(faces_belong_to_the_voxel_above)
{
    enum { FACES = 9 };
    const sp_grid_options o = {
        .voxel_size = 0.5, .begin = {-3, 2, SP_COORD_LIMIT}, .with_points = true};
    CLOSED_BY(sp_grid_destroy) sp_grid grid = {0};
    double at[3 * FACES];

    for (int i = 0; i < FACES; i++) {
        at[3 * i] = 0.5 * (i - 5);
        at[3 * i + 1] = nextafter(0.5 * (i - 5), -INFINITY);
        at[3 * i + 2] = 0.25 * i;
    }
    OK(sp_grid_points(&grid, &(sp_points){.n = FACES, .xyz = at}, &o));
    assert_int_equal(grid.sample.n, FACES);
    for (int i = 0; i < FACES; i++) {
        const int32_t *c = grid.sample.coords + 3 * grid.sample.point_voxel[i];

        assert_int_equal(c[0], i - 5 + 3);
        assert_int_equal(c[1], i - 6 - 2);
        assert_int_equal(c[2], i / 2 - SP_COORD_LIMIT);
    }
}

/* With a point far away nearly all points are in one bucket, which is sorted by longer
 * digits than small ones. */
TEST(rows_are_sorted_with_a_point_far_away_too)
{
    enum { MANY = 9001 };
    const int32_t least[3] = {-SP_COORD_LIMIT, -SP_COORD_LIMIT, -SP_COORD_LIMIT};
    const sp_grid_options o = {.voxel_size = 0.5, .with_points = true};
    CLOSED_BY(sp_grid_destroy) sp_grid grid = {0};
    static double at[3 * MANY];
    sp_rng rng = sp_rng_open(2, SP_RNG_SCENE, 0, 0);
    int64_t n = 0;

    for (int i = 0; i < 3 * MANY; i++)
        at[i] = sp_rng_uniform(&rng, 0, 12);
    at[0] = 2e5;
    OK(sp_grid_points(&grid, &(sp_points){.n = MANY, .xyz = at}, &o));
    for (int64_t i = 0; i < grid.sample.n; i++) {
        const int32_t *c = grid.sample.coords + 3 * i;

        assert_true(i == 0 || sp_morton_key(c - 3, least) < sp_morton_key(c, least));
        n += grid.count[i];
    }
    assert_int_equal(n, MANY);
    for (int i = 0; i < MANY; i++)
        for (int a = 0; a < 3; a++)
            assert_int_equal(grid.sample.coords[3 * grid.sample.point_voxel[i] + a],
                             (int32_t)floor(at[3 * i + a] / 0.5));
}

/* The first point outside is refused by its number and value, within an incomplete group
 * of points that are located together too. */
TEST(a_point_outside_is_refused_by_number)
{
    static double at[3 * 1000];
    const sp_grid_options o = {.voxel_size = 0.5};
    CLOSED_BY(sp_grid_destroy) sp_grid grid = {0};

    for (int n = 701; n <= 705; n++) {
        at[3 * (n - 1) + 1] = -3e6;
        assert_int_equal(sp_grid_points(&grid, &(sp_points){.n = 1000, .xyz = at}, &o),
                         SP_EDATA);
        assert_int_equal(sp_grid_points(&grid, &(sp_points){.n = n, .xyz = at}, &o),
                         SP_EDATA);
        assert_non_null(
            strstr(sp_error_last()->message, ": y = -3000000 m lies outside the grid"));
        assert_int_equal(strtol(sp_error_last()->message + strlen("point "), NULL, 10),
                         n - 1);
        at[3 * (n - 1) + 1] = n % 2 ? NAN : INFINITY;
        assert_int_equal(sp_grid_points(&grid, &(sp_points){.n = n, .xyz = at}, &o),
                         SP_EDATA);
        at[3 * (n - 1) + 1] = 0;
    }
    OK(sp_grid_points(&grid, &(sp_points){.n = 1000, .xyz = at}, &o));
    assert_int_equal(grid.sample.n, 1);
}

static int32_t floor_to(int32_t c, int s)
{
    return (int32_t)floor((double)c / s) * s;
}

TEST_AFTER(make_points, cost_equals_plain_counting)
{
    CLOSED_BY(sp_grid_destroy) sp_grid grid = {0};
    const int32_t *c;
    int64_t cost[SP_COST_COLUMNS], n, pairs = 0;
    int j, a;

    OK(sp_grid_points(&grid, &points, &options));
    c = grid.sample.coords;
    n = grid.sample.n;
    for (int level = 0; level < 5; level++) {
        int64_t distinct = 0;

        for (int i = 0; i < n; i++) {
            for (j = 0; j < i; j++) {
                for (a = 0; a < 3; a++)
                    if (floor_to(c[3 * i + a], 1 << level) !=
                        floor_to(c[3 * j + a], 1 << level))
                        break;
                if (a == 3)
                    break;
            }
            distinct += j == i;
        }
        assert_int_equal(grid.cost[level], distinct);
    }
    for (int i = 0; i < n; i++)
        for (j = 0; j < n; j++)
            pairs += abs(c[3 * i] - c[3 * j]) <= 1 &&
                     abs(c[3 * i + 1] - c[3 * j + 1]) <= 1 &&
                     abs(c[3 * i + 2] - c[3 * j + 2]) <= 1;
    assert_int_equal(grid.cost[5], pairs);
    OK(sp_grid_cost(c, n, cost));
    assert_memory_equal(cost, grid.cost, sizeof cost);
}

TEST_AFTER(make_points, limits_of_the_grid)
{
    const int32_t ends[6] = {-SP_COORD_LIMIT, 0, 0, SP_COORD_LIMIT - 1, 0, 0};
    int64_t cost[SP_COST_COLUMNS];
    CLOSED_BY(sp_grid_destroy) sp_grid grid = {0};

    xyz[0] = 1e6 - 0.5 * SP_COORD_LIMIT; /* just inside */
    xyz[3] = 1e6 + 0.5 * SP_COORD_LIMIT - 0.01;
    OK(sp_grid_points(&grid, &points, &options));
    OK(sp_grid_cost(ends, 2, cost));
    assert_int_equal(cost[5], 2); /* the ends of the grid are no neighbours */
    xyz[3] += 0.01;
    FAILS(sp_grid_points(&grid, &points, &options), SP_EDATA, "point 7: x = ");
    xyz[3] = NAN;
    assert_int_equal(sp_grid_points(&grid, &points, &options), SP_EDATA);
    points.n = 0;
    OK(sp_grid_points(&grid, &points, &options));
    assert_int_equal(grid.sample.n, 0);
    assert_int_equal(grid.cost[0], 0);
    assert_int_equal(grid.cost[5], 0);
}

/* The Morton keys of these voxels meet in one place of a table that is addressed by a
 * publicly known multiplication; counting them in such a table would take hours. */
TEST(chosen_voxels_take_no_longer)
{
    enum { CHOSEN = 400000 };
    int32_t(*c)[3] = calloc(CHOSEN, sizeof *c);
    int64_t cost[SP_COST_COLUMNS];
    uint64_t inverse = 1, factor = 0x9e3779b97f4a7c15u;
    int n = 0;

    assert_non_null(c);
    for (int i = 0; i < 6; i++) /* Newton's method */
        inverse *= 2 - factor * inverse;
    for (uint64_t high = 0; n < CHOSEN; high++) {
        uint64_t key = (high << 40 | (high * 0x2545f4914f6cdd1du >> 44)) * inverse;

        if (key >> 60)
            continue;
        for (int b = 0; b < 60; b++)
            c[n][b % 3] |= (int32_t)(key >> b & 1) << b / 3;
        for (int a = 0; a < 3; a++)
            c[n][a] -= SP_COORD_LIMIT;
        n++;
    }
    alarm(100);
    OK(sp_grid_cost(c[0], CHOSEN, cost));
    alarm(0);
    assert_int_equal(cost[0], CHOSEN);
    assert_true(cost[5] >= CHOSEN);
    free(c);
}

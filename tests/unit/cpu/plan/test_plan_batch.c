/* In a plan samples are independent of each other, bad coordinates are named, and the
 * arena holds the plan and no more. */
#include "fixtures/test.h"

#include "cpu/cpu.h"
#include "reference/plan_oracle.h"
#include "unit/cpu/plan/plan_backend.h"

static sp_status build(const sp_plan_spec *spec, const int32_t *coords,
                       const int32_t *sample_row, int n_samples, sp_plan *plan)
{
    return backend.ops->plan_build(&backend, spec, coords, sample_row, n_samples,
                                   &arena, plan);
}

static sp_plan_spec mixed_spec(void)
{
    sp_plan_spec s = {0};

    oracle_map(&s, 0, 0, 5, 0);
    oracle_map(&s, 0, 0, 3, 0);
    oracle_map(&s, 0, 1, 2, 0);
    oracle_map(&s, 1, 0, 3, 0);
    oracle_map(&s, 1, 2, 3, 0);
    oracle_map(&s, 2, 2, 7, 0);
    return s;
}

/* The rows of sample b begin at `in` and `out` in the batch's levels, and at 0 in its
 * plan alone. */
static void assert_shifted(const sp_map *all, int b, const sp_map *one, int32_t in,
                           int32_t out)
{
    int first = all->sample_tile[b];

    assert_int_equal(all->sample_tile[b + 1] - first, one->n_tiles);
    for (int t = 0; t < one->n_tiles; t++) {
        assert_int_equal(all->tile_row[first + t], one->tile_row[t] + out);
        for (int k = 0; k < one->K; k++) {
            int32_t i = all->start[(first + t) * all->K + k],
                    j = one->start[t * one->K + k];
            int32_t n = one->start[t * one->K + k + 1] - j;
            assert_int_equal(all->start[(first + t) * all->K + k + 1] - i, n);
            while (n-- > 0) {
                assert_int_equal(all->in[i], one->in[j] + in);
                assert_int_equal(all->out[i++], one->out[j++] + out);
            }
        }
    }
}

/* Three samples of very different extents have the same plan in one batch and alone. */
TEST(sample_does_not_depend_on_the_batch)
{
    enum { N0 = 1100, N1 = 30, N2 = 900 };
    static int32_t c[(N0 + N1 + N2) * 3];
    int32_t row[4] = {0, N0, N0 + N1, N0 + N1 + N2}, at[3] = {70000, 3, -9};
    sp_plan_spec spec = mixed_spec();
    sp_plan all, one;

    oracle_surface(c, N0, at, 1);
    oracle_scatter(c + 3 * N0, N1, -SP_COORD_LIMIT, SP_COORD_LIMIT, 2);
    oracle_scatter(c + 3 * (N0 + N1), N2, -8, 6, 3);
    sp_arena_reset(&arena);
    OK(build(&spec, c, row, 3, &all));
    for (int b = 0; b < 3; b++) {
        int32_t alone[2] = {0, row[b + 1] - row[b]};
        OK(build(&spec, c + 3 * row[b], alone, 1, &one));
        for (int m = 0; m < spec.n_maps; m++) {
            const sp_level *in = &all.level[spec.map[m].level_in];
            const sp_level *out = &all.level[spec.map[m].level_out];
            assert_shifted(&all.map[m], b, &one.map[m], in->sample_row[b],
                           out->sample_row[b]);
        }
    }
}

static void assert_bad(const int32_t *c, int32_t n0, int32_t n1, const char *message)
{
    int32_t row[3] = {0, n0, n0 + n1};
    sp_plan_spec spec = mixed_spec();
    sp_plan plan;

    sp_arena_reset(&arena);
    assert_int_equal(build(&spec, c, row, 2, &plan), SP_EDATA);
    assert_string_equal(sp_error_last()->message, message);
}

TEST(duplicate_is_named)
{
    enum { N = 500 };
    static int32_t big[(2 + N) * 3];
    int32_t c[15] = {1, 2, 3, 5, 5, -5, 0, 0, 0, 5, 5, -5, 9, 9, 9};
    int32_t lo = -SP_COORD_LIMIT;

    assert_bad(
        c, 0, 5,
        "sample 1 of the batch: coordinate (5, 5, -5) occurs twice, in rows 1 and 3");
    /* Keys of 60 bits are tested too. */
    oracle_scatter(big + 6, N, lo, SP_COORD_LIMIT, 1);
    big[0] = big[1] = big[2] = lo;
    memcpy(big + 6 + 3 * 100, big + 6 + 3 * 400, 12);
    assert_int_equal(big[6 + 300], big[6 + 1200]);
    {
        char message[200];
        const int32_t *at = big + 6 + 300;
        snprintf(
            message, sizeof message,
            "sample 1 of the batch: coordinate (%d, %d, %d) occurs twice, in rows 100 "
            "and 400",
            at[0], at[1], at[2]);
        big[3] = big[0], big[4] = big[1], big[5] = SP_COORD_LIMIT - 1;
        assert_bad(big, 2, N, message);
    }
}

TEST(coordinate_out_of_range_is_named)
{
    int32_t c[6] = {0, 0, 0, 1, SP_COORD_LIMIT, 1}, d[6] = {0, 0, -SP_COORD_LIMIT - 1};

    assert_bad(c, 2, 0,
               "sample 0 of the batch: coordinate y spans [0, 524288], expected within "
               "[-524288, 524288)");
    assert_bad(
        d, 0, 2,
        "sample 1 of the batch: coordinate z spans [-524289, 0], expected within "
        "[-524288, 524288)");
}

/* A plan takes at most the memory that is foreseen: of the arena a few KiB less, of the
 * scratch memory a tenth and a constant that does not depend on the batch. */
static void check_bytes(const sp_plan_spec *spec, const int32_t *c, int32_t n)
{
    enum { SLACK = 8 << 10, STREAM = 256 << 10 };
    int32_t row[2] = {0, n};
    sp_plan_counts counts;
    int64_t kept, meanwhile;
    CLOSED_BY(sp_arena_destroy) sp_arena scratch;
    sp_plan plan;

    OK(sp_arena_create(&scratch, 0, "scratch"));
    sp_arena_reset(&arena);
    arena.high = 0;
    arena.scratch = &scratch;
    OK(build(spec, c, row, 1, &plan));
    arena.scratch = NULL;
    counts = sp_plan_count(&plan);
    kept = sp_cpu_plan_bytes(spec, &counts).arena;
    meanwhile = sp_cpu_plan_bytes(spec, &counts).scratch;
    assert_in_range(arena.used, kept - SLACK, kept);
    assert_in_range(arena.high, arena.used, arena.used + STREAM);
    assert_in_range(scratch.high + STREAM, meanwhile - meanwhile / 10,
                    meanwhile + STREAM);
    assert_int_equal(scratch.used, 0);
    oracle_check(spec, c, row, 1, &plan);
}

TEST(plans_take_what_is_foreseen)
{
    enum { N = 20000, EDGE = 27 };
    static int32_t c[N * 3];
    int32_t at[3] = {0, 0, 0};
    sp_plan_spec spec = mixed_spec(), children = {0}, cubes = {0};
    sp_plan_spec dilated = oracle_dilated_spec(0);

    oracle_map(&children, 0, 1, 2, 0); /* no tables */
    oracle_map(&children, 1, 0, 2, 0);
    oracle_map(&cubes, 0, 0, 3, 0);
    oracle_map(&cubes, 1, 1, 3, 0);
    oracle_surface(c, N, at, 7);
    check_bytes(&spec, c, N);
    check_bytes(&children, c, N);
    check_bytes(&cubes, c, N);
    check_bytes(&dilated, c, N);
    for (int i = 0; i < N; i++) { /* isolated voxels: every level has as many */
        c[3 * i] = i % EDGE * 64;
        c[3 * i + 1] = i / EDGE % EDGE * 64;
        c[3 * i + 2] = i / EDGE / EDGE * 64;
    }
    check_bytes(&cubes, c, N);
    for (int i = 0; i < 3 * N; i++)
        c[i] /= 64; /* a block without holes */
    check_bytes(&cubes, c, N);
}

TEST(full_arena_is_an_error)
{
    enum { N = 20000 };
    static int32_t c[N * 3];
    int32_t row[2] = {0, N}, at[3] = {0, 0, 0};
    sp_plan_spec spec = mixed_spec();
    sp_arena small;
    sp_plan plan;

    oracle_surface(c, N, at, 7);
    OK(backend.ops->arena_create(&small, 1 << 20, "small"));
    assert_int_equal(backend.ops->plan_build(&backend, &spec, c, row, 1, &small, &plan),
                     SP_EMEM);
    backend.ops->arena_destroy(&small);
}

/* A hash search over coordinates finds every level, tile and pair of a plan, and no
 * others. */
#include "fixtures/test.h"

#include "cpu/cpu.h"
#include "fixtures/plan_samples.h"
#include "unit/cpu/plan/plan_backend.h"

/* The plan is built by the code that this processor chooses, and without vector
 * code. */
static void check(const sp_plan_spec *spec, batch *b)
{
    sp_plan plan, portable;

    sp_arena_reset(&arena);
    OK(backend.ops->plan_build(&backend, spec, b->coords, b->row, b->n_samples, &arena,
                               &plan));
    oracle_check(spec, b->coords, b->row, b->n_samples, &plan);
    OK(sp_cpu_plan_build_portable(&backend, spec, b->coords, b->row, b->n_samples,
                                  &arena, &portable));
    oracle_same(&plan, &portable);
}

/* Maps of one kernel, whose pairs no larger kernel's map has. */
static void add_kernel(sp_plan_spec *s, int n)
{
    oracle_map(s, 0, 0, n, 0);
    oracle_map(s, 0, 0, n, 1);
    oracle_map(s, 1, 1, n, 0);
    oracle_map(s, 0, 1, n, 0);
    oracle_map(s, 1, 0, n, 0);
    oracle_map(s, 1, 3, n, 0);
    oracle_map(s, 3, 1, n, 0);
}

/* Kernels and strides that no family uses. */
static sp_plan_spec odd_spec(void)
{
    sp_plan_spec s = {0};

    for (int n = 1; n <= SP_MAX_KERNEL; n++)
        add_kernel(&s, n);
    oracle_map(&s, 0, 6, 7, 0);
    oracle_map(&s, 6, 0, 7, 0);
    oracle_map(&s, 0, 11, 3, 0);
    oracle_map(&s, 11, 0, 3, 0);
    return s;
}

TEST(families)
{
    sp_plan_spec spec[3] = {oracle_dummy_spec(), oracle_minkunet_spec(5),
                            oracle_minkunet_spec(3)};
    batch b = mixed_batch(1300, 513, 400);

    for (int i = 0; i < 3; i++)
        check(&spec[i], &b);
}

TEST(odd_kernels_and_strides)
{
    sp_plan_spec spec = odd_spec();
    batch b = mixed_batch(1300, 513, 400);

    check(&spec, &b);
}

TEST(each_kernel_by_itself)
{
    batch b = mixed_batch(1300, 513, 400);

    for (int n = 1; n <= SP_MAX_KERNEL; n++) {
        sp_plan_spec spec = {0};

        add_kernel(&spec, n);
        check(&spec, &b);
    }
}

TEST(dense_block_fills_every_offset)
{
    sp_plan_spec spec = odd_spec();
    batch b = dense_batch(10);

    check(&spec, &b);
}

TEST(nothing)
{
    sp_plan_spec spec[2] = {odd_spec(), oracle_minkunet_spec(5)};
    batch none = {0}, empty = empty_batch();

    for (int i = 0; i < 2; i++) {
        check(&spec[i], &none);
        check(&spec[i], &empty);
    }
}

/* Keys of 60 bits do not fit into one word with the row. Corners stand on every border
 * of the range. */
TEST(whole_range)
{
    sp_plan_spec spec[3] = {odd_spec(), oracle_minkunet_spec(5), oracle_dummy_spec()};
    int32_t lo = -SP_COORD_LIMIT, hi = SP_COORD_LIMIT - 1, corner[16][3];
    batch b = {0};

    corners(corner);
    batch_add(&b, corner[0], 16);
    batch_add(&b, corner[0], 16); /* equal, and roots that would touch side by side */
    add_scatter(&b, 700, lo, hi + 1);
    add_surface(&b, 50, lo, lo, lo);
    add_scatter(&b, 20, lo, hi + 1);
    for (int32_t i = 0; i < 3; i++)
        check(&spec[i], &b);
}

TEST(levels_that_a_kernel_generates)
{
    const int32_t grid[] = {0, 10, 5};
    batch b = mixed_batch(1300, 513, 400), dense = dense_batch(10);
    batch none = {0}, empty = empty_batch();

    for (int i = 0; i < 3; i++) {
        sp_plan_spec spec = oracle_dilated_spec(grid[i]);

        check(&spec, &b);
        check(&spec, &dense);
        check(&spec, &none);
        check(&spec, &empty);
    }
}

/* A voxel on the upper border reaches one beyond the range of coordinates. */
TEST(generated_levels_of_the_whole_range)
{
    sp_plan_spec spec = oracle_dilated_spec(0);
    int32_t lo = -SP_COORD_LIMIT, hi = SP_COORD_LIMIT - 1, corner[16][3];
    batch b = {0};

    corners(corner);
    batch_add(&b, corner[0], 16);
    add_scatter(&b, 700, lo, hi + 1);
    batch_add(&b, corner[0], 16);
    check(&spec, &b);
}

/* Batch norm, activations, dropout and pooling on the CUDA backend agree with plain
 * loops over channels, rows, pitches, slopes and element types: the largest error over
 * max(1, largest value) is at most 1e-6, of sums in double 1e-11; dropout, maxima,
 * broadcasts and copies are equal bit for bit. In bf16 both begin from the same
 * numbers, and results differ by their rounding, 2^-8. */
#include "fixtures/test.h"

#include "gpu/cuda_fixture.h"

/* ---- coefficients ahead of a pass ---- */

enum { FLOATS = 10 }; /* of a channel: constants, coefficients, gradients */

/* The parts of a sum over rows, [n_parts][2][c]: as of rows of unit variance. */
static double *draw_parts(int n_parts, int c)
{
    double *part = test_alloc(((size_t)n_parts * 2 * (size_t)c + 1) * sizeof *part);

    for (int i = 0; i < n_parts * 2 * c; i++)
        part[i] = i / c % 2 ? 100 + i % 7 : 1.0 / (i % 11 - 5.5);
    return part;
}

/* A forward or backward pass over the elements of a norm, whose coefficients are asked
 * for in the same call or were computed by an operation of their own. */
typedef struct pass {
    int n, c, n_parts;
    bool is_bf16, is_grad, is_one_call;
    bool has_own;     /* backward: the sums of this rank are others than all ranks' */
    double tolerance; /* 0: the same bits */
} pass;

static void finish(op_results *r, const void *of)
{
    const pass *s = of;
    sp_backend *be = r->be;
    const int c = s->c;
    double *part = draw_parts(s->n_parts, c);
    const sp_tensor x = op_operand(r, s->n, c, c, 1);
    const sp_tensor y = op_result(r, "rows", s->tolerance, s->n, c, c);
    float *p =
        op_result_fp32(r, "floats of the norm", s->tolerance, 1, FLOATS * c, FLOATS * c)
            .data;
    const sp_sums sums = {
        op_copy(r, part, ((size_t)(s->n_parts * 2 * c) + 1) * sizeof *part), s->n_parts,
        100.0 * s->n_parts};
    const sp_sums own = {s->has_own ? op_copy(r, part + 1, 2 * (size_t)c * sizeof *part)
                                    : sums.part,
                         s->has_own ? 1 : s->n_parts, sums.n_rows};
    const sp_norm_finish_args forward = {c,         1e-3,      0.02,      sums,
                                         p,         p + c,     p + 2 * c, p + 3 * c,
                                         p + 4 * c, p + 5 * c, p + 6 * c, p + 7 * c};
    const sp_norm_grad_finish_args backward = {
        c, sums, own, p, p + c, p + 2 * c, p + 3 * c, p + 6 * c, p + 7 * c, true};
    const sp_norm_args apply = {.x = x,
                                .y = y,
                                .scale = p + 4 * c,
                                .shift = p + 5 * c,
                                .slope = 0.01f,
                                .finish = s->is_one_call ? &forward : NULL};
    const sp_norm_grad_args grad = {.x = x,
                                    .dy = x,
                                    .dx = y,
                                    .a = p + 3 * c,
                                    .b = p + 4 * c,
                                    .c = p + 5 * c,
                                    .finish = s->is_one_call ? &backward : NULL};
    const unsigned before = hc_launches ? hc_launches() : 0;

    if (s->is_grad) {
        if (!s->is_one_call)
            OK(be->ops->norm_grad_finish(be, &backward));
        OK(be->ops->norm_grad_apply(be, &grad));
    } else {
        if (!s->is_one_call)
            OK(be->ops->norm_finish(be, &forward));
        OK(be->ops->norm_apply(be, &apply));
    }
    if (hc_launches && s->is_one_call)
        assert_int_equal(hc_launches() - before, 1 + (s->n > 0));
}

/* Coefficients have the same bits ahead of a pass as by themselves, also if there are no
 * rows. */
TEST(coefficients_ahead)
{
    static const pass cases[] = {{.n = 33, .c = 20, .n_parts = 1},
                                 {.n = 500, .c = 96, .n_parts = 1500, .is_bf16 = true},
                                 {.n = 1, .c = 5, .n_parts = 130, .is_bf16 = true},
                                 {.c = 32, .n_parts = 7},
                                 {.n = 900, .c = 256, .n_parts = 40},
                                 {.n = 60, .c = 3}};
    static op_results first, ahead;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int is_grad = 0; is_grad < 2; is_grad++)
            for (int order = 0; order < cu_orders(); order++) {
                pass s = cases[i];
                const size_t mark = test_mark();
                sp_backend be = cu_open(order);

                s.is_grad = is_grad;
                cu_run(&first, &be, s.is_bf16, finish, &s);
                s.is_one_call = true;
                cu_run(&ahead, &be, s.is_bf16, finish, &s);
                op_same("ahead", &ahead, &first);
                cu_close(&be);
                test_release(mark);
            }
}

/* They are those of the plain loops. The last channels of a block, and its only ones. */
TEST(coefficients_are_plain)
{
    static const int channels[] = {1, 5, 20, 96}, parts[] = {1, 3, 130};

    for (int order = 0; order < cu_orders(); order++)
        for (int i = 0; i < 4 * 3 * 3; i++) {
            const pass s = {.n = 33,
                            .c = channels[i % 4],
                            .n_parts = parts[i / 4 % 3],
                            .is_grad = i / 12 > 0,
                            .has_own = i / 12 > 1,
                            .tolerance = 1e-5};

            cu_compare(order, false, finish, &s);
        }
}

/* ---- memory ---- */

int cudaMemGetInfo(size_t *free_bytes, size_t *total);

/* A backend that is closed leaves no memory of the device behind, also where arenas
 * have grown by pieces. */
TEST(memory_comes_back)
{
    /* On a device the driver may take a page meanwhile, or another program. */
    const size_t slack = hc_launches ? 0 : 2 << 20;
    size_t free_bytes[2], total;

    for (int i = 0; i < 2; i++) { /* the first one loads what stays */
        sp_backend be = cu_open(0);
        sp_arena arena;
        void *data;

        OK(be.ops->arena_create(&arena, 0, "grown"));
        for (int k = 1; k <= 4; k++)
            OK(sp_arena_alloc(&arena, (size_t)k * 3000000, &data));
        be.ops->arena_destroy(&arena);
        cu_close(&be);
        assert_int_equal(cudaMemGetInfo(&free_bytes[i], &total), 0);
    }
    assert_true(free_bytes[0] <= free_bytes[1] + slack &&
                free_bytes[1] <= free_bytes[0] + slack);
}

/* ---- all operations over rows ---- */

/* In one order each, in turn; the largest, whose launches are those of all, in each. */
static void compare_case(int n, int c, int pad, float slope, bool is_bf16)
{
    const int32_t row[] = {0, n, n, n + 2};
    static int turn;
    const int n_orders = n == 2000 ? cu_orders() : 1;

    for (int i = 0; i < n_orders; i++)
        cu_compare(turn++ % cu_orders(), is_bf16, op_rows,
                   &(op_shape){row, 3, c, pad, slope, false});
}

TEST(rows_and_channels)
{
    static const int channels[] = {1, 3, 4, 16, 20, 32, 48, 64, 96, 128, 256};
    static const int row_counts[] = {0, 1, 31, 33, 127, 2000};
    static const float slopes[] = {1, 0, 0.01f};

    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
        compare_case(row_counts[i % 5], channels[i], (int)i % 4, slopes[i % 3], false);
    for (size_t i = 0; i < sizeof row_counts / sizeof *row_counts; i++)
        compare_case(row_counts[i], 20, 0, slopes[i % 3], false);
    compare_case(70, 3, 1, 0, false); /* aligned, with a remainder */
}

TEST(bf16_rows)
{
    static const struct {
        int n, c, pad;
    } shapes[] = {{33, 1, 7},   {31, 3, 5},  {127, 8, 0}, {2000, 20, 4},
                  {100, 32, 0}, {70, 33, 7}, {65, 96, 0}, {1, 256, 0},
                  {40, 384, 0}, {0, 16, 0},  {60, 5, 0},  {50, 24, 1}};
    static const float slopes[] = {1, 0, 0.01f};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        compare_case(shapes[i].n, shapes[i].c, shapes[i].pad, slopes[i % 3], true);
}

/* A residual that is normalized in the pass that adds it has the bits of two passes. */
TEST(norms_of_residuals)
{
    static const int32_t row[] = {0, 70, 70, 131};
    static const int channels[] = {5, 20, 96};
    static op_results one, two;

    for (int i = 0; i < 6; i++) {
        op_shape s = {row, 3, channels[i % 3], i / 3, 0.01f, false};
        sp_backend be = cu_open(i % cu_orders());

        cu_run(&one, &be, i / 3, op_rows, &s);
        s.is_apart = true;
        cu_run(&two, &be, i / 3, op_rows, &s);
        op_same("in one pass", &one, &two);
        cu_close(&be);
    }
}

/* There are more samples than one launch carries. */
TEST(many_samples)
{
    enum { N = 300 };
    int32_t row[N + 1] = {0};

    for (int b = 0; b < N; b++)
        row[b + 1] = row[b] + b % 4;
    cu_compare(0, false, op_rows, &(op_shape){row, N, 5, 0, 0.01f, false});
}

static void pool(op_results *r, const void *of)
{
    op_pools(r, of, 4, 3, 1);
    op_pools(r, of, 4, 33, 0);
}

TEST(pools)
{
    const int n_rows[] = {90, 0, 30, 600};
    const fx_level fine = fx_voxels(4, n_rows, 3);
    sp_map maps[FX_POOL_MAPS];

    fx_pool_maps(&fine, maps);
    for (int i = 0; i < FX_POOL_MAPS; i++)
        for (int order = 0; order < cu_orders(); order++) {
            cu_compare(order, false, pool, &maps[i]);
            cu_compare(order, true, pool, &maps[i]);
        }
}

TEST(interpolations)
{
    const int rows[] = {90, 0, 30, 600};
    const fx_level fine = fx_voxels(4, rows, 3);
    const fx_lineage l = fx_lineage_of(&fine);

    for (int order = 0; order < cu_orders(); order++) {
        cu_compare(order, false, op_interpolations, &l);
        cu_compare(order, true, op_interpolations, &l);
    }
}

/* A call that failed, and that the program goes on without, is not taken for the
 * failure of the launch behind it. */
TEST(failures_end_with_their_call)
{
    const float x[] = {1, 2, 3, 4};
    CLOSED_BY(cu_close) sp_backend be = cu_open(0);
    sp_device_info none;

    assert_int_equal(sp_backend_device(1 << 20, &none), SP_EDEVICE);
    cu_copy(&be, x, sizeof x); /* few bytes travel with a launch */
}

KERNEL_TESTS(test_cuda_rows)

/* Batch norm, dropout and a convolution give values that are worked out here, in plain
 * loops and, for the signs of norms, in each instruction set. */
#include "cpu/cpu.h"
#include "reference/op_results.h"

TEST(norm_by_hand)
{
    float x[] = {1, -2, 3, 4, 5, -6}, y[6], res[] = {0, 0, 0, -20, 0, 0};
    float dy[] = {1, 2, 3, 4, 5, 6}, dx[6] = {0};
    const float scale[] = {2, 1}, shift[] = {1, 0}, mean[] = {3, 0},
                inv_std[] = {0.5f, 2};
    const int32_t row[] = {0, 1, 3};
    double sums[8];
    const double want[] = {1, -2, 1, 4, 8, -2, 34, 52};
    const double grads[] = {1, 1, -1, -4, 8, 5, 5, -20};
    sp_backend be = fx_reference();
    sp_norm_args a = {.x = {x, 3, 2, 2},
                      .y = {y, 3, 2, 2},
                      .scale = scale,
                      .shift = shift,
                      .res = {res, 3, 2, 2},
                      .slope = 0.5f};
    sp_norm_grad_args g = {.x = a.x,
                           .y = a.y,
                           .dy = {dy, 3, 2, 2},
                           .slope = 0.5f,
                           .mean = mean,
                           .inv_std = inv_std,
                           .sample_row = row,
                           .n_samples = 2,
                           .sums = sums,
                           .a = scale,
                           .b = shift,
                           .c = mean,
                           .dx = {dx, 3, 2, 2}};

    OK(be.ops->norm_sums(&be, a.x, row, 2, sums));
    for (int i = 0; i < 8; i++)
        assert_true(sums[i] == want[i]);
    OK(be.ops->norm_apply(&be, &a));
    /* before the activation: 3 -2, 7 -16, 11 -6 */
    assert_true(y[0] == 3 && y[1] == -1 && y[2] == 7 && y[3] == -8 && y[5] == -3);
    OK(be.ops->norm_grad_sums(&be, &g));
    /* g: 1 1, 3 2, 5 3; xhat: -1 -4, 0 8, 1 -12 */
    assert_true(dy[1] == 1 && dy[3] == 2 && dy[5] == 3);
    for (int i = 0; i < 8; i++)
        assert_true(sums[i] == grads[i]);
    OK(be.ops->norm_grad_apply(&be, &g));
    assert_true(dx[0] == 2 * 1 + 1 * 1 + 3 && dx[3] == 2 && dx[4] == 2 * 5 + 5 + 3);
}

/* Values and gradients have the same mask, which drops about p of the elements and
 * differs between layers. The rows of a sample keep their mask wherever the sample
 * stands. */
TEST(dropout_masks)
{
    const int32_t row[] = {0, 1000, 2000};
    const int64_t id[] = {4, 9}, swapped[] = {9, 4};
    sp_backend be = fx_reference();
    sp_tensor x = fx_tensor(2000, 10, 10, 1), y = fx_tensor(2000, 10, 10, 2);
    sp_tensor z = fx_tensor(2000, 10, 10, 3);
    sp_dropout_args a = fx_dropout(x, y, 0.25f, id, row, 2);
    int kept = 0, same = 0;

    for (int i = 0; i < 20000; i++)
        x.data[i] = 3;
    OK(be.ops->dropout(&be, &a));
    a.y = z;
    a.layer++;
    OK(be.ops->dropout(&be, &a));
    for (int i = 0; i < 20000; i++) {
        assert_true(y.data[i] == 0 || y.data[i] == 4);
        kept += y.data[i] != 0;
        same += y.data[i] == z.data[i];
    }
    assert_true(abs(kept - 15000) < 300 && same < 13000);
    a.layer--;
    a.sample_id = swapped;
    OK(be.ops->dropout(&be, &a));
    assert_memory_equal(z.data, y.data + 10000, 10000 * sizeof(float));
    assert_memory_equal(z.data + 10000, y.data, 10000 * sizeof(float));
    a.y = y;
    a.p = 1;
    OK(be.ops->dropout(&be, &a));
    for (int i = 0; i < 20000; i++)
        assert_true(y.data[i] == 0);
}

/* W is not flipped: row 1 of 3^3 reads one step down in y and z. */
TEST(order_of_offsets)
{
    const int32_t here[3] = {0, 0, 0}, there[3] = {0, -1, -1};
    int32_t *grid = fx_grid(1);
    float w[27] = {0}, y[2];

    grid[fx_cell(0, here)] = grid[fx_cell(0, there)] = 0;
    fx_level l = fx_level_take(grid, 1, 1);
    assert_int_equal(l.n, 2);
    const int at = l.at[0][1] == 0 ? 0 : 1; /* row of `here` */
    float x[2] = {at == 0 ? 1.f : 8.f, at == 0 ? 8.f : 1.f};
    sp_map m = fx_map(&l, &l, 3, false);
    sp_backend be = fx_reference();
    sp_conv_args a = {.map = &m, .x = {x, 2, 1, 1}, .y = {y, 2, 1, 1}, .w = w};
    w[1] = 3;
    OK(be.ops->conv_forward(&be, &a));
    assert_true(y[at] == 24 && y[1 - at] == 0);
}

/* ---- masks ---- */

/* The gradient and its sums behind an activation whose output is read, or computed. */
static void mask(op_results *r, const void *of)
{
    enum { N = 77 };
    static const int32_t row[] = {0, 13, N};
    const op_shape *s = of;
    const sp_backend_ops *ops = r->be->ops;
    const int c = s->c;
    const size_t n_sums = 2 * 2 * (size_t)c;
    double *sums = test_alloc(2 * n_sums * sizeof *sums);
    sp_tensor x = op_operand(r, N, c, c + s->pad, 1), y = op_operand(r, N, c, c, 2),
              g[2];
    float *v = op_vector(r, 2 * (size_t)c, 4);
    sp_norm_grad_args grad = {.x = x,
                              .y = y,
                              .slope = 0.25f,
                              .mean = v,
                              .inv_std = v + c,
                              .sample_row = row,
                              .n_samples = 2};

    for (int j = 0; j < c; j += 3) { /* 2^-133, half of it and three quarters */
        v[j] = j % 2 ? 0.5f : 0.75f;
        v[c + j] = 0;
        for (int i = 0; i < N; i += 2)
            sp_put(x, i, j, i % 4 ? 0x1p-133f : -0x1p-133f);
    }
    OK(ops->norm_apply(
        r->be, &(sp_norm_args){
                   .x = x, .y = y, .scale = v, .shift = v + c, .slope = grad.slope}));
    for (int i = 0; i < 2; i++) {
        grad.dy = g[i] = op_operand(r, N, c, c + 1, 3);
        grad.sums = sums + (size_t)i * n_sums;
        OK(ops->norm_grad_sums(r->be, &grad));
        grad.y.data = NULL;
        grad.scale = v;
        grad.shift = v + c;
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < c; j++)
            if (sp_get(g[0], i, j) != sp_get(g[1], i, j))
                fail_msg("row %d, channel %d of %d: %g by y, %g by x", i, j, c,
                         (double)sp_get(g[0], i, j), (double)sp_get(g[1], i, j));
    assert_memory_equal(sums, sums + n_sums, n_sums * sizeof *sums);
}

static void check_mask(sp_backend *be, int c, int pad)
{
    op_results r;

    op_run(&r, be, NULL, true, be->precision == SP_BF16, mask,
           &(op_shape){.c = c, .pad = pad});
}

/* The sign of a norm's output is the same whether it is read or computed, also where
 * the output is so small that bf16 stores 0. */
TEST(signs_are_those_of_what_is_stored)
{
    static const int channels[] = {1, 8, 16, 20, 32, 64, 96};
    sp_backend be = {0};

    for (size_t k = 0; k < sizeof channels / sizeof *channels; k++) {
        for (int v = FX_PLAIN; fx_next(&be, &v, FX_BF16_ISAS, 1, SP_BF16);)
            check_mask(&be, channels[k], (int)k % 3);
        for (int v = -1; fx_next(&be, &v, FX_ISAS, 1, SP_FP32);)
            check_mask(&be, channels[k], v == FX_PLAIN ? 0 : (int)k % 3);
    }
}

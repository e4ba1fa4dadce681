/* Batch norm, dropout and pooling give values that are worked out here, in plain loops
 * and, for pooling and the signs of norms, in each instruction set. */
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
    sp_norm_args a = {
        {x, 3, 2, 2, 0}, {y, 3, 2, 2, 0}, scale, shift, {res, 3, 2, 2, 0}, 0.5f, NULL};
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

/* ---- pooling ---- */

static void check_pool(sp_backend *be, const sp_map *m, int c, bool is_max)
{
    sp_tensor x = fx_tensor(m->n_in, c, c + 1, 1), y = fx_tensor(m->n_out, c, c, 2);
    sp_tensor dx = fx_tensor(m->n_in, c, c, 3), before = fx_tensor(m->n_in, c, c, 3);
    sp_tensor dy = fx_tensor(m->n_out, c, c + 2, 4);
    int32_t *argmax = test_alloc(((size_t)m->n_out * c + 1) * sizeof *argmax);
    sp_pool_args a = {.map = m,
                      .is_max = is_max,
                      .x = x,
                      .y = y,
                      .argmax = argmax,
                      .dx = dx,
                      .dy = dy};

    OK(be->ops->pool(be, &a));
    OK(be->ops->pool_grad(be, &a));
    for (int j = 0; j < c; j++) {
        double *grad = test_alloc(((size_t)m->n_in + 1) * sizeof *grad);
        for (int o = 0; o < m->n_out; o++) {
            double top = -9, sum = 0;
            int count = 0, at = -1;
            for (int p = 0; p < m->pairs; p++)
                if (m->out[p] == o) {
                    double v = fx_at(x, m->in[p], j);
                    at = v > top ? m->in[p] : at;
                    top = fmax(top, v);
                    sum += v;
                    count++;
                }
            double want = !count ? 0 : is_max ? top : sum / count;
            assert_true(fabs(fx_at(y, o, j) - want) < 1e-6);
            if (is_max) {
                assert_int_equal(argmax[o * c + j], at);
                grad[at < 0 ? m->n_in : at] += fx_at(dy, o, j);
            }
            for (int p = 0; !is_max && p < m->pairs; p++)
                grad[m->in[p]] += m->out[p] == o ? fx_at(dy, o, j) / (double)count : 0;
        }
        for (int i = 0; i < m->n_in; i++)
            assert_true(fabs(fx_at(before, i, j) + grad[i] - fx_at(dx, i, j)) < 1e-5);
    }
}

static void check_global(sp_backend *be, const int32_t *row, int n_samples, int c)
{
    sp_tensor x = fx_tensor(row[n_samples], c, c + 1, 1),
              y = fx_tensor(n_samples, c, c, 2);
    sp_tensor z = fx_tensor(n_samples, c, c, 2), dx = fx_tensor(x.n, c, c, 3);
    sp_tensor wide = fx_tensor(x.n, c, c, 4), back = fx_tensor(n_samples, c, c, 5);
    sp_tensor dx0 = fx_tensor(x.n, c, c, 3), back0 = fx_tensor(n_samples, c, c, 5);
    int32_t argmax[FX_SAMPLES * 64];

    OK(be->ops->global_pool(be, x, row, n_samples, argmax, y));
    OK(be->ops->global_pool_grad(be, y, row, n_samples, argmax, dx));
    OK(be->ops->global_pool(be, x, row, n_samples, NULL, z));
    OK(be->ops->global_pool_grad(be, z, row, n_samples, NULL, dx));
    OK(be->ops->broadcast(be, z, row, n_samples, wide));
    OK(be->ops->broadcast_grad(be, x, row, n_samples, back));
    for (int b = 0; b < n_samples; b++)
        for (int j = 0; j < c; j++) {
            double sum = 0, top = -9, n = row[b + 1] - row[b];
            for (int i = row[b]; i < row[b + 1]; i++) {
                sum += fx_at(x, i, j);
                top = fmax(top, fx_at(x, i, j));
                assert_true(fx_at(wide, i, j) == fx_at(z, b, j));
            }
            assert_true(fx_at(y, b, j) == (n ? (float)top : 0));
            assert_true(fabs(fx_at(z, b, j) - (n ? sum / n : 0)) < 1e-6);
            assert_true(fabs(fx_at(back, b, j) - fx_at(back0, b, j) - sum) < 1e-5);
            for (int i = row[b]; i < row[b + 1]; i++) {
                double want = fx_at(z, b, j) / n + (argmax[b * c + j] == i ? top : 0);
                assert_true(fabs(fx_at(dx, i, j) - fx_at(dx0, i, j) - want) < 1e-6);
            }
        }
}

TEST(pooling)
{
    const int rows[] = {90, 0, 30, 1};
    const fx_level fine = fx_voxels(4, rows, 3);
    sp_map maps[FX_POOL_MAPS];
    sp_backend be = {0};

    fx_pool_maps(&fine, maps);
    for (int v = -1; fx_next(&be, &v, FX_ISAS, 1, SP_FP32);) {
        for (int i = 0; i < FX_POOL_MAPS; i++) {
            check_pool(&be, &maps[i], 3 + 16 * (i % 2), true);
            check_pool(&be, &maps[i], 3 + 16 * (i % 2), false);
        }
        check_global(&be, fine.sample_row, 4, 19);
    }
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

/* Batch norm, activations, dropout and pooling of each instruction set agree with plain
 * loops over channels, rows and pitches, and the plain loops agree with values worked
 * out here. */
#include "fixtures/test.h"

#include "fixtures/map_fixture.h"

enum { N_OUT = 16 };

/* Everything that is computed from one set of inputs. */
typedef struct results {
    sp_tensor t[N_OUT];
    int n;
    double *sums[2];
} results;

static sp_tensor *put(results *r, int64_t n, int c, int ld)
{
    assert_true(r->n < N_OUT);
    r->t[r->n] = fx_tensor(n, c, ld, (uint64_t)r->n + 50);
    return &r->t[r->n++];
}

static void normalize(sp_backend *be, const int32_t *row, int n_samples, int c, int pad,
                      float slope, results *r)
{
    const int64_t n = row[n_samples];
    sp_tensor x = fx_tensor(n, c, c + pad, 1), res = fx_tensor(n, c, c, 2);
    float *p = fx_floats((size_t)c * 5, 3);
    sp_tensor *y = put(r, n, c, c + 2 * pad), *dy = put(r, n, c, c),
              *dx = put(r, n, c, c + pad);
    sp_norm_args a = {.x = x, .y = *y, .scale = p, .shift = p + c, .slope = slope};
    sp_norm_grad_args g = {.x = x,
                           .y = *y,
                           .dy = *dy,
                           .slope = slope,
                           .mean = p,
                           .inv_std = p + c,
                           .sample_row = row,
                           .n_samples = n_samples,
                           .sums = r->sums[1],
                           .a = p + 2 * c,
                           .b = p + 3 * c,
                           .c = p + 4 * c,
                           .dx = *dx};

    OK(be->ops->norm_sums(be, x, row, n_samples, r->sums[0]));
    OK(be->ops->norm_apply(be, &a));
    OK(be->ops->norm_grad_sums(be, &g));
    OK(be->ops->norm_grad_apply(be, &g));
    g.dx = *put(r, n, c, c + pad);
    g.is_added = true;
    OK(be->ops->norm_grad_apply(be, &g));
    a.res = res;
    a.y = *put(r, n, c, c);
    OK(be->ops->norm_apply(be, &a));
    a.x = a.res = a.y; /* in place */
    OK(be->ops->norm_apply(be, &a));
    free(x.data), free(res.data), free(p);
}

static void pointwise(sp_backend *be, const int32_t *row, int n_samples, int c, int pad,
                      float slope, results *r)
{
    const int64_t id[FX_SAMPLES] = {5, 1, 7, 3}, n = row[n_samples];
    sp_tensor x = fx_tensor(n, c, c + pad, 4), y;

    OK(be->ops->relu(be, x, slope, *put(r, n, c, c)));
    OK(be->ops->relu_grad(be, x, slope, r->t[0], *put(r, n, c, c + pad), true));
    y = *put(r, n, c, c + pad);
    OK(be->ops->relu_grad(be, x, slope, y, y, false));
    OK(be->ops->copy(be, x, *put(r, n, c, c + pad), false));
    OK(be->ops->copy(be, x, *put(r, n, c, c), true));
    const sp_dropout_args drop =
        fx_dropout(x, *put(r, n, c, c + pad), 0.4f, id, row, n_samples);
    OK(be->ops->dropout(be, &drop));
    free(x.data);
}

static results compute(sp_backend *be, const int32_t *row, int n_samples, int c,
                       int pad, float slope)
{
    const size_t n_sums = (size_t)n_samples * 2 * (size_t)c;
    results r = {
        .sums = {malloc(n_sums * sizeof(double)), malloc(n_sums * sizeof(double))}};

    normalize(be, row, n_samples, c, pad, slope, &r);
    pointwise(be, row, n_samples, c, pad, slope, &r);
    return r;
}

static void drop(results *r)
{
    for (int i = 0; i < r->n; i++)
        free(r->t[i].data);
    free(r->sums[0]);
    free(r->sums[1]);
}

static void compare(const char *isa, const results *fast, const results *plain,
                    size_t n_sums)
{
    for (int i = 0; i < plain->n; i++) {
        double error = fx_error(fast->t[i], plain->t[i]);
        fx_guards(fast->t[i]);
        fx_guards(plain->t[i]);
        if (!(error <= 1e-6))
            fail_msg("%s: result %d, [%d, %d]: error %g", isa, i, (int)plain->t[i].n,
                     plain->t[i].c, error);
    }
    for (size_t i = 0; i < 2 * n_sums; i++) {
        double a = fast->sums[i / n_sums][i % n_sums],
               b = plain->sums[i / n_sums][i % n_sums];
        if (!(fabs(a - b) <= 1e-11 * fmax(1, fabs(b))))
            fail_msg("%s: sum %zu of %zu: %.17g, expected %.17g", isa, i, n_sums, a, b);
    }
}

static void compare_case(int n, int c, int pad, float slope)
{
    const int32_t row[] = {0, n, n, n + 2};
    const size_t n_sums = 3 * 2 * (size_t)c;
    sp_backend be = fx_reference();
    results plain = compute(&be, row, 3, c, pad, slope), fast;

    for (int i = 0; i < FX_ISAS; i++) {
        if (!fx_open(&be, fx_isas[i], 1))
            continue;
        fast = compute(&be, row, 3, c, pad, slope);
        compare(fx_isas[i], &fast, &plain, n_sums);
        drop(&fast);
        be.ops->close(&be);
    }
    drop(&plain);
}

TEST(fast_is_plain)
{
    static const int channels[] = {1, 3, 4, 8, 16, 20, 32, 33, 48, 64, 96, 128, 256};
    static const int rows[] = {0, 1, 2, 13, 31, 33, 127, 777};
    static const float slopes[] = {1, 0, 0.01f};

    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
        for (int s = 0; s < 3; s++)
            compare_case(rows[(i + (size_t)s) % 8], channels[i], (int)i % 4, slopes[s]);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        compare_case(rows[i], 20, 0, slopes[i % 3]);
}

/* ---- meaning ---- */

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
    free(x.data), free(y.data), free(z.data);
}

/* ---- pooling ---- */

static void check_pool(sp_backend *be, const sp_map *m, int c, bool is_max)
{
    sp_tensor x = fx_tensor(m->n_in, c, c + 1, 1), y = fx_tensor(m->n_out, c, c, 2);
    sp_tensor dx = fx_tensor(m->n_in, c, c, 3), before = fx_tensor(m->n_in, c, c, 3);
    sp_tensor dy = fx_tensor(m->n_out, c, c + 2, 4);
    int32_t *argmax = malloc(((size_t)m->n_out * c + 1) * sizeof *argmax);
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
        double *grad = calloc((size_t)m->n_in + 1, sizeof *grad);
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
        free(grad);
    }
    free(argmax), free(x.data), free(y.data), free(dx.data), free(before.data),
        free(dy.data);
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
    free(x.data), free(y.data), free(z.data), free(dx.data), free(wide.data);
    free(back.data), free(dx0.data), free(back0.data);
}

TEST(pooling)
{
    const int rows[] = {90, 0, 30, 1};
    fx_level fine = fx_voxels(4, rows, 3), coarse = fx_coarser(&fine);
    sp_map maps[] = {fx_map(&fine, &coarse, 2, false), fx_map(&fine, &fine, 3, false),
                     fx_map(&coarse, &fine, 3, false), fx_map(&fine, &fine, 2, true)};
    sp_backend be = fx_reference();

    for (int v = -1; v < FX_ISAS; v++) {
        if (v >= 0 && !fx_open(&be, fx_isas[v], 1))
            continue;
        for (int i = 0; i < 4; i++) {
            check_pool(&be, &maps[i], 3 + 16 * (i % 2), true);
            check_pool(&be, &maps[i], 3 + 16 * (i % 2), false);
        }
        check_global(&be, fine.sample_row, 4, 19);
        be.ops->close(&be);
    }
    for (int i = 0; i < 4; i++)
        fx_map_free(&maps[i]);
    fx_level_free(&fine);
    fx_level_free(&coarse);
}

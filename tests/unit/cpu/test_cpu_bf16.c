/* Tensors of bf16 on the CPU: all versions of the kernels compute the same bytes, and
 * these are the results of plain loops over the rounded operands, rounded once. */
#include "fixtures/test.h"

#include "cpu/cpu.h"
#include "fixtures/map_fixture.h"

enum { MOST = 40 };

/* Tensors that a version computed, in order. */
typedef struct results {
    sp_tensor t[MOST];
    const char *name[MOST];
    int n;
    double sums[4096];
    size_t n_sums;
} results;

/* A result with something in it already. */
static sp_tensor put(results *r, const char *name, int64_t n, int c, int ld,
                     bool is_bf16)
{
    sp_tensor t = fx_tensor(n, c, ld, 60 + (uint64_t)r->n), half;

    assert_true(r->n < MOST);
    if (is_bf16) {
        half = fx_rounded(t);
        free(t.data);
        t = half;
    }
    r->name[r->n] = name;
    return r->t[r->n++] = t;
}

static double *put_sums(results *r, size_t n)
{
    double *sums = r->sums + r->n_sums;

    r->n_sums += n;
    assert_true(r->n_sums <= sizeof r->sums / sizeof *r->sums);
    return sums;
}

/* An operand: rounded values, as bf16 or, for the plain loops, as fp32. */
static sp_tensor operand(const sp_backend *be, int64_t n, int c, int ld, uint64_t seed)
{
    sp_tensor t = fx_tensor(n, c, ld, seed), half = fx_rounded(t), wide;

    free(t.data);
    if (be->precision == SP_BF16)
        return half;
    wide = fx_widened(half);
    free(half.data);
    return wide;
}

/* Weights that bf16 holds, so that both sides multiply the same. */
static float *weights(size_t n, uint64_t seed)
{
    float *w = fx_floats(n, seed);

    for (size_t i = 0; i < n; i++)
        w[i] = sp_bf16_to_float(sp_bf16_of(w[i]));
    return w;
}

typedef struct problem {
    fx_level level[2];
    sp_map map, swap; /* map: from level `in` to level `out` */
    int in, out;
    bool has_map;
    int c_in, c_out, pad;
} problem;

static void convolve(sp_backend *be, const problem *p, results *r)
{
    const bool is_bf16 = be->precision == SP_BF16;
    const bool is_mirrored = p->has_map && p->map.is_full;
    const int K = p->map.K, c_in = p->c_in, c_out = p->c_out;
    const int64_t n_in = p->map.n_in, n_out = p->map.n_out;
    const size_t n_w = (size_t)K * c_in * c_out;
    const fx_level *out = &p->level[p->out];
    const size_t n_sums = 2 * (size_t)c_out * (size_t)out->n_samples;
    double *fused, *apart = malloc(n_sums * sizeof *apart);
    sp_tensor x = operand(be, n_in, c_in, c_in + p->pad, 1);
    sp_tensor dy = operand(be, n_out, c_out, c_out + 2 * p->pad, 2);
    sp_tensor logits = fx_tensor(n_out, c_out, c_out, 7), rounded;
    float *w = weights(n_w, 3), *bias = fx_floats((size_t)c_out, 4), *packed, *dw;
    sp_conv_args a = {.map = p->has_map ? &p->map : NULL, .x = x, .w = w};

    a.w_packed = packed = fx_pack(be, w, K, c_in, c_out, false, false);
    a.bias = bias;
    a.y = put(r, "forward", n_out, c_out, c_out + p->pad, is_bf16);
    fused = put_sums(r, n_sums);
    OK(be->ops->conv_forward_norm_sums(be, &a, out->sample_row, out->n_samples, fused));
    OK(be->ops->norm_sums(be, a.y, out->sample_row, out->n_samples, apart));
    assert_memory_equal(fused, apart, n_sums * sizeof *apart);
    a.y = put(r, "forward, logits", n_out, c_out, c_out, false);
    OK(be->ops->conv_forward(be, &a));
    a.bias = NULL;
    a.is_added = true;
    a.y = put(r, "forward, added", n_out, c_out, c_out + p->pad, is_bf16);
    OK(be->ops->conv_forward(be, &a));
    free(packed);

    a = (sp_conv_args){.w = w, .x = dy, .is_mirrored = is_mirrored};
    a.map = !p->has_map ? NULL : is_mirrored ? &p->map : &p->swap;
    a.w_packed = packed = fx_pack(be, w, K, c_in, c_out, true, is_mirrored);
    a.y = put(r, "dx", n_in, c_in, c_in, is_bf16);
    OK(be->ops->conv_grad_input(be, &a));
    /* The gradient of logits is stored in fp32. */
    rounded = fx_rounded(logits);
    a.x = is_bf16 ? logits : fx_widened(rounded);
    a.is_added = true;
    a.y = put(r, "dx of logits, added", n_in, c_in, c_in + p->pad, is_bf16);
    OK(be->ops->conv_grad_input(be, &a));
    free(packed);

    for (int i = 0; i < 2; i++) {
        dw = put(r, i ? "dW of logits" : "dW", 1, (int)n_w + c_out, (int)n_w + c_out,
                 false)
                 .data;
        OK(be->ops->conv_grad_weight(
            be, &(sp_conv_wgrad_args){.map = p->has_map ? &p->map : NULL,
                                      .x = x,
                                      .dy = i ? a.x : dy,
                                      .sample_row = out->sample_row,
                                      .sample1 = out->n_samples,
                                      .dw = dw,
                                      .dbias = i ? NULL : dw + n_w}));
    }
    if (a.x.data != logits.data)
        free(a.x.data);
    free(rounded.data), free(logits.data), free(x.data), free(dy.data), free(w),
        free(bias), free(apart);
}

/* The passes over rows that bf16 has, on c channels of level 0. */
static void pass_rows(sp_backend *be, const problem *p, results *r)
{
    const bool is_bf16 = be->precision == SP_BF16;
    const fx_level *l = &p->level[0];
    const int c = p->c_in, n = l->n, ld = c + p->pad;
    const int64_t id[FX_SAMPLES] = {5, 1, 7, 3};
    sp_tensor x = operand(be, n, c, ld, 1), res = operand(be, n, c, c, 2);
    sp_tensor fp32 = fx_tensor(n, c, c, 3), rounded = fx_rounded(fp32), y, g, to;
    float *v = fx_floats(5 * (size_t)c, 4);
    sp_norm_grad_args grad = {.x = x,
                              .slope = 0.25f,
                              .mean = v,
                              .inv_std = v + c,
                              .sample_row = l->sample_row,
                              .n_samples = l->n_samples,
                              .a = v + 2 * c,
                              .b = v + 3 * c,
                              .c = v + 4 * c};

    OK(be->ops->norm_sums(be, x, l->sample_row, l->n_samples,
                          put_sums(r, 2 * (size_t)c * (size_t)l->n_samples)));
    y = put(r, "norm", n, c, ld, is_bf16);
    OK(be->ops->norm_apply(be, &(sp_norm_args){x, y, v, v + c, res, 0.25f, NULL}));
    y = put(r, "norm without residual", n, c, c, is_bf16);
    OK(be->ops->norm_apply(
        be, &(sp_norm_args){.x = x, .y = y, .scale = v, .shift = v + c, .slope = 1}));
    grad.y = res;
    grad.dy = g = put(r, "g", n, c, c, is_bf16);
    grad.sums = put_sums(r, 2 * (size_t)c * (size_t)l->n_samples);
    OK(be->ops->norm_grad_sums(be, &grad));
    grad.dx = put(r, "norm dx", n, c, ld, is_bf16);
    OK(be->ops->norm_grad_apply(be, &grad));
    grad.dx = put(r, "norm dx, added", n, c, c, is_bf16);
    grad.is_added = true;
    OK(be->ops->norm_grad_apply(be, &grad));
    OK(be->ops->relu(be, x, 0.25f, put(r, "relu", n, c, c, is_bf16)));
    OK(be->ops->relu_grad(be, x, 0.25f, res, put(r, "relu dx", n, c, c, is_bf16),
                          true));
    OK(be->ops->copy(be, x, put(r, "copy", n, c, c, is_bf16), false));
    OK(be->ops->copy(be, x, put(r, "added", n, c, c, is_bf16), true));
    OK(be->ops->copy(be, x, put(r, "widened", n, c, c, false), false));
    OK(be->ops->copy(be, x, put(r, "widened, added", n, c, c, false), true));
    to = is_bf16 ? fp32 : fx_widened(rounded);
    OK(be->ops->copy(be, to, put(r, "rounded", n, c, c, is_bf16), false));
    const sp_dropout_args drop = fx_dropout(x, put(r, "dropout", n, c, c, is_bf16),
                                            0.5f, id, l->sample_row, l->n_samples);
    OK(be->ops->dropout(be, &drop));
    if (to.data != fp32.data)
        free(to.data);
    free(x.data), free(res.data), free(fp32.data), free(rounded.data), free(v);
}

/* Pools of two voxels' edge do not overlap, so that no gradient is rounded twice. */
static void pool(sp_backend *be, const problem *p, results *r)
{
    const bool is_bf16 = be->precision == SP_BF16;
    const fx_level *l = &p->level[0];
    const int c = p->c_in, n_samples = l->n_samples;
    sp_map down = fx_map(&p->level[0], &p->level[1], 2, false);
    sp_tensor x = operand(be, l->n, c, c + p->pad, 1);
    sp_tensor dy = operand(be, down.n_out, c, c, 2), rows;
    int32_t *argmax = malloc(((size_t)l->n + FX_SAMPLES) * (size_t)c * sizeof *argmax);

    rows = operand(be, n_samples, c, c, 3);
    for (int is_max = 0; is_max < 2; is_max++) {
        sp_pool_args a = {.map = &down,
                          .is_max = is_max,
                          .x = x,
                          .argmax = argmax,
                          .dy = dy,
                          .y = put(r, "pool", down.n_out, c, c + 1, is_bf16),
                          .dx = put(r, "pool dx", l->n, c, c, is_bf16)};
        OK(be->ops->pool(be, &a));
        OK(be->ops->pool_grad(be, &a));
        OK(be->ops->global_pool(be, x, l->sample_row, n_samples, is_max ? argmax : NULL,
                                put(r, "global", n_samples, c, c, is_bf16)));
        OK(be->ops->global_pool_grad(be, rows, l->sample_row, n_samples,
                                     is_max ? argmax : NULL,
                                     put(r, "global dx", l->n, c, c, is_bf16)));
    }
    OK(be->ops->broadcast(be, rows, l->sample_row, n_samples,
                          put(r, "broadcast", l->n, c, c, is_bf16)));
    OK(be->ops->broadcast_grad(be, x, l->sample_row, n_samples,
                               put(r, "broadcast dx", n_samples, c, c, is_bf16)));
    fx_map_free(&down);
    free(argmax), free(x.data), free(dy.data), free(rows.data);
}

static void compute(sp_backend *be, const problem *p, results *r)
{
    memset(r, 0, sizeof *r);
    convolve(be, p, r);
    if (p->c_in <= 64)
        pass_rows(be, p, r);
    pool(be, p, r);
}

static void drop(results *r)
{
    for (int i = 0; i < r->n; i++)
        free(r->t[i].data);
}

/* Values in bf16 are those of the plain loops, which begin with unrounded results, to
 * half a unit of the last place; both ends of an addition are rounded. */
static void near(const char *isa, const results *got, const results *want)
{
    for (int i = 0; i < want->n; i++) {
        const bool is_bf16 = got->t[i].elem == SP_ELEM_BF16;
        sp_tensor t = is_bf16 ? fx_widened(got->t[i]) : got->t[i];
        const double error = fx_error(t, want->t[i]);
        fx_guards(t);
        if (!(error <= (is_bf16 ? 1.0 / 128 : 1e-5)))
            fail_msg("%s: %s [%d, %d]: error %g", isa, want->name[i], (int)t.n, t.c,
                     error);
        if (is_bf16)
            free(t.data);
    }
}

static void same(const char *isa, const results *a, const results *b)
{
    for (int i = 0; i < b->n; i++) {
        const sp_tensor t = b->t[i];
        if (memcmp(a->t[i].data, t.data,
                   (size_t)t.n * (size_t)t.ld * sp_elem_bytes(t.elem)))
            fail_msg("%s: %s [%d, %d] has other bits", isa, b->name[i], (int)t.n, t.c);
    }
    assert_memory_equal(a->sums, b->sums, b->n_sums * sizeof *b->sums);
}

/* Compares versions begin .. end - 1, which sum in one order. */
static void compare_versions(const problem *p, const results *plain, int begin, int end)
{
    static results first, other;
    const char *isa = NULL;
    sp_backend be;

    for (int i = begin; i < end; i++) {
        results *r = isa ? &other : &first;
        if (!fx_open_in(&be, fx_isas[i], 1, SP_BF16))
            continue;
        compute(&be, p, r);
        near(fx_isas[i], r, plain);
        if (isa) {
            same(fx_isas[i], r, &first);
            drop(&other);
        }
        isa = fx_isas[i];
        be.ops->close(&be);
    }
    assert_non_null(isa);
    drop(&first);
}

static void compare(const problem *p)
{
    static results plain;
    sp_backend be = fx_reference();

    compute(&be, p, &plain);
    compare_versions(p, &plain, 0, FX_TILES);
    compare_versions(p, &plain, FX_TILES, FX_BF16_ISAS);
    drop(&plain);
}

static void compare_case(int kernel, int in, int out, bool has_map, const int *rows,
                         int n_samples, int c_in, int c_out, int pad)
{
    problem p = {.in = in,
                 .out = out,
                 .has_map = has_map,
                 .c_in = c_in,
                 .c_out = c_out,
                 .pad = pad};

    p.level[0] = fx_voxels(n_samples, rows, 3);
    p.level[1] = fx_coarser(&p.level[0]);
    p.map = fx_map(&p.level[in], &p.level[out], kernel, false);
    p.swap = fx_map(&p.level[out], &p.level[in], kernel, true);
    compare(&p);
    fx_map_free(&p.map);
    fx_map_free(&p.swap);
    fx_level_free(&p.level[0]);
    fx_level_free(&p.level[1]);
}

TEST(every_map)
{
    static const struct {
        int kernel, in, out;
        bool has_map;
    } kinds[] = {{3, 0, 0, true}, {2, 0, 1, true}, {2, 1, 0, true},
                 {3, 0, 1, true}, {2, 0, 0, true}, {1, 0, 0, false}};
    const int rows[] = {600, 0, 33, 1};

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        compare_case(kinds[k].kernel, kinds[k].in, kinds[k].out, kinds[k].has_map, rows,
                     4, 5, 7, 1);
}

/* Odd numbers of channels, masked tails, blocks of channels, one row and none. */
TEST(every_channel_count)
{
    static const int channels[] = {1, 2, 3, 4, 16, 17, 20, 32, 33, 64, 96};
    const int rows[] = {33, 0, 40}, one = 1, none = 0;

    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        compare_case(3, 0, 0, true, rows, 3, channels[i], 7, 3);
        compare_case(2, 0, 1, true, rows, 3, 5, channels[i], 0);
    }
    compare_case(2, 0, 1, true, rows, 3, 257, 5, 0);
    compare_case(2, 0, 1, true, rows, 3, 515, 20, 1);
    compare_case(1, 0, 0, false, rows, 3, 256, 256, 0);
    compare_case(3, 0, 0, true, &one, 1, 6, 6, 0);
    compare_case(3, 0, 0, true, &none, 1, 6, 6, 0);
}

/* ---- masks ---- */

/* The gradient and its sums behind an activation whose output is read, or computed. */
static void check_mask(sp_backend *be, const char *isa, int c, int pad)
{
    enum { N = 77 };
    const int32_t row[] = {0, 13, N};
    const size_t n_sums = 2 * 2 * (size_t)c;
    sp_tensor x = operand(be, N, c, c + pad, 1), y = operand(be, N, c, c, 2), g[2];
    double *sums = malloc(2 * n_sums * sizeof *sums);
    float *v = fx_floats(2 * (size_t)c, 4);
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
    OK(be->ops->norm_apply(
        be, &(sp_norm_args){
                .x = x, .y = y, .scale = v, .shift = v + c, .slope = grad.slope}));
    for (int i = 0; i < 2; i++) {
        grad.dy = g[i] = operand(be, N, c, c + 1, 3);
        grad.sums = sums + (size_t)i * n_sums;
        OK(be->ops->norm_grad_sums(be, &grad));
        grad.y.data = NULL;
        grad.scale = v;
        grad.shift = v + c;
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < c; j++)
            if (sp_get(g[0], i, j) != sp_get(g[1], i, j))
                fail_msg("%s: row %d, channel %d of %d: %g by y, %g by x", isa, i, j, c,
                         (double)sp_get(g[0], i, j), (double)sp_get(g[1], i, j));
    assert_memory_equal(sums, sums + n_sums, n_sums * sizeof *sums);
    free(g[0].data), free(g[1].data), free(x.data), free(y.data), free(v), free(sums);
}

/* The sign of a norm's output is the same whether it is read or computed, also where
 * the output is so small that bf16 stores 0. */
TEST(signs_are_those_of_what_is_stored)
{
    static const int channels[] = {1, 8, 16, 20, 32, 64, 96};
    sp_backend be = fx_reference();

    for (size_t k = 0; k < sizeof channels / sizeof *channels; k++) {
        be = fx_reference();
        check_mask(&be, "plain loops", channels[k], 0);
        for (int i = 0; i < FX_BF16_ISAS; i++) {
            if (!fx_open_in(&be, fx_isas[i], 1, SP_BF16))
                continue;
            check_mask(&be, fx_isas[i], channels[k], (int)k % 3);
            be.ops->close(&be);
        }
        for (int i = 0; i < FX_ISAS; i++) {
            if (!fx_open(&be, fx_isas[i], 1))
                continue;
            check_mask(&be, fx_isas[i], channels[k], (int)k % 3);
            be.ops->close(&be);
        }
    }
}

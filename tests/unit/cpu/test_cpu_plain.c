/* Every version of the CPU's kernels agrees with plain loops, over kinds of map,
 * channels with masked tails, numbers of rows and row pitches, in fp32 and in bf16:
 * with operands that are rounded beforehand and results that are rounded once. In bf16
 * all versions that sum in one order compute the same bits. A fused operation has the
 * bits of those that it is made of. */
#include "reference/op_results.h"

#include "cpu/cpu.h"

enum { N_KINDS = CONV_5 }; /* those behind have nothing of their own on the CPU */

/* ---- all versions, all precisions ---- */

static const char *version; /* of the kernels that run */

static void compare(sp_precision precision, op_work *work, const void *of)
{
    static op_results plain, first, other;
    const bool is_bf16 = precision == SP_BF16;
    const int end = is_bf16 ? FX_BF16_ISAS : FX_ISAS;
    const size_t mark = test_mark();
    sp_backend be = fx_reference();
    int v_first = end; /* the first version that sums in the order of the present one */

    version = "plain loops";
    op_run(&plain, &be, NULL, is_bf16, false, work, of);
    for (int v = FX_PLAIN; fx_next(&be, &v, end, 1, precision);) {
        version = fx_isas[v];
        op_run(&other, &be, NULL, is_bf16, is_bf16, work, of);
        op_compare(version, &other, &plain, 1.0 / 128);
        if (!is_bf16)
            continue;
        if (v_first < v && (v < FX_TILES || v_first >= FX_TILES)) {
            op_same(version, &other, &first);
        } else {
            first = other;
            v_first = v;
        }
    }
    test_release(mark);
}

/* ---- convolutions ---- */

typedef struct problem {
    const conv_kind *kind;
    fx_level level[2];
    sp_map map, swap; /* swap: in and out exchanged */
    int c_in, c_out, pad;
} problem;

static double tolerance(const op_results *r)
{
    return r->is_rounded ? 1e-5 : 3e-6;
}

/* Rows of the same shape. */
static void same_rows(const problem *p, const char *what, sp_tensor a, sp_tensor b)
{
    const size_t bytes = (size_t)a.c * sp_elem_bytes(a.elem);
    const char *x = (const char *)a.data, *y = (const char *)b.data;

    for (int64_t i = 0; i < a.n;
         i++, x += a.ld * sp_elem_bytes(a.elem), y += b.ld * sp_elem_bytes(b.elem))
        if (memcmp(x, y, bytes))
            fail_msg("%s, %s, %s: %d -> %d channels, row %d of %d has other bits",
                     version, what, p->kind->name, p->c_in, p->c_out, (int)i, (int)a.n);
}

/* The norm over a convolution's output in fp32, rounded once. */
static void normalize_unrounded(sp_backend *be, sp_conv_args a, sp_norm_args norm)
{
    const int64_t n = norm.y.n;
    const int c = norm.y.c;

    a.y = (sp_tensor){test_alloc((size_t)n * (size_t)c * sizeof(float)), n, c, c,
                      SP_ELEM_F32};
    OK(be->ops->conv_forward(be, &a));
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < c; j++) {
            float v = fmaf(sp_row(a.y, i)[j], norm.scale[j], norm.shift[j]);
            if (norm.res.data)
                v += sp_bf16_to_float(sp_row_bf16(norm.res, i)[j]);
            sp_row_bf16(norm.y, i)[j] = sp_bf16_of(v > 0 ? v : norm.slope * v);
        }
}

/* The sums and the norm that a forward pass is fused with. */
static void fuse_forward(op_results *r, const problem *p, sp_conv_args a)
{
    const sp_backend_ops *ops = r->be->ops;
    const fx_level *out = &p->level[p->kind->out];
    const int c = p->c_out, ld = c + 2 * p->pad, n_samples = out->n_samples;
    const size_t n = 2 * (size_t)c * (size_t)n_samples;
    const float *vector = op_vector(r, 2 * (size_t)c, 24);
    const sp_tensor res = op_operand(r, out->n, c, ld, 2);
    const sp_tensor plain = a.y;
    double *fused = test_alloc((n + 1) * sizeof *fused);
    double *apart = test_alloc(n * sizeof *apart);

    memset(fused, 0xff, (n + 1) * sizeof *fused); /* written, not added to: NaN */
    a.y = op_result(r, "forward with sums", tolerance(r), out->n, c, ld);
    OK(ops->conv_forward_norm_sums(r->be, &a, out->sample_row, n_samples, fused));
    OK(ops->norm_sums(r->be, plain, out->sample_row, n_samples, apart));
    same_rows(p, "forward with sums", a.y, plain);
    assert_memory_equal(fused, apart, n * sizeof *fused);
    assert_true(isnan(fused[n]));
    for (int i = r->is_rounded ? 2 : 0; i < 3; i++) {
        const float slope = i == 0 ? 1 : i == 1 ? 0 : 0.25f;
        sp_norm_args norm = {.scale = vector, .shift = vector + c, .slope = slope};

        if (i > 0)
            norm.res = res;
        a.y = norm.x = norm.y = op_result(r, "normalized", 1e-5, out->n, c, ld);
        OK(ops->conv_forward_norm_apply(r->be, &a, &norm));
        norm.x = plain;
        norm.y = op_result(r, "normalized apart", 1e-5, out->n, c, ld);
        if (norm.y.elem == SP_ELEM_BF16)
            normalize_unrounded(r->be, a, norm);
        else
            OK(ops->norm_apply(r->be, &norm));
        same_rows(p, "normalized", a.y, norm.y);
    }
}

static void forward(op_results *r, const problem *p, const float *w)
{
    const int c = p->c_out, ld = c + 2 * p->pad, n = p->map.n_out;
    float *packed = fx_pack(r->be, w, p->map.K, p->c_in, c, false, false);
    sp_conv_args a = {.map = p->kind->has_map ? &p->map : NULL,
                      .x = op_operand(r, p->map.n_in, p->c_in, p->c_in + p->pad, 1),
                      .w = w,
                      .w_packed = packed};

    a.y = op_result(r, "forward", tolerance(r), n, c, ld);
    OK(r->be->ops->conv_forward(r->be, &a));
    a.is_added = true;
    a.y = op_result(r, "forward, added", tolerance(r), n, c, ld);
    OK(r->be->ops->conv_forward(r->be, &a));
    a.is_added = false;
    a.bias = op_vector(r, (size_t)c, 4);
    a.y = op_result_fp32(r, "logits", tolerance(r), n, c, c);
    OK(r->be->ops->conv_forward(r->be, &a));
    a.y = op_result(r, "forward with a bias", tolerance(r), n, c, ld);
    OK(r->be->ops->conv_forward(r->be, &a));
    fuse_forward(r, p, a);
}

/* The gradient's sums with those of the norm before and of its residual norm, of the
 * columns from a third of them on. */
static void fuse_backward(op_results *r, const problem *p, sp_conv_args a)
{
    const sp_backend_ops *ops = r->be->ops;
    const fx_level *in = &p->level[p->kind->in];
    const int column = p->c_in / 3, c = p->c_in - column;
    const size_t n = 2 * (size_t)c * (size_t)in->n_samples;
    const float *vector = op_vector(r, 2 * (size_t)c, 23);
    const sp_tensor like = a.y, plain = a.y;
    double *sums = test_alloc(4 * n * sizeof *sums);
    sp_norm_grad_args norm[2] = {{.x = op_operand(r, in->n, c, c, 21),
                                  .y = op_operand(r, in->n, c, c, 22),
                                  .slope = 0.25f,
                                  .mean = vector,
                                  .inv_std = vector + c,
                                  .sample_row = in->sample_row,
                                  .n_samples = in->n_samples,
                                  .sums = sums}};

    norm[1] = norm[0];
    norm[1].x = norm[0].y;
    norm[1].slope = 1;
    norm[1].sums = sums + n;
    a.is_added = false;
    a.y = op_result(r, "dx with sums", tolerance(r), like.n, like.c, like.ld);
    norm[0].dy = norm[1].dy = sp_tensor_columns(a.y, column, c);
    OK(ops->conv_grad_input_norm_sums(r->be, &a, &norm[0], &norm[1]));
    for (int i = 0; i < 2; i++) {
        norm[i].dy = sp_tensor_columns(plain, column, c);
        norm[i].sums += 2 * n;
        OK(ops->norm_grad_sums(r->be, &norm[i]));
    }
    same_rows(p, "dx with sums", a.y, plain);
    assert_memory_equal(sums, sums + 2 * n, 2 * n * sizeof *sums);
}

/* dx through the swapped map, or the forward map itself where it is its own mirror; of
 * a gradient as the operands are, and of logits, whose gradient is stored in fp32. */
static void backward(op_results *r, const problem *p, const float *w)
{
    const bool is_mirrored = p->kind->has_map && p->map.is_full;
    const int c = p->c_in, n = p->map.n_in, n_out = p->map.n_out;
    float *packed = fx_pack(r->be, w, p->map.K, c, p->c_out, true, is_mirrored);
    sp_conv_args a = {.map = !p->kind->has_map ? NULL
                             : is_mirrored     ? &p->map
                                               : &p->swap,
                      .w = w,
                      .w_packed = packed,
                      .is_mirrored = is_mirrored};

    a.x = op_operand_fp32(r, n_out, p->c_out, p->c_out, 7, true);
    a.is_added = true;
    a.y = op_result(r, "dx of logits, added", tolerance(r), n, c, c);
    OK(r->be->ops->conv_grad_input(r->be, &a));
    a.x = op_operand(r, n_out, p->c_out, p->c_out + 2 * p->pad, 2);
    a.y = op_result(r, "dx, added", tolerance(r), n, c, c + p->pad);
    OK(r->be->ops->conv_grad_input(r->be, &a));
    a.is_added = false;
    a.y = op_result(r, "dx", tolerance(r), n, c, c + p->pad);
    OK(r->be->ops->conv_grad_input(r->be, &a));
    fuse_backward(r, p, a);
}

/* dW with dbias behind it, written, and added to the numbers already there. */
static void weigh(op_results *r, const problem *p)
{
    const fx_level *out = &p->level[p->kind->out];
    const size_t n = (size_t)p->map.K * p->c_in * p->c_out;
    const int all = (int)n + p->c_out;
    sp_conv_wgrad_args a = {
        .map = p->kind->has_map ? &p->map : NULL,
        .x = op_operand(r, p->map.n_in, p->c_in, p->c_in + p->pad, 1),
        .dy = op_operand(r, p->map.n_out, p->c_out, p->c_out + 2 * p->pad, 2),
        .sample_row = out->sample_row,
        .sample1 = out->n_samples};

    for (int i = 0; i < 2; i++) {
        a.is_added = i;
        a.dw =
            op_result_fp32(r, i ? "dW, added" : "dW", tolerance(r), 1, all, all).data;
        a.dbias = a.dw + n;
        OK(r->be->ops->conv_grad_weight(r->be, &a));
    }
    a.dy = op_operand_fp32(r, p->map.n_out, p->c_out, p->c_out, 7, true);
    a.dw = op_result_fp32(r, "dW of logits", tolerance(r), 1, all, all).data;
    a.dbias = NULL;
    OK(r->be->ops->conv_grad_weight(r->be, &a));
}

static void convolve(op_results *r, const void *of)
{
    const problem *p = of;
    const size_t n = (size_t)p->map.K * p->c_in * p->c_out;
    float *w = op_vector(r, n, 3);

    for (size_t i = 0; r->is_rounded && i < n; i++)
        w[i] = sp_bf16_to_float(sp_bf16_of(w[i]));
    forward(r, p, w);
    backward(r, p, w);
    weigh(r, p);
}

static void only_weigh(op_results *r, const void *of)
{
    weigh(r, of);
}

static void compare_parts(sp_precision precision, const conv_kind *k, int n_samples,
                          const int *rows, int c_in, int c_out, int pad,
                          void parts(op_results *, const void *))
{
    problem p = {.kind = k, .c_in = c_in, .c_out = c_out, .pad = pad};
    const size_t mark = test_mark();

    p.level[0] = fx_voxels(n_samples, rows, 3);
    p.level[1] = fx_coarser(&p.level[0]);
    p.map = fx_map(&p.level[k->in], &p.level[k->out], k->kernel, k->is_swapped);
    p.swap = fx_map(&p.level[k->out], &p.level[k->in], k->kernel, !k->is_swapped);
    compare(precision, parts, &p);
    test_release(mark);
}

static void compare_conv(sp_precision precision, const conv_kind *k, int n_samples,
                         const int *rows, int c_in, int c_out, int pad)
{
    compare_parts(precision, k, n_samples, rows, c_in, c_out, pad, convolve);
}

TEST(every_map_and_row_count)
{
    static const int rows[] = {0, 1, 2, 13, 31, 33, 127, 777};

    for (int k = 0; k < N_KINDS; k++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            compare_conv(SP_FP32, &conv_kinds[k], 1, &rows[i], 20, 33, 0);
}

/* Odd numbers of channels, masked tails, blocks of channels. */
TEST(every_channel_count)
{
    static const int channels[] = {1, 3, 4, 16, 20, 32, 33, 48, 64, 96, 128, 256};
    const int rows[] = {33, 0, 40};

    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        compare_conv(SP_FP32, &conv_kinds[CONV_3], 3, rows, channels[i], 17, 3);
        compare_conv(SP_FP32, &conv_kinds[CONV_DOWN], 3, rows, 5, channels[i], 3);
        compare_conv(SP_FP32, &conv_kinds[CONV_1], 3, rows, channels[i], channels[i],
                     0);
    }
    compare_conv(SP_FP32, &conv_kinds[CONV_DOWN], 3, rows, 1030, 20, 0);
}

TEST(samples_of_several_tiles)
{
    const int rows[] = {777, 0, 1100, 5};

    for (int k = 0; k < N_KINDS; k++)
        compare_conv(SP_FP32, &conv_kinds[k], 4, rows, 16, 24, 8);
}

/* Fewer, since the portable version computes each product in a dozen steps. */
TEST(every_map_and_channel_count_in_bf16)
{
    static const int channels[] = {1, 2, 3, 4, 16, 17, 20, 32, 33, 64, 96};
    const int several[] = {600, 0, 33, 1}, rows[] = {33, 0, 40}, one = 1, none = 0;

    for (int k = 0; k < N_KINDS; k++)
        compare_conv(SP_BF16, &conv_kinds[k], 4, several, 5, 7, 1);
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        compare_conv(SP_BF16, &conv_kinds[CONV_3], 3, rows, channels[i], 7, 3);
        compare_conv(SP_BF16, &conv_kinds[CONV_DOWN], 3, rows, 5, channels[i], 0);
    }
    compare_conv(SP_BF16, &conv_kinds[CONV_DOWN], 3, rows, 257, 5, 0);
    compare_conv(SP_BF16, &conv_kinds[CONV_DOWN], 3, rows, 515, 20, 1);
    compare_conv(SP_BF16, &conv_kinds[CONV_1], 3, rows, 256, 256, 0);
    compare_conv(SP_BF16, &conv_kinds[CONV_3], 1, &one, 6, 6, 0);
    compare_conv(SP_BF16, &conv_kinds[CONV_3], 1, &none, 6, 6, 0);
}

/* dW of 2 MiB, and more rows than those of the smallest steps: the CPU adds it offset
 * by offset. One sample has none of the pairs, and another one has a single row. */
TEST(weight_gradients_larger_than_a_cache)
{
    const int fewer[] = {500, 0, 600, 1}, more[] = {1500, 0, 1700, 1};

    compare_parts(SP_BF16, &conv_kinds[CONV_DOWN], 4, fewer, 256, 256, 0, only_weigh);
    compare_parts(SP_FP32, &conv_kinds[CONV_DOWN], 4, more, 256, 256, 0, only_weigh);
}

/* ---- rows ---- */

/* Sums are of gradients as they are stored: a slope by which bf16 is not rounded keeps
 * them those of the plain loops. */
static void compare_rows(int n, int c, int pad, float slope)
{
    const int32_t row[] = {0, n, n, n + 2};

    compare(SP_FP32, op_rows, &(op_shape){row, 3, c, pad, slope, false});
    if (slope != 0)
        compare(SP_BF16, op_rows,
                &(op_shape){row, 3, c, pad, slope == 1 ? 1 : 0.25f, false});
}

TEST(norms_of_residuals)
{
    static const int32_t row[] = {0, 70, 70, 131};
    static op_results one, two;

    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
        const sp_precision precision = is_bf16 ? SP_BF16 : SP_FP32;
        const int end = is_bf16 ? FX_BF16_ISAS : FX_ISAS;
        sp_backend be = fx_reference();

        for (int v = FX_PLAIN; fx_next(&be, &v, end, 1, precision);) {
            op_shape s = {row, 3, 37, 1, 0.25f, false};

            op_run(&one, &be, NULL, is_bf16, is_bf16, op_rows, &s);
            s.is_apart = true;
            op_run(&two, &be, NULL, is_bf16, is_bf16, op_rows, &s);
            op_same(fx_isas[v], &one, &two);
        }
    }
}

TEST(rows_of_every_shape)
{
    static const int channels[] = {1, 3, 4, 8, 16, 20, 32, 33, 48, 64, 96, 128, 256};
    static const int rows[] = {0, 1, 2, 13, 31, 33, 127, 777};
    static const float slopes[] = {1, 0, 0.01f};

    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
        for (size_t k = 0; k < 3; k++)
            compare_rows(rows[(i + k) % 8], channels[i], (int)i % 4, slopes[k]);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        compare_rows(rows[i], 20, 0, slopes[i % 3]);
}

static void pool(op_results *r, const void *of)
{
    const sp_map *map = of;

    op_pools(r, map, 4, 5, 1);
    op_pools(r, map, 4, 33, 0);
}

TEST(pools)
{
    const int rows[] = {90, 0, 30, 1};
    const fx_level fine = fx_voxels(4, rows, 3);
    sp_map maps[FX_POOL_MAPS];

    fx_pool_maps(&fine, maps);
    for (int i = 0; i < FX_POOL_MAPS; i++) {
        compare(SP_FP32, pool, &maps[i]);
        compare(SP_BF16, pool, &maps[i]);
    }
}

TEST(interpolations)
{
    const int rows[] = {90, 0, 30, 1};
    const fx_level fine = fx_voxels(4, rows, 3);
    const fx_lineage l = fx_lineage_of(&fine);

    compare(SP_FP32, op_interpolations, &l);
    compare(SP_BF16, op_interpolations, &l);
}

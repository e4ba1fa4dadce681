/* The vector kernels of each instruction set agree with the plain loops: forward, input
 * and weight gradients, over kinds of map, channels with masked tails, numbers of rows
 * and row pitches. */
#include "fixtures/test.h"

#include "fixtures/map_fixture.h"

/* The data of one case. */
typedef struct kind {
    const char *name;
    int kernel, in, out; /* 0 fine, 1 coarse */
    bool is_swapped, has_map;
} kind;

static const kind kinds[] = {
    {"3^3", 3, 0, 0, false, true},          {"2^3 down", 2, 0, 1, false, true},
    {"2^3 up", 2, 1, 0, false, true},       {"3^3 down", 3, 0, 1, false, true},
    {"2^3 stride 1", 2, 0, 0, false, true}, {"2^3 swapped", 2, 0, 0, true, true},
    {"1^3", 1, 0, 0, false, false},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

typedef struct problem {
    kind kind;
    fx_level level[2];
    sp_map map;
    int K, c_in, c_out;
    sp_tensor x, dy; /* input and output side */
    float *w, *bias;
} problem;

static problem make(kind k, int n_samples, const int *rows, int c_in, int c_out,
                    int pad)
{
    problem p = {.kind = k, .c_in = c_in, .c_out = c_out};

    p.level[0] = fx_voxels(n_samples, rows, 3);
    p.level[1] = fx_coarser(&p.level[0]);
    p.map = fx_map(&p.level[k.in], &p.level[k.out], k.kernel, k.is_swapped);
    p.K = p.map.K;
    p.x = fx_tensor(p.map.n_in, c_in, c_in + pad, 1);
    p.dy = fx_tensor(p.map.n_out, c_out, c_out + 2 * pad, 2);
    p.w = fx_floats((size_t)p.K * c_in * c_out, 3);
    p.bias = fx_floats((size_t)c_out, 4);
    return p;
}

static void drop(problem *p)
{
    fx_map_free(&p->map);
    fx_level_free(&p->level[0]);
    fx_level_free(&p->level[1]);
    free(p->x.data);
    free(p->dy.data);
    free(p->w);
    free(p->bias);
}

static sp_conv_args forward_args(const problem *p, sp_tensor y, const float *packed)
{
    return (sp_conv_args){.map = p->kind.has_map ? &p->map : NULL,
                          .x = p->x,
                          .y = y,
                          .w = p->w,
                          .w_packed = packed,
                          .bias = p->bias};
}

static sp_tensor forward(sp_backend *be, const problem *p, bool has_bias, bool is_added)
{
    sp_tensor y = fx_tensor(p->dy.n, p->c_out, p->dy.ld, 5);
    float *packed = fx_pack(be, p->w, p->K, p->c_in, p->c_out, false, false);
    sp_conv_args a = forward_args(p, y, packed);

    a.bias = has_bias ? p->bias : NULL;
    a.is_added = is_added;
    OK(be->ops->conv_forward(be, &a));
    fx_guards(y);
    free(packed);
    return y;
}

/* The columns of dx that are the gradient of a norm's output. */
static sp_tensor norm_columns(const problem *p, sp_tensor dx)
{
    return sp_tensor_columns(dx, p->c_in / 3, p->c_in - p->c_in / 3);
}

/* dx through the swapped map, or the forward map itself where it is its own mirror.
 * norm: NULL, or a norm and its residual norm, whose backward passes are fused. */
static sp_tensor grad_input(sp_backend *be, const problem *p, bool is_added,
                            sp_norm_grad_args *norm)
{
    const kind k = p->kind;
    const bool is_mirrored = k.has_map && p->map.is_full;
    sp_map swap = fx_map(&p->level[k.out], &p->level[k.in], k.kernel, !k.is_swapped);
    sp_tensor dx = fx_tensor(p->x.n, p->c_in, p->x.ld, 6);
    float *packed = fx_pack(be, p->w, p->K, p->c_in, p->c_out, true, is_mirrored);
    sp_conv_args a = {.map = !k.has_map    ? NULL
                             : is_mirrored ? &p->map
                                           : &swap,
                      .x = p->dy,
                      .y = dx,
                      .w = p->w,
                      .w_packed = packed,
                      .is_mirrored = is_mirrored,
                      .is_added = is_added};

    if (norm) {
        norm[0].dy = norm[1].dy = norm_columns(p, dx);
        OK(be->ops->conv_grad_input_norm_sums(be, &a, &norm[0], &norm[1]));
    } else {
        OK(be->ops->conv_grad_input(be, &a));
    }
    fx_guards(dx);
    free(packed);
    fx_map_free(&swap);
    return dx;
}

/* dW with dbias behind it, added to the numbers already there. */
static sp_tensor grad_weight(sp_backend *be, const problem *p)
{
    size_t n = (size_t)p->K * p->c_in * p->c_out, n_all = n + (size_t)p->c_out;
    float *dw = fx_floats(n_all, 8);
    sp_conv_wgrad_args a = {.map = p->kind.has_map ? &p->map : NULL,
                            .x = p->x,
                            .dy = p->dy,
                            .sample_row = p->level[p->kind.out].sample_row,
                            .sample1 = p->level[0].n_samples,
                            .dw = dw,
                            .dbias = dw + n};

    OK(be->ops->conv_grad_weight(be, &a));
    return fx_flat(dw, n_all);
}

static void same(const problem *p, const char *isa, const char *what, sp_tensor fast,
                 sp_tensor plain, double tolerance)
{
    double error = fx_error(fast, plain);

    if (!(error <= tolerance))
        fail_msg("%s %s, %s: %d -> %d channels, %d rows: error %g", isa, what,
                 p->kind.name, p->c_in, p->c_out, (int)p->dy.n, error);
    free(fast.data);
    free(plain.data);
}

/* The sums of the fused forward pass are those of the separate pass over the same y, to
 * the bit. */
static void sums_with_forward(sp_backend *be, const char *isa, const problem *p)
{
    const fx_level *out = &p->level[p->kind.out];
    const size_t n = 2 * (size_t)p->c_out * (size_t)out->n_samples;
    double *fused = malloc((n + 1) * sizeof *fused), *apart = calloc(n, sizeof *apart);
    sp_tensor plain = forward(be, p, true, false);
    sp_tensor y = fx_tensor(p->dy.n, p->c_out, p->dy.ld, 5);
    float *packed = fx_pack(be, p->w, p->K, p->c_in, p->c_out, false, false);
    sp_conv_args a = forward_args(p, y, packed);

    memset(fused, 0xff, (n + 1) * sizeof *fused); /* written, not added to: NaN */
    OK(be->ops->conv_forward_norm_sums(be, &a, out->sample_row, out->n_samples, fused));
    OK(be->ops->norm_sums(be, plain, out->sample_row, out->n_samples, apart));
    if (memcmp(fused, apart, n * sizeof *fused))
        fail_msg("%s, %s: %d -> %d channels: sums differ", isa, p->kind.name, p->c_in,
                 p->c_out);
    assert_true(isnan(fused[n]));
    free(fused);
    free(apart);
    free(packed);
    same(p, isa, "forward with sums", y, plain, 0);
}

/* The fused norm gives the bits of the separate pass over the same convolution, with
 * and without a residual. */
static void norm_with_forward(sp_backend *be, const char *isa, const problem *p,
                              bool has_res, float slope)
{
    const size_t c = (size_t)p->c_out, bytes = (size_t)(p->dy.n * p->dy.ld) * 4;
    float *packed = fx_pack(be, p->w, p->K, p->c_in, p->c_out, false, false);
    float *vector = fx_floats(2 * c, 24);
    sp_tensor plain = forward(be, p, true, false);
    sp_tensor y = fx_tensor(p->dy.n, p->c_out, p->dy.ld, 5);
    sp_conv_args a = forward_args(p, y, packed);
    sp_norm_args norm = {
        .x = y, .y = y, .scale = vector, .shift = vector + c, .slope = slope};

    if (has_res)
        norm.res = p->dy;
    OK(be->ops->conv_forward_norm_apply(be, &a, &norm));
    fx_guards(y);
    norm.x = norm.y = plain;
    OK(be->ops->norm_apply(be, &norm));
    if (memcmp(y.data, plain.data, bytes))
        fail_msg("%s, %s: %d -> %d channels, %d rows: normalized rows differ", isa,
                 p->kind.name, p->c_in, p->c_out, (int)p->dy.n);
    free(y.data);
    free(plain.data);
    free(vector);
    free(packed);
}

/* The fused input gradient and its sums are those of the separate passes, to the bit.
 */
static void sums_with_grad_input(sp_backend *be, const char *isa, const problem *p)
{
    const fx_level *in = &p->level[p->kind.in];
    const int c = p->c_in - p->c_in / 3;
    const size_t n = 2 * (size_t)c * (size_t)in->n_samples;
    double *sums = calloc(4 * n, sizeof *sums);
    sp_tensor x = fx_tensor(p->x.n, c, c, 21), y = fx_tensor(p->x.n, c, c, 22), dx[2];
    float *vector = fx_floats(2 * (size_t)c, 23);
    sp_norm_grad_args norm[2] = {{.x = x,
                                  .y = y,
                                  .slope = 0.25f,
                                  .mean = vector,
                                  .inv_std = vector + c,
                                  .sample_row = in->sample_row,
                                  .n_samples = in->n_samples,
                                  .sums = sums}};

    norm[1] = norm[0];
    norm[1].x = y;
    norm[1].slope = 1;
    norm[1].sums = sums + n;
    dx[0] = grad_input(be, p, true, norm);
    dx[1] = grad_input(be, p, true, NULL);
    for (int i = 0; i < 2; i++) {
        norm[i].dy = norm_columns(p, dx[1]);
        norm[i].sums += 2 * n;
        OK(be->ops->norm_grad_sums(be, &norm[i]));
    }
    if (memcmp(sums, sums + 2 * n, 2 * n * sizeof *sums))
        fail_msg("%s, %s: %d -> %d channels: sums of the gradient differ", isa,
                 p->kind.name, p->c_in, p->c_out);
    free(sums);
    free(vector);
    free(x.data);
    free(y.data);
    same(p, isa, "dx with sums", dx[0], dx[1], 0);
}

static void compare(sp_backend *fast, const char *isa, const problem *p)
{
    sp_backend ref = fx_reference();

    same(p, isa, "forward", forward(fast, p, false, false),
         forward(&ref, p, false, false), 3e-6);
    same(p, isa, "bias", forward(fast, p, true, false), forward(&ref, p, true, false),
         3e-6);
    same(p, isa, "added", forward(fast, p, false, true), forward(&ref, p, false, true),
         3e-6);
    same(p, isa, "dx", grad_input(fast, p, false, NULL),
         grad_input(&ref, p, false, NULL), 3e-6);
    same(p, isa, "dx added", grad_input(fast, p, true, NULL),
         grad_input(&ref, p, true, NULL), 3e-6);
    same(p, isa, "dW", grad_weight(fast, p), grad_weight(&ref, p), 3e-6);
    sums_with_forward(fast, isa, p);
    norm_with_forward(fast, isa, p, false, 1);
    norm_with_forward(fast, isa, p, true, 0);
    norm_with_forward(fast, isa, p, true, 0.25f);
    sums_with_grad_input(fast, isa, p);
}

static void compare_case(kind k, int n_samples, const int *rows, int c_in, int c_out,
                         int pad)
{
    problem p = make(k, n_samples, rows, c_in, c_out, pad);

    for (int i = 0; i < FX_ISAS; i++) {
        sp_backend be;
        if (!fx_open(&be, fx_isas[i], 1))
            continue;
        compare(&be, fx_isas[i], &p);
        be.ops->close(&be);
    }
    drop(&p);
}

TEST(every_map_and_row_count)
{
    static const int rows[] = {0, 1, 2, 13, 31, 33, 127, 777};

    for (int k = 0; k < N_KINDS; k++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            compare_case(kinds[k], 1, &rows[i], 20, 33, 0);
}

TEST(every_channel_count)
{
    static const int channels[] = {1, 3, 4, 16, 20, 32, 33, 48, 64, 96, 128, 256};
    const int rows[] = {33, 0, 40};

    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        compare_case(kinds[0], 3, rows, channels[i], 17, 3);
        compare_case(kinds[1], 3, rows, 5, channels[i], 3);
        compare_case(kinds[6], 3, rows, channels[i], channels[i], 0);
    }
    compare_case(kinds[1], 3, rows, 1030, 20, 0);
}

TEST(samples_of_several_tiles)
{
    const int rows[] = {777, 0, 1100, 5};

    for (int k = 0; k < N_KINDS; k++)
        compare_case(kinds[k], 4, rows, 16, 24, 8);
}

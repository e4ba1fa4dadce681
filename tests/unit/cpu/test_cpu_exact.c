/* Bits do not depend on the batch or on threads: every operation, on real plans, gives
 * a sample the same bytes alone and among others, with 1, 2 and 3 threads, in each
 * instruction set, in fp32 and in bf16. */
#include "fixtures/test.h"

#include "fixtures/map_fixture.h"

enum { C = 36, C_IN = 20, N_CLASSES = 5, MOST = 48 };
/* Each instruction set in fp32, then each in bf16. */
enum { VERSIONS = 2 * FX_BF16_ISAS };

/* A matrix of bytes: sample b has rows row[b] .. row[b + 1] - 1 of row_bytes each. */
typedef struct output {
    const char *name;
    char *data;
    size_t row_bytes;
    int32_t row[FX_SAMPLES + 1];
} output;

typedef struct run {
    size_t mark; /* of its memory */
    sp_backend be;
    int n_samples;
    sp_arena arena;
    sp_plan plan;
    const int32_t *fine, *coarse; /* sample_row of the two levels */
    int64_t id[FX_SAMPLES];       /* of each sample; determines its contents */
    int n;
    output out[MOST];
} run;

static const int32_t *each_sample(void)
{
    static const int32_t row[FX_SAMPLES + 1] = {0, 1, 2, 3, 4};
    return row;
}

/* A new output of zeros, with row_bytes for each row. */
static void *put(run *r, const char *name, const int32_t *row, size_t row_bytes)
{
    output *o = &r->out[r->n++];

    assert_true(r->n <= MOST);
    o->name = name;
    o->row_bytes = row_bytes;
    memcpy(o->row, row, ((size_t)r->n_samples + 1) * sizeof *row);
    return o->data = test_alloc(((size_t)row[r->n_samples] + 1) * row_bytes);
}

static sp_tensor put_rows_of(run *r, const char *name, const int32_t *row, int c,
                             sp_elem elem)
{
    void *data = put(r, name, row, (size_t)c * sp_elem_bytes(elem));
    return (sp_tensor){data, row[r->n_samples], c, c, elem};
}

static sp_tensor put_rows(run *r, const char *name, const int32_t *row, int c)
{
    const bool is_bf16 = r->be.precision == SP_BF16;

    return put_rows_of(r, name, row, c, is_bf16 ? SP_ELEM_BF16 : SP_ELEM_F32);
}

/* fx_tensor(n, c, c, seed).data, drawn once: under the sanitizers drawing takes longer
 * than most operations. */
static const float *drawn(int n, int c, uint64_t seed)
{
    static struct {
        int n, c;
        uint64_t seed;
        float *data;
    } kept[128];
    const size_t bytes = ((size_t)n * c + 1) * sizeof(float);
    int i = 0;

    while (kept[i].data && (kept[i].n != n || kept[i].c != c || kept[i].seed != seed)) {
        i++;
        assert_true(i < 128);
    }
    if (!kept[i].data) {
        kept[i].n = n;
        kept[i].c = c;
        kept[i].seed = seed;
        kept[i].data = malloc(bytes);
        memcpy(kept[i].data, fx_tensor(n, c, c, seed).data, bytes);
    }
    return kept[i].data;
}

/* The input of a batch: row i of a sample is a function of (sample id, seed, i). */
static sp_tensor input_fp32(const run *r, const int32_t *row, int c, uint64_t seed)
{
    const size_t room = (size_t)row[r->n_samples] * c + 1;
    sp_tensor t = {test_alloc(room * sizeof(float)), row[r->n_samples], c, c,
                   SP_ELEM_F32};

    for (int b = 0; b < r->n_samples; b++) {
        int n = row[b + 1] - row[b];
        const float *part = drawn(n, c, 100 * seed + (uint64_t)r->id[b]);
        memcpy(t.data + row[b] * c, part, (size_t)n * c * sizeof(float));
    }
    return t;
}

static sp_tensor input(const run *r, const int32_t *row, int c, uint64_t seed)
{
    const sp_tensor t = input_fp32(r, row, c, seed);

    return r->be.precision == SP_BF16 ? fx_rounded(t) : t;
}

/* The convolution with a norm, an addition and an activation in one operation. */
static void infer(run *r, sp_conv_args a, const int32_t *to)
{
    float *vector = fx_floats(2 * C, 4);
    sp_tensor y = put_rows(r, "normalized y", to, C), res = input(r, to, C, 2);
    sp_norm_args norm = {.x = y,
                         .y = y,
                         .scale = vector,
                         .shift = vector + C,
                         .res = res,
                         .slope = 0.1f};

    a.y = y;
    OK(r->be.ops->conv_forward_norm_apply(&r->be, &a, &norm));
}

static void convolve(run *r, const char *name, const sp_map *map, const int32_t *from,
                     const int32_t *to, bool is_grad)
{
    const int K = map ? map->K : 1, c_in = is_grad ? C : C_IN,
              c_out = is_grad ? C_IN : C;
    sp_tensor x = input(r, from, c_in, 1), y = put_rows(r, name, to, c_out);
    const float *w = drawn(1, K * C_IN * C, 3);
    float *packed = fx_pack(&r->be, w, K, C_IN, C, is_grad, is_grad && map);
    sp_conv_args a = {.map = map, .x = x, .y = y, .w = w, .w_packed = packed};

    a.is_mirrored = is_grad && map;
    if (is_grad)
        OK(r->be.ops->conv_grad_input(&r->be, &a));
    else
        OK(r->be.ops->conv_forward_norm_sums(
            &r->be, &a, to, r->n_samples,
            put(r, "sums of y", each_sample(), 2 * C * sizeof(double))));
    if (!is_grad)
        infer(r, a, to);
}

/* dW of each sample, by a call for each. */
static void weigh(run *r, const char *name, const sp_map *map, const int32_t *from,
                  const int32_t *to)
{
    const size_t n = (size_t)(map ? map->K : 1) * C_IN * C;
    float *dw = put(r, name, each_sample(), (n + C) * sizeof *dw);
    sp_tensor x = input(r, from, C_IN, 1), dy = input(r, to, C, 2);

    for (int b = 0; b < r->n_samples; b++, dw += n + C) {
        sp_conv_wgrad_args a = {.map = map,
                                .x = x,
                                .dy = dy,
                                .sample_row = to,
                                .sample0 = b,
                                .sample1 = b + 1,
                                .dw = dw,
                                .dbias = dw + n};
        OK(r->be.ops->conv_grad_weight(&r->be, &a));
    }
}

static void normalize(run *r)
{
    sp_tensor x = input(r, r->fine, C, 1), res = input(r, r->fine, C, 2);
    sp_tensor y = put_rows(r, "norm_apply", r->fine, C),
              dy = put_rows(r, "g", r->fine, C);
    float *p = fx_floats(5 * C, 4);
    double *sums = put(r, "norm_sums", each_sample(), 2 * C * sizeof *sums);
    sp_norm_args a = {
        .x = x, .y = y, .scale = p, .shift = p + C, .res = res, .slope = 0.1f};
    sp_norm_grad_args g = {.x = x,
                           .y = y,
                           .dy = dy,
                           .slope = 0.1f,
                           .mean = p,
                           .inv_std = p + C,
                           .sample_row = r->fine,
                           .n_samples = r->n_samples,
                           .a = p + 2 * C,
                           .b = p + 3 * C,
                           .c = p + 4 * C,
                           .dx = put_rows(r, "norm dx", r->fine, C)};

    OK(r->be.ops->norm_sums(&r->be, x, r->fine, r->n_samples, sums));
    OK(r->be.ops->norm_apply(&r->be, &a));
    OK(r->be.ops->copy(&r->be, res, dy, false));
    g.sums = put(r, "norm_grad_sums", each_sample(), 2 * C * sizeof *g.sums);
    OK(r->be.ops->norm_grad_sums(&r->be, &g));
    OK(r->be.ops->norm_grad_apply(&r->be, &g));
}

static void pointwise(run *r)
{
    sp_tensor x = input(r, r->fine, C, 1), g = input(r, r->fine, C, 2);
    sp_tensor y = put_rows(r, "relu", r->fine, C);

    OK(r->be.ops->relu(&r->be, x, 0, y));
    OK(r->be.ops->relu_grad(&r->be, y, 0.2f, g, put_rows(r, "relu_grad", r->fine, C),
                            true));
    OK(r->be.ops->copy(&r->be, x, put_rows(r, "copy", r->fine, C), true));
    const sp_dropout_args drop = fx_dropout(x, put_rows(r, "dropout", r->fine, C), 0.3f,
                                            r->id, r->fine, r->n_samples);
    OK(r->be.ops->dropout(&r->be, &drop));
}

static void pool(run *r, bool is_max)
{
    sp_tensor x = input(r, r->fine, C, 1), dy = input(r, r->coarse, C, 2);
    int32_t *argmax = test_alloc(((size_t)dy.n + FX_SAMPLES) * C * sizeof *argmax);
    sp_pool_args a = {.map = &r->plan.map[3],
                      .is_max = is_max,
                      .x = x,
                      .dy = dy,
                      .argmax = is_max ? argmax : NULL,
                      .y = put_rows(r, is_max ? "max" : "mean", r->coarse, C),
                      .dx = put_rows(r, is_max ? "max dx" : "mean dx", r->fine, C)};
    sp_tensor top = put_rows(r, is_max ? "top" : "average", each_sample(), C);
    sp_tensor dx = put_rows(r, "global dx", r->fine, C);

    OK(r->be.ops->pool(&r->be, &a));
    OK(r->be.ops->pool_grad(&r->be, &a));
    OK(r->be.ops->global_pool(&r->be, x, r->fine, r->n_samples, a.argmax, top));
    OK(r->be.ops->global_pool_grad(&r->be, top, r->fine, r->n_samples, a.argmax, dx));
}

static void spread(run *r)
{
    sp_tensor x = input(r, each_sample(), C, 1),
              y = put_rows(r, "broadcast", r->fine, C);

    OK(r->be.ops->broadcast(&r->be, x, r->fine, r->n_samples, y));
    OK(r->be.ops->broadcast_grad(&r->be, y, r->fine, r->n_samples,
                                 put_rows(r, "broadcast dx", each_sample(), C)));
}

static void lose(run *r)
{
    sp_tensor z = input_fp32(r, r->fine, N_CLASSES, 1),
              u = input_fp32(r, r->fine, 1, 2);
    int32_t *label = test_alloc(((size_t)z.n + 1) * sizeof *label);
    sp_loss_args a = {.logits = z,
                      .label = label,
                      .rule = {.smoothing = 0.1f},
                      .sample_row = r->fine,
                      .n_samples = r->n_samples,
                      .dlogits =
                          put_rows_of(r, "dlogits", r->fine, N_CLASSES, SP_ELEM_F32)};

    for (int64_t i = 0; i < z.n; i++)
        label[i] = (int)((fx_at(u, i, 0) + 1) * 3) - 1;
    a.sums = put(r, "loss", each_sample(), 2 * sizeof(double));
    a.prediction = put(r, "prediction", r->fine, sizeof *label);
    OK(r->be.ops->loss(&r->be, &a));
}

static void build(run *r, const int *rows)
{
    const sp_plan_spec spec = {
        .n_levels = 2,
        .n_maps = 4,
        .map = {{0, 0, 3, 0}, {0, 1, 2, 0}, {1, 0, 2, 0}, {0, 1, 3, 0}}};
    fx_level l = {0};
    int32_t(*at)[3], row[FX_SAMPLES + 1] = {0};

    for (int b = 0; b < r->n_samples; b++)
        row[b + 1] = row[b] + rows[b];
    at = test_alloc(((size_t)row[r->n_samples] + 1) * sizeof *at);
    for (int b = 0; b < r->n_samples; b++) {
        l = fx_voxels(1, &rows[b], (uint64_t)r->id[b]);
        memcpy(at + row[b], l.at, (size_t)rows[b] * sizeof *at);
    }
    OK(r->be.ops->arena_create(&r->arena, (size_t)1 << 28, "test"));
    OK(r->be.ops->plan_build(&r->be, &spec, at[0], row, r->n_samples, &r->arena,
                             &r->plan));
    r->fine = r->plan.level[0].sample_row;
    r->coarse = r->plan.level[1].sample_row;
}

static bool begin(run *r, int version, int threads, int n_samples, const int *rows,
                  int first)
{
    const char *isa = fx_isas[version % FX_BF16_ISAS];
    const sp_precision precision = version < FX_BF16_ISAS ? SP_FP32 : SP_BF16;
    const sp_map *m = r->plan.map;

    memset(r, 0, sizeof *r);
    r->mark = test_mark();
    r->n_samples = n_samples;
    if (!fx_open_in(&r->be, isa, threads, precision))
        return false;
    for (int b = 0; b < n_samples; b++)
        r->id[b] = first + b;
    build(r, rows);
    convolve(r, "3^3", &m[0], r->fine, r->fine, false);
    convolve(r, "3^3 dx", &m[0], r->fine, r->fine, true);
    convolve(r, "down", &m[1], r->fine, r->coarse, false);
    convolve(r, "up", &m[2], r->coarse, r->fine, false);
    convolve(r, "1^3", NULL, r->fine, r->fine, false);
    weigh(r, "3^3 dW", &m[0], r->fine, r->fine);
    weigh(r, "down dW", &m[1], r->fine, r->coarse);
    weigh(r, "1^3 dW", NULL, r->fine, r->fine);
    normalize(r);
    pointwise(r);
    pool(r, true);
    pool(r, false);
    spread(r);
    lose(r);
    return true;
}

static void end(run *r)
{
    r->be.ops->arena_destroy(&r->arena);
    r->be.ops->close(&r->be);
    test_release(r->mark);
}

/* Sample b of `all` has the bytes of sample `at` of `part`, and they are not all zero.
 */
static void same(const char *isa, const run *all, int b, const run *part, int at)
{
    for (int i = 0; i < all->n; i++) {
        const output *o = &all->out[i], *q = &part->out[i];
        size_t bytes = (size_t)(o->row[b + 1] - o->row[b]) * o->row_bytes, used = 0;
        const char *data = o->data + (size_t)o->row[b] * o->row_bytes;
        assert_int_equal(o->row[b + 1] - o->row[b], q->row[at + 1] - q->row[at]);
        if (memcmp(data, q->data + (size_t)q->row[at] * q->row_bytes, bytes))
            fail_msg("%s: sample %d: %s differs", isa, b, o->name);
        while (used < bytes && !data[used])
            used++;
        if (all->fine[b] < all->fine[b + 1] && used == bytes)
            fail_msg("%s: sample %d: %s is all zero", isa, b, o->name);
    }
}

/* Two tiles of SP_TILE rows, one, none and three. */
static const int rows[FX_SAMPLES] = {520, 33, 0, 1030};

TEST(alone_or_in_a_batch_with_any_number_of_threads)
{
    run all, other;

    for (int i = 0; i < VERSIONS; i++) {
        const char *isa = fx_isas[i % FX_BF16_ISAS];
        if (i % FX_BF16_ISAS == FX_PLAIN || !begin(&all, i, 1, FX_SAMPLES, rows, 0))
            continue;
        for (int b = 0; b < FX_SAMPLES; b++) {
            assert_true(begin(&other, i, 1, 1, &rows[b], b));
            same(isa, &all, b, &other, 0);
            end(&other);
        }
        for (int threads = 2; threads <= 3; threads++) {
            assert_true(begin(&other, i, threads, FX_SAMPLES, rows, 0));
            for (int b = 0; b < FX_SAMPLES; b++)
                same(isa, &all, b, &other, b);
            end(&other);
        }
        end(&all);
    }
}

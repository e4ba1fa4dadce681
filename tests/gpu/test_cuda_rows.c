/* Batch norm, activations, dropout and pooling on the CUDA backend agree with plain
 * loops over channels, rows, pitches, slopes and element types: the largest error over
 * max(1, largest value) is at most 1e-6, of sums in double 1e-11; dropout, maxima,
 * broadcasts and copies are equal bit for bit. In bf16 both begin from the same
 * numbers, and results differ by their rounding, 2^-8. */
#include "fixtures/test.h"

#include "gpu/cuda_fixture.h"

enum { N_SAMPLES = 3 };

/* A case: sample rows and the tensors' shape. */
typedef struct shape {
    int32_t row[N_SAMPLES + 1];
    int64_t n;
    int c, pad;
    float slope;
    sp_elem elem; /* on the device */
} shape;

static sp_tensor tensor(sp_elem elem, int64_t n, int c, int ld, uint64_t seed)
{
    sp_tensor t = fx_tensor(n, c, ld, seed);

    for (int64_t i = 0; elem == SP_ELEM_BF16 && i < n * ld; i++) {
        uint32_t bits;
        memcpy(&bits, t.data + i, sizeof bits);
        bits &= 0xffff0000u;
        if (t.data[i] != FX_GUARD)
            memcpy(t.data + i, &bits, sizeof bits);
    }
    return t;
}

static sp_tensor rows(const shape *s, uint64_t seed)
{
    return tensor(s->elem, s->n, s->c, s->c + s->pad, seed);
}

static sp_tensor sample_rows(const shape *s, uint64_t seed)
{
    return tensor(s->elem, N_SAMPLES, s->c, s->c + s->pad, seed);
}

static sp_tensor on_device(sp_backend *be, sp_elem elem, sp_tensor t)
{
    return elem == SP_ELEM_BF16 ? cu_tensor_bf16(be, t) : cu_tensor(be, t);
}

static void same_sums(const char *what, sp_backend *be, const double *device,
                      const double *want, int n)
{
    double *got = malloc((size_t)n * sizeof *got);

    OK(be->ops->download(be, got, device, (size_t)n * sizeof *got));
    for (int i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-11 * fmax(1, fabs(want[i]))))
            fail_msg("%s: sum %d of %d: %.17g, expected %.17g", what, i, n, got[i],
                     want[i]);
    free(got);
}

static void same(const char *what, sp_backend *be, sp_tensor device, sp_tensor want,
                 double tolerance)
{
    sp_tensor got = {malloc(cu_bytes(want)), want.n, want.c, want.ld, SP_ELEM_F32};

    if (device.elem == SP_ELEM_BF16)
        cu_read_bf16(be, device, got);
    else
        cu_read(be, device, got);
    cu_same(what, got, want,
            device.elem == SP_ELEM_BF16 ? fmax(tolerance, 0x1p-8) : tolerance);
}

/* ---- batch norm ---- */

static void norm(sp_backend *be, const shape *s, bool has_res)
{
    sp_backend ref = fx_reference();
    sp_tensor x = rows(s, 1), res = rows(s, 2), y = rows(s, 3);
    float *p = fx_floats((size_t)s->c * 2, 4);
    double *sums = malloc((size_t)N_SAMPLES * 2 * (size_t)s->c * sizeof *sums);
    const size_t n_sums = (size_t)N_SAMPLES * 2 * (size_t)s->c;
    double *d_sums = cu_copy(be, sums, n_sums * sizeof *sums);
    const float *d_p = cu_copy(be, p, (size_t)s->c * 2 * sizeof *p);
    sp_norm_args a = {.x = x, .y = y, .scale = p, .shift = p + s->c, .slope = s->slope};
    sp_norm_args d = {.x = on_device(be, s->elem, x),
                      .y = on_device(be, s->elem, y),
                      .scale = d_p,
                      .shift = d_p + s->c,
                      .slope = s->slope};

    if (has_res) {
        a.res = res;
        d.res = on_device(be, s->elem, res);
    }
    OK(ref.ops->norm_sums(&ref, x, s->row, N_SAMPLES, sums));
    OK(be->ops->norm_sums(be, d.x, s->row, N_SAMPLES, d_sums));
    same_sums("norm_sums", be, d_sums, sums, (int)n_sums);
    OK(ref.ops->norm_apply(&ref, &a));
    OK(be->ops->norm_apply(be, &d));
    same("norm_apply", be, d.y, y, 1e-6);
    free(x.data), free(res.data), free(p), free(sums);
}

/* has_scale: the sign of y is computed. */
static void norm_grad(sp_backend *be, const shape *s, bool is_added, bool has_scale)
{
    sp_backend ref = fx_reference();
    sp_tensor x = rows(s, 1), y = rows(s, 2), dy = rows(s, 3), dx = rows(s, 4);
    const size_t c = (size_t)s->c, n_sums = N_SAMPLES * 2 * c;
    float *p = fx_floats(c * 7, 5), *q;
    double *sums = malloc(n_sums * sizeof *sums);
    sp_norm_grad_args a = {.x = x,
                           .y = y,
                           .dy = dy,
                           .slope = s->slope,
                           .mean = p,
                           .inv_std = p + c,
                           .sample_row = s->row,
                           .n_samples = N_SAMPLES,
                           .sums = sums,
                           .a = p + 2 * c,
                           .b = p + 3 * c,
                           .c = p + 4 * c,
                           .dx = dx,
                           .is_added = is_added};
    sp_norm_grad_args d = a;

    q = cu_copy(be, p, c * 7 * sizeof *p);
    if (has_scale) {
        a.scale = p + 5 * c;
        a.shift = p + 6 * c;
        d.scale = q + 5 * c;
        d.shift = q + 6 * c;
    }
    d.x = on_device(be, s->elem, x);
    d.y = on_device(be, s->elem, y);
    d.dy = on_device(be, s->elem, dy);
    d.dx = on_device(be, s->elem, dx);
    d.mean = q;
    d.inv_std = q + c;
    d.a = q + 2 * c;
    d.b = q + 3 * c;
    d.c = q + 4 * c;
    d.sums = cu_copy(be, sums, n_sums * sizeof *sums);
    OK(ref.ops->norm_grad_sums(&ref, &a));
    OK(be->ops->norm_grad_sums(be, &d));
    same_sums("norm_grad_sums", be, d.sums, sums, (int)n_sums);
    OK(ref.ops->norm_grad_apply(&ref, &a));
    OK(be->ops->norm_grad_apply(be, &d));
    same("dx of the norm", be, d.dx, dx, 1e-6);
    same("g of the norm", be, d.dy, dy, 0);
    free(x.data), free(y.data), free(p), free(sums);
}

/* ---- coefficients in front of a pass ---- */

enum { FLOATS = 10 }; /* of a channel: constants, coefficients, gradients */

/* The parts of a sum over rows, [n_parts][2][c]: as of rows of unit variance. */
static double *draw_parts(int n_parts, int c)
{
    double *part = malloc(((size_t)n_parts * 2 * (size_t)c + 1) * sizeof *part);

    for (int i = 0; i < n_parts * 2 * c; i++)
        part[i] = i / c % 2 ? 100 + i % 7 : 1.0 / (i % 11 - 5.5);
    return part;
}

/* Runs a forward or backward pass over the elements of a norm, whose coefficients it
 * computes itself or finds computed by an operation of their own. Writes all floats of
 * the norm and the rows of the result. */
static void finish(sp_backend *be, const shape *s, int n_parts, bool is_grad,
                   bool is_one_call, float *floats, sp_tensor rows_out)
{
    const size_t c = (size_t)s->c;
    double *part = draw_parts(n_parts, s->c);
    float *host = fx_floats(FLOATS * c, 7), *p;
    const sp_tensor x_host = rows(s, 1), y_host = rows(s, 2);
    const sp_tensor x = on_device(be, s->elem, x_host);
    const sp_tensor y = on_device(be, s->elem, y_host);
    const sp_sums sums = {
        cu_copy(be, part, ((size_t)n_parts * 2 * c + 1) * sizeof *part), n_parts,
        100.0 * n_parts};

    p = cu_copy(be, host, FLOATS * c * sizeof *host);
    const sp_norm_finish_args forward = {s->c,      sums,      p,         p + c,
                                         p + 2 * c, p + 3 * c, p + 4 * c, p + 5 * c,
                                         p + 6 * c, p + 7 * c};
    const sp_norm_grad_finish_args backward = {
        s->c, sums, sums, p, p + c, p + 2 * c, p + 3 * c, p + 6 * c, p + 7 * c};
    const sp_norm_args apply = {.x = x,
                                .y = y,
                                .scale = p + 4 * c,
                                .shift = p + 5 * c,
                                .slope = s->slope,
                                .finish = is_one_call ? &forward : NULL};
    const sp_norm_grad_args grad = {.x = x,
                                    .dy = x,
                                    .dx = y,
                                    .a = p + 3 * c,
                                    .b = p + 4 * c,
                                    .c = p + 5 * c,
                                    .finish = is_one_call ? &backward : NULL};
    const unsigned before = hc_launches ? hc_launches() : 0;

    if (is_grad) {
        if (!is_one_call)
            OK(be->ops->norm_grad_finish(be, &backward));
        OK(be->ops->norm_grad_apply(be, &grad));
    } else {
        if (!is_one_call)
            OK(be->ops->norm_finish(be, &forward));
        OK(be->ops->norm_apply(be, &apply));
    }
    if (hc_launches && is_one_call)
        assert_int_equal(hc_launches() - before, 1);
    OK(be->ops->download(be, floats, p, FLOATS * c * sizeof *floats));
    if (s->elem == SP_ELEM_BF16)
        cu_read_bf16(be, y, rows_out);
    else
        cu_read(be, y, rows_out);
    free(part), free(host), free(x_host.data), free(y_host.data);
}

/* Coefficients have the same bits in front of a pass as alone, also where there are no
 * rows, and a pass behind another finds its jobs undone. */
TEST(coefficients_in_front)
{
    static const struct {
        int n, c, n_parts;
        sp_elem elem;
    } cases[] = {{33, 20, 1, SP_ELEM_F32},    {500, 96, 1500, SP_ELEM_BF16},
                 {1, 5, 130, SP_ELEM_BF16},   {0, 32, 7, SP_ELEM_F32},
                 {900, 256, 40, SP_ELEM_F32}, {60, 3, 0, SP_ELEM_F32}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int is_grad = 0; is_grad < 2; is_grad++) {
            const shape s = {{0}, cases[i].n, cases[i].c, 0, 0.01f, cases[i].elem};
            const size_t n = FLOATS * (size_t)s.c;
            float *floats[2] = {calloc(n, sizeof(float)), calloc(n, sizeof(float))};
            sp_tensor out[2] = {rows(&s, 8), rows(&s, 8)};

            for (int order = 0; order < cu_orders(); order++) {
                sp_backend be = cu_open(order);

                finish(&be, &s, cases[i].n_parts, is_grad, false, floats[0], out[0]);
                for (int again = 0; again < 3; again++) {
                    finish(&be, &s, cases[i].n_parts, is_grad, true, floats[1], out[1]);
                    assert_memory_equal(floats[0], floats[1], n * sizeof(float));
                    assert_memory_equal(out[0].data, out[1].data, cu_bytes(out[0]));
                }
                cu_close(&be);
            }
            free(floats[0]), free(floats[1]), free(out[0].data), free(out[1].data);
        }
}

/* ---- memory ---- */

int cudaMemGetInfo(size_t *free_bytes, size_t *total);

/* A backend that is closed leaves no memory of the device behind, also where arenas
 * have grown by pieces. */
TEST(memory_comes_back)
{
    size_t free_bytes[2], total;

    for (int i = 0; i < 2; i++) { /* the first one loads what stays */
        sp_backend be = cu_open(0);
        sp_arena arena;
        void *data;

        OK(be.ops->arena_create(&arena, 0, "grown"));
        for (int k = 1; k <= 4; k++)
            OK(sp_arena_take(&arena, (size_t)k * 3000000, &data));
        be.ops->arena_destroy(&arena);
        cu_close(&be);
        assert_int_equal(cudaMemGetInfo(&free_bytes[i], &total), 0);
    }
    assert_true(free_bytes[0] == free_bytes[1]);
}

/* ---- elementwise ---- */

static void pointwise(sp_backend *be, const shape *s, bool is_added)
{
    static const int64_t id[N_SAMPLES] = {5, 1, 7};
    sp_backend ref = fx_reference();
    sp_tensor x = rows(s, 1), dy = rows(s, 2);
    sp_tensor d_x = on_device(be, s->elem, x), d_dy = on_device(be, s->elem, dy);
    sp_tensor y[4], d[4];

    for (int i = 0; i < 4; i++) {
        y[i] = rows(s, 10 + (uint64_t)i);
        d[i] = on_device(be, s->elem, y[i]);
    }
    sp_dropout_args a = fx_dropout(x, y[3], 0.4f, id, s->row, N_SAMPLES);
    OK(ref.ops->relu(&ref, x, s->slope, y[0]));
    OK(be->ops->relu(be, d_x, s->slope, d[0]));
    same("relu", be, d[0], y[0], 0);
    OK(ref.ops->relu_grad(&ref, x, s->slope, dy, y[1], is_added));
    OK(be->ops->relu_grad(be, d_x, s->slope, d_dy, d[1], is_added));
    same("relu_grad", be, d[1], y[1], 1e-6);
    OK(ref.ops->copy(&ref, x, y[2], is_added));
    OK(be->ops->copy(be, d_x, d[2], is_added));
    same("copy", be, d[2], y[2], 0);
    OK(ref.ops->dropout(&ref, &a));
    a.x = d_x;
    a.y = d[3];
    OK(be->ops->dropout(be, &a));
    same("dropout", be, d[3], y[3], 0);
    free(x.data), free(dy.data);
}

/* ---- one row a sample ---- */

static void global(sp_backend *be, const shape *s, bool is_max)
{
    sp_backend ref = fx_reference();
    const size_t n = (size_t)N_SAMPLES * (size_t)s->c;
    int32_t *argmax = calloc(n, sizeof *argmax), *got = calloc(n, sizeof *got);
    int32_t *d_argmax = cu_copy(be, argmax, n * sizeof *argmax);
    sp_tensor x = rows(s, 1), y = sample_rows(s, 2), dx = rows(s, 3);
    sp_tensor d_x = on_device(be, s->elem, x), d_y = on_device(be, s->elem, y),
              d_dx = on_device(be, s->elem, dx);

    for (int64_t i = 0; s->c && i < x.n; i++) /* equal values */
        x.data[i * x.ld] = (float)(i % 5);
    d_x = on_device(be, s->elem, x);
    OK(ref.ops->global_pool(&ref, x, s->row, N_SAMPLES, is_max ? argmax : NULL, y));
    OK(be->ops->global_pool(be, d_x, s->row, N_SAMPLES, is_max ? d_argmax : NULL, d_y));
    OK(be->ops->download(be, got, d_argmax, n * sizeof *got));
    assert_memory_equal(got, argmax, n * sizeof *got);
    OK(ref.ops->global_pool_grad(&ref, y, s->row, N_SAMPLES, is_max ? argmax : NULL,
                                 dx));
    OK(be->ops->global_pool_grad(be, d_y, s->row, N_SAMPLES, is_max ? d_argmax : NULL,
                                 d_dx));
    same("global_pool", be, d_y, y, is_max ? 0 : 1e-7);
    same("global_pool_grad", be, d_dx, dx, 1e-7);
    free(x.data), free(argmax), free(got);
}

static void broadcast(sp_backend *be, const shape *s)
{
    sp_backend ref = fx_reference();
    sp_tensor x = sample_rows(s, 1), y = rows(s, 2), dy = rows(s, 3);
    sp_tensor dx = sample_rows(s, 4);
    sp_tensor d_y = on_device(be, s->elem, y), d_dx = on_device(be, s->elem, dx);

    OK(ref.ops->broadcast(&ref, x, s->row, N_SAMPLES, y));
    OK(be->ops->broadcast(be, on_device(be, s->elem, x), s->row, N_SAMPLES, d_y));
    same("broadcast", be, d_y, y, 0);
    OK(ref.ops->broadcast_grad(&ref, dy, s->row, N_SAMPLES, dx));
    OK(be->ops->broadcast_grad(be, on_device(be, s->elem, dy), s->row, N_SAMPLES,
                               d_dx));
    same("broadcast_grad", be, d_dx, dx, 1e-6);
    free(x.data), free(dy.data);
}

static void compare_case(int n, int c, int pad, float slope, sp_elem elem)
{
    const shape s = {{0, n, n, n + 2}, n + 2, c, pad, slope, elem};

    for (int order = 0; order < cu_orders(); order++) {
        sp_backend be = cu_open(order);
        norm(&be, &s, order % 2);
        norm_grad(&be, &s, order % 2, false);
        norm_grad(&be, &s, order % 2, true);
        pointwise(&be, &s, order % 2);
        global(&be, &s, order % 2);
        global(&be, &s, order % 2 == 0);
        broadcast(&be, &s);
        cu_close(&be);
    }
}

TEST(rows_and_channels)
{
    static const int channels[] = {1, 3, 4, 16, 20, 32, 48, 64, 96, 128, 256};
    static const int row_counts[] = {0, 1, 31, 33, 127, 2000};
    static const float slopes[] = {1, 0, 0.01f};

    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
        compare_case(row_counts[i % 5], channels[i], (int)i % 4, slopes[i % 3],
                     SP_ELEM_F32);
    for (size_t i = 0; i < sizeof row_counts / sizeof *row_counts; i++)
        compare_case(row_counts[i], 20, 0, slopes[i % 3], SP_ELEM_F32);
    compare_case(70, 3, 1, 0, SP_ELEM_F32); /* aligned, with a remainder */
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
        compare_case(shapes[i].n, shapes[i].c, shapes[i].pad, slopes[i % 3],
                     SP_ELEM_BF16);
}

/* Copies fp32 to bf16 and back, written and added. */
TEST(copies_convert)
{
    for (int is_added = 0; is_added < 2; is_added++) {
        sp_backend ref = fx_reference(), be = cu_open(0);
        sp_tensor x = fx_tensor(40, 5, 8, 1), y = tensor(SP_ELEM_BF16, 40, 5, 5, 2);
        sp_tensor half = tensor(SP_ELEM_BF16, 40, 5, 5, 3), z = fx_tensor(40, 5, 6, 4);
        sp_tensor d_y = cu_tensor_bf16(&be, y), d_z = cu_tensor(&be, z);

        OK(be.ops->copy(&be, cu_tensor(&be, x), d_y, is_added));
        OK(be.ops->copy(&be, cu_tensor_bf16(&be, half), d_z, is_added));
        OK(ref.ops->copy(&ref, x, y, is_added));
        OK(ref.ops->copy(&ref, half, z, is_added));
        same("copy to bf16", &be, d_y, y, 0);
        same("copy of bf16", &be, d_z, z, 0);
        cu_close(&be);
        free(x.data), free(half.data);
    }
}

/* There are more samples than one launch carries. */
TEST(many_samples)
{
    enum { N = 300, C = 5 };
    int32_t row[N + 1] = {0};
    double want[N * 2 * C];
    sp_backend ref = fx_reference(), be = cu_open(0);
    sp_tensor x;

    for (int b = 0; b < N; b++)
        row[b + 1] = row[b] + b % 4;
    x = fx_tensor(row[N], C, C, 1);
    OK(ref.ops->norm_sums(&ref, x, row, N, want));
    double *sums = cu_copy(&be, want, sizeof want);
    OK(be.ops->fill(&be, sums, 0xff, sizeof want));
    OK(be.ops->norm_sums(&be, cu_tensor(&be, x), row, N, sums));
    same_sums("norm_sums", &be, sums, want, N * 2 * C);
    cu_close(&be);
    free(x.data);
}

/* ---- pooling ---- */

static void pool(sp_backend *be, const sp_map *m, int c, bool is_max, sp_elem elem)
{
    sp_backend ref = fx_reference();
    const size_t n = (size_t)m->n_out * (size_t)c;
    int32_t *argmax = calloc(n + 1, sizeof *argmax), *got = calloc(n + 1, sizeof *got);
    sp_map map = cu_map(be, m, 4);
    sp_pool_args a = {m,
                      is_max,
                      tensor(elem, m->n_in, c, c + 1, 1),
                      tensor(elem, m->n_out, c, c, 2),
                      argmax,
                      tensor(elem, m->n_in, c, c, 3),
                      tensor(elem, m->n_out, c, c + 2, 4)};
    sp_pool_args d = a;

    for (int64_t i = 0; i < a.x.n; i++) /* equal values: the first one counts */
        a.x.data[i * a.x.ld] = (float)(i % 3);
    d.map = &map;
    d.x = on_device(be, elem, a.x);
    d.y = on_device(be, elem, a.y);
    d.dx = on_device(be, elem, a.dx);
    d.dy = on_device(be, elem, a.dy);
    d.argmax = cu_copy(be, argmax, n * sizeof *argmax);
    OK(ref.ops->pool(&ref, &a));
    OK(be->ops->pool(be, &d));
    OK(be->ops->download(be, got, d.argmax, n * sizeof *got));
    assert_memory_equal(got, argmax, n * sizeof *got);
    OK(ref.ops->pool_grad(&ref, &a));
    OK(be->ops->pool_grad(be, &d));
    same("pool", be, d.y, a.y, is_max ? 0 : 1e-6);
    /* bf16 is rounded at each offset. */
    same("pool_grad", be, d.dx, a.dx, elem == SP_ELEM_BF16 ? 0.03 : 1e-6);
    free(a.x.data), free(a.dy.data), free(argmax), free(got);
}

TEST(pools)
{
    const int n_rows[] = {90, 0, 30, 600};
    fx_level fine = fx_voxels(4, n_rows, 3), coarse = fx_coarser(&fine);
    sp_map maps[] = {fx_map(&fine, &coarse, 2, false), fx_map(&fine, &fine, 3, false),
                     fx_map(&coarse, &fine, 3, false), fx_map(&fine, &fine, 2, true)};

    for (int i = 0; i < 4; i++) {
        for (int order = 0; order < cu_orders(); order++) {
            sp_backend be = cu_open(order);
            pool(&be, &maps[i], 3 + 30 * (i % 2), true, SP_ELEM_F32);
            pool(&be, &maps[i], 3 + 30 * (i % 2), false, SP_ELEM_F32);
            pool(&be, &maps[i], 5, order % 2, SP_ELEM_BF16);
            cu_close(&be);
        }
        fx_map_free(&maps[i]);
    }
    fx_level_free(&fine);
    fx_level_free(&coarse);
}

/* A call that failed, and that the program goes on without, is not taken for the failure
 * of the launch behind it. */
TEST(failures_end_with_their_call)
{
    const float x[] = {1, 2, 3, 4};
    sp_backend be = cu_open(0);
    sp_device none;

    assert_int_equal(sp_backend_device(1 << 20, &none), SP_EDEVICE);
    cu_copy(&be, x, sizeof x); /* few bytes travel with a launch */
    cu_close(&be);
}

KERNEL_TEST(test_cuda_rows)
{
    return cmocka_run_group_tests(own_tests, NULL, NULL);
}

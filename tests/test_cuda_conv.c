/* Convolution and its gradients on the CUDA backend against plain loops: kinds of map,
 * channels, rows, pitches. Largest error over max(1, largest value) at most 3e-6: both
 * sum in fp32, in different orders. */
#include "test.h"

#include "cuda_fixture.h"

static const double TOLERANCE = 3e-6;

/* What a case is made of. */
typedef struct kind {
    const char *name;
    int kernel, in, out; /* 0 fine, 1 coarse */
    bool is_swapped, has_map;
} kind;

static const kind kinds[] = {
    {"3^3", 3, 0, 0, false, true},        {"2^3 down", 2, 0, 1, false, true},
    {"2^3 up", 2, 1, 0, false, true},     {"3^3 down", 3, 0, 1, false, true},
    {"2^3 swapped", 2, 0, 0, true, true}, {"1^3", 1, 0, 0, false, false},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

typedef struct problem {
    kind kind;
    fx_level level[2];
    sp_map map, back; /* back: in and out exchanged */
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
    p.back = fx_map(&p.level[k.out], &p.level[k.in], k.kernel, !k.is_swapped);
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
    fx_map_free(&p->back);
    fx_level_free(&p->level[0]);
    fx_level_free(&p->level[1]);
    free(p->x.data);
    free(p->dy.data);
    free(p->w);
    free(p->bias);
}

static size_t weight_bytes(const problem *p)
{
    return (size_t)p->K * p->c_in * p->c_out * sizeof(float);
}

/* ---- each operation on both backends ---- */

static void forward(sp_backend *be, const problem *p, bool has_bias, bool is_added)
{
    sp_backend ref = fx_reference();
    sp_tensor want = fx_tensor(p->dy.n, p->c_out, p->dy.ld, 5);
    sp_tensor got = fx_tensor(p->dy.n, p->c_out, p->dy.ld, 5);
    sp_map map = cu_map(be, &p->map, p->level[0].n_samples);
    sp_conv_args a = {.map = p->kind.has_map ? &p->map : NULL,
                      .x = p->x,
                      .y = want,
                      .w = p->w,
                      .bias = has_bias ? p->bias : NULL,
                      .is_added = is_added};

    OK(ref.ops->conv_forward(&ref, &a));
    a.map = a.map ? &map : NULL;
    a.x = cu_tensor(be, p->x);
    a.y = cu_tensor(be, got);
    a.w = cu_copy(be, p->w, weight_bytes(p));
    a.bias = cu_copy(be, a.bias, (size_t)p->c_out * sizeof(float));
    OK(be->ops->conv_forward(be, &a));
    cu_read(be, a.y, got);
    cu_same(p->kind.name, got, want, TOLERANCE);
}

static void grad_input(sp_backend *be, const problem *p, bool is_added)
{
    const bool is_mirrored = p->kind.has_map && p->map.is_full;
    const sp_map *host = is_mirrored ? &p->map : &p->back;
    sp_backend ref = fx_reference();
    sp_tensor want = fx_tensor(p->x.n, p->c_in, p->x.ld, 6);
    sp_tensor got = fx_tensor(p->x.n, p->c_in, p->x.ld, 6);
    sp_map map = cu_map(be, host, p->level[0].n_samples);
    sp_conv_args a = {.map = p->kind.has_map ? host : NULL,
                      .x = p->dy,
                      .y = want,
                      .w = p->w,
                      .is_mirrored = is_mirrored,
                      .is_added = is_added};

    OK(ref.ops->conv_grad_input(&ref, &a));
    a.map = a.map ? &map : NULL;
    a.x = cu_tensor(be, p->dy);
    a.y = cu_tensor(be, got);
    a.w = cu_copy(be, p->w, weight_bytes(p));
    OK(be->ops->conv_grad_input(be, &a));
    cu_read(be, a.y, got);
    cu_same(p->kind.name, got, want, TOLERANCE);
}

/* dW with dbias behind it, added to numbers already there; samples sample0 .. */
static void grad_weight(sp_backend *be, const problem *p, int sample0, int sample1)
{
    const size_t n = (size_t)p->K * p->c_in * p->c_out, n_all = n + (size_t)p->c_out;
    sp_backend ref = fx_reference();
    sp_tensor want = fx_tensor(1, (int)n_all, (int)n_all, 8);
    sp_tensor got = fx_tensor(1, (int)n_all, (int)n_all, 8);
    sp_map map = cu_map(be, &p->map, p->level[0].n_samples);
    sp_conv_wgrad_args a = {.map = p->kind.has_map ? &p->map : NULL,
                            .x = p->x,
                            .dy = p->dy,
                            .sample_row = p->level[p->kind.out].sample_row,
                            .sample0 = sample0,
                            .sample1 = sample1,
                            .dw = want.data,
                            .dbias = want.data + n};
    sp_tensor on_device = cu_tensor(be, got);

    OK(ref.ops->conv_grad_weight(&ref, &a));
    a.map = a.map ? &map : NULL;
    a.x = cu_tensor(be, p->x);
    a.dy = cu_tensor(be, p->dy);
    a.dw = on_device.data;
    a.dbias = on_device.data + n;
    OK(be->ops->conv_grad_weight(be, &a));
    cu_read(be, on_device, got);
    cu_same(p->kind.name, got, want, TOLERANCE);
}

static void compare_case(kind k, int n_samples, const int *rows, int c_in, int c_out,
                         int pad)
{
    problem p = make(k, n_samples, rows, c_in, c_out, pad);

    for (int order = 0; order < cu_orders(); order++) {
        sp_backend be = cu_open(order);
        forward(&be, &p, order % 2, order == 0);
        grad_input(&be, &p, order % 2);
        grad_weight(&be, &p, 0, n_samples);
        if (n_samples > 1)
            grad_weight(&be, &p, 1, n_samples - 1);
        cu_close(&be);
    }
    drop(&p);
}

/* ---- cases ---- */

static void every_map_and_row_count(void **state)
{
    static const int rows[] = {0, 1, 31, 33, 127};

    (void)state;
    for (int k = 0; k < N_KINDS; k++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            compare_case(kinds[k], 1, &rows[i], 20, 33, 0);
}

static void every_channel_count(void **state)
{
    static const int channels[] = {1, 3, 4, 16, 20, 32, 48, 64, 96, 128, 256};
    const int rows[] = {33, 0, 40};

    (void)state;
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        compare_case(kinds[1], 3, rows, channels[i], 17, 3);
        compare_case(kinds[1], 3, rows, 5, channels[i], 4);
        compare_case(kinds[5], 3, rows, channels[i], channels[i], 0);
    }
}

static void samples_of_several_tiles(void **state)
{
    const int rows[] = {700, 0, 1300};

    (void)state;
    compare_case(kinds[0], 3, rows, 4, 8, 0);
    compare_case(kinds[5], 3, rows, 16, 24, 8);
}

/* The same bits whatever runs first. */
static void order_changes_no_bit(void **state)
{
    const int rows[] = {300};
    problem p = make(kinds[0], 1, rows, 8, 12, 0);
    sp_tensor first = {0};

    (void)state;
    for (int order = 0; order < 4; order++) {
        sp_backend be = cu_open(order);
        sp_tensor y = fx_tensor(p.dy.n, p.c_out, p.dy.ld, 5);
        sp_map map = cu_map(&be, &p.map, 1);
        sp_conv_args a = {.map = &map,
                          .x = cu_tensor(&be, p.x),
                          .y = cu_tensor(&be, y),
                          .w = cu_copy(&be, p.w, weight_bytes(&p))};

        OK(be.ops->conv_forward(&be, &a));
        cu_read(&be, a.y, y);
        cu_close(&be);
        if (order == 0) {
            first = y;
            continue;
        }
        assert_true(fx_equal(first, y));
        free(y.data);
    }
    free(first.data);
    drop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_map_and_row_count),
        cmocka_unit_test(every_channel_count),
        cmocka_unit_test(samples_of_several_tiles),
        cmocka_unit_test(order_changes_no_bit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

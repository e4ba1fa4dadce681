/* A convolution or weight gradient over the channels that are not zero has the bytes of the
 * one over all channels, for panels of all widths and rows of any number of zeros. */
#include "fixtures/test.h"

#include "cpu/cpu_isa.h"
#include "fixtures/map_fixture.h"

enum { ROWS = 700 };

/* Values of which about `percent` are zero, of either sign; row 0 is zero, row 1 not. */
static sp_tensor with_zeros(int n, int c, int percent)
{
    sp_tensor x = fx_tensor(n, c, c + 3, 1), u = fx_tensor(n, c, c, 2);

    for (int i = 0; i < n; i++)
        for (int j = 0; j < c; j++)
            if (i != 1 && (i == 0 || (fx_at(u, i, j) + 1) * 50 < (float)percent))
                x.data[i * x.ld + j] = j % 2 ? 0.0f : -0.0f;
    return x;
}

static void build(sp_backend *be, sp_arena *arena, sp_plan *plan)
{
    const sp_plan_spec spec = {.n_levels = 1, .n_maps = 1, .map = {{0, 0, 3, 0}}};
    const int rows = ROWS;
    const int32_t row[2] = {0, ROWS};
    const fx_level l = fx_voxels(1, &rows, 1);

    OK(be->ops->arena_create(arena, (size_t)1 << 26, "test"));
    OK(be->ops->plan_build(be, &spec, l.at[0], row, 1, arena, plan));
}

/* The convolution of x with and without lists. */
static void compare(sp_backend *be, const sp_map *map, sp_tensor x, int c_out,
                    bool has_bias)
{
    const sp_cpu_isa *isa = sp_cpu_isa_of(be);
    uint8_t *list = test_alloc(ROWS * sp_cpu_list_bytes(x.c));
    sp_cpu_conv conv = {.map = map, .x = x, .y = fx_tensor(ROWS, c_out, c_out + 5, 3)};
    const sp_tensor plain = conv.y;

    conv.w = fx_pack(be, fx_floats((size_t)(27 * x.c * c_out), 4), 27, x.c, c_out,
                     false, false);
    conv.bias = has_bias ? fx_floats((size_t)c_out, 5) : NULL;
    for (int t = 0; t < map->n_tiles; t++)
        isa->conv_tile(&conv, t);
    conv.y = fx_tensor(ROWS, c_out, c_out + 5, 6);
    isa->list_channels(x, 0, ROWS, list);
    conv.list = list;
    for (int t = 0; t < map->n_tiles; t++)
        isa->conv_tile(&conv, t);
    fx_guards(conv.y);
    if (!fx_equal(plain, conv.y))
        fail_msg("%s: %d to %d channels differ", isa->name, x.c, c_out);
}

TEST(lists_of_channels_give_the_bytes_of_all_channels)
{
    static const int from[] = {16, 36, 96, 97, 128, 200};
    static const int to[] = {33, 48, 64, 70, 96, 112, 128, 144, 200};
    sp_backend be = {0};

    for (int v = FX_PLAIN; fx_next(&be, &v, FX_ISAS, 1, SP_FP32);) {
        sp_arena arena;
        sp_plan plan;

        build(&be, &arena, &plan);
        for (size_t i = 0; i < sizeof from / sizeof *from; i++)
            for (size_t k = 0; k < sizeof to / sizeof *to; k++) {
                const size_t mark = test_mark();

                compare(&be, &plan.map[0], with_zeros(ROWS, from[i], 30 * (int)(k % 4)),
                        to[k], k % 2);
                test_release(mark);
            }
        be.ops->arena_destroy(&arena);
    }
}

/* The weight gradient by `threads` in turn, which own every other panel. */
static float *weigh(const sp_cpu_isa *isa, sp_cpu_wgrad g, int threads, size_t n)
{
    const int panels = isa->n_panels(g.dy.c);
    uint16_t *owner = test_alloc((size_t)(27 * panels) * sizeof *owner);

    for (int i = 0; i < 27 * panels; i++)
        owner[i] = (uint16_t)(i % panels % threads);
    g.owner = owner;
    g.dw = fx_floats(n, 7);
    for (int thread = 0; thread < threads; thread++)
        isa->wgrad(&g, thread);
    return g.dw;
}

TEST(weight_gradients_without_zeros_have_the_bytes_of_all)
{
    static const int from[] = {5, 32, 96, 300};
    /* With 16 lanes only wide gradients leave zeros out. */
    static const int to[] = {20, 264, 48, 520, 112, 200};
    sp_backend be = {0};

    for (int v = FX_PLAIN; fx_next(&be, &v, FX_ISAS, 1, SP_FP32);) {
        const sp_cpu_isa *isa = sp_cpu_isa_of(&be);
        sp_arena arena;
        sp_plan plan;

        build(&be, &arena, &plan);
        for (size_t i = 0; i < sizeof from / sizeof *from; i++)
            for (size_t k = 0; k < sizeof to / sizeof *to; k++) {
                const size_t mark = test_mark();
                const size_t n = 27 * (size_t)from[i] * (size_t)(to[k] + SP_CPU_LANES);
                sp_cpu_wgrad g = {.map = k % 2 ? &plan.map[0] : NULL,
                                  .x = with_zeros(ROWS, from[i], 20 * (int)(k + 1)),
                                  .dy = fx_tensor(ROWS, to[k], to[k] + 3, 8),
                                  .tile1 = plan.map[0].n_tiles,
                                  .end = ROWS,
                                  .k1 = k % 2 ? 27 : 1};
                const float *plain = weigh(isa, g, 1, n);

                g.has_zeros = true;
                for (int threads = 1; threads <= 2; threads++)
                    if (memcmp(plain, weigh(isa, g, threads, n), n * sizeof *plain) !=
                        0)
                        fail_msg("%s: %d to %d channels differ", isa->name, from[i],
                                 to[k]);
                test_release(mark);
            }
        be.ops->arena_destroy(&arena);
    }
}

/* The list of a row has all channels that are not zero, and then one that is zero. */
TEST(lists_name_the_channels)
{
    enum { C = 200, N = 50 };
    const int run = sp_cpu_list_run(C);
    const sp_tensor x = with_zeros(N, C, 50);
    uint8_t *list = test_alloc(N * sp_cpu_list_bytes(C));
    sp_backend be = {0};

    for (int v = FX_PLAIN; fx_next(&be, &v, FX_ISAS, 1, SP_FP32);) {
        sp_cpu_isa_of(&be)->list_channels(x, 0, N, list);
        for (int i = 0; i < N; i++)
            for (int c = 0; c < C; c++) {
                const uint8_t *at =
                    list + (size_t)i * sp_cpu_list_bytes(C) + c / run * (run + 1);

                assert_int_equal(memchr(at + 1, c % run, at[0]) != NULL,
                                 fx_at(x, i, c) != 0);
                if (c % run >= at[0])
                    assert_true(fx_at(x, i, c / run * run + at[1 + c % run]) == 0);
            }
    }
}

/* Convolution and its input gradient on the CUDA backend agree with loops in double, in
 * fp32, tf32 and bf16, for every kind of map, numbers of channels and rows, and row
 * pitches. The tolerance is that of sums over the pairs of a row (case_tolerance). */
#include "cuda/conv/cuda_tile.h"
#include "gpu/conv_norm.h"

static bool is_wgmma; /* in test_cuda_wgmma: bf16 alone, by wgmma */

static sp_backend open_in(int order, sp_precision precision)
{
    sp_backend be = case_open(order, precision);

    be.is_wgmma = is_wgmma;
    return be;
}

/* A form of the call: y = the convolution, or y += it; bf16 products with bf16 rows or,
 * with is_mixed, fp32 rows (the network's input and logits). */
typedef struct variant {
    bool has_bias, is_added, is_mixed, has_sums;
} variant;

static sp_tensor forward(sp_backend *be, const conv_case *p, int n_samples, variant v)
{
    const bool is_bf16 = p->precision == SP_BF16 && !v.is_mixed;
    sp_tensor y = case_tensor(p->precision, p->dy.n, p->c_out, p->dy.ld, 5);
    sp_map map = cu_map(be, &p->map, n_samples);
    sp_conv_args a = {
        .map = p->kind->has_map ? &map : NULL,
        .x = cu_put(be, p->x, is_bf16),
        .y = cu_put(be, y, is_bf16),
        .w_packed = case_packed(be, p, false),
        .bias =
            v.has_bias ? cu_copy(be, p->bias, (size_t)p->c_out * sizeof(float)) : NULL,
        .is_added = v.is_added};
    double *sums = norm_room_for_sums(be, y.n, y.c);

    if (v.has_sums)
        OK(be->ops->conv_forward_norm_sums(be, &a, NULL, n_samples, sums));
    else
        OK(be->ops->conv_forward(be, &a));
    cu_read(be, a.y, y);
    if (v.has_sums)
        norm_check_sums(be, y, y, sums);
    return y;
}

static void check_forward(sp_backend *be, const conv_case *p, int n_samples, variant v)
{
    sp_tensor old = case_tensor(p->precision, p->dy.n, p->c_out, p->dy.ld, 5);
    double *want = case_doubles(old, v.is_added);

    for (int64_t i = 0; v.has_bias && i < old.n; i++)
        for (int j = 0; j < old.c; j++)
            want[i * old.c + j] += p->bias[j];
    case_forward(p, want);
    case_same(
        "forward", p, case_tolerance(p->precision, case_most_pairs(p, 0) * p->c_in),
        forward(be, p, n_samples, v), want, p->precision == SP_BF16 && !v.is_mixed);
}

static void check_grad_input(sp_backend *be, const conv_case *p, int n_samples,
                             variant v, int turn)
{
    const bool is_bf16 = p->precision == SP_BF16 && !v.is_mixed;
    static const float slopes[] = {0, 0.25f, 1};
    const bool is_mirrored = case_is_mirrored(p);
    sp_tensor dx = case_tensor(p->precision, p->x.n, p->c_in, p->x.ld, 6);
    double *want = case_doubles(dx, v.is_added);
    sp_map map = cu_map(be, is_mirrored ? &p->map : &p->back, n_samples);
    const bool is_part = turn / 3 % 2;
    const int column = is_part ? dx.c / 16 * 8 + turn / 6 % 2 : 0;
    const int c = is_part ? (dx.c - column + 1) / 2 : dx.c;
    norm_case norm = norm_make(be, p, dx, c, slopes[turn % 3], is_bf16, turn % 2, 8);
    norm_case residual = norm_make(be, p, dx, c, 1, is_bf16, true, 20);
    const bool has_residual = v.has_sums && turn % 5 < 3;
    sp_conv_args a = {.map = p->kind->has_map ? &map : NULL,
                      .x = cu_put(be, p->dy, is_bf16),
                      .y = cu_put(be, dx, is_bf16),
                      .w_packed = case_packed(be, p, true),
                      .is_mirrored = is_mirrored,
                      .is_added = v.is_added};

    norm.column = column;
    norm.device.dy = residual.device.dy = sp_tensor_columns(a.y, column, c);
    if (v.has_sums)
        OK(be->ops->conv_grad_input_norm_sums(be, &a, &norm.device,
                                              has_residual ? &residual.device : NULL));
    else
        OK(be->ops->conv_grad_input(be, &a));
    cu_read(be, a.y, dx);
    case_grad_input(p, want);
    if (v.has_sums) {
        norm_mask(&norm, dx.c, want);
        norm_check_sums(be, sp_tensor_columns(dx, column, c), norm.xhat,
                        norm.device.sums);
        if (has_residual)
            norm_check_sums(be, sp_tensor_columns(dx, column, c), residual.xhat,
                            residual.device.sums);
    }
    case_same("grad input", p,
              case_tolerance(p->precision, case_most_pairs(p, 1) * p->c_out), dx, want,
              is_bf16);
}

/* v = act(v scale + shift [+ res]) of the answers; returns how much larger their largest
 * number was before: errors of that size are scaled by at most 1. */
static double norm_answers(const conv_case *p, const float *vector, sp_tensor res,
                           bool has_res, float slope, double *want)
{
    double before = 1, largest = 1;

    for (int64_t i = 0; i < res.n; i++)
        for (int j = 0; j < res.c; j++) {
            double *v = &want[i * res.c + j];

            before = fmax(before, fabs(*v));
            *v = *v * vector[j] + vector[p->c_out + j];
            *v += has_res ? (double)fx_at(res, i, j) : 0;
            *v = *v > 0 ? *v : slope * *v;
            largest = fmax(largest, fabs(*v));
        }
    return before / largest;
}

/* The convolution and the whole norm of its result, in one kernel if there is no bias and
 * rows consist of whole chunks. */
static void check_normed(sp_backend *be, const conv_case *p, int n_samples, variant v)
{
    const bool is_bf16 = p->precision == SP_BF16 && !v.is_mixed, has_res = v.is_added;
    const float slope = v.has_sums ? 0 : 0.25f;
    const size_t n = (size_t)p->c_out;
    const bool is_whole = !v.has_bias && p->c_out % 8 == 0 && p->dy.ld % 8 == 0;
    sp_tensor y = case_tensor(p->precision, p->dy.n, p->c_out, p->dy.ld, 5);
    sp_tensor res = case_tensor(p->precision, p->dy.n, p->c_out, p->dy.ld + 8, 6);
    double *want = case_doubles(y, false), more, tolerance;
    sp_map map = cu_map(be, &p->map, n_samples);
    float *vector = fx_floats(2 * n, 7), *device = cu_copy(be, vector, 8 * n);
    const sp_conv_args a = {.map = p->kind->has_map ? &map : NULL,
                            .x = cu_put(be, p->x, is_bf16),
                            .y = cu_put(be, y, is_bf16),
                            .w_packed = case_packed(be, p, false),
                            .bias = v.has_bias ? cu_copy(be, p->bias, n * sizeof(float))
                                               : NULL};
    sp_norm_args norm = {
        .x = a.y, .y = a.y, .scale = device, .shift = device + n, .slope = slope};
    unsigned before;

    if (has_res)
        norm.res = cu_put(be, res, is_bf16);
    before = hc_launches ? hc_launches() : 0;
    OK(be->ops->conv_forward_norm_apply(be, &a, &norm));
    if (hc_launches && !v.is_mixed && is_whole)
        assert_int_equal(hc_launches() - before, y.n > 0);
    cu_read(be, a.y, y);
    for (int64_t i = 0; v.has_bias && i < y.n; i++)
        for (int j = 0; j < y.c; j++)
            want[i * y.c + j] += p->bias[j];
    case_forward(p, want);
    more = norm_answers(p, vector, res, has_res, slope, want);
    tolerance = more * case_tolerance(p->precision, case_most_pairs(p, 0) * p->c_in);
    if (!is_whole && is_bf16) /* two kernels round in between */
        tolerance += ldexp(more, -9);
    case_same("normed", p, tolerance + 0x1p-22, y, want, is_bf16);
}

static int first_precision(void)
{
    return is_wgmma ? SP_BF16 : SP_FP32;
}

/* Each precision runs in another order of execution. */
static void check(const conv_kind *k, int n_samples, const int *rows, int c_in,
                  int c_out, int pad)
{
    static int turn;

    for (int precision = first_precision(); precision <= SP_BF16; precision++, turn++) {
        const variant v = {turn % 2, turn / 2 % 2, turn % 5 == 0, turn % 4 != 2};
        const size_t mark = test_mark();
        conv_case p =
            case_make(k, (sp_precision)precision, n_samples, rows, c_in, c_out, pad);
        sp_backend be = open_in(turn, p.precision);
        check_forward(&be, &p, n_samples, v);
        check_grad_input(&be, &p, n_samples, v, turn);
        check_normed(&be, &p, n_samples, v);
        cu_close(&be);
        test_release(mark);
    }
}

TEST(every_map_and_row_count)
{
    case_each_map_and_row_count(check);
}

/* The number is that of the channels that are gathered, and of those that are
 * written. */
TEST(every_channel_count)
{
    const int rows[] = {33, 0, 40};

    for (int i = 0; i < CASE_CHANNEL_COUNTS; i++) {
        check(&conv_kinds[CONV_DOWN], 3, rows, case_channels[i], 17, 8);
        check(&conv_kinds[CONV_DOWN], 3, rows, 5, case_channels[i], 0);
        check(&conv_kinds[CONV_1], 3, rows, case_channels[i], case_channels[i], 0);
    }
}

TEST(rows_off_the_grid)
{
    case_rows_off_the_grid(check);
}

TEST(samples_of_several_tiles)
{
    const int rows[] = {700, 0, 1300};

    check(&conv_kinds[CONV_3], 3, rows, 4, 8, 0);
    check(&conv_kinds[CONV_1], 3, rows, 16, 24, 8);
}

/* The order of execution changes no bit. */
TEST(order_changes_no_bit)
{
    const int rows[] = {300};

    for (int precision = first_precision(); precision <= SP_BF16; precision++) {
        conv_case p = case_make(&conv_kinds[CONV_3], (sp_precision)precision, 1, rows,
                                24, is_wgmma ? 136 : 12, 0);
        sp_tensor first = {0};

        for (int order = 0; order < 4; order++) {
            sp_backend be = open_in(order, p.precision);
            sp_tensor y = forward(&be, &p, 1, (variant){0});
            cu_close(&be);
            first = order == 0 ? y : first;
            assert_true(fx_equal(first, y));
        }
    }
}

/* A sample's rows have the same bits alone and where others share its tiles. */
TEST(company_changes_no_bit)
{
    static const int rows[] = {70, 45, 60}, channels[] = {3, 20, 64};
    const int c_out = is_wgmma ? 128 : 8;

    for (int precision = first_precision(); precision <= SP_BF16; precision++)
        for (size_t i = is_wgmma ? 2 : 0; i < 3; i++) {
            sp_backend be = open_in(0, (sp_precision)precision);
            conv_case all = case_make(&conv_kinds[CONV_3], be.precision, 3, rows,
                                      channels[i], c_out, 0);
            conv_case one = case_make(&conv_kinds[CONV_3], be.precision, 1, rows,
                                      channels[i], c_out, 0);
            sp_tensor a, b;
            for (int r = 0; r < rows[0]; r++)
                for (int d = 0; d < 3; d++)
                    assert_int_equal(all.level[0].at[r][d], one.level[0].at[r][d]);
            a = forward(&be, &all, 3, (variant){0});
            b = forward(&be, &one, 1, (variant){0});
            assert_true(fx_equal(fx_rows(a, 0, rows[0]), b));
            cu_close(&be);
        }
}

/* Gives a result, as floats without the ends of its rows, and the sums that go with it
 * as bytes: of the forward pass, or of the input gradient behind two norms, which are
 * those of its columns from the second chunk on. */
static char *bytes_of(sp_backend *be, const conv_case *p, bool is_forward, size_t *n)
{
    const bool is_bf16 = p->precision == SP_BF16, is_mirrored = case_is_mirrored(p);
    const sp_tensor like = is_forward ? p->dy : p->x;
    const int column = is_forward ? 0 : 8, c = like.c - column;
    sp_tensor y = case_tensor(p->precision, like.n, like.c, like.ld, 5);
    norm_case norm = norm_make(be, p, like, c, 0, is_bf16, true, 8);
    norm_case residual = norm_make(be, p, like, c, 1, is_bf16, true, 20);
    sp_map map = cu_map(be, is_forward || is_mirrored ? &p->map : &p->back, 1);
    const size_t row_bytes = (size_t)y.c * sizeof(float);
    const size_t y_bytes = (size_t)y.n * row_bytes;
    const size_t sums_bytes =
        2 * sizeof(double) * (size_t)c * (size_t)be->ops->fused_parts(y.n, 1).n;
    sp_conv_args a = {.map = &map,
                      .x = cu_put(be, is_forward ? p->x : p->dy, is_bf16),
                      .y = cu_put(be, y, is_bf16),
                      .w_packed = case_packed(be, p, !is_forward),
                      .is_mirrored = !is_forward && is_mirrored};
    char *all = test_alloc(y_bytes + 2 * sums_bytes);

    norm.device.dy = residual.device.dy = sp_tensor_columns(a.y, column, c);
    OK(is_forward ? be->ops->conv_forward_norm_sums(be, &a, NULL, 1, norm.device.sums)
                  : be->ops->conv_grad_input_norm_sums(be, &a, &norm.device,
                                                       &residual.device));
    cu_read(be, a.y, y);
    for (int64_t i = 0; i < y.n; i++)
        memcpy(all + (size_t)i * row_bytes, y.data + i * y.ld, row_bytes);
    OK(be->ops->download(be, all + y_bytes, norm.device.sums, sums_bytes));
    OK(be->ops->download(be, all + y_bytes + sums_bytes, residual.device.sums,
                         sums_bytes));
    *n = y_bytes + 2 * sums_bytes;
    return all;
}

/* Does a tall tile need more shared memory than a block of this device has? */
static bool is_too_large(const char *tile)
{
    sp_backend be = {.ops = &sp_cuda_ops};
    sp_status rc = strncmp(tile, "256x", 4) == 0 ? be.ops->open(&be, 0, 1) : SP_OK;

    if (rc != SP_OK) {
        SAYS("bytes of shared memory");
        assert_true(!hc_launches || getenv("HC_CAPABILITY"));
    }
    if (be.impl)
        be.ops->close(&be);
    return rc != SP_OK;
}

static void same_on_all_tiles(const conv_case *p, bool is_forward)
{
    char *first = NULL, *all;
    size_t n;

    for (int i = 0; i <= CUDA_TILES; i++) {
        const char *tile = i < CUDA_TILES ? cuda_tile_at(i).name : "formula";
        sp_backend be;

        setenv("SP_TILES", tile, 1);
        if (is_too_large(tile))
            continue;
        be = case_open(i, p->precision);
        all = bytes_of(&be, p, is_forward, &n);
        cu_close(&be);
        if (first && memcmp(first, all, n) != 0)
            fail_msg("%s, %d -> %d channels: tile %s has other bits",
                     is_forward ? "forward" : "grad input", p->c_in, p->c_out, tile);
        first = first ? first : all;
    }
    unsetenv("SP_TILES");
}

/* Channels that are no whole chunks in both precisions, then those of one kernel's
 * inner loop each: what columns and rows of a tile hold does not depend on the
 * precision. */
TEST(tile_changes_no_bit)
{
    static const int rows[] = {300}, channels[][2] = {{20, 24}, {32, 160}, {64, 96}};

    for (int precision = SP_TF32; precision <= SP_BF16; precision++)
        for (int i = cu_is_watched() ? 1 : 0; i < 2; i++) {
            const int *c = channels[i == 0 ? 0 : precision == SP_TF32 ? 1 : 2];
            conv_case p = case_make(&conv_kinds[CONV_3], (sp_precision)precision, 1,
                                    rows, c[0], c[1], 0);
            same_on_all_tiles(&p, true);
            same_on_all_tiles(&p, false);
        }
}

/* Rows that are copied and written by whole chunks, and the same values in rows of an
 * odd pitch, which are handled element by element, have the same bits, and so have
 * their sums. Tall tiles serve 27 offsets alone. */
TEST(form_changes_no_bit)
{
    static const int rows[] = {300}, mma[][2] = {{64, 96}, {96, 160}};
    static const int wgmma[][2] = {{96, 128}, {128, 192}};
    const int(*channels)[2] = is_wgmma ? wgmma : mma;

    for (int precision = first_precision(); precision <= SP_BF16; precision++)
        for (int i = 0; i < (cu_is_watched() ? 2 : 4); i++) {
            const conv_kind *kind = &conv_kinds[i < 2 ? CONV_3 : CONV_2];
            char *all[2];
            size_t n;

            for (int pad = 0; pad < 2; pad++) {
                conv_case p = case_make(kind, (sp_precision)precision, 1, rows,
                                        channels[i / 2][0], channels[i / 2][1], pad);
                CLOSED_BY(cu_close) sp_backend be = open_in(i, p.precision);

                all[pad] = bytes_of(&be, &p, i % 2, &n);
            }
            assert_memory_equal(all[0], all[1], n);
        }
}

/* Whichever tile is chosen by timing it, results and memory are as before. Where
 * memory is watched, each tile has been seen in tile_changes_no_bit. */
TEST(tiles_are_chosen_by_time)
{
    if (cu_is_watched())
        skip();
    static const int rows[] = {190};
    conv_case p = case_make(&conv_kinds[CONV_3], SP_TF32, 1, rows, 32, 64, 0);
    char *bytes[2];
    size_t n;

    for (int turn = 0; turn < 2; turn++) {
        CLOSED_BY(cu_close) sp_backend be = case_open(turn, p.precision);
        int64_t before = 0, after = 0;

        OK(be.ops->memory_used(&be, &before));
        if (turn)
            OK(sp_cuda_tiles_measure(&be, 64, 1));
        OK(be.ops->memory_used(&be, &after));
        /* On a device the driver may take a page meanwhile, or another program. */
        assert_true(llabs(after - before) <= (hc_launches ? 0 : 2 << 20));
        bytes[turn] = bytes_of(&be, &p, true, &n);
    }
    assert_memory_equal(bytes[0], bytes[1], n);
}

TEST(a_tile_that_is_none)
{
    sp_backend be = {.ops = &sp_cuda_ops};

    setenv("SP_TILES", "48", 1);
    FAILS(be.ops->open(&be, 0, 1), SP_EUSAGE, "SP_TILES=48: expected");
    setenv("SP_TILES", "256x128", 1);
    setenv("HC_CAPABILITY", "89", 1);
    if (hc_launches) /* the emulator: a block may have 99 KiB of shared memory */
        FAILS(be.ops->open(&be, 0, 1), SP_EDEVICE, "SP_TILES=256x128: a block");
    unsetenv("HC_CAPABILITY");
    unsetenv("SP_TILES");
}

/* More packs at once than a launch carries have the same bits as one by one. */
TEST(packs_of_many)
{
    enum { N = 120, W = 27 * 40 * 24 };
    CLOSED_BY(cu_close) sp_backend be = case_open(1, SP_BF16);
    float *w = fx_floats(W, 7);
    const float *d_w = cu_copy(&be, w, W * sizeof *w);
    size_t begin[N + 1] = {0}, bytes;
    sp_pack_args a[N];
    char *device[2], *host[2];

    for (int i = 0; i < N; i++) {
        a[i] = (sp_pack_args){
            .w = d_w,
            .K = i % 4 ? 27 : 8,
            .c_in = 1 + i * 7 % 40,
            .c_out = 1 + i % 24,
            .is_grad_input = i % 2,
            .is_mirrored = i % 8 == 1,
        };
        begin[i + 1] =
            begin[i] + be.ops->conv_pack_floats(&be, a[i].K, a[i].c_in, a[i].c_out,
                                                a[i].is_grad_input);
    }
    bytes = begin[N] * sizeof(float);
    for (int turn = 0; turn < 2; turn++) {
        device[turn] = cu_room(&be, bytes);
        for (int i = 0; i < N; i++)
            a[i].packed = (float *)device[turn] + begin[i];
        if (turn == 0)
            OK(be.ops->conv_pack(&be, a, N));
        for (int i = 0; turn == 1 && i < N; i++)
            OK(be.ops->conv_pack(&be, &a[i], 1));
        host[turn] = test_alloc(bytes);
        OK(be.ops->download(&be, host[turn], device[turn], bytes));
    }
    assert_memory_equal(host[0], host[1], bytes);
}

/* ---- wgmma ---- */

/* Returns the number of products so far; a call of few channels or offsets makes
 * none. */
static unsigned long products(void)
{
    return hc_wgmma_count ? hc_wgmma_count() : 0;
}

/* Tests both directions where both are wide enough, else one; several words of the
 * masks; rows and channels around the edges of tiles and of steps. */
static void wgmma_every_map(void)
{
    static const struct {
        int kind, n_samples, rows[3], c_in, c_out, pad;
        bool is_wide; /* one of the two suits */
    } all[] = {
        {CONV_3, 1, {1}, 131, 128, 0, true},
        {CONV_3, 1, {64}, 33, 136, 0, true},
        {CONV_3, 1, {129}, 136, 20, 8, true},
        {CONV_3, 1, {300}, 20, 256, 0, true},
        {CONV_3, 1, {50}, 129, 33, 1, true}, /* rows that are not aligned */
        {CONV_3, 1, {50}, 256, 19, 3, true},
        {CONV_DOWN, 3, {133, 0, 140}, 72, 256, 0, true},
        {CONV_UP, 1, {60}, 256, 128, 0, true},
        {CONV_3_DOWN, 1, {127}, 20, 300, 0, true},
        {CONV_2, 1, {65}, 64, 160, 0, true},
        {CONV_1, 1, {300}, 520, 128, 0, true},
        {CONV_5, 1, {40}, 9, 136, 0, true},
        {CONV_5, 2, {30, 31}, 128, 12, 0, true},
        {CONV_KINDS - 1, 1, {70}, 512, 144, 0, true},
        /* clusters: blocks without rows, a second cluster, words of masks */
        {CONV_3, 1, {1}, 64, 128, 0, true},
        {CONV_3, 1, {530}, 64, 128, 0, true},
        {CONV_3, 3, {300, 0, 90}, 64, 256, 0, true},
        {CONV_3, 1, {140}, 128, 132, 4, true},
        {CONV_5, 2, {90, 61}, 64, 136, 0, true},
        /* 96 channels: deep k-tiles, one and three of an offset */
        {CONV_3, 1, {530}, 96, 96, 0, true},
        {CONV_3, 3, {300, 0, 90}, 96, 132, 4, true},
        {CONV_5, 1, {90}, 64, 96, 0, true},
        {CONV_3, 1, {40}, 288, 96, 3, true},
        {CONV_2, 1, {40}, 96, 96, 0, false},
        {CONV_3, 1, {40}, 100, 96, 0, false},
        {CONV_3, 1, {40}, 8, 128, 0, false}, /* offsets share a unit */
        {CONV_3, 1, {40}, 120, 127, 0, false},
        {CONV_1, 1, {40}, 511, 128, 0, false},
        {CONV_3, 1, {0}, 128, 128, 0, false},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int turn = 0; turn < (cu_is_watched() ? 1 : 2); turn++) {
            const unsigned long before = products();
            check(&conv_kinds[all[i].kind], all[i].n_samples, all[i].rows, all[i].c_in,
                  all[i].c_out, all[i].pad);
            if (hc_wgmma_count)
                assert_int_equal(products() > before, all[i].is_wide);
        }
}

/* The emulator adds the 16 of a product alike in both ways to multiply, so that their
 * results must be equal: a device's need not. Those of wgmma's tiles must on both, and
 * those of its clusters: a tile of 256 columns has none. */
static void wgmma_equals_mma(void)
{
    static const struct {
        int kind, c_in, c_out;
    } all[] = {{CONV_3, 40, 136}, {CONV_3, 64, 256},    {CONV_5, 64, 136},
               {CONV_3, 96, 96},  {CONV_DOWN, 64, 136}, {CONV_5, 96, 136}};
    static const int rows[] = {300};
    enum { WAYS = 4 };
    static const int columns[WAYS] = {0, 96, 128, 256}; /* 0: mma.sync */

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        conv_case p = case_make(&conv_kinds[all[i].kind], SP_BF16, 1, rows, all[i].c_in,
                                all[i].c_out, 0);
        sp_tensor y[WAYS];

        for (int way = 0; way < WAYS; way++) {
            sp_backend be = case_open(way, SP_BF16);

            be.is_wgmma = columns[way] > 0;
            be.wgmma_columns = columns[way];
            y[way] = forward(&be, &p, 1, (variant){.has_bias = true, .has_sums = true});
            cu_close(&be);
        }
        if (hc_wgmma_count)
            assert_true(fx_equal(y[0], y[1]));
        for (int way = 2; way < WAYS; way++)
            assert_true(fx_equal(y[1], y[way]));
        assert_true(fx_error(y[0], y[1]) <= 0.01);
    }
}

KERNEL_TESTS(test_cuda_conv)

KERNEL_TEST(test_cuda_wgmma)
{
#define CASE(name)                                                                     \
    &(const test_case)                                                                 \
    {                                                                                  \
#name, NULL, name                                                              \
    }
    const test_case *const tests[] = {
        CASE(wgmma_every_map), CASE(wgmma_equals_mma), CASE(order_changes_no_bit),
        CASE(company_changes_no_bit), CASE(form_changes_no_bit)};
    sp_backend be = {.ops = &sp_cuda_ops, .is_wgmma = true};

    is_wgmma = true;
    if (be.ops->open(&be, 0, 1) != SP_OK) {
        printf("SKIPPED: %s\n", sp_error_last()->message);
        return 77;
    }
    be.ops->close(&be);
    return run_group(tests, 5, NULL);
}

/* The convolution's weight gradient on the CUDA backend agrees with loops in double, in
 * fp32, tf32 and bf16, by mma.sync and by wgmma, for every kind of map, numbers of
 * channels and rows, row pitches, and ranges of samples. The tolerance is that of sums over the pairs of an
 * offset (case_wgrad_tolerance); the sums of bias gradients are in double. */
#include "gpu/conv_case.h"

/* The numbers that are there before: those that are added to, or NaN. */
static sp_tensor earlier(const conv_case *p, bool is_added)
{
    const int all = p->K * p->c_in * p->c_out + p->c_out;
    sp_tensor t = fx_tensor(1, all, all, 8);

    for (int i = 0; !is_added && i < all; i++)
        t.data[i] = NAN;
    return t;
}

/* Returns dW with dbias behind it over samples sample0 .. sample1 - 1, written or added
 * to the earlier numbers. */
static sp_tensor grad_weight(sp_backend *be, const conv_case *p, int n_samples,
                             int sample0, int sample1, bool is_mixed, bool is_added)
{
    const size_t n = (size_t)p->K * p->c_in * p->c_out;
    const bool is_bf16 = p->precision == SP_BF16;
    sp_tensor dw = earlier(p, is_added);
    sp_tensor on_device = cu_put(be, dw, false);
    sp_map map = cu_map(be, &p->map, n_samples);
    sp_conv_wgrad_args a = {.map = p->kind->has_map ? &map : NULL,
                            .x = cu_put(be, p->x, is_bf16 && !is_mixed),
                            .dy = cu_put(be, p->dy, is_bf16),
                            .sample_row = p->level[p->kind->out].sample_row,
                            .sample0 = sample0,
                            .sample1 = sample1,
                            .dw = on_device.data,
                            .dbias = on_device.data + n,
                            .is_added = is_added};

    OK(be->ops->conv_grad_weight(be, &a));
    cu_read(be, on_device, dw);
    return dw;
}

static void check_samples(sp_backend *be, const conv_case *p, int n_samples,
                          int sample0, int sample1, bool is_mixed, bool is_added)
{
    const int32_t *row = p->level[p->kind->out].sample_row;
    sp_tensor dw = grad_weight(be, p, n_samples, sample0, sample1, is_mixed, is_added);
    double *want = case_doubles(earlier(p, is_added), is_added);

    case_grad_weight(p, row[sample0], row[sample1], want);
    case_same("grad weight", p,
              case_wgrad_tolerance(be, case_most_pairs(p, 2), p->K, p->c_in, p->c_out),
              dw, want, false);
}

static void check_in(sp_precision precision, bool is_wgmma, const conv_kind *k,
                     int n_samples, const int *rows, int c_in, int c_out, int pad)
{
    static int turn;
    const size_t mark = test_mark();
    conv_case p = case_make(k, precision, n_samples, rows, c_in, c_out, pad);
    sp_backend be = case_open(turn, precision);

    be.is_wgmma = is_wgmma;
    check_samples(&be, &p, n_samples, 0, n_samples, turn % 5 == 0, turn % 2);
    if (n_samples > 1)
        check_samples(&be, &p, n_samples, 1, n_samples - 1, false, turn % 4 < 2);
    cu_close(&be);
    test_release(mark);
    turn++;
}

static void check(const conv_kind *k, int n_samples, const int *rows, int c_in,
                  int c_out, int pad)
{
    for (int precision = SP_FP32; precision <= SP_BF16; precision++)
        check_in((sp_precision)precision, false, k, n_samples, rows, c_in, c_out, pad);
}

TEST(every_map_and_row_count)
{
    case_each_map_and_row_count(check);
}

TEST(every_channel_count)
{
    const int rows[] = {33, 0, 40};

    for (int i = 0; i < CASE_CHANNEL_COUNTS; i++) {
        if (!cu_is_watched()) {
            check(&conv_kinds[CONV_1], 3, rows, case_channels[i], 17, 8);
            check(&conv_kinds[CONV_1], 3, rows, 5, case_channels[i], 0);
        }
        check(&conv_kinds[CONV_1], 3, rows, case_channels[i], case_channels[i], 0);
    }
}

TEST(rows_off_the_grid)
{
    case_rows_off_the_grid(check);
}

/* There are more pairs than an item of work has. */
TEST(several_items)
{
    const int rows[] = {2100, 0, 2600};

    if (!cu_is_watched())
        check(&conv_kinds[CONV_3], 3, rows, 4, 8, 0);
    check(&conv_kinds[CONV_1], 3, rows, 16, 24, 8);
}

/* There are more entries than a round has, and more slots than the scratch memory holds
 * at a time. */
TEST(several_rounds)
{
    const int rows[] = {60, 60, 60, 60}, few[] = {12, 12, 12, 12};

    for (int is_added = 0; is_added < 2; is_added++) {
        conv_case p = case_make(&conv_kinds[CONV_5], SP_FP32, 4, rows, 3, 5, 0);
        CLOSED_BY(cu_close) sp_backend be = case_open(is_added, SP_FP32);
        check_samples(&be, &p, 4, 0, 4, false, is_added);
    }
    if (!hc_is_checked()) {
        conv_case p = case_make(&conv_kinds[CONV_2], SP_BF16, 4, few, 768, 768, 0);
        CLOSED_BY(cu_close) sp_backend be = case_open(1, SP_BF16);
        check_samples(&be, &p, 4, 0, 4, false, false);
    }
}

TEST(order_changes_no_bit)
{
    const int rows[] = {300};

    for (int precision = SP_FP32; precision <= SP_BF16; precision++) {
        conv_case p =
            case_make(&conv_kinds[CONV_3], (sp_precision)precision, 1, rows, 24, 12, 0);
        sp_tensor first = {0};

        for (int order = 0; order < 4; order++) {
            sp_backend be = case_open(order, p.precision);
            sp_tensor dw = grad_weight(&be, &p, 1, 0, 1, false, true);
            cu_close(&be);
            first = order == 0 ? dw : first;
            assert_true(fx_equal(first, dw));
        }
    }
}

/* Rows of whole chunks and the same values in rows of an odd pitch have the same
 * bits. */
TEST(form_changes_no_bit)
{
    static const int rows[] = {190}, channels[][2] = {{64, 96}, {128, 160}};

    for (int precision = SP_FP32; precision <= SP_BF16; precision++)
        for (int i = 0; i < 2; i++) {
            sp_tensor dw[2];

            for (int pad = 0; pad < 2; pad++) {
                conv_case p = case_make(&conv_kinds[CONV_2], (sp_precision)precision, 1,
                                        rows, channels[i][0], channels[i][1], pad);
                CLOSED_BY(cu_close) sp_backend be = case_open(i, p.precision);

                dw[pad] = grad_weight(&be, &p, 1, 0, 1, false, false);
            }
            assert_true(fx_equal(dw[0], dw[1]));
        }
}

/* ---- wgmma ---- */

/* True if the device has wgmma; prints that a test is skipped if not. */
static bool has_wgmma(void)
{
    sp_backend be = {.ops = &sp_cuda_ops, .is_wgmma = true};
    const bool is_there = be.ops->open(&be, 0, 1) == SP_OK;

    if (is_there)
        be.ops->close(&be);
    else
        printf("SKIPPED: %s\n", sp_error_last()->message);
    return is_there;
}

static unsigned long products(void)
{
    return hc_wgmma_count ? hc_wgmma_count() : 0;
}

/* Channels below, at and above the edges of a tile, with its wide side along dy and
 * along x; one pair, none, and numbers of pairs around a stage's; offsets without
 * pairs. */
TEST(wgmma_serves_every_map)
{
    static const struct {
        int kind, n_samples, rows[3], c_in, c_out, pad;
        bool is_wide;
    } all[] = {
        {CONV_1, 1, {1}, 64, 256, 0, true},
        {CONV_3, 1, {1}, 256, 64, 0, true},
        {CONV_3, 1, {0}, 256, 256, 0, true},
        {CONV_1, 3, {63, 64, 65}, 128, 160, 0, true},
        {CONV_1, 1, {193}, 136, 72, 8, true},
        {CONV_DOWN, 1, {40}, 384, 96, 0, true},
        {CONV_DOWN, 3, {133, 0, 140}, 72, 256, 0, true},
        {CONV_UP, 1, {60}, 256, 128, 0, true},
        {CONV_3_DOWN, 1, {127}, 192, 128, 0, true},
        {CONV_2, 1, {65}, 384, 256, 0, true},
        {CONV_5, 2, {30, 31}, 96, 192, 0, true},
        {CONV_KINDS - 1, 1, {70}, 136, 520, 0, true},
        {CONV_2, 1, {50}, 64, 256, 3, true}, /* rows that are not aligned */
        {CONV_1, 1, {50}, 128, 128, 0, false},
        {CONV_1, 1, {50}, 56, 256, 0, false},
        {CONV_1, 1, {50}, 100, 256, 0, false}, /* not of whole chunks */
    };

    if (!has_wgmma())
        return;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int turn = 0; turn < (cu_is_watched() ? 1 : 2); turn++) {
            const unsigned long before = products();
            check_in(SP_BF16, true, &conv_kinds[all[i].kind], all[i].n_samples,
                     all[i].rows, all[i].c_in, all[i].c_out, all[i].pad);
            if (hc_wgmma_count)
                assert_int_equal(products() > before,
                                 all[i].is_wide && all[i].rows[0] > 0);
        }
}

TEST(wgmma_adds_several_items)
{
    static const int rows[] = {2100, 0, 2600};

    if (has_wgmma() && !cu_is_watched())
        check_in(SP_BF16, true, &conv_kinds[CONV_1], 3, rows, 64, 192, 0);
}

/* The emulator adds the 16 of a product alike in both ways to multiply, so that their
 * results must be equal: a device's need not. Those of other orders of execution, and of
 * rows that are not aligned, must on both. */
TEST(wgmma_equals_mma)
{
    static const int rows[] = {300}, channels[][2] = {{64, 256}, {192, 128}};

    if (!has_wgmma())
        return;
    for (int i = 0; i < 2; i++) {
        sp_tensor dw[4];

        for (int way = 0; way < 4; way++) {
            conv_case p = case_make(&conv_kinds[CONV_2], SP_BF16, 1, rows,
                                    channels[i][0], channels[i][1], way == 3);
            CLOSED_BY(cu_close) sp_backend be = case_open(way, SP_BF16);

            be.is_wgmma = way > 0;
            dw[way] = grad_weight(&be, &p, 1, 0, 1, false, false);
        }
        if (hc_wgmma_count)
            assert_true(fx_equal(dw[0], dw[1]));
        assert_true(fx_equal(dw[1], dw[2]));
        assert_true(fx_equal(dw[1], dw[3]));
        assert_true(fx_error(dw[0], dw[1]) <= 1e-4);
    }
}

KERNEL_TESTS(test_cuda_wgrad)

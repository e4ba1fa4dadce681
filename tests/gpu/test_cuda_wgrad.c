/* The convolution's weight gradient on the CUDA backend agrees with loops in double, in
 * fp32, tf32 and bf16, for every kind of map, numbers of channels and rows, row
 * pitches, and ranges of samples. The tolerance is that of sums over the pairs of an
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
    case_same(
        "grad weight", p,
        case_wgrad_tolerance(p->precision, case_most_pairs(p, 2), p->c_in, p->c_out),
        dw, want, false);
}

static void check(const conv_kind *k, int n_samples, const int *rows, int c_in,
                  int c_out, int pad)
{
    static int turn;

    for (int precision = SP_FP32; precision <= SP_BF16; precision++, turn++) {
        const size_t mark = test_mark();
        conv_case p =
            case_make(k, (sp_precision)precision, n_samples, rows, c_in, c_out, pad);
        sp_backend be = case_open(turn, p.precision);
        check_samples(&be, &p, n_samples, 0, n_samples, turn % 5 == 0, turn % 2);
        if (n_samples > 1)
            check_samples(&be, &p, n_samples, 1, n_samples - 1, false, turn % 4 < 2);
        cu_close(&be);
        test_release(mark);
    }
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

KERNEL_TESTS(test_cuda_wgrad)

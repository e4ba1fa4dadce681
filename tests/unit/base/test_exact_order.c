/* Exact sums depend on neither order nor grouping, round once, and show what they
 * cannot hold. The reference adds the same numbers, rounded to the grid, in 128-bit
 * integers. */
#include "fixtures/test.h"

#include <stdbool.h>

#include "base/sp_exact.h"

enum { N = 4096 };

static uint64_t draws;

static double uniform(void)
{
    draws = draws * 6364136223846793005u + 1442695040888963407u;
    return (double)(draws >> 11) * 0x1p-53;
}

/* Numbers of both signs whose magnitudes are spread evenly over 2^low .. 2^high. */
static double spread(double low, double high)
{
    double x = exp2(low + (high - low) * uniform());

    return uniform() < 0.5 ? -x : x;
}

static double reference_f64(const double *x, int n)
{
    __int128 sum = 0;

    for (int i = 0; i < n; i++) /* |x| < 2^36, the grid is 2^-72 */
        sum += (__int128)nearbyintl(ldexpl(x[i], 48)) * ((__int128)1 << 24) +
               (__int128)nearbyint(ldexp(
                   (double)(ldexpl(x[i], 48) - nearbyintl(ldexpl(x[i], 48))), 24));
    return ldexp((double)sum, -72);
}

static double exact_sum(const double *x, int n)
{
    int64_t sum[SP_EXACT_LIMBS] = {0};
    double result;

    for (int i = 0; i < n; i++)
        sp_exact_add_f64(sum, x + i, 1);
    sp_exact_get_f64(sum, &result, 1);
    return result;
}

static void shuffle(double *x, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(uniform() * (i + 1));
        double kept = x[i];

        x[i] = x[j];
        x[j] = kept;
    }
}

TEST(sums_are_correctly_rounded_in_any_order)
{
    static double x[N];

    for (int round = 0; round < 40; round++) {
        double expected;

        draws = (uint64_t)round;
        for (int i = 0; i < N; i++)
            x[i] = spread(-60, 30);
        expected = reference_f64(x, N);
        for (int order = 0; order < 4; order++, shuffle(x, N)) {
            double got = exact_sum(x, N);

            assert_memory_equal(&got, &expected, sizeof got);
        }
    }
}

TEST(cancellation_leaves_the_small_part)
{
    const double x[] = {0x1p30, 0x1p-60, -0x1p30, 0x1p-50, -0x1p-60};

    assert_true(exact_sum(x, 5) == 0x1p-50);
}

TEST(groups_add_up_to_the_same_bits)
{
    static double x[N];
    double whole, parts;

    draws = 7;
    for (int i = 0; i < N; i++)
        x[i] = spread(-60, 30);
    whole = exact_sum(x, N);
    for (int n_groups = 2; n_groups < 300; n_groups = n_groups * 3 + 1) {
        int64_t sum[SP_EXACT_LIMBS] = {0};

        for (int g = 0; g < n_groups; g++) {
            int64_t part[SP_EXACT_LIMBS] = {0};

            for (int i = g; i < N; i += n_groups)
                sp_exact_add_f64(part, x + i, 1);
            for (int l = 0; l < SP_EXACT_LIMBS; l++)
                sum[l] += part[l];
        }
        sp_exact_get_f64(sum, &parts, 1);
        assert_memory_equal(&whole, &parts, sizeof whole);
    }
}

TEST(float_results_are_rounded_once)
{
    /* 1 + 2^-24 is a tie; the last bit, lost in a double, decides it. */
    const double up[] = {1, 0x1p-24, 0x1p-70}, down[] = {1, 0x1p-24, -0x1p-70};
    int64_t sum[2 * SP_EXACT_LIMBS] = {0};
    float got[2];

    for (int i = 0; i < 3; i++) {
        sp_exact_add_f64(sum, up + i, 1);
        sp_exact_add_f64(sum + SP_EXACT_LIMBS, down + i, 1);
    }
    sp_exact_get_f32(sum, got, 2);
    assert_true(got[0] == 1 + 0x1p-23f);
    assert_true(got[1] == 1);
}

/* 2^53 + 1 is a tie, and the last bit is one of those that such large sums lose. */
TEST(large_sums_are_rounded_once)
{
    for (int sign = -1; sign <= 1; sign += 2) {
        const double large = 0x1p35, rest[] = {1, sign * 0x1p-60};
        int64_t sum[SP_EXACT_LIMBS] = {0};
        double got;

        sp_exact_add_f64(sum, &large, 1);
        for (int l = 0; l < SP_EXACT_LIMBS; l++)
            sum[l] *= 1 << 18; /* as of so many ranks */
        for (int i = 0; i < 2; i++)
            sp_exact_add_f64(sum, rest + i, 1);
        sp_exact_get_f64(sum, &got, 1);
        assert_true(got == 0x1p53 + (sign > 0 ? 2 : 0));
    }
}

/* Long arrays go to threads and vectors; every element must be what it is alone. */
TEST(long_arrays_are_many_single_sums)
{
    enum { LONG = 100003 };
    FREED float *x = malloc(LONG * sizeof *x), *got = malloc(LONG * sizeof *got);
    FREED int64_t *sum = calloc(SP_EXACT_LIMBS * LONG, sizeof *sum);

    draws = 3;
    for (int pass = 0; pass < 3; pass++) {
        for (int i = 0; i < LONG; i++)
            x[i] = (float)ldexp((i % 1000) + 1, -pass * 20);
        sp_exact_add_f32(sum, x, LONG);
    }
    sp_exact_get_f32(sum, got, LONG);
    for (int i = 0; i < LONG; i++)
        assert_true(got[i] == (float)((i % 1000 + 1) * (1 + 0x1p-20 + 0x1p-40)));
}

TEST(a_million_summands_carry)
{
    int64_t sum[4 * SP_EXACT_LIMBS] = {0};
    const double x[4] = {0x1p36 - 0x1p-16, -(0x1p36 - 0x1p-16), 0x1.fffffffffffffp-20,
                         0x1p-72};
    double got[4];

    for (int i = 0; i < 1 << 20; i++)
        sp_exact_add_f64(sum, x, 4);
    sp_exact_get_f64(sum, got, 4);
    for (int i = 0; i < 4; i++)
        assert_true(got[i] == x[i] * 0x1p20);
}

TEST(what_does_not_fit_reads_as_nan)
{
    const double bad[] = {NAN, INFINITY, -INFINITY, 0x1p36, -0x1p36, 1e300};
    double got;

    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
        int64_t sum[SP_EXACT_LIMBS] = {0};
        const double good[2] = {-0x1p35, 0x1p-40};

        sp_exact_add_f64(sum, good, 1);
        sp_exact_add_f64(sum, bad + b, 1);
        for (int i = 0; i < 1000; i++)
            sp_exact_add_f64(sum, good + i % 2, 1);
        sp_exact_get_f64(sum, &got, 1);
        assert_true(isnan(got));
    }
}

TEST(poison_survives_company)
{
    int64_t one[SP_EXACT_LIMBS] = {0};
    uint64_t sum[SP_EXACT_LIMBS] = {0};
    const double bad = NAN, good = -0x1.23456789p20;

    for (int i = 0; i < 200; i++)
        sp_exact_add_f64(one, &good, 1);
    sp_exact_add_f64(one, &bad, 1);
    for (int i = 0; i < 200; i++)
        sp_exact_add_f64(one, &good, 1);
    for (int k = 1; k < 1 << 14; k++) {
        int64_t copy[SP_EXACT_LIMBS];
        double got;

        for (int l = 0; l < SP_EXACT_LIMBS; l++)
            sum[l] += (uint64_t)one[l];
        memcpy(copy, sum, sizeof copy);
        sp_exact_get_f64(copy, &got, 1);
        assert_true(isnan(got));
    }
}

/* Long double holds 64 bits, so that it holds the exact sum of these. */
TEST(wide_sums_keep_summands_of_any_size_in_any_order)
{
    static const double x[] = {
        0x1p160, 0x1.8p100, 3.4e38, -0x1p159, 0x1.fffffffffffffp36,
        1.5,     -0x1p36,   1e30,   0x1p88,   -2e25};
    enum { COUNT = sizeof x / sizeof *x };
    int64_t up[2 * SP_EXACT_WIDE] = {0}, down[2 * SP_EXACT_WIDE] = {0};
    double forth[2], back[2];
    long double sum = 0;

    for (int i = 0; i < COUNT; i++) {
        const double one[2] = {x[i], 0.1}, other[2] = {x[COUNT - 1 - i], 0.1};

        sum += x[i];
        sp_exact_add_wide(up, one, 2);
        sp_exact_add_wide(down, other, 2);
    }
    sp_exact_get_wide(up, forth, 2);
    sp_exact_get_wide(down, back, 2);
    assert_memory_equal(up, down, sizeof up);
    assert_memory_equal(forth, back, sizeof forth);
    assert_true(forth[0] == (double)sum);
    assert_true(fabs(forth[1] - 1) < 1e-15);
}

TEST(each_summand_of_a_wide_sum_keeps_all_its_bits)
{
    for (int e = -16; e < 192; e++) {
        const double x = ldexp(0x1.fffffffffffffp-1, e);
        int64_t sum[SP_EXACT_WIDE] = {0}, plain[SP_EXACT_LIMBS] = {0};
        double got, want = x;

        sp_exact_add_wide(sum, &x, 1);
        sp_exact_get_wide(sum, &got, 1);
        if (e <= 36) {
            sp_exact_add_f64(plain, &x, 1);
            sp_exact_get_f64(plain, &want, 1);
        }
        assert_true(got == want);
    }
}

TEST(wide_sums_of_no_number_read_as_nan)
{
    const double bad[] = {NAN, INFINITY, -INFINITY, 0x1p192}, good = 1e20;
    double got;

    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
        int64_t sum[SP_EXACT_WIDE] = {0};

        sp_exact_add_wide(sum, &good, 1);
        sp_exact_add_wide(sum, bad + b, 1);
        sp_exact_get_wide(sum, &got, 1);
        assert_true(isnan(got));
    }
}

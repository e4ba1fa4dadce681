/* Statistics of a batch norm from sums of x and x^2 in double stay within the bound
 * that sp_norm.h states, against long double, for inputs whose mean is up to 10^4
 * standard deviations. They are compared with what combining (count, mean, M2) rank by
 * rank would give, and with the error that is left in the normalized values.
 * SP_TEST_PRINT=1 prints the table. */
#include "fixtures/test.h"
#include "base/sp_program.h"

#include <float.h>

#include "compute/sp_norm.h"

enum { N_RANKS = 4, MOST = 60000 };

static const int rows_of[N_RANKS] = {MOST, 3, 0, 17001};

typedef struct moments {
    double n, mean, var; /* var: over n */
} moments;

static const double EPS = 1e-5;
static sp_backend be;
static float x[N_RANKS * MOST], y[N_RANKS * MOST];

/* The deviates are about normal. */
static void draw(double mean, double std, bool is_bf16)
{
    uint64_t state = 88172645463325252u;

    for (int i = 0; i < N_RANKS * MOST; i++) {
        double sum = -6;

        for (int k = 0; k < 12; k++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            sum += (double)(state >> 11) * 0x1p-53;
        }
        x[i] = (float)(mean + std * sum);
        if (is_bf16)
            x[i] = sp_bf16_to_float(sp_bf16_of(x[i]));
    }
}

static moments exactly(void)
{
    long double sum = 0, squares = 0, n = 0;

    for (int r = 0; r < N_RANKS; r++)
        for (int i = 0; i < rows_of[r]; i++, n++)
            sum += (long double)x[r * MOST + i];
    for (int r = 0; r < N_RANKS; r++)
        for (int i = 0; i < rows_of[r]; i++) {
            const long double d = (long double)x[r * MOST + i] - sum / n;

            squares += d * d;
        }
    return (moments){(double)n, (double)(sum / n), (double)(squares / n)};
}

/* The statistics of one channel, as a network on several ranks forms them. */
static moments by_sums(void)
{
    double all[3] = {0}, own[3], sample[2];
    moments m;

    for (int r = 0; r < N_RANKS; r++) {
        const int32_t sample_row[2] = {0, rows_of[r]};
        const sp_tensor t = {.data = x + r * MOST, .n = rows_of[r], .c = 1, .ld = 1};

        OK(be.ops->norm_sums(&be, t, sample_row, 1, sample));
        OK(be.ops->add_samples(&be, sample, 1, 2, rows_of[r], own, false));
        for (int i = 0; i < 3; i++)
            all[i] += own[i];
    }
    m = (moments){all[2], all[0] / all[2], 0};
    m.var = all[1] / m.n - m.mean * m.mean;
    return m;
}

static moments by_m2(void)
{
    moments all = {0, 0, 0};

    for (int r = 0; r < N_RANKS; r++) {
        const float *own = x + r * MOST;
        double n = rows_of[r], mean = 0, m2 = 0, delta;

        for (int i = 0; i < rows_of[r]; i++)
            mean += (double)own[i] / n;
        for (int i = 0; i < rows_of[r]; i++)
            m2 += ((double)own[i] - mean) * ((double)own[i] - mean);
        if (n == 0)
            continue;
        delta = mean - all.mean;
        all.var += m2 + delta * delta * all.n * n / (all.n + n);
        all.mean += delta * n / (all.n + n);
        all.n += n;
    }
    all.var /= all.n;
    return all;
}

static double relative(double got, double want)
{
    return fabs(got - want) / (want + EPS);
}

/* The largest error of a normalized value under these statistics. */
static double error_of_values(const moments *m, const moments *want)
{
    float f[6] = {1, 0, 0, 1, 0, 0}, *gamma = f, *beta = f + 1, affine[4];
    const double r = 1 / sqrt(want->var + EPS);
    const sp_norm_finish_args args = {.c = 1,
                                      .eps = EPS,
                                      .gamma = gamma,
                                      .beta = beta,
                                      .running_mean = f + 2,
                                      .running_var = f + 3,
                                      .scale = affine,
                                      .shift = affine + 1,
                                      .mean = affine + 2,
                                      .inv_std = affine + 3};
    double most = 0;

    sp_norm_affine(&args, 0, m->mean, m->var);
    for (int k = 0; k < N_RANKS; k++) {
        const sp_tensor in = {.data = x + k * MOST, .n = rows_of[k], .c = 1, .ld = 1};
        const sp_tensor out = {.data = y + k * MOST, .n = rows_of[k], .c = 1, .ld = 1};

        OK(be.ops->norm_apply(
            &be,
            &(sp_norm_args){
                .x = in, .y = out, .scale = affine, .shift = affine + 1, .slope = 1}));
        for (int i = 0; i < rows_of[k]; i++) {
            const double right = ((double)in.data[i] - want->mean) * r;

            most = fmax(most, fabs((double)out.data[i] - right));
        }
    }
    return most;
}

static void compare(double ratio, double std, bool is_bf16)
{
    moments want, sums, m2;
    double y_sums, y_m2;

    draw(ratio * std, std, is_bf16);
    want = exactly();
    sums = by_sums();
    m2 = by_m2();
    y_sums = error_of_values(&sums, &want);
    y_m2 = error_of_values(&m2, &want);
    if (getenv("SP_TEST_PRINT"))
        printf("%s mean/std %-6g std %-5g  error of var + eps: sums %.1e, M2 %.1e; of "
               "normalized values: sums %.3e, M2 %.3e\n",
               is_bf16 ? "bf16" : "fp32", ratio, std, relative(sums.var, want.var),
               relative(m2.var, want.var), y_sums, y_m2);
    assert_true(sums.n == want.n && m2.n == want.n);
    /* sp_norm.h */
    assert_true(relative(sums.var, want.var) <=
                32 * DBL_EPSILON * (1 + want.mean * want.mean / (want.var + EPS)));
    assert_true(fabs(sums.mean - want.mean) <=
                32 * DBL_EPSILON * (fabs(want.mean) + 1));
    /* beyond 10^3 the floats' own rounding decides which is better */
    assert_true(y_sums <= 1.05 * y_m2 + FLT_EPSILON * (ratio > 1000 ? ratio : 1));
}

TEST(sums_in_double_are_enough)
{
    static const double ratio[] = {0, 1, 100, 1000, 1e4};
    static const double std[] = {1, 0.01};

    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++)
        for (int s = 0; s < 2; s++)
            for (int i = 0; i < 5; i++)
                compare(ratio[i], std[s], is_bf16);
}

/* In a channel without variance the error that rounding leaves is small compared with
 * eps. */
TEST(constant_channels_stay_finite)
{
    moments m;

    for (int i = 0; i < N_RANKS * MOST; i++)
        x[i] = 9999.7F;
    m = by_sums();
    assert_true(fabs(m.mean - 9999.7) < 1e-3);
    assert_true(fabs(m.var) < EPS / 10);
}

int main(void)
{
    sp_program_begin("sptrain");
    be.ops = sp_backend_find("cpu");
    OK(be.ops->open(&be, 0, 1));
    return run_all_tests();
}

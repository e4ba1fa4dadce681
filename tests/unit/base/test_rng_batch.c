/* Many draws at a time equal draws one at a time; normal deviates are distributed
 * normally and have the same bits on every machine. */
#include "fixtures/test.h"

#include "base/sp_rng.h"

enum { N = 1 << 20 };

static float z[N];

TEST(words_equal_single_draws)
{
    static uint32_t words[1000];
    sp_rng r = sp_rng_open(1, SP_RNG_JITTER, 2, 3);

    for (uint64_t first = 0; first < ((uint64_t)1 << 36); first = 4 * (3 * first + 1))
        for (int n = 0; n < 1000; n += 1 + n / 3) {
            memset(words, 0xab, sizeof words);
            sp_rng_words(&r, first, n, words);
            for (int i = 0; i < n; i++)
                assert_int_equal(words[i], sp_rng_at(&r, first + (uint64_t)i));
            assert_int_equal(words[n], 0xabababab);
        }
}

/* The deviates by their definition, in double. */
TEST(normals_equal_the_formula)
{
    sp_rng r = sp_rng_open(7, SP_RNG_JITTER, 0, 0);
    double worst = 0;

    sp_rng_normals(&r, 0, N, z);
    for (uint64_t i = 0; i < N; i += 2) {
        uint32_t a = sp_rng_at(&r, i), b = sp_rng_at(&r, i + 1);
        double radius = sqrt(-2 * log((2 * (a >> 9) + 1) * 0x1p-24));
        double turn = 1.57079632679489661923 * ((int32_t)b >> 2) * 0x1p-30;
        double x = (b & 1 ? -1 : 1) * radius * cos(turn), y = radius * sin(turn);

        worst = fmax(worst, fabs(z[i] - (b & 2 ? y : x)));
        worst = fmax(worst, fabs(z[i + 1] - (b & 2 ? x : y)));
    }
    assert_true(worst < 3e-6);
}

/* Compares the share below each bound, the moments and neighbouring draws with the
 * normal distribution. */
TEST(normals_are_normal)
{
    static const double bound[] = {-4, -3, -2, -1, -0.3, 0, 0.3, 1, 2, 3, 4};
    sp_rng r = sp_rng_open(8, SP_RNG_JITTER, 0, 0);
    double sum[5] = {0}, pairs = 0, largest = 0;

    sp_rng_normals(&r, 0, N, z);
    for (int i = 0; i < N; i++) {
        double power = 1;

        for (int k = 1; k < 5; k++)
            sum[k] += power *= z[i];
        pairs += i ? (double)z[i] * z[i - 1] : 0;
        largest = fmax(largest, fabs(z[i]));
    }
    assert_true(fabs(sum[1] / N) < 4 / 1024.0); /* four deviations each */
    assert_true(fabs(sum[2] / N - 1) < 4 * sqrt(2) / 1024);
    assert_true(fabs(sum[3] / N) < 4 * sqrt(15) / 1024);
    assert_true(fabs(sum[4] / N - 3) < 4 * sqrt(96) / 1024);
    assert_true(fabs(pairs / N) < 4 / 1024.0);
    assert_true(largest > 4.2 && largest < 5.8);
    for (size_t k = 0; k < sizeof bound / sizeof *bound; k++) {
        double p = erfc(-bound[k] / sqrt(2)) / 2, n = 0;

        for (int i = 0; i < N; i++)
            n += z[i] < bound[k];
        assert_true(fabs(n - N * p) < 4 * sqrt(N * p * (1 - p)) + 1);
    }
}

/* The checksum of the bits differs on a machine that rounds otherwise. */
TEST(bits_are_the_same_everywhere)
{
    sp_rng r = sp_rng_open(9, SP_RNG_JITTER, 1, 2);
    uint32_t sum = 0, bits;

    sp_rng_normals(&r, 0, 10000, z);
    for (int i = 0; i < 10000; i++) {
        memcpy(&bits, &z[i], sizeof bits);
        sum = 31 * sum + bits;
    }
    assert_int_equal(sum, 0x9893bb);
}

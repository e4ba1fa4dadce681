/* The sums of products of bf16 on the CPU have the bits that src/cpu/bf16/bf16.h and tile.h
 * define, against the same steps in double: of special, tiny and huge numbers too. */
#include "fixtures/test.h"

#include "cpu/cpu.h"
#include "fixtures/map_fixture.h"

#include <float.h>

/* ---- the operation ---- */

/* The sum of a and b, of one of which many bits may lie below the other's: rounded to
 * odd, so that rounding once more to 24 bits gives the rounded exact sum. */
static double add_to_odd(double a, double b)
{
    const double s = a + b, part = s - a, rest = (a - (s - part)) + (b - part);
    int64_t bits;

    memcpy(&bits, &s, sizeof bits);
    if (rest == 0 || isnan(rest) || bits & 1)
        return s;
    bits += (rest > 0) == (s > 0) ? 1 : -1;
    double odd;
    memcpy(&odd, &bits, sizeof odd);
    return odd;
}

static float flushed(float v)
{
    return fabsf(v) < FLT_MIN ? copysignf(0, v) : v;
}

/* One step of the operation, in double: scaled to 24 bits without subnormal numbers. */
static float product_added(float sum, uint16_t a, uint16_t b)
{
    const double x = flushed(sp_bf16_to_float(a)), y = flushed(sp_bf16_to_float(b));
    const double exact = add_to_odd(flushed(sum), x * y);
    int exponent;
    double m;

    if (!isfinite(exact) || exact == 0)
        return (float)exact;
    m = frexp(exact, &exponent);
    m = ldexp((double)(float)m, exponent); /* 24 bits, ties to even */
    return fabs(m) < FLT_MIN ? (float)copysign(0, exact) : (float)m;
}

enum { LANES_TRIED = 40, N_TRIED = 500 };

/* Numbers with exponents from end to end, with many near the least ones and near each
 * other, and all kinds of special ones. */
static uint32_t draw_bits(sp_rng *rng)
{
    static const uint32_t special[] = {0,          0x80000000, 0x00800000, 0x80800000,
                                       0x007fffff, 0x00000001, 0x3f800000, 0xbf800000,
                                       0x7f7fffff, 0x7f800000, 0x00ffffff, 0x01000000};
    const uint32_t kind = sp_rng_u32(rng) % 8, bits = sp_rng_u32(rng);

    if (kind == 0)
        return special[bits % 12];
    if (kind == 1)
        return bits & 0x80ffffff; /* the least exponents */
    if (kind < 4)
        return (bits & 0x807fffff) | (120 + bits % 16) << 23;
    if (kind == 4)
        return (bits & 0x807fffff) | (50 + bits % 16) << 23; /* products are tiny */
    return (bits & 0x7f800000) == 0x7f800000 ? 0 : bits;
}

static float float_of(uint32_t bits)
{
    float v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

static bool is_same_bits(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

/* Adds two products to each of N_TRIED x LANES_TRIED sums by a convolution of two input
 * channels, whose output is fp32. */
static void try_operation(sp_backend *be, const char *isa)
{
    sp_rng rng = sp_rng_open(5, SP_RNG_INIT, 0, 0);
    sp_tensor y = fx_tensor(N_TRIED, LANES_TRIED, LANES_TRIED, 1);
    sp_tensor x = fx_rounded(fx_tensor(N_TRIED, 2, 2, 2));
    uint16_t *half = (uint16_t *)(void *)x.data;
    float w[2 * LANES_TRIED], *packed, *before;

    for (int j = 0; j < 2 * LANES_TRIED; j++)
        w[j] = float_of(draw_bits(&rng) & 0xffff0000);
    for (int i = 0; i < N_TRIED * LANES_TRIED; i++)
        y.data[i] = float_of(draw_bits(&rng));
    for (int i = 0; i < 2 * N_TRIED; i++)
        half[i] = (uint16_t)(draw_bits(&rng) >> 16);
    before = test_alloc((size_t)(N_TRIED * LANES_TRIED) * sizeof *before);
    memcpy(before, y.data, (size_t)(N_TRIED * LANES_TRIED) * sizeof *before);
    packed = fx_pack(be, w, 1, 2, LANES_TRIED, false, false);
    OK(be->ops->conv_forward(
        be, &(sp_conv_args){.x = x, .y = y, .w_packed = packed, .is_added = true}));
    for (int i = 0; i < N_TRIED; i++)
        for (int j = 0; j < LANES_TRIED; j++) {
            const float first = before[i * LANES_TRIED + j];
            float want =
                product_added(first, half[2 * i + 1], sp_bf16_of(w[LANES_TRIED + j]));
            want = product_added(want, half[2 * i], sp_bf16_of(w[j]));
            if (!is_same_bits(fx_at(y, i, j), want))
                fail_msg("%s: %a + %a * %a + %a * %a is %a, expected %a", isa, first,
                         sp_bf16_to_float(half[2 * i + 1]), w[LANES_TRIED + j],
                         sp_bf16_to_float(half[2 * i]), w[j], fx_at(y, i, j), want);
        }
}

TEST(products_are_two_flushed_multiply_adds)
{
    sp_backend be = {0};

    for (int v = FX_PLAIN; fx_next(&be, &v, FX_TILES, 1, SP_BF16);)
        try_operation(&be, fx_isas[v]);
}

/* ---- the operation of tiles ---- */

enum { TILE_CHANNELS = 40, N_CHUNKS = 2, TILE_COLUMNS = 20, TILE_ROWS = 300 };

/* A number of one of four kinds: all kinds, the least exponents, middle ones, and those
 * whose products are tiny. A row or a column has one kind, or most sums of its many
 * products would not be finite. */
static uint16_t draw_half(sp_rng *rng, int kind)
{
    const uint32_t bits = sp_rng_u32(rng);

    if (kind == 0)
        return (uint16_t)(draw_bits(rng) >> 16);
    if (kind == 1)
        return bits & 0x80ff;
    return (uint16_t)((bits & 0x807f) | ((kind == 2 ? 120 : 58) + (bits >> 16) % 12)
                                            << 7);
}

static float sum_flushed(float a, float b)
{
    return flushed(flushed(a) + flushed(b));
}

/* The products of a row of x and column j of w, as TDPBF16PS sums them. */
static float tile_products_of(const uint16_t *x, const uint16_t *w, int j)
{
    float sum = 0;

    for (int q = 0; q < N_CHUNKS; q++) {
        float half[2] = {0, 0};
        for (int c = 32 * q; c < 32 * (q + 1); c++) {
            const bool is_filled = c >= TILE_CHANNELS;
            half[c % 2] = product_added(half[c % 2], is_filled ? 0 : x[c],
                                        is_filled ? 0 : w[c * TILE_COLUMNS + j]);
        }
        sum = sum_flushed(sum, sum_flushed(half[0], half[1]));
    }
    return sum;
}

/* Convolves rows of 40 channels, a chunk and a part of one; the output is fp32. */
static void try_tiles(sp_backend *be, const char *isa)
{
    sp_rng rng = sp_rng_open(6, SP_RNG_INIT, 0, 0);
    sp_tensor y = fx_tensor(TILE_ROWS, TILE_COLUMNS, TILE_COLUMNS, 1);
    sp_tensor x = fx_rounded(fx_tensor(TILE_ROWS, TILE_CHANNELS, TILE_CHANNELS, 2));
    uint16_t *half = (uint16_t *)(void *)x.data, wh[TILE_CHANNELS * TILE_COLUMNS];
    float w[TILE_CHANNELS * TILE_COLUMNS], before[TILE_ROWS * TILE_COLUMNS], *packed;
    int n_finite = 0;

    for (int i = 0; i < TILE_CHANNELS * TILE_COLUMNS; i++) {
        wh[i] = draw_half(&rng, i % TILE_COLUMNS % 4);
        w[i] = sp_bf16_to_float(wh[i]);
        wh[i] = sp_bf16_of(w[i]); /* another payload of a NaN */
    }
    for (int i = 0; i < TILE_ROWS * TILE_CHANNELS; i++)
        half[i] = draw_half(&rng, i / TILE_CHANNELS % 4);
    for (int i = 0; i < TILE_ROWS * TILE_COLUMNS; i++)
        before[i] = y.data[i] = i % 3 ? float_of(draw_bits(&rng)) : 0;
    packed = fx_pack(be, w, 1, TILE_CHANNELS, TILE_COLUMNS, false, false);
    OK(be->ops->conv_forward(
        be, &(sp_conv_args){.x = x, .y = y, .w_packed = packed, .is_added = true}));
    for (int i = 0; i < TILE_ROWS; i++)
        for (int j = 0; j < TILE_COLUMNS; j++) {
            const float first = before[i * TILE_COLUMNS + j];
            const float want =
                first + tile_products_of(half + i * TILE_CHANNELS, wh, j);
            n_finite += isfinite(want);
            if (!is_same_bits(fx_at(y, i, j), want))
                fail_msg("%s: row %d, column %d: %a and products are %a, expected %a",
                         isa, i, j, first, fx_at(y, i, j), want);
        }
    assert_true(n_finite > TILE_ROWS * TILE_COLUMNS / 2);
}

TEST(tiles_sum_even_and_odd_products)
{
    sp_backend be = {0};

    for (int v = FX_TILES - 1; fx_next(&be, &v, FX_BF16_ISAS, 1, SP_BF16);) {
        assert_int_equal(be.sums, SP_SUMS_TILES);
        try_tiles(&be, fx_isas[v]);
    }
}

TEST(rounding_is_to_nearest_even)
{
    static const uint32_t bits[][2] = {
        {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82},
        {0x3f808001, 0x3f81}, {0x3f807fff, 0x3f80}, {0x7f7fffff, 0x7f80},
        {0x00000001, 0x0000}, {0x00018000, 0x0002}, {0x80008001, 0x8001},
        {0x7fffffff, 0x7fff}, {0x7f800001, 0x7fc0}, {0xff800000, 0xff80}};

    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        assert_int_equal(sp_bf16_of(float_of(bits[i][0])), bits[i][1]);
}

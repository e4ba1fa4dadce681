/* The operations of bf16.h and tile.h in portable C. The Makefile compiles this file
 * only for the portable version. */
#include "cpu/bf16/tile.h"

#include <float.h>
#include <math.h>

/* ---- two products at a time ---- */

static float flushed(float v)
{
    return fabsf(v) < FLT_MIN ? copysignf(0, v) : v;
}

/* The rounded result if the magnitude of sum + a * b is at most the least normal
 * number. It is computed 2^100 times as large, so that rounding meets no subnormal
 * numbers, and is then 0 or scaled back. If the operands are too large for that they
 * have cancelled each other out, and fmaf gives the result. */
static float add_small(float sum, float a, float b)
{
    float scaled;

    if (fabsf(sum) > 0x1p-90f || a == 0 || b == 0)
        return fmaf(a, b, sum);
    scaled = fmaf(a * 0x1p50f, b * 0x1p50f, sum * 0x1p100f);
    return fabsf(scaled) < 0x1p-26f ? copysignf(0, scaled) : scaled * 0x1p-100f;
}

float sp_portable_bf16_step(float sum, float a, float b)
{
    float result;

    sum = flushed(sum);
    a = flushed(a);
    b = flushed(b);
    result = fmaf(a, b, sum);
    return fabsf(result) <= FLT_MIN ? add_small(sum, a, b) : result;
}

/* ---- tiles ---- */

void TILES(begin)(void) {}

void TILES(end)(void) {}

/* The sum of two numbers that are not subnormal is exact if it is itself subnormal. So
 * flushing it after it was rounded gives the bits of the instruction. */
static float bf16_add(float a, float b)
{
    return flushed(flushed(a) + flushed(b));
}

static float bf16_number(const char *row, int i)
{
    uint16_t bits;

    memcpy(&bits, row + 2 * i, sizeof bits);
    return sp_bf16_to_float(bits);
}

/* Adds a chunk to a sum: a row of an a-tile and column j of a b-tile. */
static float bf16_add_chunk(float sum, const char *a, const uint32_t *b, size_t ld_b,
                            int j)
{
    float even = 0, odd = 0;

    for (int s = 0; s < EDGE; s++) {
        const char *word = (const char *)(b + (size_t)s * ld_b + j);
        even = sp_portable_bf16_step(even, bf16_number(a, 2 * s), bf16_number(word, 0));
        odd =
            sp_portable_bf16_step(odd, bf16_number(a, 2 * s + 1), bf16_number(word, 1));
    }
    return bf16_add(sum, bf16_add(even, odd));
}

void TILES(multiply)(const tile_products *p)
{
    for (int i = 0; i < p->rows * EDGE; i++)
        for (int j = 0; j < p->columns * EDGE; j++) {
            float *to = p->sum + (size_t)i * p->ld + j, sum = p->is_added ? *to : 0;
            for (int q = 0; q < p->n_chunks; q++)
                sum = bf16_add_chunk(sum,
                                     p->a + (size_t)i * p->ld_a + (size_t)q * p->step_a,
                                     p->b + (size_t)(q * EDGE) * p->ld_b, p->ld_b, j);
            *to = sum;
        }
}

/* ---- peak ---- */

double TILES(multiply_add)(int64_t rounds)
{
    static uint32_t ones[SQUARE] = {0x3f7f3f7f};
    float sum[SQUARE] = {0};
    const int64_t n = rounds * ROUND / OPERATION + 1;
    const tile_products p = {.a = (const char *)ones,
                             .ld_a = EDGE * sizeof *ones,
                             .b = ones,
                             .sum = sum,
                             .ld_b = EDGE,
                             .ld = EDGE,
                             .rows = 1,
                             .columns = 1,
                             .n_chunks = 1,
                             .is_added = true};

    for (int64_t i = 0; i < n; i++)
        TILES(multiply)(&p);
    return (double)OPERATION * (double)n;
}

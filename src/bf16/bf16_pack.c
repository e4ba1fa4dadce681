/* Weights of a convolution, rounded to bf16 and packed in pairs of input channels; the
 * portable form of the operation of bf16.h. */
#include "bf16/bf16.h"

#include <float.h>
#include <math.h>

/* ---- packing ---- */

static uint32_t word_of(float low, float high)
{
    return sp_bf16_of(low) | (uint32_t)sp_bf16_of(high) << 16;
}

void BF16(pack_rows)(const float *w, int c_in, int c_out, int at, int width, int ld,
                     uint32_t *restrict word)
{
    for (int i = 0; i < c_in; i += 2, word += ld) {
        const float *low = w + (size_t)i * (size_t)c_out + at, *high = low + c_out;
        if (i + 1 < c_in)
            for (int j = 0; j < width; j++)
                word[j] = word_of(low[j], high[j]);
        else
            for (int j = 0; j < width; j++)
                word[j] = word_of(low[j], 0);
    }
}

enum { SQUARE = 64 /* words that are rounded before they are transposed */ };

/* Rounds words at .. at + n - 1 of a row of c_in weights. */
static void round_words(const float *row, int c_in, int at, int n,
                        uint32_t *restrict word)
{
    const int whole = min_i(n, c_in / 2 - at);

    for (int i = 0; i < whole; i++)
        word[i] = word_of(row[2 * (at + i)], row[2 * (at + i) + 1]);
    if (whole < n)
        word[whole] = word_of(row[c_in - 1], 0);
}

void BF16(pack_columns)(const float *w, int c_in, int at, int width, int ld,
                        float *packed)
{
    uint32_t word[SQUARE * SQUARE];
    const int n_words = (c_in + 1) / 2;

    for (int first = 0; first < n_words; first += SQUARE) {
        const int n = min_i(SQUARE, n_words - first);
        for (int j = 0; j < width; j++)
            round_words(w + (size_t)(at + j) * (size_t)c_in, c_in, first, n,
                        word + j * SQUARE);
        ISA(transpose)
        ((const float *)(const void *)word, SQUARE, n, width, (size_t)ld,
         packed + (size_t)first * (size_t)ld);
    }
}
_Static_assert(SQUARE >= NR_MAX * LANES && SQUARE >= 64, "a panel fits the square");

void BF16(pack)(const float *w, int c_in, int c_out, bool is_transposed, float *packed)
{
    const int nv = vectors(c_out), n_words = (c_in + 1) / 2;

    for (int v = 0, nr; v < nv; v += nr) {
        nr = panel_width(v, nv);
        const int at = v * LANES, ld = nr * LANES, width = min_i(ld, c_out - at);
        if (width < ld)
            memset(packed, 0, (size_t)n_words * (size_t)ld * sizeof *packed);
        if (is_transposed)
            BF16(pack_columns)(w, c_in, at, width, ld, packed);
        else
            BF16(pack_rows)(w, c_in, c_out, at, width, ld, (uint32_t *)(void *)packed);
        packed += (size_t)n_words * (size_t)ld;
    }
}

/* ---- the portable form ---- */

#if LANES == 4
static float flushed(float v)
{
    return fabsf(v) < FLT_MIN ? copysignf(0, v) : v;
}

/* The rounded result where the magnitude of sum + a * b is at most the least normal
 * number. It is computed 2^100 times as large, so that rounding meets no subnormal
 * numbers, and is then 0 or scaled back. Where the operands are too large for that they
 * have cancelled each other out, and fmaf gives the result. */
static float add_small(float sum, float a, float b)
{
    float scaled;

    if (fabsf(sum) > 0x1p-90f || a == 0 || b == 0)
        return fmaf(a, b, sum);
    scaled = fmaf(a * 0x1p50f, b * 0x1p50f, sum * 0x1p100f);
    return fabsf(scaled) < 0x1p-26f ? copysignf(0, scaled) : scaled * 0x1p-100f;
}

float BF16(add_product)(float sum, float a, float b)
{
    float result;

    sum = flushed(sum);
    a = flushed(a);
    b = flushed(b);
    result = fmaf(a, b, sum);
    return fabsf(result) <= FLT_MIN ? add_small(sum, a, b) : result;
}
#endif

/* Weights of a convolution, rounded to bf16 and packed in pairs of input channels. */
#include "cpu/bf16/bf16.h"

INLINE uint32_t bf16_word_of(float low, float high)
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
                word[j] = bf16_word_of(low[j], high[j]);
        else
            for (int j = 0; j < width; j++)
                word[j] = bf16_word_of(low[j], 0);
    }
}

enum { SQUARE = 64 /* words that are rounded before they are transposed */ };

/* Rounds words at .. at + n - 1 of a row of c_in weights: in memory they are halves one
 * after the other. */
static void round_words(const float *row, int c_in, int at, int n,
                        uint16_t *restrict half)
{
    const int whole = min_i(2 * n, c_in - 2 * at);

    for (int i = 0; i < whole; i++)
        half[i] = sp_bf16_of(row[2 * at + i]);
    if (whole < 2 * n)
        half[whole] = 0;
}

void BF16(pack_columns)(const float *w, int c_in, int at, int width, int ld,
                        float *packed)
{
    _Alignas(64) uint16_t half[2 * SQUARE * SQUARE];
    const int n_words = (c_in + 1) / 2;

    for (int first = 0; first < n_words; first += SQUARE) {
        const int n = min_i(SQUARE, n_words - first);
        for (int j = 0; j < width; j++)
            round_words(w + (size_t)(at + j) * (size_t)c_in, c_in, first, n,
                        half + 2 * j * SQUARE);
        ISA(transpose)
        ((const float *)(const void *)half, SQUARE, n, width, (size_t)ld,
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

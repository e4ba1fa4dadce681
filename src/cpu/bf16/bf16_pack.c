/* Weights of a convolution, rounded to bf16 and packed in pairs of input channels. */
#include "cpu/bf16/bf16.h"

INLINE uint32_t bf16_word_of(float low, float high)
{
    return sp_bf16_of(low) | (uint32_t)sp_bf16_of(high) << 16;
}

/* sp_bf16_of each lane, in the upper half of its word. */
INLINE ivec rounded(vec v)
{
    const ivec bits = (ivec)v, is_nan = (ivec)(v != v);

    return (is_nan & (bits | 0x400000)) |
           (~is_nan & (bits + 0x7fff + (bits >> 16 & 1)));
}

void BF16(pack_rows)(const float *w, int n, int c_out, int at, int width, int ld,
                     uint32_t *word)
{
    fetch_floats(w + n * c_out + at * n, n * width);
    for (int i = 0; i < n; i += 2, word += ld) {
        const float *low = w + i * c_out + at, *high = low + c_out;
        int j = 0;
        for (; i + 1 < n && j + LANES <= width; j += LANES) {
            const ivec words =
                rounded(load(low + j)) >> 16 | (rounded(load(high + j)) & 0xffff0000);
            memcpy(word + j, &words, sizeof words);
        }
        for (; j < width; j++)
            word[j] = bf16_word_of(low[j], i + 1 < n ? high[j] : 0);
    }
}

/* Words of 2 * LANES floats. Lane l has word word_in(l). */
INLINE vec words_of(const float *p)
{
    const vec a = (vec)rounded(load(p)), b = (vec)rounded(load(p + LANES));
    ivec even, odd;

    UNROLL
    for (uint32_t l = 0; l < LANES; l++) {
        even[l] = (l & ~3u) + l % 2 * 2 + l % 4 / 2 * LANES;
        odd[l] = even[l] + 1;
    }
    return (vec)((ivec)SHUFFLE_2(a, b, even) >> 16 |
                 ((ivec)SHUFFLE_2(a, b, odd) & 0xffff0000));
}

INLINE int word_in(int l)
{
    return l / 4 * 2 + l % 2 + (l & 2 ? LANES / 2 : 0);
}

/* As ISA(transpose), whose squares are rounded here on their way. */
void BF16(pack_columns)(const float *w, int c_in, int at, int width, int ld,
                        float *packed)
{
    const int n_words = (c_in + 1) / 2, whole = c_in / (2 * LANES) * LANES;
    const int columns = width / LANES * LANES;
    const float *first = w + (size_t)at * (size_t)c_in, *next = first + width * c_in;
    vec row[LANES];

    for (int i = 0; i < whole; i += LANES)
        for (int j = 0; j < columns; j += LANES) {
            UNROLL
            for (int r = 0; r < LANES; r++)
                row[r] = words_of(first + (j + r) * c_in + 2 * i);
            transpose_square(row);
            UNROLL
            for (int l = 0; l < LANES; l++)
                store(packed + (i + word_in(l)) * ld + j, row[l]);
            fetch_floats(next + 2 * (i * columns + j * LANES), 2 * LANES * LANES);
        }
    for (int j = 0; j < width; j++, first += c_in)
        for (int i = j < columns ? whole : 0; i < n_words; i++) {
            const float high = 2 * i + 1 < c_in ? first[2 * i + 1] : 0;
            const uint32_t word = bf16_word_of(first[2 * i], high);
            memcpy(packed + i * ld + j, &word, sizeof word);
        }
}

void BF16(pack)(const float *w, int c_in, int c_out, bool is_transposed, float *packed)
{
    const int nv = vectors(c_out), most = is_transposed ? c_in : PACK_ROWS;
    const size_t n_words = (size_t)(c_in + 1) / 2;

    for (int i = 0; i < c_in; i += most)
        for (int v = 0, nr; v < nv; v += nr) {
            nr = panel_width(v, nv);
            const int at = v * LANES, ld = nr * LANES, width = min_i(ld, c_out - at);
            const float *rows = w + (size_t)i * (size_t)c_out;
            const int n = min_i(most, c_in - i);
            float *to = packed + (size_t)at * n_words + i / 2 * ld;
            if (i == 0 && width < ld)
                memset(to, 0, n_words * (size_t)ld * sizeof *to);
            if (is_transposed)
                BF16(pack_columns)(w, c_in, at, width, ld, to);
            else
                BF16(pack_rows)(rows, n, c_out, at, width, ld, (uint32_t *)(void *)to);
        }
}

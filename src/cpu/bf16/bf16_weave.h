/* Rows of a tensor, two and two woven into words: the operands of a weight gradient,
 * which sums the products of two pairs of rows at a time. */
#ifndef SP_BF16_WEAVE_H
#define SP_BF16_WEAVE_H

#include "cpu/cpu_vec.h"

#include <assert.h>

/* n rows of a tensor, with the numbers index[0 .. n - 1] + row. */
typedef struct row_list {
    sp_tensor t;
    int64_t row;
    const int32_t *index;
    int n;
} row_list;

typedef uint16_t wide_svec __attribute__((vector_size(4 * LANES)));

/* Weaves 2 * LANES columns of two rows, in registers. */
INLINE void weave_wide(const uint16_t *low, const uint16_t *high, uint32_t *word)
{
    wide_svec a, b, first, second;

    memcpy(&a, low, sizeof a);
    memcpy(&b, high, sizeof b);
    UNROLL
    for (int l = 0; l < LANES; l++) {
        first[2 * l] = (uint16_t)l;
        first[2 * l + 1] = (uint16_t)(2 * LANES + l);
        second[2 * l] = (uint16_t)(LANES + l);
        second[2 * l + 1] = (uint16_t)(3 * LANES + l);
    }
    first = SHUFFLE_2(a, b, first);
    second = SHUFFLE_2(a, b, second);
    memcpy(word, &first, sizeof first);
    memcpy(word + LANES, &second, sizeof second);
}

/* Weaves LANES columns. */
INLINE void weave_vector(const uint16_t *low, const uint16_t *high, uint32_t *word)
{
    svec a, b;

    memcpy(&a, low, sizeof a);
    memcpy(&b, high, sizeof b);
    const ivec v = to_words(a) | to_words(b) << 16;
    memcpy(word, &v, sizeof v);
}

/* Weaves nv whole vectors of columns. */
INLINE void weave_vectors(const uint16_t *low, const uint16_t *high, const int nv,
                          uint32_t *word)
{
    UNROLL
    for (int v = 0; v + 2 <= nv; v += 2)
        weave_wide(low + v * LANES, high + v * LANES, word + v * LANES);
    if (nv % 2)
        weave_vector(low + (nv - 1) * LANES, high + (nv - 1) * LANES,
                     word + (nv - 1) * LANES);
}

/* Weaves c columns. The last ones overlap others if there is a whole vector of them. */
INLINE void weave_columns(const uint16_t *low, const uint16_t *high, int c,
                          uint32_t *word)
{
    int j = 0;

    for (; j + 2 * LANES <= c; j += 2 * LANES)
        weave_wide(low + j, high + j, word + j);
    if (j + LANES < c) {
        weave_vector(low + j, high + j, word + j);
        j += LANES;
    }
    if (j < c && c >= LANES)
        weave_vector(low + c - LANES, high + c - LANES, word + c - LANES);
    else
        for (; j < c; j++)
            word[j] = low[j] | (uint32_t)high[j] << 16;
}

enum { MOST_WOVEN = 256 /* columns */ };

/* Gathers rows as weave_rows does. nv: the number of vectors that are all columns, a
 * constant of the loop; 0: any number c of columns. */
INLINE void weave_list(row_list r, int column, int c, int ld, uint32_t *word,
                       const int nv)
{
    static const uint16_t zeros[MOST_WOVEN] = {0};
    const uint16_t *first = sp_row_bf16(r.t, r.row) + column;
    const size_t apart = (size_t)r.t.ld;

    for (int p = 0; p < r.n; p += 2, word += ld) {
        const uint16_t *low = first + (size_t)r.index[p] * apart, *high = zeros;
        if (p + 1 < r.n)
            high = first + (size_t)r.index[p + 1] * apart;
        if (nv)
            weave_vectors(low, high, nv, word);
        else
            weave_columns(low, high, c, word);
    }
}

/* The same of rows of fp32, which are rounded. */
static inline void weave_rounded(row_list r, int column, int c, int ld, uint32_t *word)
{
    for (int p = 0; p < r.n; p += 2, word += ld) {
        const float *low = sp_row(r.t, r.row + r.index[p]) + column, *high = NULL;
        if (p + 1 < r.n)
            high = sp_row(r.t, r.row + r.index[p + 1]) + column;
        for (int j = 0; j < c; j++)
            word[j] =
                sp_bf16_of(low[j]) | (high ? (uint32_t)sp_bf16_of(high[j]) << 16 : 0);
    }
}

/* Gathers c columns of rows, from `column` on, two rows for each step of ld words. The
 * columns beyond c, up to whole vectors of `lanes`, are zero. The widths of panels have
 * loops of their own: at 32 columns a general loop takes twice as long. */
static inline void weave_rows(row_list r, int column, int c, int lanes, int ld,
                              uint32_t *word)
{
    const int end = min_i((c + lanes - 1) / lanes * lanes, ld);

    assert(c <= MOST_WOVEN);
    for (int step = 0; c < end && 2 * step < r.n; step++)
        memset(word + (size_t)(step * ld + c), 0, (size_t)(end - c) * sizeof *word);
    if (r.t.elem == SP_ELEM_F32)
        weave_rounded(r, column, c, ld, word);
    else if (c == LANES)
        weave_list(r, column, c, ld, word, 1);
    else if (c == 2 * LANES)
        weave_list(r, column, c, ld, word, 2);
    else if (c == 3 * LANES)
        weave_list(r, column, c, ld, word, 3);
    else if (c == 4 * LANES)
        weave_list(r, column, c, ld, word, 4);
    else
        weave_list(r, column, c, ld, word, 0);
}

#endif

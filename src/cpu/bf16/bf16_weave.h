/* Rows of a tensor, two and two woven into words: the operands of a weight gradient,
 * which sums the products of two pairs of rows at a time. */
#ifndef SP_BF16_WEAVE_H
#define SP_BF16_WEAVE_H

#include "cpu/cpu_vec.h"

/* n rows of a tensor, with the numbers index[0 .. n - 1] + row. */
typedef struct row_list {
    sp_tensor t;
    int64_t row;
    const int32_t *index;
    int n;
} row_list;

/* Weaves columns column .. column + c - 1 of rows a and b (b < 0: zeros) into words. */
INLINE void weave(sp_tensor t, int64_t a, int64_t b, int column, int c,
                  uint32_t *__restrict word)
{
    if (t.elem == SP_ELEM_F32) {
        for (int j = 0; j < c; j++) {
            word[j] = sp_bf16_of(sp_row(t, a)[column + j]);
            if (b >= 0)
                word[j] |= (uint32_t)sp_bf16_of(sp_row(t, b)[column + j]) << 16;
        }
        return;
    }
    const uint16_t *__restrict low = sp_row_bf16(t, a) + column;
    if (b < 0) {
        for (int j = 0; j < c; j++)
            word[j] = low[j];
        return;
    }
    const uint16_t *__restrict high = sp_row_bf16(t, b) + column;
    for (int j = 0; j < c; j++)
        word[j] = low[j] | (uint32_t)high[j] << 16;
}

/* Gathers rows, two for each step of ld words. The columns beyond c, up to whole
 * vectors of `lanes`, are zero. */
INLINE void weave_rows(row_list r, int column, int c, int lanes, int ld, uint32_t *word)
{
    for (int p = 0; p < r.n; p += 2, word += ld) {
        weave(r.t, r.row + r.index[p], p + 1 < r.n ? r.row + r.index[p + 1] : -1,
              column, c, word);
        for (int j = c; j < (c + lanes - 1) / lanes * lanes && j < ld; j++)
            word[j] = 0;
    }
}

#endif

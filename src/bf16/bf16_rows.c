/* Passes over rows of bf16, in the arithmetic of fp32: cpu_vec_rows.inc, and the passes
 * between tensors of the two types. */
#define ROWS_OF_BF16
#include "bf16/bf16.h"
#include "cpu/cpu_vec_rows.inc"

static void widen_rows(sp_tensor x, sp_tensor y, bool is_added, int64_t row,
                       int64_t end)
{
    for (int64_t i = row; i < end; i++) {
        const uint16_t *restrict from = sp_row_bf16(x, i);
        float *restrict to = sp_row(y, i);
        if (is_added)
            for (int j = 0; j < x.c; j++)
                to[j] += get(from[j]);
        else
            for (int j = 0; j < x.c; j++)
                to[j] = get(from[j]);
    }
}

static void round_rows(sp_tensor x, sp_tensor y, bool is_added, int64_t row,
                       int64_t end)
{
    for (int64_t i = row; i < end; i++) {
        const float *restrict from = sp_row(x, i);
        uint16_t *restrict to = sp_row_bf16(y, i);
        if (is_added)
            for (int j = 0; j < x.c; j++)
                to[j] = put(get(to[j]) + from[j]);
        else
            for (int j = 0; j < x.c; j++)
                to[j] = put(from[j]);
    }
}

void BF16(convert)(sp_tensor x, sp_tensor y, bool is_added, int64_t row, int64_t end)
{
    if (x.elem == SP_ELEM_BF16)
        widen_rows(x, y, is_added, row, end);
    else
        round_rows(x, y, is_added, row, end);
}

/* Passes over rows of bf16, in the arithmetic of fp32: cpu_vec_rows.inc, and the passes
 * between tensors of the two types. */
#include "cpu/bf16/bf16.h"

typedef uint16_t elem;
typedef uint16_t qvec __attribute__((vector_size(2 * HALF)));
typedef uint32_t uhvec __attribute__((vector_size(4 * HALF)));
#define ROWS(name) ISA(bf16_##name)
#define row_of     sp_row_bf16
#define get        sp_bf16_to_float
#define put        sp_bf16_of
/* Fused on every processor, so that all versions compute the same bits. */
#define FMA       __builtin_fmaf
#define FMA_H     fused_h
#define MOST_ZERO 0x1p-134F
INLINE hvec load_h(const elem *p)
{
    qvec v;

    memcpy(&v, p, sizeof v);
    return (hvec)(__builtin_convertvector(v, uhvec) << 16);
}
INLINE hvec store_h(elem *p, hvec v)
{
    /* sp_bf16_of of each lane */
    const uhvec bits = (uhvec)v;
    const uhvec is_nan = (uhvec)((bits & 0x7fffffffu) > 0x7f800000u);
    const uhvec near = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const uhvec half = (is_nan & (bits >> 16 | 0x40)) | (~is_nan & near);
    const qvec q = __builtin_convertvector(half, qvec);

    memcpy(p, &q, sizeof q);
    return (hvec)(half << 16);
}

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

/* The CPU's kernels for tensors of bf16. They are the kernels of cpu_vec.h, tile for
 * tile and panel for panel, with these differences:
 *
 *     x  rows of bf16 --pairs of channels--+
 *                                          +--> sums of a tile, fp32 -> y, rounded once
 *     w  fp32 --packed: pairs of channels--+    (bf16_conv.c)
 *
 *     x, dy  rows of bf16 --gathered: pairs of rows--> dW, fp32    (bf16_wgrad.c)
 *
 * One operation forms all products. For each lane it is that of VDPBF16PS, an
 * instruction of AVX512_BF16:
 *
 *     sum = (sum + a.high * b.high) + a.low * b.low
 *
 * Here a word holds two numbers, `low` the first one. Each of the two steps is a
 * fused multiply-add, rounded once to nearest with ties to even, in which subnormal
 * operands count as 0 and a subnormal result becomes 0 with its sign. (Intel 64 and
 * IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS.) Three forms of
 * it have the same bits; the payload of a NaN alone may differ:
 *
 *     AVX512_BF16       the instruction
 *     AVX-512 and AVX2  two multiply-adds while MXCSR has DAZ and FTZ set
 *     portable          fmaf(), and a second look at results near the subnormal numbers
 *
 * Products of two channels are summed at a time, so an odd number of channels, or of
 * the pairs of rows that an offset of a tile has, is filled up with zero.
 *
 * Processors with AMX have another order of sums and kernels of their own (tile.h). */
#ifndef SP_BF16_H
#define SP_BF16_H

#include "cpu/cpu_vec.h"

/* The names of this file's functions: the tables of the products differ where AVX-512
 * has AVX512_BF16; the rest is shared. */
#define BF16(name) ISA(bf16_##name)
#ifdef WITH_AVX512BF16
#define PRODUCTS(name) sp_avx512bf16_##name
#else
#define PRODUCTS(name) ISA(bf16_##name)
#endif

/* A vector of words, of two numbers in bf16 each, has the type vec too: the compiler
 * sees floats. */

/* The word at p, in all lanes. p need not be aligned. */
INLINE vec word_at(const void *p)
{
    float word;

    memcpy(&word, p, sizeof word);
    return set1(word);
}

/* The operation is done in HALVES steps. half_of selects the operand of step h from a
 * vector of words, and add_products adds the step's products. */
#ifdef WITH_AVX512BF16
enum { HALVES = 1 };
INLINE vec half_of(vec words, int h)
{
    (void)h;
    return words;
}
INLINE vec add_products(vec sum, vec a, vec b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
#else
enum { HALVES = 2 };
typedef uint32_t word_vec __attribute__((vector_size(4 * LANES)));
INLINE vec half_of(vec words, int h)
{
    return h == 0 ? (vec)((word_vec)words & 0xffff0000u) : (vec)((word_vec)words << 16);
}
#if LANES > 4
INLINE vec add_products(vec sum, vec a, vec b)
{
    return fma_v(a, b, sum);
}
#else
float BF16(add_product)(float sum, float a, float b);
INLINE vec add_products(vec sum, vec a, vec b)
{
    for (int l = 0; l < LANES; l++)
        sum[l] = BF16(add_product)(sum[l], a[l], b[l]);
    return sum;
}
#endif
#endif

/* Sets DAZ and FTZ, for the form that needs them. Returns what flush_end restores. */
INLINE unsigned flush_begin(void)
{
#if LANES > 4 && !defined WITH_AVX512BF16
    const unsigned before = _mm_getcsr();

    _mm_setcsr(before | 0x8040);
    return before;
#else
    return 0;
#endif
}
INLINE void flush_end(unsigned before)
{
#if LANES > 4 && !defined WITH_AVX512BF16
    _mm_setcsr(before);
#else
    (void)before;
#endif
}

INLINE size_t packed_words(int c_in, int c_out)
{
    return packed_floats((c_in + 1) / 2, c_out);
}

/* ---- one version's functions, listed in PRODUCTS(isa); meanings in cpu_isa.h ---- */
void BF16(pack)(const float *w, int c_in, int c_out, bool is_transposed, float *packed);
/* Packs columns at .. at + width - 1 of w [c_in][c_out] into words of ld columns. */
void BF16(pack_rows)(const float *w, int c_in, int c_out, int at, int width, int ld,
                     uint32_t *word);
/* Packs rows at .. at + width - 1 of w [c_out][c_in], transposed: words of ld columns,
 * width at most 64. */
void BF16(pack_columns)(const float *w, int c_in, int at, int width, int ld,
                        float *packed);
void BF16(norm_sums)(sp_tensor x, int64_t row, int64_t end, double *sums);
void BF16(norm_apply)(const sp_norm_args *a, int64_t row, int64_t end);
void BF16(norm_grad_sums)(const sp_norm_grad_args *a, int64_t row, int64_t end,
                          double *sums);
void BF16(norm_grad_apply)(const sp_norm_grad_args *a, int64_t row, int64_t end);
void BF16(relu)(sp_tensor x, float slope, sp_tensor y, int64_t row, int64_t end);
void BF16(relu_grad)(sp_tensor y, float slope, sp_tensor dy, sp_tensor dx,
                     bool is_added, int64_t row, int64_t end);
void BF16(dropout)(const sp_rng *rng, uint64_t block, float p, const void *x, int c,
                   void *y);
void BF16(add)(sp_tensor x, sp_tensor y, int64_t row, int64_t end);
void BF16(convert)(sp_tensor x, sp_tensor y, bool is_added, int64_t row, int64_t end);
/* The entries that the tables of both orders of sums have in common: passes over
 * elements. */
#define BF16_ELEMENT_PASSES                                                            \
    .norm_sums = BF16(norm_sums), .norm_apply = BF16(norm_apply),                      \
    .norm_grad_sums = BF16(norm_grad_sums), .norm_grad_apply = BF16(norm_grad_apply),  \
    .relu = BF16(relu), .relu_grad = BF16(relu_grad), .dropout = BF16(dropout),        \
    .add = BF16(add), .convert = BF16(convert)
/* AVX512_BF16 has its own versions of these three. */
void PRODUCTS(conv_tile)(const sp_cpu_conv *conv, int tile);
void PRODUCTS(wgrad)(const sp_cpu_wgrad *wgrad, int thread);
double PRODUCTS(multiply_add)(int64_t rounds);

#endif

/* The CPU's kernels for tensors of bf16. They are the kernels of cpu_vec.h, tile for
 * tile and panel for panel, with these differences:
 *
 *     x  rows of bf16 --pairs of channels--+
 *                                          +--> sums of a tile, fp32 -> y, rounded once
 *     w  fp32 --packed: pairs of channels--+    (bf16_conv.c)
 *
 *     x, dy  rows of bf16 --gathered: pairs of rows--> dW, fp32    (bf16_wgrad.c)
 *
 * One operation forms all products. For each lane it is VDPBF16PS, an instruction of
 * AVX512_BF16:
 *
 *     sum = (sum + a.high * b.high) + a.low * b.low
 *
 * Here a word holds two numbers, `low` the first one. Each of the two steps is a
 * fused multiply-add, rounded once to nearest with ties to even; subnormal operands
 * count as 0 and a subnormal result becomes 0 with its sign. (Intel 64 and IA-32
 * Architectures Software Developer's Manual, volume 2, VDPBF16PS.) Three forms of it
 * have the same bits; only the payload of a NaN may differ:
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
 * has AVX512_BF16 (PRODUCTS, below); the rest is shared. */
#define BF16(name) ISA(bf16_##name)

/* A vector of words, of two numbers in bf16 each, has the type vec too: the compiler
 * sees floats. */

/* The word at p, in all lanes. p need not be aligned. */
INLINE vec word_at(const void *p)
{
    float word;

    memcpy(&word, p, sizeof word);
    return set1(word);
}

/* The names of the products (PRODUCTS) and of their table, and the operation: it is
 * done in HALVES steps. half_of selects the operand of step h from a vector of words,
 * and add_products adds the step's products. */
#include PRODUCTS_FILE

INLINE size_t packed_words(int c_in, int c_out)
{
    return packed_floats((c_in + 1) / 2, c_out);
}

/* ---- one version's functions, listed in PRODUCTS(isa); meanings in cpu_isa.h ---- */
#define DECLARE(slot) SP_CPU_KERNEL(slot) BF16(slot);
DECLARE(pack)
SP_CPU_ROWS(DECLARE)
DECLARE(convert)
#undef DECLARE
/* AVX512_BF16 has its own versions of the products. */
#define DECLARE(slot) SP_CPU_KERNEL(slot) PRODUCTS(slot);
SP_CPU_PRODUCTS(DECLARE)
#undef DECLARE
/* The entry of a table. */
#define BF16_ENTRY(slot) .slot = BF16(slot),
/* Packs columns at .. at + width - 1 of n rows of w [c_out] into words of ld columns. */
void BF16(pack_rows)(const float *w, int n, int c_out, int at, int width, int ld,
                     uint32_t *word);
/* Packs rows at .. at + width - 1 of w [c_out][c_in], transposed: words of ld columns. */
void BF16(pack_columns)(const float *w, int c_in, int at, int width, int ld,
                        float *packed);

#endif

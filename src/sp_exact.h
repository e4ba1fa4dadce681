/* Order-independent sums of floating-point numbers.
 *
 * A summand is cut into SP_EXACT_LIMBS signed fixed-point limbs of 40 bits (weights 2^0,
 * 2^-40, 2^-80), bits below 2^-80 dropped; limbs add as integers, so the sum depends on
 * neither order nor grouping, over samples, threads or ranks (the idea of Demmel and Nguyen,
 * "Parallel reproducible summation", IEEE TC 2015, with a fixed exponent window). Integers
 * travel by any all-reduce that sums int64. Up to 2^22 summands of magnitude below 2^40;
 * a larger or non-finite summand poisons the sum, which then reads as NaN.
 */
#ifndef SP_EXACT_H
#define SP_EXACT_H

#include <stddef.h>
#include <stdint.h>

enum { SP_EXACT_LIMBS = 3 };

/* sum[SP_EXACT_LIMBS * i + l] += limb l of x[i], for n numbers. */
void sp_exact_add_f64(int64_t *sum, const double *x, size_t n);
void sp_exact_add_f32(int64_t *sum, const float *x, size_t n);
/* The rounded sums. */
void sp_exact_get_f64(const int64_t *sum, double *x, size_t n);
void sp_exact_get_f32(const int64_t *sum, float *x, size_t n);

#endif

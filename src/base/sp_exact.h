/* Order-independent sums of floating-point numbers.
 *
 * A summand, rounded to a multiple of 2^-72, is cut into SP_EXACT_LIMBS signed
 * integers:
 *
 *     x = limb0 2^-4 + limb1 2^-38 + limb2 2^-72
 *     |limb0| < 2^40, |limb1|, |limb2| <= 2^33
 *
 * Limbs add as integers, so the sum depends on neither order nor grouping, over
 * samples, threads or ranks (the idea of Demmel and Nguyen, "Parallel reproducible
 * summation", IEEE TC 2015, with a fixed exponent window). Partial sums are joined limb
 * by limb by any addition of int64, an all-reduce for example. Sums of up to 2^22
 * summands of magnitude below 2^36 are exact.
 *
 * A larger or non-finite summand poisons its partial sum. The poison is a pattern in
 * the unused high bits of limbs 1 and 2, and every sum that a poisoned one enters reads
 * as NaN, as long as fewer than 2^14 poisoned partial sums are added.
 *
 * A loss may be larger: the outputs of a network may come close to float's largest
 * number. A wide sum is SP_EXACT_WINDOWS of the sums above, one after the other. Window
 * w holds summands scaled by 2^(-52 w). A summand enters the first window in which it
 * stays below SP_EXACT_TOP, and keeps all its bits there.
 */
#ifndef SP_EXACT_H
#define SP_EXACT_H

#include <stddef.h>
#include <stdint.h>

enum {
    SP_EXACT_LIMBS = 3,
    SP_EXACT_WINDOWS = 4,
    SP_EXACT_WIDE = SP_EXACT_WINDOWS * SP_EXACT_LIMBS /* integers of a wide sum */
};
#define SP_EXACT_TOP 0x1p36 /* the magnitude of a summand must stay below this */

/* Adds limb l of x[i] to sum[SP_EXACT_LIMBS * i + l], for n numbers. The caller zeroes
 * the array before the first addition. Long arrays are shared among OpenMP threads.
 * Cost: about 50 bytes of memory traffic a number (counted). */
void sp_exact_add_f64(int64_t *sum, const double *x, size_t n);
void sp_exact_add_f32(int64_t *sum, const float *x, size_t n);
/* Converts n sums to floating point, each correctly rounded (to nearest, ties to even)
 * once. */
void sp_exact_get_f64(const int64_t *sum, double *x, size_t n);
void sp_exact_get_f32(const int64_t *sum, float *x, size_t n);

/* The same for n wide sums, [n][SP_EXACT_WIDE], of summands below 2^192. A result is
 * the sum of the windows' correctly rounded sums, in a fixed order: if all summands are
 * below SP_EXACT_TOP, sp_exact_get_f64 gives the same bits. */
void sp_exact_add_wide(int64_t *sum, const double *x, size_t n);
void sp_exact_get_wide(const int64_t *sum, double *x, size_t n);

#endif

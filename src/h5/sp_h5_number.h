/* Numbers as files hold them: integers of 1, 2, 4, 8 bytes, IEEE floats of 2, 4, 8, of
 * either byte order. Without HDF5; thread-safe.
 *
 * `raw` is aligned for its elements and may be changed in place (bytes put in this
 * machine's order). Functions return -1, or the first element that does not convert.
 */
#ifndef SP_H5_NUMBER_H
#define SP_H5_NUMBER_H

#include <stdint.h>

#include "h5/sp_h5.h"

/* Integers, from floats too where the value is a whole number. */
int64_t sp_h5_to_i64(sp_h5_type type, void *raw, int64_t n, int64_t *out);
int64_t sp_h5_to_i32(sp_h5_type type, void *raw, int64_t n, int32_t *out);
/* Rounded to the nearest float32. What is finite and beyond its range does not convert;
 * what is not finite passes. */
int64_t sp_h5_to_f32(sp_h5_type type, void *raw, int64_t n, float *out);
/* Any type of number into any of this machine's of 4 or 8 bytes, or 'u' 1. */
int64_t sp_h5_convert(sp_h5_type from, void *raw, int64_t n, sp_h5_type to, void *out);
/* One element, after a conversion of the same raw bytes: for messages and statistics.
 */
double sp_h5_value(sp_h5_type type, const void *raw, int64_t i);
/* Puts the elements in this machine's byte order. */
void sp_h5_to_native(sp_h5_type type, void *raw, int64_t n);

#endif

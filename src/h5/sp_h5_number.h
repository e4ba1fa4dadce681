/* Conversion of numbers as files store them: integers of 1, 2, 4 and 8 bytes and IEEE
 * floats of 2, 4 and 8 bytes, of either byte order. Without HDF5; thread-safe.
 *
 * `raw` must be aligned for its elements. It may be changed: its bytes are put in this
 * machine's order. */
#ifndef SP_H5_NUMBER_H
#define SP_H5_NUMBER_H

#include <stdint.h>

#include "h5/sp_h5.h"

/* Converts any type of number to any of this machine's of 4 or 8 bytes, or to 'u' 1. To
 * an integer a float converts if its value is a whole number. To float32 values are
 * rounded to the nearest; a finite one beyond its range does not convert, infinities
 * and NaN do. Returns the first element that does not convert; -1: all do. */
int64_t sp_h5_convert(sp_h5_type from, void *raw, int64_t n, sp_h5_type to, void *out);
/* The value of one element after a conversion of the same raw bytes, for messages and
 * statistics. */
double sp_h5_value(sp_h5_type type, const void *raw, int64_t i);
/* Puts the elements in this machine's byte order. */
void sp_h5_to_native(sp_h5_type type, void *raw, int64_t n);

#endif

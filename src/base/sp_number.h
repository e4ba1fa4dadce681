/* Arithmetic of small numbers that C lacks, and the bytes of numbers in files. */
#ifndef SP_NUMBER_H
#define SP_NUMBER_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Marks a function that passes over arrays of numbers in the cache: it is compiled for
 * the wider registers of newer processors too, which halve its time (measured). */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                 \
    !defined(__SANITIZE_ADDRESS__)
#define SP_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SP_WIDE
#endif

/* The lesser and the greater of two numbers. */
static inline int64_t sp_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t sp_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The least multiple of `unit` that is not below n. */
static inline size_t sp_multiple(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* ---- numbers of files ---- */

/* The lowest byte of these comes first, on any machine, and they may lie at any
 * address. The coders of LAZ call the functions for every field of every point. */
#define SP_BYTES_INLINE static inline __attribute__((always_inline))

SP_BYTES_INLINE uint16_t sp_get16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

SP_BYTES_INLINE uint32_t sp_get32(const unsigned char *p)
{
    return sp_get16(p) | (uint32_t)sp_get16(p + 2) << 16;
}

SP_BYTES_INLINE uint64_t sp_get64(const unsigned char *p)
{
    return sp_get32(p) | (uint64_t)sp_get32(p + 4) << 32;
}

/* A number in the format of double. */
SP_BYTES_INLINE double sp_get_double(const unsigned char *p)
{
    const uint64_t bits = sp_get64(p);
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The value of an IEEE half precision number. */
static inline float sp_half_to_float(uint16_t half)
{
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    float value;

    if (exponent == 31)
        value = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexpf((float)mantissa, -24);
    else
        value = ldexpf((float)(mantissa + 1024), exponent - 25);
    return half & 0x8000 ? -value : value;
}

/* Writes the lowest 16, 32 or all bits of x. */
SP_BYTES_INLINE void sp_put16(unsigned char *p, uint64_t x)
{
    p[0] = (unsigned char)x;
    p[1] = (unsigned char)(x >> 8);
}

SP_BYTES_INLINE void sp_put32(unsigned char *p, uint64_t x)
{
    sp_put16(p, x);
    sp_put16(p + 2, x >> 16);
}

SP_BYTES_INLINE void sp_put64(unsigned char *p, uint64_t x)
{
    sp_put32(p, x);
    sp_put32(p + 4, x >> 32);
}

SP_BYTES_INLINE void sp_put_double(unsigned char *p, double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    sp_put64(p, bits);
}

#endif

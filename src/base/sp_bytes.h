/* Numbers of files, of which the lowest byte comes first on machines of either kind. They
 * may lie at any address. */
#ifndef SP_BYTES_H
#define SP_BYTES_H

#include <stdint.h>
#include <string.h>

/* The coders of LAZ call these for every field of every point. */
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

#endif

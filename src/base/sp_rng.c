/* Many draws at a time. The generator's blocks do not depend on each other, so the
 * compiler computes LANES of them at once in vector registers. Normal deviates use only
 * additions, products and square roots, which every machine rounds alike (the compiler
 * contracts nothing), because the last bits of a C library's log and sin differ between
 * machines. */
#include "base/sp_rng.h"

#include <string.h>

#include "base/sp_number.h"

enum { LANES = 16 };

#define INLINE static inline __attribute__((always_inline))

/* Writes word i of block `block` + l to c[i][l]. */
INLINE void rng_fill(const sp_rng *r, uint64_t block, uint32_t c[4][LANES])
{
    uint32_t k0 = r->key[0], k1 = r->key[1];

    for (int l = 0; l < LANES; l++) {
        c[0][l] = (uint32_t)(block + (uint64_t)l);
        c[1][l] = (uint32_t)((block + (uint64_t)l) >> 32);
        c[2][l] = r->hi[0];
        c[3][l] = r->hi[1];
    }
    for (int i = 0; i < 10; i++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
#pragma GCC unroll 1 /* unrolled, the loop would not be vectorized */
        for (int l = 0; l < LANES; l++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c[0][l];
            uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2][l];

            c[0][l] = (uint32_t)(p1 >> 32) ^ c[1][l] ^ k0;
            c[1][l] = (uint32_t)p1;
            c[2][l] = (uint32_t)(p0 >> 32) ^ c[3][l] ^ k1;
            c[3][l] = (uint32_t)p0;
        }
}

SP_WIDE void sp_rng_words(const sp_rng *r, uint64_t first, int64_t n, uint32_t *out)
{
    uint32_t c[4][LANES], word[4 * LANES];

    for (uint64_t block = first / 4; n > 0; block += LANES) {
        int64_t m = n < 4 * LANES ? n : 4 * LANES;

        rng_fill(r, block, c);
        for (int l = 0; l < LANES; l++)
            for (int i = 0; i < 4; i++)
                word[4 * l + i] = c[i][l];
        memcpy(out, word, (size_t)m * sizeof *out);
        out += m;
        n -= m;
    }
}

/* Natural logarithm of u in (0, 1) with a relative error of at most 2e-7: the exponent,
 * and a polynomial in the mantissa scaled to [sqrt(1/2), sqrt(2)). */
INLINE float log_of(float u)
{
    uint32_t bits, whole;
    float f, p;

    memcpy(&bits, &u, sizeof bits);
    bits += 0x3f800000u - 0x3f3504f3u;
    whole = bits >> 23;
    bits = (bits & 0x007fffffu) + 0x3f3504f3u;
    memcpy(&f, &bits, sizeof f);
    f -= 1;
    p = 0.162341893f + f * -0.10134057f;
    p = 0.198985651f + f * (-0.172470137f + f * p);
    p = 0.333351135f + f * (-0.24970071f + f * p);
    p = 0.99999994f + f * (-0.500003636f + f * p);
    return (float)((int32_t)whole - 127) * 0.693147181f + f * p;
}

/* Two normal deviates from two words (Box and Muller). The radius uses 23 bits of `a`
 * and reaches 5.77. The angle uses `b`: two bits choose the quarter of the circle, the
 * others the place within it. */
INLINE void two_normals(uint32_t a, uint32_t b, float *x, float *y)
{
    float u = (float)(int32_t)(2 * (a >> 9) + 1) * 0x1p-24f;
    /* angle in quarters of the circle, [-1/2, 1/2) */
    float v = (float)((int32_t)b >> 2) * 0x1p-30f;
    float r = sqrtf(-2 * log_of(u)), t = v * v, s, c, swapped;

    s = 1.57079637f + t * (-0.64596349f + t * (0.0796802193f + t * -0.0046021631f));
    c = 1 + t * (-1.23369706f + t * (0.253598601f + t * -0.020408256f));
    s *= v;
    c = b & 1 ? -c : c;
    swapped = b & 2 ? s : c;
    s = b & 2 ? c : s;
    *x = r * swapped;
    *y = r * s;
}

SP_WIDE void sp_rng_normals(const sp_rng *r, uint64_t first, int64_t n, float *out)
{
    uint32_t c[4][LANES];
    float z[4][LANES], value[4 * LANES];

    for (uint64_t block = first / 4; n > 0; block += LANES) {
        int64_t m = n < 4 * LANES ? n : 4 * LANES;

        rng_fill(r, block, c);
        for (int i = 0; i < 4; i += 2)
            for (int l = 0; l < LANES; l++)
                two_normals(c[i][l], c[i + 1][l], &z[i][l], &z[i + 1][l]);
        for (int l = 0; l < LANES; l++)
            for (int i = 0; i < 4; i++)
                value[4 * l + i] = z[i][l];
        memcpy(out, value, (size_t)m * sizeof *out);
        out += m;
        n -= m;
    }
}

/* Vectors of AVX-512: 16 lanes, 32 registers. The other versions' headers have the same
 * functions, whose meanings stand here. */
#ifndef SP_CPU_VEC_AVX512_H
#define SP_CPU_VEC_AVX512_H

#include <immintrin.h>
#define ISA(name) sp_avx512_##name
#define ISA_NAME  "avx512"
enum { NR_MAX = 4 };
/* Blocks of a convolution and of a weight gradient: the most rows M for each number of
 * vectors N (cpu_conv_blocks.inc, cpu_wgrad_blocks.inc). */
#define CONV_BLOCKS(X)  X(10, 1) X(7, 2) X(7, 3) X(6, 4)
#define WGRAD_BLOCKS(X) X(12, 1) X(12, 2) X(8, 3) X(6, 4)
typedef __m512 vec;
typedef __mmask16 vmask;
INLINE vec load(const float *p)
{
    return _mm512_loadu_ps(p);
}
INLINE void store(float *p, vec v)
{
    _mm512_storeu_ps(p, v);
}
INLINE vec load_m(const float *p, vmask m)
{
    return _mm512_maskz_loadu_ps(m, p);
}
INLINE void store_m(float *p, vmask m, vec v)
{
    _mm512_mask_storeu_ps(p, m, v);
}
INLINE vec set1(float f)
{
    return _mm512_set1_ps(f);
}
INLINE vec fma_v(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}
INLINE vmask first_lanes(int n)
{
    return (vmask)((1u << n) - 1);
}

/* Lanes of a where m is set, of b elsewhere. */
INLINE vec pick(vmask m, vec a, vec b)
{
    return _mm512_mask_mov_ps(b, m, a);
}
/* a > b ? a : b; b where either is NaN. */
INLINE vec larger(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}
/* The first lane where a == b; LANES if there is none. */
INLINE int first_equal(vec a, vec b)
{
    return __builtin_ctz(1u << LANES | _mm512_cmpeq_ps_mask(a, b));
}
/* Both halves of v in double, added lane by lane. */
INLINE dvec fold(vec v)
{
    return (dvec)_mm512_cvtps_pd(_mm512_castps512_ps256(v)) +
           (dvec)_mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
}
/* The intrinsic by name, because gcc 12 converts vectors of this width in halves. */
INLINE dvec to_double(hvec v)
{
    return (dvec)_mm512_cvtps_pd((__m256)v);
}
/* Products of the lower 32-bit halves. */
INLINE uvec mul_u32(uvec a, uvec b)
{
    return (uvec)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}

/* ---- for bf16 (bf16/bf16.h) ---- */

/* One step of the operation, while DAZ and FTZ are set: flush_begin sets them and returns
 * what flush_end restores. */
INLINE vec add_flushed(vec sum, vec a, vec b)
{
    return fma_v(a, b, sum);
}
INLINE unsigned flush_begin(void)
{
    const unsigned before = _mm_getcsr();

    _mm_setcsr(before | 0x8040);
    return before;
}
INLINE void flush_end(unsigned before)
{
    _mm_setcsr(before);
}
#endif

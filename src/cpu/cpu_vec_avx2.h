/* Vectors of AVX2: 8 lanes, 16 registers. Meanings stand in cpu_vec_avx512.h. */
#ifndef SP_CPU_VEC_AVX2_H
#define SP_CPU_VEC_AVX2_H

#include <immintrin.h>
#define ISA(name) sp_avx2_##name
#define ISA_NAME  "avx2"
enum { NR_MAX = 2 };
#define CONV_BLOCKS(X)  X(12, 1) X(6, 2)
#define WGRAD_BLOCKS(X) X(12, 1) X(6, 2)
typedef __m256 vec;
typedef __m256i vmask;
INLINE vec load(const float *p)
{
    return _mm256_loadu_ps(p);
}
INLINE void store(float *p, vec v)
{
    _mm256_storeu_ps(p, v);
}
INLINE vec load_m(const float *p, vmask m)
{
    return _mm256_maskload_ps(p, m);
}
INLINE void store_m(float *p, vmask m, vec v)
{
    _mm256_maskstore_ps(p, m, v);
}
INLINE vec set1(float f)
{
    return _mm256_set1_ps(f);
}
INLINE vec fma_v(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}
INLINE vmask first_lanes(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

INLINE vec pick(vmask m, vec a, vec b)
{
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(m));
}
INLINE vec larger(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}
INLINE int first_equal(vec a, vec b)
{
    int equal = _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ));

    return __builtin_ctz(1u << LANES | (unsigned)equal);
}
INLINE dvec fold(vec v)
{
    return (dvec)_mm256_cvtps_pd(_mm256_castps256_ps128(v)) +
           (dvec)_mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
}
INLINE dvec to_double(hvec v)
{
    return __builtin_convertvector(v, dvec);
}
INLINE uvec mul_u32(uvec a, uvec b)
{
    return (uvec)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}

/* ---- for bf16 (bf16/bf16.h) ---- */

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

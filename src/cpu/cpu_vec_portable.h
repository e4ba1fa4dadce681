/* Vectors in portable C: 4 lanes. Meanings stand in cpu_vec_avx512.h. */
#ifndef SP_CPU_VEC_PORTABLE_H
#define SP_CPU_VEC_PORTABLE_H

#define ISA(name) sp_portable_##name
#define ISA_NAME  "portable"
enum { NR_MAX = 2 };
#define CONV_BLOCKS(X)  X(12, 1) X(6, 2)
#define WGRAD_BLOCKS(X) X(12, 1) X(6, 2)
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int vmask; /* number of lanes */
INLINE vec load(const float *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void store(float *p, vec v)
{
    memcpy(p, &v, sizeof v);
}
INLINE vec load_m(const float *p, vmask m)
{
    vec v = {0};
    for (int i = 0; i < m; i++)
        v[i] = p[i];
    return v;
}
INLINE void store_m(float *p, vmask m, vec v)
{
    for (int i = 0; i < m; i++)
        p[i] = v[i];
}
INLINE vec set1(float f)
{
    vec v = {f, f, f, f};

    return v;
}
/* Fused where the target can fuse. The compiler contracts nothing by itself
 * (-ffp-contract=off). */
#ifdef __FP_FAST_FMAF
INLINE vec fma_v(vec a, vec b, vec c)
{
    vec v;
    UNROLL
    for (int i = 0; i < LANES; i++)
        v[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return v;
}
#else
INLINE vec fma_v(vec a, vec b, vec c)
{
    return a * b + c;
}
#endif
INLINE vmask first_lanes(int n)
{
    return n;
}

INLINE vec pick(vmask m, vec a, vec b)
{
    for (int l = 0; l < m; l++)
        b[l] = a[l];
    return b;
}
INLINE vec larger(vec a, vec b)
{
    const ivec is_a = (ivec)(a > b);

    return (vec)(((ivec)a & is_a) | ((ivec)b & ~is_a));
}
INLINE int first_equal(vec a, vec b)
{
    for (int l = 0; l < LANES; l++)
        if (a[l] == b[l])
            return l;
    return LANES;
}
INLINE dvec fold(vec v)
{
    return (dvec){(double)v[0] + v[2], (double)v[1] + v[3]};
}
INLINE dvec to_double(hvec v)
{
    return __builtin_convertvector(v, dvec);
}
INLINE uvec mul_u32(uvec a, uvec b)
{
    return (a & 0xffffffff) * (b & 0xffffffff);
}

/* ---- for bf16 ---- */

/* sum + a * b in which subnormal numbers count as 0 (bf16/bf16_portable.c). */
float sp_portable_bf16_step(float sum, float a, float b);

INLINE vec add_flushed(vec sum, vec a, vec b)
{
    for (int l = 0; l < LANES; l++)
        sum[l] = sp_portable_bf16_step(sum[l], a[l], b[l]);
    return sum;
}
INLINE unsigned flush_begin(void)
{
    return 0;
}
INLINE void flush_end(unsigned before)
{
    (void)before;
}
#endif

/* How weights are packed (cuda_conv_pack.cu) and rows of results written: between the
 * files of the convolution. */
#ifndef CUDA_CONV_CUH
#define CUDA_CONV_CUH

#include "cuda_map.h"
#include "cuda_mma.cuh"

/* The inner dimension of a convolution with K offsets of c channels, in units of
 * CUDA_UNIT_BYTES. Few channels: offsets 2 i and 2 i + 1 share unit i, a chunk each. */
typedef struct cuda_units {
    bool is_shared;
    unsigned per_offset; /* 1 where shared */
    size_t n;
} cuda_units;

static inline cuda_units cuda_conv_units(sp_precision precision, int K, int c)
{
    const int chunk = CUDA_CHUNK_BYTES / (precision == SP_BF16 ? 2 : 4);
    cuda_units u = {c <= chunk, 1, ((size_t)K + 1) / 2};

    if (!u.is_shared) {
        u.per_offset = (unsigned)((c + 2 * chunk - 1) / (2 * chunk));
        u.n = (size_t)K * u.per_offset;
    }
    return u;
}

/* What the tensor cores read under the backend's precision: fp32 rows are copied to
 * bf16 in the scratch where it is bf16; others stay. */
sp_status cuda_as_operand(sp_backend *be, sp_tensor *x);

/* ---- results: N elements (16 bytes) of row i from column n on ---- */

__device__ static inline float cuda_low_bf16(uint32_t two)
{
    return __uint_as_float(two << 16);
}

__device__ static inline float cuda_high_bf16(uint32_t two)
{
    return __uint_as_float(two & 0xffff0000u);
}

__device__ static inline void conv_write_bf16(uint16_t *y, const float *v, int n,
                                              bool is_added)
{
    for (int j = 0; j < n; j++)
        y[j] = (uint16_t)sp_pack_bf16(v[j] + (is_added ? cuda_low_bf16(y[j]) : 0), 0);
}

__device__ static inline void conv_write_f32(float *y, const float *v, int n,
                                             bool is_added)
{
    for (int j = 0; j < n; j++)
        y[j] = is_added ? y[j] + v[j] : v[j];
}

__device__ static inline void conv_write_8(uint4 *y, const float *v, bool is_added)
{
    const uint4 old = is_added ? *y : make_uint4(0, 0, 0, 0);

    *y = make_uint4(
        sp_pack_bf16(v[0] + cuda_low_bf16(old.x), v[1] + cuda_high_bf16(old.x)),
        sp_pack_bf16(v[2] + cuda_low_bf16(old.y), v[3] + cuda_high_bf16(old.y)),
        sp_pack_bf16(v[4] + cuda_low_bf16(old.z), v[5] + cuda_high_bf16(old.z)),
        sp_pack_bf16(v[6] + cuda_low_bf16(old.w), v[7] + cuda_high_bf16(old.w)));
}

__device__ static inline void conv_write_4(float4 *y, const float *v, bool is_added)
{
    const float4 old = is_added ? *y : make_float4(0, 0, 0, 0);

    *y = make_float4(old.x + v[0], old.y + v[1], old.z + v[2], old.w + v[3]);
}

/* N: 8 for bf16, 4 for fp32. Columns from y.c on stay as they are. */
template <int N>
__device__ void conv_write(const sp_tensor &y, int32_t i, int n, const float *v,
                           bool is_added, bool is_aligned)
{
    const int count = min(N, y.c - n);
    const size_t at = (size_t)i * y.ld + n;

    if (N == 8) {
        uint16_t *to = (uint16_t *)y.data + at;
        if (count == N && is_aligned)
            conv_write_8((uint4 *)to, v, is_added);
        else
            conv_write_bf16(to, v, count, is_added);
    } else {
        float *to = y.data + at;
        if (count == N && is_aligned)
            conv_write_4((float4 *)to, v, is_added);
        else
            conv_write_f32(to, v, count, is_added);
    }
}

#endif

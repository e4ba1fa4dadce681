/* Shared by the convolutions and their weight gradients: rows that are copied to shared
 * memory in chunks of 16 bytes, and the product of a warp in the three precisions.
 *
 * Stages. A stage holds rows of 64 bytes: 4 chunks, which are two "units" of 32 bytes.
 * A unit has 16 channels of bf16 or 8 of fp32. Chunk q of row r is stored at chunk q ^
 * (r / 2 & 3), so that eight rows read at one q fall into eight different groups of
 * banks. A unit is the inner dimension of one instruction of the tensor cores in both
 * types (m16n8k16, m16n8k8), and its fragments lie in it the same way: ldmatrix moves
 * fp32 as pairs of 16-bit halves.
 *
 * Products. A warp owns MT groups of 16 rows and NT x 8 columns, in sum[MT][NT][4]:
 *   bf16, tf32   the fragment that the tensor cores leave in a lane (sp_cuda.h)
 *   fp32         rows 4 v + lane / 8 of a group, columns 8 j + lane % 8: sum[i][j][v]
 * Every sum adds its channels in rising order; fp32 uses fused multiply-add.
 */
#ifndef CUDA_MMA_CUH
#define CUDA_MMA_CUH

#include "cuda/device/cuda_util.cuh"

enum { CUDA_CHUNK_BYTES = 16, CUDA_UNIT_BYTES = 32, CUDA_STAGE_ROW = 64 };

template <sp_precision P> struct cuda_operand {
    enum {
        BYTES = P == SP_BF16 ? 2 : 4,
        CHUNK = CUDA_CHUNK_BYTES / BYTES, /* elements of a chunk */
        UNIT = CUDA_UNIT_BYTES / BYTES
    };
};

/* Copies one chunk to shared memory: the first `bytes` come from `from`, the rest are
 * 0. Rows that are not aligned are copied by plain loads and stores; the barriers that
 * the asynchronous copies need cover them too. */
__device__ __forceinline__ void cuda_copy_chunk(char *to, const char *from, int bytes,
                                                bool is_aligned)
{
    if (is_aligned)
        sp_copy_async(to, from, bytes);
    else
#pragma unroll 1
        for (int i = 0; i < CUDA_CHUNK_BYTES; i += 2)
            *(uint16_t *)(to + i) = i < bytes ? *(const uint16_t *)(from + i) : 0;
}

/* The number of bytes of a row of n_bytes that lie in the chunk that begins at byte
 * `at`. */
__device__ __forceinline__ int cuda_chunk_bytes(int at, int n_bytes)
{
    return max(0, min((int)CUDA_CHUNK_BYTES, n_bytes - at));
}

/* The byte offset of chunk q of row r in a stage. */
__device__ __forceinline__ int cuda_stage_at(int r, int q)
{
    return r * CUDA_STAGE_ROW + (q ^ (r >> 1 & 3)) * CUDA_CHUNK_BYTES;
}

/* sum += A B over one unit. Bit i of groups is set where group i has rows that are not
 * 0. */
template <sp_precision P, int MT, int NT> struct cuda_product {
    /* The shared addresses of this lane's rows in the stage at `stage`, for the two
     * units of a row, as ldmatrix needs them. Fragments of other groups, columns and
     * stages lie at fixed distances. */
    struct fragments {
        uint32_t a[2], b[2];
    };

    /* row_a, row_b: the warp's first rows of A and of B, which begins at byte b. */
    __device__ static fragments find(const char *stage, int row_a, int b, int row_b)
    {
        const int lane = (int)threadIdx.x % 32;
        const uint32_t at = sp_shared_base(stage);
        fragments f;

#pragma unroll
        for (int u = 0; u < 2; u++) {
            f.a[u] = at + cuda_stage_at(row_a + lane % 16, u * 2 + lane / 16);
            f.b[u] =
                at + b +
                cuda_stage_at(row_b + lane / 16 * 8 + lane % 8, u * 2 + (lane / 8 & 1));
        }
        return f;
    }

    __device__ static void load_a(uint32_t at, uint32_t (&f)[4])
    {
        sp_ldmatrix(f, at);
        if (P == SP_TF32)
#pragma unroll
            for (int i = 0; i < 4; i++)
                f[i] = sp_round_tf32(f[i]);
    }

    __device__ static void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                               uint32_t b1)
    {
        if (P == SP_BF16)
            sp_mma_bf16(c, a, b0, b1);
        else
            sp_mma_tf32(c, a, b0, b1);
    }

    /* Multiplies one unit of the stage that lies `at` bytes after f's stage. All
     * fragments are loaded before the first product. */
    __device__ static void multiply(const fragments &f, int at, int unit,
                                    unsigned groups, float (&sum)[MT][NT][4])
    {
        uint32_t a[MT][4];
        uint32_t b[NT / 2][4]; /* two registers of 8 columns, two of 8 more */

#pragma unroll
        for (int i = 0; i < MT; i++)
            if (groups >> i & 1)
                load_a(f.a[unit] + at + 16 * i * CUDA_STAGE_ROW, a[i]);
#pragma unroll
        for (int j = 0; j < NT / 2; j++)
            sp_ldmatrix(b[j], f.b[unit] + at + 16 * j * CUDA_STAGE_ROW);
#pragma unroll
        for (int i = 0; i < MT; i++) {
            if (!(groups >> i & 1))
                continue;
#pragma unroll
            for (int j = 0; j < NT; j++)
                mma(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }

    /* Stores this lane's four values of sum[.][j] in rows of `pitch` floats. */
    __device__ static void put(float *to, int pitch, int j, float c0, float c1,
                               float c2, float c3)
    {
        const int lane = (int)threadIdx.x % 32;
        float *at = to + lane / 4 * pitch + j * 8 + lane % 4 * 2;

        *(float2 *)at = make_float2(c0, c1);
        *(float2 *)(at + 8 * pitch) = make_float2(c2, c3);
    }
};

template <int MT, int NT> struct cuda_product<SP_FP32, MT, NT> {
    struct fragments {
        const char *a, *b; /* the warp's first rows */
    };

    __device__ static fragments find(const char *stage, int row_a, int b, int row_b)
    {
        return {stage + row_a * CUDA_STAGE_ROW, stage + b + row_b * CUDA_STAGE_ROW};
    }

    __device__ static void multiply_chunk(const char *a, const char *b, int q,
                                          unsigned groups, float (&sum)[MT][NT][4])
    {
        const int lane = (int)threadIdx.x % 32;
        float4 w[NT];

#pragma unroll
        for (int j = 0; j < NT; j++)
            w[j] = *(const float4 *)(b + cuda_stage_at(8 * j + lane % 8, q));
#pragma unroll
        for (int i = 0; i < MT; i++) {
            if (!(groups >> i & 1))
                continue;
#pragma unroll
            for (int v = 0; v < 4; v++) {
                const float4 x =
                    *(const float4 *)(a + cuda_stage_at(16 * i + 4 * v + lane / 8, q));
#pragma unroll
                for (int j = 0; j < NT; j++) {
                    float s = sum[i][j][v];
                    s = fmaf(x.x, w[j].x, s);
                    s = fmaf(x.y, w[j].y, s);
                    s = fmaf(x.z, w[j].z, s);
                    sum[i][j][v] = fmaf(x.w, w[j].w, s);
                }
            }
        }
    }

    __device__ static void multiply(const fragments &f, int at, int unit,
                                    unsigned groups, float (&sum)[MT][NT][4])
    {
        multiply_chunk(f.a + at, f.b + at, unit * 2, groups, sum);
        multiply_chunk(f.a + at, f.b + at, unit * 2 + 1, groups, sum);
    }

    __device__ static void put(float *to, int pitch, int j, float c0, float c1,
                               float c2, float c3)
    {
        const int lane = (int)threadIdx.x % 32;
        float *at = to + lane / 8 * pitch + j * 8 + lane % 8;

        at[0] = c0;
        at[4 * pitch] = c1;
        at[8 * pitch] = c2;
        at[12 * pitch] = c3;
    }
};

#endif

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

/* Whether every chunk of the rows lies at a multiple of 16 bytes. */
static inline bool cuda_is_aligned(sp_tensor t)
{
    return (uintptr_t)t.data % 16 == 0 &&
           (size_t)t.ld * sp_elem_bytes(t.elem) % 16 == 0;
}

/* Copies one chunk to shared memory: the first `bytes` come from `from`, the rest are
 * 0. Rows that are not aligned are copied by plain loads and stores; the barriers that
 * the asynchronous copies need cover them too. */
__device__ __forceinline__ void cuda_copy_chunk(char *to, const char *from, int bytes,
                                                bool is_aligned)
{
    if (is_aligned)
        sp_copy_async(to, from, bytes);
    else
        for (int i = 0; i < CUDA_CHUNK_BYTES; i += 2)
            *(uint16_t *)(to + i) = i < bytes ? *(const uint16_t *)(from + i) : 0;
}

/* The number of bytes of a row of n_bytes that lie in the chunk that begins at byte
 * `at`. */
__device__ __forceinline__ int cuda_chunk_bytes(int at, int n_bytes)
{
    return max(0, min((int)CUDA_CHUNK_BYTES, n_bytes - at));
}

/* The byte at which chunk q of row r of a stage stands. */
__device__ __forceinline__ int cuda_stage_at(int r, int q)
{
    return r * CUDA_STAGE_ROW + (q ^ (r >> 1 & 3)) * CUDA_CHUNK_BYTES;
}

/* sum += A B over one unit. a and b are stages, row_a and row_b the first rows of the
 * warp in them; bit i of groups is set where group i has rows that are not 0. */
template <sp_precision P, int MT, int NT> struct cuda_product {
    /* Loads a 16 x 32 byte block by ldmatrix: each lane names its row 0..15 and chunk.
     */
    __device__ static void load_a(const char *a, int row, int unit, uint32_t (&f)[4])
    {
        const int lane = (int)threadIdx.x % 32;

        sp_ldmatrix(f, a + cuda_stage_at(row + lane % 16, unit * 2 + lane / 16));
        if (P == SP_TF32)
#pragma unroll
            for (int i = 0; i < 4; i++)
                f[i] = sp_round_tf32(f[i]);
    }

    /* Loads 16 columns: f[0], f[1] receive columns 0..7, f[2], f[3] columns 8..15. */
    __device__ static void load_b(const char *b, int row, int unit, uint32_t (&f)[4])
    {
        const int lane = (int)threadIdx.x % 32;

        sp_ldmatrix(f, b + cuda_stage_at(row + lane / 16 * 8 + lane % 8,
                                         unit * 2 + (lane / 8 & 1)));
    }

    __device__ static void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                               uint32_t b1)
    {
        if (P == SP_BF16)
            sp_mma_bf16(c, a, b0, b1);
        else
            sp_mma_tf32(c, a, b0, b1);
    }

    __device__ static void multiply(const char *a, int row_a, const char *b, int row_b,
                                    int unit, unsigned groups, float (&sum)[MT][NT][4])
    {
        uint32_t fa[MT][4], fb[4];

#pragma unroll
        for (int i = 0; i < MT; i++)
            if (groups >> i & 1)
                load_a(a, row_a + 16 * i, unit, fa[i]);
#pragma unroll
        for (int j = 0; j < NT; j += 2) {
            load_b(b, row_b + 8 * j, unit, fb);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                if (!(groups >> i & 1))
                    continue;
                mma(sum[i][j], fa[i], fb[0], fb[1]);
                mma(sum[i][j + 1], fa[i], fb[2], fb[3]);
            }
        }
    }

    /* Row and column, within its group, of value v of sum[.][j] in this lane. */
    __device__ static int row(int v)
    {
        return (int)threadIdx.x % 32 / 4 + v / 2 * 8;
    }
    __device__ static int column(int j, int v)
    {
        return j * 8 + (int)threadIdx.x % 4 * 2 + v % 2;
    }
};

template <int MT, int NT> struct cuda_product<SP_FP32, MT, NT> {
    __device__ static void multiply_chunk(const char *a, int row_a, const char *b,
                                          int row_b, int q, unsigned groups,
                                          float (&sum)[MT][NT][4])
    {
        const int lane = (int)threadIdx.x % 32;
        float4 w[NT];

#pragma unroll
        for (int j = 0; j < NT; j++)
            w[j] = *(const float4 *)(b + cuda_stage_at(row_b + 8 * j + lane % 8, q));
#pragma unroll
        for (int i = 0; i < MT; i++) {
            if (!(groups >> i & 1))
                continue;
#pragma unroll
            for (int v = 0; v < 4; v++) {
                const float4 x =
                    *(const float4 *)(a + cuda_stage_at(
                                              row_a + 16 * i + 4 * v + lane / 8, q));
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

    __device__ static void multiply(const char *a, int row_a, const char *b, int row_b,
                                    int unit, unsigned groups, float (&sum)[MT][NT][4])
    {
        multiply_chunk(a, row_a, b, row_b, unit * 2, groups, sum);
        multiply_chunk(a, row_a, b, row_b, unit * 2 + 1, groups, sum);
    }

    __device__ static int row(int v)
    {
        return (int)threadIdx.x % 32 / 8 + v * 4;
    }
    __device__ static int column(int j, int)
    {
        return j * 8 + (int)threadIdx.x % 8;
    }
};

#endif

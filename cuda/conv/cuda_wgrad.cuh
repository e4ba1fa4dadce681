/* The product of a warp in the weight gradient: MT groups of 16 channels of x times NT
 * x 8 channels of dy, over the pairs of a stage, in sum[MT][NT][4].
 *
 * Both operands are stored as they are gathered, a row of T channels for each pair, so
 * the inner dimension runs down the rows. In bf16, ldmatrix.trans transposes them;
 * chunk q of row r is stored at q ^ (r & 7), or at q ^ (r / 2 & 3) if a row is not a
 * multiple of 128 bytes, so that eight rows fall into eight groups of banks. There is
 * no such load for fp32; its rows are padded by 8 elements, so that the four rows and
 * eight channels of a fragment fall into 32 banks.
 */
#ifndef CUDA_WGRAD_CUH
#define CUDA_WGRAD_CUH

#include "cuda/conv/cuda_mma.cuh"

/* The product in tf32; bf16 and fp32 are specialized below. */
template <sp_precision P, int T, int MT, int NT> struct wgrad_product {
    /* pairs of a stage, bytes of a row */
    enum { PAIRS = 16, ROW_BYTES = (T + 8) * 4 };

    __device__ static int at(int r, int q) { return r * ROW_BYTES + q * 16; }

    /* This lane's first values of x and of dy in the stage at `stage`. Values of other
     * pairs, channels and stages lie at fixed distances. */
    struct fragments {
        const char *x, *dy;
    };

    /* i0, o0: the warp's first channels; dy: the byte where dy begins. */
    __device__ static fragments find(const char *stage, int i0, int dy, int o0)
    {
        const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;

        return {stage + t * ROW_BYTES + (i0 + g) * 4,
                stage + dy + t * ROW_BYTES + (o0 + g) * 4};
    }

    __device__ static uint32_t load(const char *from, int pair, int channel)
    {
        const uint32_t v = *(const uint32_t *)(from + pair * ROW_BYTES + channel * 4);

        return sp_round_tf32(v);
    }

    /* Multiplies the stage that lies `at` bytes after f's stage. */
    __device__ static void multiply(const fragments &f, int at, float (&sum)[MT][NT][4])
    {
#pragma unroll
        for (int p = 0; p < PAIRS; p += 8) {
            uint32_t a[MT][4];
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int v = 0; v < 4; v++)
                    a[i][v] = load(f.x + at, p + v / 2 * 4, 16 * i + v % 2 * 8);
#pragma unroll
            for (int j = 0; j < NT; j++) {
                const uint32_t b0 = load(f.dy + at, p, 8 * j);
                const uint32_t b1 = load(f.dy + at, p + 4, 8 * j);
#pragma unroll
                for (int i = 0; i < MT; i++)
                    sp_mma_tf32(sum[i][j], a[i], b0, b1);
            }
        }
    }

    __device__ static int row(int v)
    {
        return (int)threadIdx.x % 32 / 4 + v / 2 * 8;
    }
    __device__ static int column(int j, int v)
    {
        return j * 8 + (int)threadIdx.x % 4 * 2 + v % 2;
    }
};

template <int T, int MT, int NT> struct wgrad_product<SP_BF16, T, MT, NT> {
    enum { PAIRS = 32, ROW_BYTES = T * 2 };

    __device__ static int at(int r, int q)
    {
        return r * ROW_BYTES + (q ^ (T % 64 == 0 ? r & 7 : r >> 1 & 3)) * 16;
    }

    /* The shared addresses of this lane's rows for ldmatrix, as in cuda_product. */
    struct fragments {
        uint32_t a[MT], b[NT / 2];
    };

    __device__ static fragments find(const char *stage, int i0, int dy, int o0)
    {
        const int lane = (int)threadIdx.x % 32;
        const uint32_t first = sp_shared_base(stage);
        fragments f;

#pragma unroll
        for (int i = 0; i < MT; i++)
            f.a[i] =
                first + at(lane / 16 * 8 + lane % 8, i0 / 8 + 2 * i + (lane / 8 & 1));
#pragma unroll
        for (int j = 0; j < NT / 2; j++)
            f.b[j] = first + dy + at(lane % 16, o0 / 8 + 2 * j + lane / 16);
        return f;
    }

    /* All fragments of 16 pairs are loaded before their first product. */
    __device__ static void multiply(const fragments &f, int stage,
                                    float (&sum)[MT][NT][4])
    {
#pragma unroll
        for (int p = 0; p < PAIRS; p += 16) {
            uint32_t a[MT][4], b[NT / 2][4];
#pragma unroll
            for (int i = 0; i < MT; i++)
                sp_ldmatrix_trans(a[i], f.a[i] + stage + p * ROW_BYTES);
#pragma unroll
            for (int j = 0; j < NT / 2; j++)
                sp_ldmatrix_trans(b[j], f.b[j] + stage + p * ROW_BYTES);
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < NT; j++)
                    sp_mma_bf16(sum[i][j], a[i], b[j / 2][j % 2 * 2],
                                b[j / 2][j % 2 * 2 + 1]);
        }
    }

    __device__ static int row(int v)
    {
        return (int)threadIdx.x % 32 / 4 + v / 2 * 8;
    }
    __device__ static int column(int j, int v)
    {
        return j * 8 + (int)threadIdx.x % 4 * 2 + v % 2;
    }
};

/* Each lane owns four adjacent channels of x and NT / 4 groups of four of dy. */
template <int T, int MT, int NT> struct wgrad_product<SP_FP32, T, MT, NT> {
    enum { PAIRS = 16, ROW_BYTES = (T + 8) * 4 };
    static_assert(NT % 4 == 0, "four columns at a time");

    __device__ static int at(int r, int q) { return r * ROW_BYTES + q * 16; }

    struct fragments {
        const char *x, *dy;
    };

    __device__ static fragments find(const char *stage, int i0, int dy, int o0)
    {
        return {stage + (i0 + row(0)) * 4, stage + dy + (o0 + column(0, 0)) * 4};
    }

    __device__ static void multiply(const fragments &f, int stage,
                                    float (&sum)[MT][NT][4])
    {
#pragma unroll 4
        for (int p = 0; p < PAIRS; p++) {
            const float *row_x = (const float *)(f.x + stage + p * ROW_BYTES);
            const float *row_y = (const float *)(f.dy + stage + p * ROW_BYTES);
            float4 y[NT / 4];

#pragma unroll
            for (int j = 0; j < NT / 4; j++)
                y[j] = *(const float4 *)(row_y + 32 * j);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                const float4 w = *(const float4 *)(row_x + 16 * i);
                const float v[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
                for (int h = 0; h < 4; h++)
#pragma unroll
                    for (int j = 0; j < NT / 4; j++) {
                        sum[i][4 * j][h] = fmaf(v[h], y[j].x, sum[i][4 * j][h]);
                        sum[i][4 * j + 1][h] = fmaf(v[h], y[j].y, sum[i][4 * j + 1][h]);
                        sum[i][4 * j + 2][h] = fmaf(v[h], y[j].z, sum[i][4 * j + 2][h]);
                        sum[i][4 * j + 3][h] = fmaf(v[h], y[j].w, sum[i][4 * j + 3][h]);
                    }
            }
        }
    }

    __device__ static int row(int v)
    {
        return (int)threadIdx.x % 32 / 8 * 4 + v;
    }
    __device__ static int column(int j, int)
    {
        return j / 4 * 32 + (int)threadIdx.x % 8 * 4 + j % 4;
    }
};

#endif

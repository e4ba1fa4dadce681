/* Convolution forward and input gradient in fp32: one output-stationary implicit GEMM.
 *
 *     y[o] = [y[o] +] [bias +] sum over k of x[i] W[k]     pairs (i, o) of offset k
 *
 * A block owns BM rows of one tile of the map and BN channels of y. It goes through the
 * offsets eight at a time: each warp copies one offset's pairs that fall into the rows
 * of the block to a table, row -> input row or -1; offsets that no row has are left
 * out. Then, BK channels at a time, A [BK][BM] (gathered rows of x, absent ones 0) and
 * B [BK][BN] (weights) meet in shared memory, and each thread sums TM x 4 outputs in
 * registers. The next step's numbers are under way to registers while one is computed.
 * The input gradient is the same with W[k] read transposed (IS_GRAD), so no second copy
 * of the weights exists.
 *
 * Every output is summed by one thread, offsets and channels rising: its value depends
 * on its own inputs and the weights alone.
 *
 * Bytes from memory: 4 (n_in c_x + n c_y + K c_x c_y) + 8 m; gathered through L2:
 * 4 m c_x ceil(c_y / BN). Flops: 2 m c_x c_y, times the share of absent rows in the
 * tables. 256 threads; 128 x 64 for wide outputs, 128 x 32 up to 32 channels.
 */
#include <assert.h>

#include "cuda_util.cuh"

namespace
{

enum { THREADS = 256, BK = 16, TABLES = 8 };

struct conv_call {
    const int32_t *start, *in, *out, *tile_row; /* start NULL: every row its own pair */
    int K;
    sp_tensor x, y;
    const float *w, *bias;
    bool is_mirrored, is_added;
    bool is_aligned_x, is_aligned_w; /* four floats at a time */
};

/* Numbers 0 .. 3 from p on, 0 from n on. */
__device__ __forceinline__ float4 load4(const float *p, int n, bool is_aligned)
{
    if (n >= 4 && is_aligned)
        return *(const float4 *)p;
    return make_float4(n > 0 ? p[0] : 0, n > 1 ? p[1] : 0, n > 2 ? p[2] : 0,
                       n > 3 ? p[3] : 0);
}

template <int BM, int BN, bool IS_GRAD> struct conv_block {
    enum {
        COLUMNS = BN / 4,              /* threads side by side */
        TM = BM / (THREADS / COLUMNS), /* rows of a thread */
        NA = BM * BK / 4 / THREADS,    /* loads of a thread */
        NB = (BN * BK / 4 + THREADS - 1) / THREADS,
        PITCH_A = BM + 4,
        PITCH_B = BN + 4
    };

    const conv_call &a;
    int32_t row0; /* of y */
    int rows, column0;

    __device__ conv_block(const conv_call &call) : a(call)
    {
        const int per_tile = SP_TILE / BM, tile = (int)blockIdx.x / per_tile;
        const int32_t within = (int)blockIdx.x % per_tile * BM;
        int32_t end = (int32_t)a.y.n;

        row0 = (int32_t)blockIdx.x * BM;
        if (a.start) {
            row0 = a.tile_row[tile] + within;
            end = a.tile_row[tile + 1];
        }
        rows = min(BM, end - row0);
        column0 = (int)blockIdx.y * BN;
    }

    /* table[g][r] input row of row0 + r at offset k0 + g; has[g]: there is any. */
    __device__ void fill_tables(int k0, int32_t (*table)[BM], int *has) const
    {
        const int g = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, k = k0 + g;
        const size_t list = (size_t)((int)blockIdx.x / (SP_TILE / BM)) * a.K + k;
        bool any = false;

        for (int r = lane; r < BM; r += 32)
            table[g][r] = a.start || r >= rows ? -1 : row0 + r;
        __syncwarp();
        if (a.start && k < a.K)
            for (int32_t p = a.start[list] + lane; p < a.start[list + 1]; p += 32) {
                const int32_t r = a.out[p] - row0;
                if (r >= 0 && r < rows) {
                    table[g][r] = a.in[p];
                    any = true;
                }
            }
        any = __any_sync(0xffffffffu, any);
        if (lane == 0)
            has[g] = any || (!a.start && k < a.K);
    }

    __device__ void load_a(const int32_t *table, int c0, float4 *to) const
    {
#pragma unroll
        for (int e = 0; e < NA; e++) {
            const int at = (int)threadIdx.x + e * THREADS, c = c0 + at % 4 * 4;
            const int32_t i = table[at / 4];

            to[e] = i < 0 ? make_float4(0, 0, 0, 0)
                          : load4(a.x.data + (size_t)i * a.x.ld + c, a.x.c - c,
                                  a.is_aligned_x);
        }
    }

    __device__ void load_b(int k, int c0, float4 *to) const
    {
        const float *w =
            a.w + (size_t)(a.is_mirrored ? a.K - 1 - k : k) * a.x.c * a.y.c;

#pragma unroll
        for (int e = 0; e < NB; e++) {
            const int at = (int)threadIdx.x + e * THREADS;
            const int n = column0 + (IS_GRAD ? at / 4 : at % COLUMNS * 4);
            const int c = c0 + (IS_GRAD ? at % 4 * 4 : at / COLUMNS);

            to[e] = make_float4(0, 0, 0, 0);
            if (at >= BN * BK / 4 || n >= a.y.c || c >= a.x.c)
                continue;
            to[e] = IS_GRAD
                        ? load4(w + (size_t)n * a.x.c + c, a.x.c - c, a.is_aligned_w)
                        : load4(w + (size_t)c * a.y.c + n, a.y.c - n, a.is_aligned_w);
        }
    }

    __device__ static void put_across(float *to, int pitch, float4 v)
    {
        to[0] = v.x;
        to[pitch] = v.y;
        to[2 * pitch] = v.z;
        to[3 * pitch] = v.w;
    }

    __device__ void store(const float4 *from_a, const float4 *from_b, float *sa,
                          float *sb) const
    {
#pragma unroll
        for (int e = 0; e < NA; e++) {
            const int at = (int)threadIdx.x + e * THREADS;
            put_across(sa + at % 4 * 4 * PITCH_A + at / 4, PITCH_A, from_a[e]);
        }
#pragma unroll
        for (int e = 0; e < NB; e++) {
            const int at = (int)threadIdx.x + e * THREADS;
            if (at >= BN * BK / 4)
                continue;
            if (IS_GRAD)
                put_across(sb + at % 4 * 4 * PITCH_B + at / 4, PITCH_B, from_b[e]);
            else
                *(float4 *)(sb + at / COLUMNS * PITCH_B + at % COLUMNS * 4) = from_b[e];
        }
    }

    __device__ void multiply(const float *sa, const float *sb, float (*sum)[4]) const
    {
        const float *row = sa + threadIdx.x / COLUMNS * TM;
        const float *column = sb + threadIdx.x % COLUMNS * 4;

#pragma unroll
        for (int c = 0; c < BK; c++) {
            const float4 w = *(const float4 *)(column + c * PITCH_B);
#pragma unroll
            for (int i = 0; i < TM; i++) {
                const float v = row[c * PITCH_A + i];
                sum[i][0] += v * w.x;
                sum[i][1] += v * w.y;
                sum[i][2] += v * w.z;
                sum[i][3] += v * w.w;
            }
        }
    }

    __device__ void write(const float (*sum)[4]) const
    {
        const int n0 = column0 + (int)(threadIdx.x % COLUMNS) * 4;

        for (int i = 0; i < TM; i++) {
            const int r = (int)(threadIdx.x / COLUMNS) * TM + i;
            float *y = cuda_row(a.y, (int64_t)row0 + r) + n0;

            for (int j = 0; r < rows && j < 4 && n0 + j < a.y.c; j++) {
                const float v = sum[i][j] + (a.bias ? a.bias[n0 + j] : 0);
                y[j] = a.is_added ? y[j] + v : v;
            }
        }
    }
};

template <int BM, int BN, bool IS_GRAD>
__global__ void __launch_bounds__(THREADS, 2) conv_kernel(conv_call a)
{
    typedef conv_block<BM, BN, IS_GRAD> block;
    SP_SHARED(int32_t, table, [TABLES][BM]);
    SP_SHARED(int, has, [TABLES]);
    SP_SHARED(float, sa, [2][BK * block::PITCH_A]);
    SP_SHARED(float, sb, [2][BK * block::PITCH_B]);
    const block b(a);
    float sum[block::TM][4] = {};
    float4 next_a[block::NA], next_b[block::NB];
    int turn = 0;

    if (b.rows <= 0) /* the whole block */
        return;
    for (int k0 = 0; k0 < a.K; k0 += TABLES) {
        b.fill_tables(k0, table, has);
        __syncthreads();
        for (int g = 0; g < TABLES; g++) {
            if (!has[g])
                continue;
            b.load_a(table[g], 0, next_a);
            b.load_b(k0 + g, 0, next_b);
            for (int c0 = 0; c0 < a.x.c; c0 += BK, turn ^= 1) {
                b.store(next_a, next_b, sa[turn], sb[turn]);
                __syncthreads(); /* and everybody is done with the other half */
                if (c0 + BK < a.x.c) {
                    b.load_a(table[g], c0 + BK, next_a);
                    b.load_b(k0 + g, c0 + BK, next_b);
                }
                b.multiply(sa[turn], sb[turn], sum);
            }
        }
        __syncthreads(); /* the tables have been read */
    }
    b.write(sum);
}

template <int BM, int BN, bool IS_GRAD>
sp_status launch(sp_backend *be, const conv_call &a, int n_tiles)
{
    const unsigned blocks = a.start ? (unsigned)n_tiles * (SP_TILE / BM)
                                    : (unsigned)((a.y.n + BM - 1) / BM);

    SP_LAUNCH((conv_kernel<BM, BN, IS_GRAD>),
              dim3(blocks, ((unsigned)a.y.c + BN - 1) / BN), dim3(THREADS),
              cuda_of(be)->compute, a);
    return cuda_launched("conv_kernel");
}

bool is_aligned(const void *p, int a, int b)
{
    return (uintptr_t)p % 16 == 0 && a % 4 == 0 && b % 4 == 0;
}

template <bool IS_GRAD> sp_status run(sp_backend *be, const sp_conv_args *args)
{
    const sp_map *m = args->map;
    conv_call a = {};

    assert(m ? m->n_in == args->x.n && m->n_out == args->y.n : args->x.n == args->y.n);
    if (args->y.n == 0 || args->y.c == 0)
        return SP_OK;
    a.K = 1;
    if (m) {
        a.start = m->start;
        a.in = m->in;
        a.out = m->out;
        a.tile_row = m->tile_row;
        a.K = m->K;
    }
    a.x = args->x;
    a.y = args->y;
    a.w = args->w;
    a.bias = args->bias;
    a.is_mirrored = args->is_mirrored;
    a.is_added = args->is_added;
    a.is_aligned_x = is_aligned(a.x.data, a.x.ld, 0);
    a.is_aligned_w = is_aligned(a.w, a.x.c, a.y.c);
    if (a.y.c <= 32)
        return launch<128, 32, IS_GRAD>(be, a, m ? m->n_tiles : 0);
    return launch<128, 64, IS_GRAD>(be, a, m ? m->n_tiles : 0);
}

} // namespace

/* Weights are read as they are. */
size_t sp_cuda_conv_pack_floats(const sp_backend *, int, int, int, bool)
{
    return 0;
}

sp_status sp_cuda_conv_pack(sp_backend *, const float *, int, int, int, bool, bool,
                            float *)
{
    return SP_OK;
}

sp_status sp_cuda_conv_forward(sp_backend *be, const sp_conv_args *args)
{
    return run<false>(be, args);
}

sp_status sp_cuda_conv_grad_input(sp_backend *be, const sp_conv_args *args)
{
    return run<true>(be, args);
}

/* Weight gradient in fp32: for each offset k a GEMM with the pairs as inner dimension,
 *
 *     dW[k] += sum over pairs (i, o) of x[i]^T dy[o]       [c_in, c_out]
 *
 * both operands gathered. Samples are cut, each from its own first row on, into slots
 * of SLOT_TILES tiles (SLOT_ROWS rows where there is no map). A block owns one slot,
 * one offset and TI x TO of the matrix, goes through the slot's pairs in order, BP at a
 * time, and writes its sum to the slot; a second kernel adds the slots to dW in order.
 * So the order of the sum is that of the sample's rows, whatever runs when; a round of
 * slots takes at most SLOT_BYTES of scratch.
 *
 * Bytes through L2: 4 m (c_in ceil(c_out / TO) + c_out ceil(c_in / TI)); flops 2 m c_in
 * c_out, and up to BP - 1 idle pairs at the end of each tile's list.
 * 64 x 64 with 256 threads; 32 x 32 with 64 where both sides are narrow.
 */
#include "cuda_util.cuh"

namespace
{

enum { BP = 16, MAX_SLOTS = 256, SLOT_TILES = 16, SLOT_ROWS = 2048 };
enum { SLOT_BYTES = 64 << 20 };

struct slots {
    int n;
    int32_t begin[MAX_SLOTS], end[MAX_SLOTS]; /* tiles, or rows without a map */
};

struct wgrad_call {
    const int32_t *start, *in, *out; /* start NULL: every row its own pair */
    int K;
    sp_tensor x, dy;
    float *part; /* [slots][K][c_in][c_out] */
};

/* The pairs of one offset in one slot, list by list. */
struct pair_walk {
    int32_t tile, last_tile; /* lists to come: tile + 1 .. last_tile */
    int32_t p, end;

    __device__ pair_walk(const wgrad_call &a, int32_t begin, int32_t stop, int k)
    {
        tile = last_tile = 0;
        p = begin;
        end = stop;
        if (a.start) {
            tile = begin;
            last_tile = stop - 1;
            p = a.start[(size_t)tile * a.K + k];
            end = a.start[(size_t)tile * a.K + k + 1];
        }
        skip(a, k);
    }

    __device__ void skip(const wgrad_call &a, int k)
    {
        while (p >= end && tile < last_tile) {
            tile++;
            p = a.start[(size_t)tile * a.K + k];
            end = a.start[(size_t)tile * a.K + k + 1];
        }
    }

    __device__ bool has_more() const { return p < end; }

    __device__ void step(const wgrad_call &a, int k)
    {
        p += BP;
        skip(a, k);
    }
};

template <int T> struct wgrad_block {
    enum {
        THREADS = T / 4 * (T / 4),
        N = T * BP / 4 / THREADS, /* loads of a thread */
        PITCH = T + 4
    };

    /* BP gathered rows, channels c0 .. c0 + T - 1. */
    __device__ static void load(const int32_t *rows, const pair_walk &walk, sp_tensor t,
                                int c0, float4 *to)
    {
#pragma unroll
        for (int e = 0; e < N; e++) {
            const int at = (int)threadIdx.x + e * THREADS, c = c0 + at % (T / 4) * 4;
            const int32_t p = walk.p + at / (T / 4);
            const float *row;

            to[e] = make_float4(0, 0, 0, 0);
            if (p >= walk.end)
                continue;
            row = cuda_row(t, rows ? rows[p] : p) + c;
            to[e].x = c < t.c ? row[0] : 0;
            to[e].y = c + 1 < t.c ? row[1] : 0;
            to[e].z = c + 2 < t.c ? row[2] : 0;
            to[e].w = c + 3 < t.c ? row[3] : 0;
        }
    }

    __device__ static void store(const float4 *from, float *to)
    {
#pragma unroll
        for (int e = 0; e < N; e++) {
            const int at = (int)threadIdx.x + e * THREADS;
            *(float4 *)(to + at / (T / 4) * PITCH + at % (T / 4) * 4) = from[e];
        }
    }

    __device__ static void multiply(const float *sx, const float *sy, float (*sum)[4])
    {
        const int i0 = (int)threadIdx.x / (T / 4) * 4,
                  j0 = (int)threadIdx.x % (T / 4) * 4;

#pragma unroll
        for (int p = 0; p < BP; p++) {
            const float4 x = *(const float4 *)(sx + p * PITCH + i0);
            const float4 y = *(const float4 *)(sy + p * PITCH + j0);
            const float v[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                sum[i][0] += v[i] * y.x;
                sum[i][1] += v[i] * y.y;
                sum[i][2] += v[i] * y.z;
                sum[i][3] += v[i] * y.w;
            }
        }
    }

    __device__ static void write(const float (*sum)[4], int i0, int j0, int c_in,
                                 int c_out, float *to)
    {
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                if (i0 + i < c_in && j0 + j < c_out)
                    to[(size_t)(i0 + i) * c_out + j0 + j] = sum[i][j];
    }
};

template <int T>
__global__ void __launch_bounds__(wgrad_block<T>::THREADS, 2)
    wgrad_kernel(wgrad_call a, slots s)
{
    typedef wgrad_block<T> block;
    SP_SHARED(float, sx, [2][BP * block::PITCH]);
    SP_SHARED(float, sy, [2][BP * block::PITCH]);
    const int slot = (int)blockIdx.x / a.K, k = (int)blockIdx.x % a.K;
    const int across = (a.dy.c + T - 1) / T;
    const int i0 = (int)blockIdx.y / across * T, j0 = (int)blockIdx.y % across * T;
    pair_walk walk(a, s.begin[slot], s.end[slot], k);
    float sum[4][4] = {};
    float4 next_x[block::N], next_y[block::N];

    block::load(a.in, walk, a.x, i0, next_x);
    block::load(a.out, walk, a.dy, j0, next_y);
    for (int turn = 0; walk.has_more(); turn ^= 1) {
        block::store(next_x, sx[turn]);
        block::store(next_y, sy[turn]);
        __syncthreads(); /* and everybody is done with the other half */
        walk.step(a, k);
        block::load(a.in, walk, a.x, i0, next_x);
        block::load(a.out, walk, a.dy, j0, next_y);
        block::multiply(sx[turn], sy[turn], sum);
    }
    block::write(sum, i0 + (int)threadIdx.x / (T / 4) * 4,
                 j0 + (int)threadIdx.x % (T / 4) * 4, a.x.c, a.dy.c,
                 a.part + ((size_t)slot * a.K + k) * a.x.c * a.dy.c);
}

/* dw[i] += part[0][i] + part[1][i] + ... */
__global__ void __launch_bounds__(256)
    add_slots_kernel(const float *part, int n_slots, int64_t n, float *dw)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    float sum = 0;

    if (i >= n)
        return;
    for (int s = 0; s < n_slots; s++)
        sum += part[s * n + i];
    dw[i] += sum;
}

template <int T> sp_status launch(sp_backend *be, const wgrad_call &a, const slots &s)
{
    const unsigned tiles =
        (unsigned)((a.x.c + T - 1) / T) * (unsigned)((a.dy.c + T - 1) / T);

    SP_LAUNCH((wgrad_kernel<T>), dim3((unsigned)s.n * (unsigned)a.K, tiles),
              dim3(wgrad_block<T>::THREADS), cuda_of(be)->compute, a, s);
    return cuda_launched("wgrad_kernel");
}

sp_status flush(sp_backend *be, const wgrad_call &a, slots *s, float *dw)
{
    const int64_t n = (int64_t)a.K * a.x.c * a.dy.c;

    if (s->n == 0)
        return SP_OK;
    if (a.x.c <= 32 && a.dy.c <= 32)
        SP_TRY(launch<32>(be, a, *s));
    else
        SP_TRY(launch<64>(be, a, *s));
    SP_LAUNCH(add_slots_kernel, dim3((unsigned)((n + 255) / 256)), dim3(256),
              cuda_of(be)->compute, (const float *)a.part, s->n, n, dw);
    s->n = 0;
    return cuda_launched("add_slots_kernel");
}

/* Slots of one round: as many as there are, or fit. */
size_t round_of(const sp_conv_wgrad_args *a, const int32_t *end, int32_t length,
                size_t n)
{
    const size_t fit = SLOT_BYTES / (n * sizeof(float)) + 1;
    size_t count = 0;

    for (int b = a->sample0; b < a->sample1; b++)
        count += (size_t)(end[b + 1] - end[b] + length - 1) / length;
    count = count < fit ? count : fit;
    return count < MAX_SLOTS ? count : (size_t)MAX_SLOTS;
}

sp_status sum_weights(sp_backend *be, const sp_conv_wgrad_args *args)
{
    const sp_map *m = args->map;
    const int32_t *end = m ? m->sample_tile : args->sample_row;
    const int32_t length = m ? SLOT_TILES : SLOT_ROWS;
    wgrad_call a = {};
    slots s = {};
    size_t n, room;

    a.K = 1;
    if (m) {
        a.start = m->start;
        a.in = m->in;
        a.out = m->out;
        a.K = m->K;
    }
    a.x = args->x;
    a.dy = args->dy;
    n = (size_t)a.K * a.x.c * a.dy.c;
    room = round_of(args, end, length, n);
    sp_arena_reset(&cuda_of(be)->scratch);
    SP_TRY(SP_TAKE(&cuda_of(be)->scratch, room * n, &a.part));
    for (int b = args->sample0; b < args->sample1; b++)
        for (int32_t at = end[b]; at < end[b + 1]; at += length) {
            s.begin[s.n] = at;
            s.end[s.n] = at + length < end[b + 1] ? at + length : end[b + 1];
            if (++s.n == (int)room)
                SP_TRY(flush(be, a, &s, args->dw));
        }
    return flush(be, a, &s, args->dw);
}

/* ---- bias ---- */

struct columns {
    sp_tensor dy;

    __device__ void operator()(int64_t i, int j, double *sum) const
    {
        sum[0] += cuda_row(dy, i)[j];
    }
};

struct add_samples {
    const double *sums; /* [samples][2][c] */
    int sample0, sample1, c;
    float *dbias;

    __device__ void operator()(int64_t, int j) const
    {
        double sum = 0;

        for (int b = sample0; b < sample1; b++)
            sum += sums[(size_t)b * 2 * c + j];
        dbias[j] += (float)sum;
    }
};

sp_status sum_bias(sp_backend *be, const sp_conv_wgrad_args *a)
{
    const int n = a->sample1 - a->sample0, c = a->dy.c;
    double *sums;

    sp_arena_reset(&cuda_of(be)->scratch);
    SP_TRY(SP_TAKE(&cuda_of(be)->scratch, (size_t)n * 2 * c, &sums));
    SP_TRY(
        cuda_sample_sums(be, columns{a->dy}, a->sample_row + a->sample0, n, c, sums));
    return cuda_each(be, add_samples{sums, 0, n, c, a->dbias}, 1, c);
}

} // namespace

sp_status sp_cuda_conv_grad_weight(sp_backend *be, const sp_conv_wgrad_args *args)
{
    if (args->x.c && args->dy.c)
        SP_TRY(sum_weights(be, args));
    return args->dbias ? sum_bias(be, args) : SP_OK;
}

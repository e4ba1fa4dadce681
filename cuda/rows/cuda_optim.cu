/* Update rules in double, as on the CPU. They are bound by memory: 20 bytes a parameter
 * for SGD, 28 for AdamW, and 2 or 4 for each packing of a weight (counted).
 *
 * The update also writes the weights of convolutions in the orders that the next step
 * reads (cuda_conv_pack.cuh), so that no kernel reads them again to pack them:
 *
 *     flat weights   | conv1      | norm1 | conv2            | norm2 bias |
 *     parts          | tiles      | rest  | tiles            | rest       |
 *
 * A part is a convolution with the parameters behind it. A block owns TILE x TILE
 * weights of an offset, or a stretch of the rest. It keeps the new weights in shared
 * memory, so that chunks of both directions are written: forward a chunk is 8 or 4
 * input channels of an output channel, for the input gradient the reverse.
 *
 * The sum of squares is formed of blocks of a fixed number of elements, so that its
 * value does not depend on the device. */
#include <assert.h>
#include <math.h>

#include "cuda/conv/cuda_conv_pack.cuh"

namespace
{

enum { THREADS = 256, PER_BLOCK = 4096 };

/* ---- rules: load element i, then write it and return its new weight ---- */

__device__ double decay_of(const sp_optim_args &a, int64_t i)
{
    return a.no_decay && a.no_decay[i / SP_NO_DECAY_RUN] ? 0 : a.weight_decay;
}

struct sgd {
    sp_optim_args a;
    double share; /* of the gradient in the momentum */

    struct item {
        float w, g, m;
        double decay;
    };

    __device__ item load(int64_t i) const
    {
        return {a.w[i], a.g[i], a.momentum != 0 ? a.m[i] : 0, decay_of(a, i)};
    }

    __device__ float update(int64_t i, const item &v) const
    {
        const double g = v.g * a.g_scale + v.decay * v.w;
        double step = g;

        if (a.momentum != 0) {
            const float m = (float)(a.momentum * v.m + share * g);

            a.m[i] = m;
            step = a.nesterov ? g + a.momentum * m : m;
        }
        return a.w[i] = (float)(v.w - a.lr * step);
    }
};

struct adamw {
    sp_optim_args a;
    double fix1, fix2; /* 1 - beta^(t + 1) */

    struct item {
        float w, g, m, v;
        double decay;
    };

    __device__ item load(int64_t i) const
    {
        return {a.w[i], a.g[i], a.m[i], a.v[i], decay_of(a, i)};
    }

    __device__ float update(int64_t i, const item &old) const
    {
        const double g = old.g * a.g_scale;
        const float m = (float)(a.beta1 * old.m + (1 - a.beta1) * g);
        const float v = (float)(a.beta2 * old.v + (1 - a.beta2) * g * g);
        double w = old.w * (1 - a.lr * old.decay);

        a.m[i] = m;
        a.v[i] = v;
        w -= a.lr * (m / fix1) / (sqrt(v / fix2) + a.eps);
        return a.w[i] = (float)w;
    }
};

/* ---- parts of the flat weights ---- */

enum { TILE = 32, TILE_THREADS = 128, EACH = TILE * TILE / TILE_THREADS };

/* Elements at .. end - 1: K offsets of c_in x c_out weights, then others. packed NULL:
 * no packing in that direction. */
struct update_part {
    int64_t at, end;
    char *packed[2];
    int K, c_in, c_out;
    bool is_mirrored;
    uint8_t tiled[2];
};

/* Part i has blocks first[i] .. first[i + 1] - 1 of the launch. */
struct update_parts {
    enum { MOST = 64 };
    int n;
    unsigned first[MOST + 1];
    update_part part[MOST];
};
static_assert(sizeof(adamw) + sizeof(update_parts) <= 4096, "arguments of a launch");

SP_HOST_DEVICE int tiles_of(int c)
{
    return (c + TILE - 1) / TILE;
}

/* Updates the elements `at` of this thread, -1: no element; w becomes the new weights, or 0.
 * All are loaded before the first is written. */
template <class F>
__device__ void update_some(const F &f, const int64_t (&at)[EACH], float (&w)[EACH])
{
    typename F::item item[EACH];

#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (at[e] >= 0)
            item[e] = f.load(at[e]);
#pragma unroll
    for (int e = 0; e < EACH; e++)
        w[e] = at[e] >= 0 ? f.update(at[e], item[e]) : 0;
}

/* Writes the chunks of one direction that lie in the tile, whose first channels are i0
 * and o0, of offset k. Adjacent threads write adjacent chunks. */
template <sp_precision P>
__device__ void pack_tile(const update_part &p, int direction, int k, int i0, int o0,
                          const float (*tile)[TILE + 1])
{
    enum { CHUNK = cuda_operand<P>::CHUNK };
    const cuda_packing packing = cuda_packing_of(
        p.packed[direction], p.K, p.c_in, p.c_out, direction == 1, p.tiled[direction]);
    const cuda_pack_order<P> to = {packing};
    const int inner0 = direction ? o0 : i0, n0 = direction ? i0 : o0;
    const int place = direction && p.is_mirrored ? p.K - 1 - k : k;

    if (!p.packed[direction])
        return;
    for (int c = (int)threadIdx.x; c < TILE * TILE / CHUNK; c += TILE_THREADS) {
        const int n = c / 2 % TILE, inner = (c / (2 * TILE) * 2 + c % 2) * CHUNK;
        float w[CHUNK];

        if (n0 + n >= packing.width || inner0 + inner >= packing.depth)
            continue;
        for (int e = 0; e < CHUNK; e++)
            w[e] = direction ? tile[n][inner + e] : tile[inner + e][n];
        to.put(to.number({place, inner0 + inner}), n0 + n, w);
    }
}

/* Updates tile `t` of a convolution. Thread t has output channel t % TILE and adjacent
 * input channels. */
template <sp_precision P, class F>
__device__ void update_tile(const F &f, const update_part &p, int t)
{
    SP_SHARED(float, tile, [TILE][TILE + 1]);
    const int across = tiles_of(p.c_out), down = tiles_of(p.c_in);
    const int o0 = t % across * TILE, i0 = t / across % down * TILE;
    const int k = t / across / down, column = (int)threadIdx.x % TILE;
    const int row = (int)threadIdx.x / TILE * EACH;
    int64_t at[EACH];
    float w[EACH];

#pragma unroll
    for (int e = 0; e < EACH; e++)
        at[e] =
            i0 + row + e < p.c_in && o0 + column < p.c_out
                ? p.at + ((int64_t)k * p.c_in + i0 + row + e) * p.c_out + o0 + column
                : -1;
    update_some(f, at, w);
#pragma unroll
    for (int e = 0; e < EACH; e++)
        tile[row + e][column] = w[e];
    __syncthreads();
    pack_tile<P>(p, 0, k, i0, o0, tile);
    pack_tile<P>(p, 1, k, i0, o0, tile);
}

template <sp_precision P, class F>
__global__ void __launch_bounds__(TILE_THREADS) update_kernel(F f, update_parts l)
{
    int i = 0;

    while (l.first[i + 1] <= blockIdx.x)
        i++;
    const update_part &p = l.part[i];
    const int block = (int)(blockIdx.x - l.first[i]);
    const int n_tiles = p.K * tiles_of(p.c_in) * tiles_of(p.c_out);

    sp_grid_wait();
    if (block < n_tiles) {
        update_tile<P>(f, p, block);
        return;
    }
    const int64_t first = p.at + (int64_t)p.K * p.c_in * p.c_out +
                          (int64_t)(block - n_tiles) * TILE_THREADS * EACH;
    int64_t at[EACH];
    float w[EACH];

#pragma unroll
    for (int e = 0; e < EACH; e++) {
        at[e] = first + e * TILE_THREADS + threadIdx.x;
        at[e] = at[e] < p.end ? at[e] : -1;
    }
    update_some(f, at, w);
}

/* The first element from `from` on at which packed weights begin, or the end. */
int64_t next_packed(const sp_optim_args &a, int64_t from)
{
    int64_t next = a.n;

    for (int i = 0; i < a.packs.n; i++)
        if (a.packs.at[i].w - a.w >= from && a.packs.at[i].w - a.w < next)
            next = a.packs.at[i].w - a.w;
    return next;
}

/* The part that begins at element `at`. */
update_part part_at(const sp_backend *be, const sp_optim_args &a, int64_t at)
{
    update_part p = {};

    p.at = at;
    p.end = next_packed(a, at + 1);
    for (int i = 0; i < a.packs.n; i++) {
        const sp_pack_args &pack = a.packs.at[i];

        if (pack.w != a.w + at)
            continue;
        p.K = pack.K;
        p.c_in = pack.c_in;
        p.c_out = pack.c_out;
        p.is_mirrored = p.is_mirrored || pack.is_mirrored;
        p.packed[pack.is_grad_input] = (char *)pack.packed;
        p.tiled[pack.is_grad_input] = (uint8_t)cuda_packs_tiles(be, pack);
    }
    assert((int64_t)p.K * p.c_in * p.c_out <= p.end - at);
    return p;
}

unsigned blocks_of(const update_part &p)
{
    const int64_t rest = p.end - p.at - (int64_t)p.K * p.c_in * p.c_out;
    const int64_t each = TILE_THREADS * EACH;

    return (unsigned)p.K * (unsigned)(tiles_of(p.c_in) * tiles_of(p.c_out)) +
           (unsigned)((rest + each - 1) / each);
}

template <class F> sp_status launch_update(sp_backend *be, F f, const update_parts &l)
{
    const dim3 blocks(l.first[l.n]);
    cudaStream_t stream = cuda_of(be)->compute;

    if (be->precision == SP_BF16)
        return CUDA_LAUNCH((update_kernel<SP_BF16, F>), blocks, TILE_THREADS, stream, f,
                           l);
    if (be->precision == SP_TF32)
        return CUDA_LAUNCH((update_kernel<SP_TF32, F>), blocks, TILE_THREADS, stream, f,
                           l);
    return CUDA_LAUNCH((update_kernel<SP_FP32, F>), blocks, TILE_THREADS, stream, f, l);
}

template <class F> sp_status cuda_optim_update(sp_backend *be, F f)
{
    for (int64_t at = 0; at < f.a.n;) {
        update_parts l = {};

        for (; l.n < update_parts::MOST && at < f.a.n; l.n++) {
            l.part[l.n] = part_at(be, f.a, at);
            l.first[l.n + 1] = l.first[l.n] + blocks_of(l.part[l.n]);
            at = l.part[l.n].end;
        }
        SP_TRY(launch_update(be, f, l));
    }
    return SP_OK;
}

/* The sum of the threads' numbers, by the same tree in every block; valid in thread 0.
 */
__device__ double block_sum(double mine)
{
    SP_SHARED(double, sum, [THREADS]);

    sum[threadIdx.x] = mine;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sum[threadIdx.x] += sum[threadIdx.x + half];
    }
    return threadIdx.x == 0 ? sum[0] : 0;
}

/* The last block adds the parts of all. */
__global__ void __launch_bounds__(THREADS)
    squares_kernel(const float *g, int64_t n, double *part, unsigned *count,
                   double *out)
{
    sp_grid_wait();
    const int64_t begin = (int64_t)blockIdx.x * PER_BLOCK;
    const int64_t end = min(begin + PER_BLOCK, n);
    double sum = 0;

    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        sum += (double)g[i] * g[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
    if (!cuda_is_last(count, gridDim.x))
        return;
    sum = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += THREADS)
        sum += part[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *out = sum;
}

} // namespace

sp_status sp_cuda_sgd(sp_backend *be, const sp_optim_args *args)
{
    assert(sp_update_is_sound(args));
    return cuda_optim_update(be, sgd{*args, args->t > 0 ? 1 - args->dampening : 1});
}

sp_status sp_cuda_adamw(sp_backend *be, const sp_optim_args *args)
{
    const double t = (double)(args->t + 1);

    assert(sp_update_is_sound(args) && args->m && args->v);
    return cuda_optim_update(
        be, adamw{*args, 1 - pow(args->beta1, t), 1 - pow(args->beta2, t)});
}

sp_status sp_cuda_sum_squares(sp_backend *be, const float *g, int64_t n, double *sum)
{
    sp_cuda *cuda = cuda_of(be);
    const int64_t n_blocks = n ? (n + PER_BLOCK - 1) / PER_BLOCK : 1;
    double *part;

    assert(n >= 0 && (g || n == 0) && sum);
    sp_arena_reset(&cuda->scratch);
    SP_TRY(SP_ALLOC(&cuda->scratch, n_blocks, &part));
    return CUDA_LAUNCH(squares_kernel, dim3((unsigned)n_blocks), dim3(THREADS),
                       cuda->compute, g, n, part, cuda->counts + CUDA_COUNT_SQUARES,
                       sum);
}

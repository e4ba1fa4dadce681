/* Inside of the device's plan: what cuda_plan.cu (input, pyramid), cuda_plan_maps.cu
 * (neighbours) and cuda_plan_lists.cu (order of the tiles, pairs) share.
 *
 * Every kernel is one thread a row, or one block a chunk of rows; none has atomics, so
 * a plan is a function of its coordinates. Row numbers come from scans alone.
 *
 * All calls go to the plan stream, so that scratch can be given back while kernels that
 * use it are still under way: whoever gets these bytes next comes behind them.
 *
 * Arena, in the end:  | levels with their children | maps |
 */
#ifndef CUDA_PLAN_CUH
#define CUDA_PLAN_CUH

#include "cuda/plan/cuda_map.h"
#include "cuda/device/cuda_util.cuh"

enum { PLAN_THREADS = 256, PLAN_CHUNK = PLAN_THREADS };

/* The voxels of the next finer level within one voxel: consecutive rows. */
typedef struct plan_child {
    int32_t first;
    uint32_t mask; /* bit key & 7 */
} plan_child;

typedef struct plan_level {
    int32_t n;
    uint64_t *key;       /* [n] Morton key relative to the sample's base */
    int32_t *parent;     /* [n] NULL on the last level */
    plan_child *child;   /* [n] NULL on level 0 */
    int32_t *sample_row; /* [n_samples + 1] */
    int32_t *chunk; /* [n_samples + 1] chunks of PLAN_CHUNK rows before each sample */
    int32_t *sample_row_host, *chunk_host;
} plan_level;

typedef struct plan_builder {
    sp_backend *be;
    cudaStream_t stream;
    const sp_plan_spec *spec;
    sp_arena *arena, *host;
    sp_plan *plan;
    int n_samples;
    plan_level level[SP_MAX_LEVELS];
    const cuda_map *cube[SP_MAX_LEVELS]; /* the 3^3 map of each level, once built */
} plan_builder;

/* ---- calls on the plan stream ---- */

sp_status plan_upload(plan_builder *b, void *to, const void *from_host, size_t bytes);
/* Complete when it returns. */
sp_status plan_download(plan_builder *b, void *to_host, const void *from, size_t bytes);
/* Values from [n] in the order of bits 0 .. bits - 1 of key [n], to `to` [n].
 * Stable. */
sp_status plan_sort(plan_builder *b, const uint64_t *key, const int32_t *from,
                    int32_t *to, int32_t n, int bits);

static inline unsigned plan_blocks(int64_t n)
{
    return (unsigned)((n + PLAN_THREADS - 1) / PLAN_THREADS);
}

/* 4 blocks: without the number nvcc holds to 32 registers, for which write_masks spills.
 */
template <class F>
__global__ void __launch_bounds__(PLAN_THREADS, 4) plan_each_kernel(F f, int64_t n)
{
    sp_grid_wait();
    const int64_t i = (int64_t)blockIdx.x * PLAN_THREADS + threadIdx.x;

    if (i < n)
        f(i);
}

/* f(i) for every i below n. */
template <class F> sp_status plan_each(plan_builder *b, F f, int64_t n)
{
    if (n == 0)
        return SP_OK;
    SP_LAUNCH((plan_each_kernel<F>), plan_blocks(n), PLAN_THREADS, b->stream, f, n);
    return cuda_launched("plan_each_kernel");
}

/* ---- scan ---- */

/* Exclusive sum of one number a thread; *total: of the block. */
__device__ static inline int32_t plan_block_sum(int32_t v, int32_t *total)
{
    SP_SHARED(int32_t, warp_sum, [PLAN_THREADS / 32]);
    const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    int32_t sum = v, before = 0;

    for (int by = 1; by < 32; by *= 2) {
        const int32_t other = __shfl_up_sync(0xffffffffu, sum, by);
        if (lane >= by)
            sum += other;
    }
    if (lane == 31)
        warp_sum[warp] = sum;
    __syncthreads();
    *total = 0;
    for (int w = 0; w < PLAN_THREADS / 32; w++) {
        if (w < warp)
            before += warp_sum[w];
        *total += warp_sum[w];
    }
    __syncthreads();
    return before + sum - v;
}

enum { PLAN_SCAN = 8 * PLAN_THREADS }; /* numbers of a block */

template <class F>
__global__ void __launch_bounds__(PLAN_THREADS)
    plan_sums_kernel(F f, int64_t n, int32_t *sums)
{
    sp_grid_wait();
    const int64_t begin = (int64_t)blockIdx.x * PLAN_SCAN;
    const int64_t end = min(begin + PLAN_SCAN, n);
    int32_t sum = 0, total;

    for (int64_t i = begin + threadIdx.x; i < end; i += PLAN_THREADS)
        sum += f.count(i);
    plan_block_sum(sum, &total);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = total;
}

template <class F>
__global__ void __launch_bounds__(PLAN_THREADS)
    plan_put_kernel(F f, int64_t n, const int32_t *sums)
{
    sp_grid_wait();
    const int64_t begin = (int64_t)blockIdx.x * PLAN_SCAN;
    int32_t before = sums[blockIdx.x], total;

    for (int64_t at = begin; at < begin + PLAN_SCAN; at += PLAN_THREADS) {
        const int64_t i = at + threadIdx.x;
        const int32_t v = i < n ? f.count(i) : 0;
        const int32_t sum = plan_block_sum(v, &total);
        if (i < n)
            f.put(i, (int32_t)((uint32_t)before + (uint32_t)sum));
        before = (int32_t)((uint32_t)before + (uint32_t)total);
    }
}

/* Exclusive sum of `sums` in place, its end to *total; both stop at INT32_MAX
 * (cuda_plan.cu). */
sp_status plan_scan_sums(plan_builder *b, int32_t *sums, int n, int32_t *total);

/* f.put(i, f.count(0) + .. + f.count(i - 1)) for every i below n, the sum of all to
 * *total (device). INT32_MAX there: the sum does not fit, and what was put is void. */
template <class F> sp_status plan_scan(plan_builder *b, F f, int64_t n, int32_t *total)
{
    const int n_blocks = (int)((n + PLAN_SCAN - 1) / PLAN_SCAN);
    const size_t mark = b->arena->used;
    int32_t *sums;

    SP_TRY(SP_TAKE(b->arena, n_blocks, &sums));
    if (n_blocks) {
        SP_LAUNCH((plan_sums_kernel<F>), (unsigned)n_blocks, PLAN_THREADS, b->stream, f,
                  n, sums);
        SP_TRY(cuda_launched("plan_sums_kernel"));
    }
    SP_TRY(plan_scan_sums(b, sums, n_blocks, total));
    if (n_blocks) {
        SP_LAUNCH((plan_put_kernel<F>), (unsigned)n_blocks, PLAN_THREADS, b->stream, f,
                  n, sums);
        SP_TRY(cuda_launched("plan_put_kernel"));
    }
    sp_arena_rewind(b->arena, mark);
    return SP_OK;
}

/* ---- keys and samples ---- */

/* The low 21 bits of v, two zeros between each. */
__device__ static inline uint64_t plan_spread(uint32_t v)
{
    uint64_t x = v & 0x1fffff;

    x = (x | x << 32) & 0x001f00000000ffff;
    x = (x | x << 16) & 0x001f0000ff0000ff;
    x = (x | x << 8) & 0x100f00f00f00f00f;
    x = (x | x << 4) & 0x10c30c30c30c30c3;
    return (x | x << 2) & 0x1249249249249249;
}

/* The inverse: every third bit of the key. */
__device__ static inline int plan_gather(uint64_t key)
{
    uint64_t x = key & 0x1249249249249249;

    x = (x | x >> 2) & 0x10c30c30c30c30c3;
    x = (x | x >> 4) & 0x100f00f00f00f00f;
    x = (x | x >> 8) & 0x001f0000ff0000ff;
    x = (x | x >> 16) & 0x001f00000000ffff;
    return (int)((x | x >> 32) & 0x1fffff);
}

/* The sample that holds row i, or chunk i: the last that does not begin behind it. */
__device__ static inline int plan_sample(const int32_t *begin, int n_samples, int64_t i)
{
    int low = 0, high = n_samples; /* begin[low] <= i < begin[high] */

    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (begin[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- maps ---- */

static inline int plan_bits(uint64_t v)
{
    int bits = 0;

    for (; v; v >>= 1)
        bits++;
    return bits;
}

/* Masks, neighbours, order and pairs of every map of the spec. */
sp_status plan_build_maps(plan_builder *b);
/* map->order: rows of each sample by the key of cuda_map.h. */
sp_status plan_order_rows(plan_builder *b, int kernel, const plan_level *out,
                          const cuda_map *map, int32_t *order);
/* position [n_chunks * K + 1]: where the pairs of each sample, offset and chunk begin,
 * from the masks alone; start [n_samples * K + 1]. */
sp_status plan_count_pairs(plan_builder *b, const plan_level *out, const cuda_map *map,
                           int32_t *position, int32_t *start);
sp_status plan_write_pairs(plan_builder *b, const plan_level *out, const cuda_map *map,
                           const int32_t *position, int32_t *pair_in,
                           int32_t *pair_out);

#endif

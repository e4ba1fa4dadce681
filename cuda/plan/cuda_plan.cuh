/* Plans built on the device: the interface between the files of this room.
 *
 *     coordinates, sample rows (host)
 *         |  cuda_plan.cu        level 0: Morton keys, sort; coarser: key >> 3, scan
 *         v
 *     cuda_plan_level: key, parent, child, sample_row
 *         |  cuda_plan_maps.cu   masks --> scan: first --> neighbours
 *         v
 *     mask, first, nbr of each kernel map
 *         |  cuda_plan_lists.cu  order of the tiles; pair lists, from the masks
 *         v
 *     cuda_map (cuda_map.h), read by conv, wgrad and pool; sp_plan.map[i].device
 *
 * Every kernel runs one thread for a row, or one block for a chunk of rows. None uses
 * atomics and row numbers come from scans, so a plan is a function of its coordinates.
 *
 * All calls are queued in the plan stream. Scratch memory is therefore given back while
 * kernels that use it are still running: whatever uses these bytes next runs behind
 * them.
 *
 * Content of the complete plan's arena:  | levels with their children | maps |
 */
#ifndef CUDA_PLAN_CUH
#define CUDA_PLAN_CUH

#include "cuda/device/cuda_util.cuh"
#include "cuda/plan/cuda_map.h"

enum { PLAN_THREADS = 256, PLAN_CHUNK = PLAN_THREADS };

/* The children of a voxel, that is the voxels of the next finer level within it, are
 * consecutive rows. */
typedef struct cuda_plan_child {
    int32_t first;
    uint32_t mask; /* bit (key & 7) of each child that exists */
} cuda_plan_child;

/* A level of the pyramid: device arrays in the plan's arena, and host copies. */
typedef struct cuda_plan_level {
    int32_t n;              /* rows */
    uint64_t *key;          /* [n] Morton key relative to the sample's base */
    int32_t *parent;        /* [n] NULL on the last level */
    cuda_plan_child *child; /* [n] NULL on level 0 */
    int32_t *sample_row;    /* [n_samples + 1] first row of each sample */
    int32_t *chunk; /* [n_samples + 1] number of chunks of PLAN_CHUNK rows before each
                     * sample */
    int32_t *sample_row_host, *chunk_host;
} cuda_plan_level;

/* A plan under construction. Scratch is taken from `arena` above the content that
 * stays, and given back by sp_arena_rewind. */
typedef struct cuda_plan_builder {
    sp_backend *be;
    cudaStream_t stream;
    const sp_plan_spec *spec;
    sp_arena *arena, *host; /* the batch's device arena and its host memory */
    sp_plan *plan;
    int n_samples;
    cuda_plan_level level[SP_MAX_LEVELS];
    const cuda_map *cube[SP_MAX_LEVELS]; /* the 3^3 map of each level, once built */
} cuda_plan_builder;

/* ---- calls in the plan stream ---- */

/* Called after each launch: counts it, and returns a refused launch's error. */
static inline sp_status plan_launched(cuda_plan_builder *b, const char *kernel)
{
    b->plan->n_operations++;
    return cuda_launched(kernel);
}

/* Queues the copy. from_host must stay until the stream has done it. */
sp_status plan_upload(cuda_plan_builder *b, void *to, const void *from_host,
                      size_t bytes);
/* Waits: the copy is complete when the call returns. */
sp_status plan_download(cuda_plan_builder *b, void *to_host, const void *from,
                        size_t bytes);
/* Writes the values from[n] to to[n] in the order of bits 0 .. bits - 1 of key[n]. The
 * sort is stable. */
sp_status plan_sort(cuda_plan_builder *b, const uint64_t *key, const int32_t *from,
                    int32_t *to, int32_t n, int bits);

static inline unsigned plan_blocks(int64_t n)
{
    return (unsigned)((n + PLAN_THREADS - 1) / PLAN_THREADS);
}

/* The bound of 4 blocks lets nvcc use more than 32 registers; without it write_masks
 * spills (counted in the machine code). */
template <class F>
__global__ void __launch_bounds__(PLAN_THREADS, 4) plan_each_kernel(F f, int64_t n)
{
    sp_grid_wait();
    const int64_t i = (int64_t)blockIdx.x * PLAN_THREADS + threadIdx.x;

    if (i < n)
        f(i);
}

/* Calls f(i) for every i below n. */
template <class F> sp_status plan_each(cuda_plan_builder *b, F f, int64_t n)
{
    if (n == 0)
        return SP_OK;
    SP_LAUNCH((plan_each_kernel<F>), plan_blocks(n), PLAN_THREADS, b->stream, f, n);
    return plan_launched(b, "plan_each_kernel");
}

/* ---- scan ---- */

/* Returns the exclusive sum over the block of one number a thread; *total becomes the
 * sum of all. */
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

enum { PLAN_SCAN = 8 * PLAN_THREADS }; /* numbers that a block scans */

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

/* Replaces sums[n] by its exclusive sum and writes the sum of all to *total (device).
 * Both saturate at INT32_MAX (cuda_plan.cu). */
sp_status plan_scan_sums(cuda_plan_builder *b, int32_t *sums, int n, int32_t *total);

/* Calls f.put(i, f.count(0) + .. + f.count(i - 1)) for every i below n and writes the
 * sum of all counts to *total (device). INT32_MAX there means that the sum does not
 * fit, and the values that were put are void. */
template <class F>
sp_status plan_scan(cuda_plan_builder *b, F f, int64_t n, int32_t *total)
{
    const int n_blocks = (int)((n + PLAN_SCAN - 1) / PLAN_SCAN);
    const size_t mark = b->arena->used;
    int32_t *sums;

    SP_TRY(SP_TAKE(b->arena, n_blocks, &sums));
    if (n_blocks) {
        SP_LAUNCH((plan_sums_kernel<F>), (unsigned)n_blocks, PLAN_THREADS, b->stream, f,
                  n, sums);
        SP_TRY(plan_launched(b, "plan_sums_kernel"));
    }
    SP_TRY(plan_scan_sums(b, sums, n_blocks, total));
    if (n_blocks) {
        SP_LAUNCH((plan_put_kernel<F>), (unsigned)n_blocks, PLAN_THREADS, b->stream, f,
                  n, sums);
        SP_TRY(plan_launched(b, "plan_put_kernel"));
    }
    sp_arena_rewind(b->arena, mark);
    return SP_OK;
}

/* ---- keys and samples ---- */

/* The low 21 bits of v with two zeros between each. */
__device__ static inline uint64_t plan_spread(uint32_t v)
{
    uint64_t x = v & 0x1fffff;

    x = (x | x << 32) & 0x001f00000000ffff;
    x = (x | x << 16) & 0x001f0000ff0000ff;
    x = (x | x << 8) & 0x100f00f00f00f00f;
    x = (x | x << 4) & 0x10c30c30c30c30c3;
    return (x | x << 2) & 0x1249249249249249;
}

/* The inverse of plan_spread: every third bit of the key. */
__device__ static inline int plan_gather(uint64_t key)
{
    uint64_t x = key & 0x1249249249249249;

    x = (x | x >> 2) & 0x10c30c30c30c30c3;
    x = (x | x >> 4) & 0x100f00f00f00f00f;
    x = (x | x >> 8) & 0x001f0000ff0000ff;
    x = (x | x >> 16) & 0x001f00000000ffff;
    return (int)((x | x >> 32) & 0x1fffff);
}

/* The sample that holds row i (or chunk i): the last one that does not begin behind it.
 */
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

/* Builds masks, neighbours, order and pairs of every map of the spec. */
sp_status plan_build_maps(cuda_plan_builder *b);
/* Writes map->order: the output rows in the order of the tiles (cuda_map.h). */
sp_status plan_order_rows(cuda_plan_builder *b, int kernel, const cuda_plan_level *out,
                          const cuda_map *map, int32_t *order);
/* Counts pairs, from the masks alone. Writes position [n_chunks * K + 1], the first
 * pair of each sample, offset and chunk, and start [n_samples * K + 1], the first pair
 * of each sample and offset. */
sp_status plan_count_pairs(cuda_plan_builder *b, const cuda_plan_level *out,
                           const cuda_map *map, int32_t *position, int32_t *start);
/* Writes the pair lists to the positions that plan_count_pairs has found. */
sp_status plan_write_pairs(cuda_plan_builder *b, const cuda_plan_level *out,
                           const cuda_map *map, const int32_t *position,
                           int32_t *pair_in, int32_t *pair_out);

#endif

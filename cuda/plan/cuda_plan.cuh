/* Plans built on the device: the interface between the files of this folder.
 *
 *     coordinates, sample rows (host)
 *         |  cuda_plan.cu         Morton keys of level 0, sorted with the sample above
 *         v
 *     keys of level 0
 *         |  cuda_plan_levels.cu  all coarser levels from one scan of these keys
 *         v                       (wait: rows of each level)
 *     plan_levels: key, parent, child, sample_row
 *         |  cuda_plan_maps.cu    masks of all maps --> first --> neighbours
 *         v                       (waits: pairs of the top map; pairs of all others)
 *     mask, first, nbr of each kernel map
 *         |  cuda_plan_lists.cu   order of the tiles; pair lists, from the masks
 *         v
 *     cuda_map (cuda_map.h), read by conv, wgrad and pool; sp_plan.map[i].device
 *
 * Operations and waits. Each kernel, copy or fill costs the device some microseconds
 * however little it does, and each wait costs the host a round trip. Every stage is
 * therefore one launch over all levels or all maps, sizes are read back three times,
 * and sp_plan counts the queued operations. Counted for MinkUNet with its 13 maps: 77
 * operations (44 in the library's sorts) and 3 waits; with a stem of 5^3, 94 and 3. A
 * test holds these numbers.
 *
 * Every kernel runs one thread for a row, or one block for a chunk of rows. No kernel
 * uses atomics and row numbers come from scans, so a plan is a function of its
 * coordinates.
 *
 * All calls are queued in the plan stream. Scratch memory is therefore given back while
 * kernels that use it are still running: the next user of these bytes runs after them.
 * The levels and maps that a kernel needs are arguments of its launch.
 *
 * An estimate of the memory (sp_cuda_plan_bytes) runs the builder from estimated numbers
 * on arenas that only count: nothing is queued, uploaded or read.
 *
 * Content of the complete plan's arena:
 *     | keys of level 0 | tables of samples | levels, children | rows of maps | pairs |
 */
#ifndef CUDA_PLAN_CUH
#define CUDA_PLAN_CUH

#include "cuda/device/cuda_util.cuh"
#include "cuda/plan/cuda_map.h"

enum {
    PLAN_THREADS = 256,
    PLAN_WARPS = PLAN_THREADS / 32,
    PLAN_CHUNK = PLAN_THREADS,
    PLAN_SCAN = 8 * PLAN_THREADS, /* numbers that a block scans */
    PLAN_GROUP = 24               /* most maps of one launch */
};

/* The children of a voxel, that is the voxels of the next finer level within it, are
 * consecutive rows. */
typedef struct plan_child {
    int32_t first;
    uint32_t mask; /* bit (key & 7) of each child that exists */
} plan_child;

/* The levels of the pyramid as kernels see them: device arrays in the plan's arena. */
typedef struct plan_levels {
    int n_levels, n_samples;
    int32_t n[SP_MAX_LEVELS];         /* rows */
    uint64_t *key[SP_MAX_LEVELS];     /* [n] Morton key relative to the sample's base */
    int32_t *parent[SP_MAX_LEVELS];   /* [n] NULL on the last level */
    plan_child *child[SP_MAX_LEVELS]; /* [n] NULL on level 0 */
    const int32_t *sample_row, *chunk; /* [n_levels][n_samples + 1] first row of each
                                        * sample; number of chunks of PLAN_CHUNK rows
                                        * before each sample */
} plan_levels;

/* The part of a table [n_levels][n_samples + 1] that belongs to one level. */
template <class T>
__host__ __device__ T *plan_of_level(T *table, int n_samples, int level)
{
    return table + (size_t)level * ((size_t)n_samples + 1);
}

/* A kernel map while it is built, as kernels see it. Maps are in the order of the bits
 * of their keys (cuda_map_key_bits), so that rows of equally long keys are adjacent. */
typedef struct plan_map {
    uint8_t kernel, to, from; /* edge; levels of the output and of the input */
    int8_t sign;              /* -1 if the map is swapped, else 1 */
    int8_t down, up; /* an output's coordinate is p >> down, a partner's p >> up */
    /* Levels from `to` up to the top map's, and from there down to `from`; rise is -1
     * if partners are searched. */
    int8_t rise, fall;
    bool is_top;
    int at; /* index in the spec */
    int32_t K, n_words, n_out, n_chunks;
    int32_t segment; /* number of the first window, counted over all maps */
    int64_t row_at;  /* output rows of the maps before this one */
    int64_t tile_at; /* whole units of the maps before this one */
    uint32_t *mask;
    int32_t *first, *order;
    int32_t *position; /* [n_chunks * K + 1] first pair of each sample, offset, chunk */
    int32_t *start;    /* [n_samples * K + 1] first pair of each sample and offset */
    int32_t *nbr, *pair_in, *pair_out;
} plan_map;

/* A plan under construction. Scratch is taken from `arena` above the content that
 * stays, and given back by sp_arena_rewind. */
typedef struct cuda_plan_builder {
    cudaStream_t stream;
    const sp_plan_spec *spec;
    sp_arena *arena, *host; /* the batch's device arena and its host memory */
    sp_plan *plan;
    const sp_plan_counts *counts; /* of an estimate; else NULL */
    int n_samples;
    plan_levels levels;
    int32_t *sample_row_host, *chunk_host; /* host copies of the members of `levels` */
    plan_map map[SP_MAX_MAPS];             /* [spec->n_maps] */
} cuda_plan_builder;

/* ---- calls in the plan stream ---- */

/* CUDA_LAUNCH in the plan's stream, counted. */
#define PLAN_LAUNCH(b, kernel, grid, block, ...)                                       \
    ((b)->counts ? SP_OK                                                               \
                 : ((b)->plan->n_operations++,                                         \
                    CUDA_LAUNCH(kernel, grid, block, (b)->stream, __VA_ARGS__)))

/* Queues the copy. from_host must be kept until the stream has done it. */
sp_status plan_upload(cuda_plan_builder *b, void *to, const void *from_host,
                      size_t bytes);
/* Waits: the copy is complete when the call returns. */
sp_status plan_download(cuda_plan_builder *b, void *to_host, const void *from,
                        size_t bytes);
/* Writes the values from[n] to to[n] in the order of bits 0 .. bits - 1 of key[n]. The
 * sort is stable. */
sp_status plan_sort(cuda_plan_builder *b, const uint64_t *key, const int32_t *from,
                    int32_t *to, int64_t n, int bits);

static inline unsigned plan_blocks(int64_t n)
{
    return (unsigned)((n + PLAN_THREADS - 1) / PLAN_THREADS);
}

/* The item of this thread, where block `block` of a map handles PLAN_THREADS items. */
__device__ static inline int64_t plan_item(unsigned block)
{
    return (int64_t)block * PLAN_THREADS + threadIdx.x;
}

template <class F>
__global__ void __launch_bounds__(PLAN_THREADS) plan_each_kernel(F f, int64_t n)
{
    sp_grid_wait();
    const int64_t i = plan_item(blockIdx.x);

    if (i < n)
        f(i);
}

/* Calls f(i) for every i below n. */
template <class F> sp_status plan_each(cuda_plan_builder *b, F f, int64_t n)
{
    if (n == 0)
        return SP_OK;
    return PLAN_LAUNCH(b, (plan_each_kernel<F>), plan_blocks(n), PLAN_THREADS, f, n);
}

/* ---- launches over maps ---- */

/* The maps of one launch, an argument of it. Blocks first[i] .. first[i + 1] - 1 work
 * on map i. */
typedef struct plan_group {
    int n;
    uint32_t first[PLAN_GROUP + 1];
    plan_map map[PLAN_GROUP];
} plan_group;

/* The parameters of a kernel take at most 4 KB on every device. */
static_assert(sizeof(plan_group) + sizeof(plan_levels) <= 4096 - 64,
              "too many maps for the parameters of a kernel");

__device__ static inline int plan_map_of_block(const plan_group &g)
{
    int m = 0;

    while (g.first[m + 1] <= blockIdx.x)
        m++;
    return m;
}

/* Puts the maps that f has, from number *next on, into a group, each with blocks(map)
 * blocks. Returns false if no map is left. */
template <class F, class N>
bool plan_next_group(const cuda_plan_builder *b, const F &f, N blocks, int *next,
                     plan_group *g)
{
    g->n = 0;
    g->first[0] = 0;
    for (; *next < b->spec->n_maps && g->n < PLAN_GROUP; ++*next) {
        const plan_map &m = b->map[*next];
        if (!f.has(m))
            continue;
        g->map[g->n] = m;
        g->first[g->n + 1] = g->first[g->n] + blocks(m);
        g->n++;
    }
    return g->n > 0;
}

/* The bound of 4 blocks lets nvcc use more than 32 registers; without it write_masks
 * spills (counted in the machine code). */
template <class F>
__global__ void __launch_bounds__(PLAN_THREADS, 4) plan_maps_kernel(F f, plan_group g)
{
    sp_grid_wait();
    const int m = plan_map_of_block(g);

    f(g.map[m], blockIdx.x - g.first[m]);
}

/* Calls f(map, block) in all threads of f.blocks(map) blocks, for the maps that f
 * has. */
template <class F> sp_status plan_each_map(cuda_plan_builder *b, const F &f)
{
    plan_group g;
    int next = 0;

    while (plan_next_group(
        b, f, [&](const plan_map &m) { return f.blocks(m); }, &next, &g)) {
        if (g.first[g.n] > 0)
            SP_TRY(PLAN_LAUNCH(b, (plan_maps_kernel<F>), g.first[g.n], PLAN_THREADS, f,
                               g));
    }
    return SP_OK;
}

/* ---- scans ---- */

/* Returns the exclusive sum over the block of one number a thread; *total becomes the
 * sum of all. */
__device__ static inline int32_t plan_block_sum(int32_t v, int32_t *total)
{
    SP_SHARED(int32_t, warp_sum, [PLAN_WARPS]);
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
    for (int w = 0; w < PLAN_WARPS; w++) {
        if (w < warp)
            before += warp_sum[w];
        *total += warp_sum[w];
    }
    __syncthreads();
    return before + sum - v;
}

/* Numbers that are scanned separately: segment i is sums[first[i]] .. sums[first[i + 1]
 * - 1], and the sum of all its numbers goes to *total[i] (device). */
typedef struct plan_segments {
    int n;
    uint32_t first[PLAN_GROUP + 1];
    int32_t *total[PLAN_GROUP];
} plan_segments;

/* Replaces the numbers of each segment by their exclusive sums. Sums and totals
 * saturate at INT32_MAX. */
sp_status plan_scan_segments(cuda_plan_builder *b, int32_t *sums,
                             const plan_segments &s);

template <class F>
__global__ void __launch_bounds__(PLAN_THREADS)
    plan_sums_kernel(F f, plan_group g, int32_t *sums)
{
    sp_grid_wait();
    const int m = plan_map_of_block(g);
    const int64_t begin = (int64_t)(blockIdx.x - g.first[m]) * PLAN_SCAN;
    const int64_t end = min(begin + PLAN_SCAN, f.items(g.map[m]));
    int32_t sum = 0, total;

    for (int64_t i = begin + threadIdx.x; i < end; i += PLAN_THREADS)
        sum += f.count(g.map[m], i);
    plan_block_sum(sum, &total);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = total;
}

template <class F>
__global__ void __launch_bounds__(PLAN_THREADS)
    plan_put_kernel(F f, plan_group g, const int32_t *sums)
{
    sp_grid_wait();
    const int m = plan_map_of_block(g);
    const int64_t begin = (int64_t)(blockIdx.x - g.first[m]) * PLAN_SCAN;
    const int64_t n = f.items(g.map[m]);
    int32_t before = sums[blockIdx.x], total;

    for (int64_t at = begin; at < begin + PLAN_SCAN; at += PLAN_THREADS) {
        const int64_t i = at + threadIdx.x;
        const int32_t v = i < n ? f.count(g.map[m], i) : 0;
        const int32_t sum = plan_block_sum(v, &total);
        if (i < n)
            f.put(g.map[m], i, (int32_t)((uint32_t)before + (uint32_t)sum));
        before = (int32_t)((uint32_t)before + (uint32_t)total);
    }
}

template <class F>
sp_status plan_scan_group(cuda_plan_builder *b, const F &f, const plan_group &g)
{
    const size_t mark = b->arena->used;
    const unsigned n_blocks = g.first[g.n];
    plan_segments s;
    int32_t *sums;

    s.n = g.n;
    for (int i = 0; i < g.n; i++)
        s.total[i] = f.total(g.map[i]);
    for (int i = 0; i <= g.n; i++)
        s.first[i] = g.first[i];
    SP_TRY(SP_ALLOC(b->arena, n_blocks, &sums));
    if (n_blocks)
        SP_TRY(
            PLAN_LAUNCH(b, (plan_sums_kernel<F>), n_blocks, PLAN_THREADS, f, g, sums));
    SP_TRY(plan_scan_segments(b, sums, s));
    if (n_blocks)
        SP_TRY(
            PLAN_LAUNCH(b, (plan_put_kernel<F>), n_blocks, PLAN_THREADS, f, g, sums));
    sp_arena_rewind(b->arena, mark);
    return SP_OK;
}

/* Scans the counts of each map that f has: calls f.put(map, i, f.count(map, 0) + .. +
 * f.count(map, i - 1)) for every i below f.items(map) and writes the sum of all counts
 * to *f.total(map) (device). INT32_MAX there means that the sum does not fit, and the
 * values that were put are void. */
template <class F> sp_status plan_scan_maps(cuda_plan_builder *b, const F &f)
{
    plan_group g;
    int next = 0;

    while (plan_next_group(
        b, f,
        [&](const plan_map &m) {
            return (uint32_t)((f.items(m) + PLAN_SCAN - 1) / PLAN_SCAN);
        },
        &next, &g))
        SP_TRY(plan_scan_group(b, f, g));
    return SP_OK;
}

/* ---- samples ---- */

/* The sample that holds row i (or chunk i): the last one that does not begin after it.
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

static inline int plan_bits(uint64_t v)
{
    int bits = 0;

    for (; v; v >>= 1)
        bits++;
    return bits;
}

/* ---- levels ---- */

/* The number of sums that count_heads_kernel writes: one for each level and PLAN_SCAN
 * rows. */
static inline size_t plan_level_sums(int n_levels, int32_t n)
{
    return (size_t)n_levels * (((size_t)n + PLAN_SCAN - 1) / PLAN_SCAN);
}

/* Finds the rows of every level, from the keys of level 0, levels.key[0]. Waits.
 *   rows  [n_samples + 1] device: first row of each sample on level 0
 *   sums  [plan_level_sums] device: what plan_fill_levels needs
 *   found [n_levels][n_samples + 1] device: becomes the first row of each sample on
 *         each level. The order of the rows follows it: it and `found` are copied to
 *         found_host by one copy.
 * The last number of level 0 counts its different voxels. */
sp_status plan_count_levels(cuda_plan_builder *b, const int32_t *rows, int32_t *sums,
                            int32_t *found, int32_t *found_host);
/* Builds all levels of a plan that has dilated ones on the host and uploads
 * them. SP_EDATA as sp_cpu_plan_build. */
sp_status plan_upload_host_levels(cuda_plan_builder *b, const int32_t *coords,
                                  const int32_t *sample_row);
/* Allocates the tables of samples and all levels above 0, of levels.n rows. */
sp_status plan_alloc_levels(cuda_plan_builder *b);
/* Builds all levels. n, key[0] and the host's tables are there. */
sp_status plan_fill_levels(cuda_plan_builder *b, const int32_t *sums);

/* ---- maps ---- */

/* Builds masks, neighbours, order and pairs of every map of the spec. */
sp_status plan_build_maps(cuda_plan_builder *b);
/* Writes the order of every map: its output rows in the order of the tiles
 * (cuda_map.h). */
sp_status plan_order_rows(cuda_plan_builder *b);
/* Counts the pairs of every map, only from the masks, into `position` and `start`. */
sp_status plan_count_pairs(cuda_plan_builder *b);
/* Writes the pair lists to the positions that plan_count_pairs has found. */
sp_status plan_write_pairs(cuda_plan_builder *b);

#endif

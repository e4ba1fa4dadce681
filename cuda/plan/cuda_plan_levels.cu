/* The coordinate pyramid, all levels at once.
 *
 * The rows of level 0 are sorted, so the voxels of a coarser level are runs of them. A
 * row is a head of level l if it is the first row of its voxel there, that is if its
 * key >> 3 l differs from the preceding row's, or if its sample begins. A head of level
 * l is a head of all finer levels, so one number describes a row: its depth, the number
 * of levels that it is a head of.
 *
 *     key (octal)    00 01 02 07 10 11 25 | 00 ..      |: the next sample
 *     depth of 3      3  1  1  1  2  1  2   3
 *     rows of level 1 0           1     2   3
 *
 * The row of a voxel on level l is the number of heads of level l before it. Counts by
 * blocks of rows, and a scan of them for each level, give these numbers for all levels
 * together. The host reads them once and takes memory for the levels; one kernel writes
 * them.
 *
 * Bytes, counted: 8 n of level 0 read three times; 20 for each row of a coarser level.
 *
 * A plan with dilated levels has its levels from the host's builder: a level that a
 * kernel generates has to be sorted before the next one is known, and each such sort on
 * the device would be a wait. The levels are uploaded; the maps are built here from
 * them as from any others.
 */
#include <assert.h>
#include <string.h>

#include "cpu/cpu.h"
#include "cuda/plan/cuda_plan.cuh"

namespace
{

/* The rows of level 0, with a look at how many levels each is a head of. */
struct heads {
    const uint64_t *key;
    const int32_t *sample_row;
    int64_t n;
    int n_samples, n_levels;

    /* 0: the voxel of the row before; or there is no such row. */
    __device__ int depth(int64_t i) const
    {
        uint64_t changed;
        int levels = 0;

        if (i >= n)
            return 0;
        if (i == 0 || sample_row[plan_sample(sample_row, n_samples, i)] == i)
            return n_levels;
        for (changed = key[i] ^ key[i - 1]; changed && levels < n_levels; changed >>= 3)
            levels++;
        return levels;
    }
};

enum { WARP_ROWS = PLAN_SCAN / PLAN_WARPS };

/* Counts heads among rows begin .. end - 1 for a warp: lane l returns level l's. */
__device__ int32_t count_by_lane(const heads &h, int64_t begin, int64_t end)
{
    const int lane = (int)threadIdx.x % 32;
    int32_t mine = 0;

    for (int64_t at = begin; at < end; at += 32) {
        const int depth = at + lane < end ? h.depth(at + lane) : 0;
        for (int l = 0; l < h.n_levels; l++) {
            const uint32_t all = __ballot_sync(0xffffffffu, depth > l);
            if (lane == l)
                mine += __popc(all);
        }
    }
    return mine;
}

/* Writes count[warp][level] for the rows of this block. Ends with a barrier. */
__device__ void count_warps(const heads &h, int32_t (*count)[32])
{
    const int warp = (int)threadIdx.x / 32;
    const int64_t begin = (int64_t)blockIdx.x * PLAN_SCAN + warp * WARP_ROWS;

    count[warp][threadIdx.x % 32] = count_by_lane(h, begin, begin + WARP_ROWS);
    __syncthreads();
}

/* Writes sums[level][block]. */
__global__ void __launch_bounds__(PLAN_THREADS)
    count_heads_kernel(heads h, int32_t *sums)
{
    sp_grid_wait();
    SP_SHARED(int32_t, count, [PLAN_WARPS][32]);
    const int l = (int)threadIdx.x;
    int32_t sum = 0;

    count_warps(h, count);
    if (l >= h.n_levels)
        return;
    for (int warp = 0; warp < PLAN_WARPS; warp++)
        sum += count[warp][l];
    sums[(int64_t)l * gridDim.x + blockIdx.x] = sum;
}

/* One warp for each sample: the number of heads before its first row. The last number
 * of a level, the sum of all, is there already. Samples that begin after the last row
 * begin there. */
struct find_sample_rows {
    heads h;
    const int32_t *sums; /* [n_levels][n_blocks], scanned */
    int64_t n_blocks;
    int32_t *found; /* [n_levels][n_samples + 1] */

    __device__ void operator()(int64_t i) const
    {
        const int64_t row = h.sample_row[i / 32], block = row / PLAN_SCAN;
        const int lane = (int)(i % 32);
        const int32_t mine = count_by_lane(h, block * PLAN_SCAN, row);
        int32_t *level = plan_of_level(found, h.n_samples, lane);

        if (lane < h.n_levels)
            level[i / 32] =
                row < h.n ? sums[lane * n_blocks + block] + mine : level[h.n_samples];
    }
};

/* Writes keys and parents of all levels, and the first child of each voxel. While it
 * runs, lane l of a warp has the number of heads of level l before the warp's rows. */
__global__ void __launch_bounds__(PLAN_THREADS)
    write_levels_kernel(heads h, plan_levels p, const int32_t *sums)
{
    sp_grid_wait();
    SP_SHARED(int32_t, count, [PLAN_WARPS][32]);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t begin = (int64_t)blockIdx.x * PLAN_SCAN + warp * WARP_ROWS;
    const uint32_t lower = (1u << lane) - 1;
    int32_t ahead = 0;

    count_warps(h, count);
    if (lane < h.n_levels)
        ahead = sums[(int64_t)lane * gridDim.x + blockIdx.x];
    for (int w = 0; w < warp; w++)
        ahead += count[w][lane];
    for (int64_t i = begin + lane; i < begin + lane + WARP_ROWS; i += 32) {
        const int depth = h.depth(i);
        int32_t finer = 0; /* row of this voxel on level l - 1 */

        for (int l = 0; l < h.n_levels; l++) {
            const uint32_t all = __ballot_sync(0xffffffffu, depth > l);
            const int32_t row =
                __shfl_sync(0xffffffffu, ahead, l) + __popc(all & lower);
            if (l > 0 && depth >= l)
                p.parent[l - 1][finer] = depth > l ? row : row - 1;
            if (l > 0 && depth > l) {
                p.key[l][row] = h.key[i] >> 3 * l;
                p.child[l][row].first = finer;
            }
            if (lane == l)
                ahead += __popc(all);
            finer = row;
        }
    }
}

/* Blocks first[l] .. first[l + 1] - 1 work on level l. */
struct level_blocks {
    uint32_t first[SP_MAX_LEVELS + 1];
};

/* Writes which children each voxel has. */
__global__ void __launch_bounds__(PLAN_THREADS)
    mark_children_kernel(plan_levels p, level_blocks blocks)
{
    sp_grid_wait();
    int l = 1;

    while (blocks.first[l + 1] <= blockIdx.x)
        l++;
    const int64_t i = plan_item(blockIdx.x - blocks.first[l]);
    if (i >= p.n[l])
        return;
    plan_child *child = p.child[l];
    const int32_t end = i + 1 < p.n[l] ? child[i + 1].first : p.n[l - 1];
    uint32_t mask = 0;

    for (int32_t j = child[i].first; j < end; j++)
        mask |= 1u << (p.key[l - 1][j] & 7);
    child[i].mask = mask;
}

/* Uploads the children of level l. A voxel without children has the row where they
 * would be. */
sp_status upload_children(cuda_plan_builder *b, const sp_plan *host, int l)
{
    const sp_level *fine = &host->level[l - 1];
    const int32_t n = host->level[l].n;
    plan_child *child;
    int32_t row = 0;

    SP_TRY(SP_ALLOC(b->host, n, &child));
    for (int32_t i = 0; i < n; i++) {
        child[i] = {row, 0};
        for (; row < fine->n && fine->parent[row] == i; row++)
            child[i].mask |= 1u << (fine->key[row] & 7);
    }
    return plan_upload(b, b->levels.child[l], child, (size_t)n * sizeof *child);
}

heads heads_of(const cuda_plan_builder *b, const int32_t *rows)
{
    return {b->levels.key[0], rows, b->levels.n[0], b->n_samples, b->spec->n_levels};
}

unsigned scan_blocks(int64_t n)
{
    return (unsigned)((n + PLAN_SCAN - 1) / PLAN_SCAN);
}

/* Uploads first rows and chunks of the samples on all levels, by one copy. Blocks work
 * on chunks, so that no block has rows of two samples. */
sp_status upload_tables(cuda_plan_builder *b)
{
    const int n_levels = b->spec->n_levels;
    const size_t n = (size_t)n_levels * ((size_t)b->n_samples + 1);
    int32_t *host;

    SP_TRY(SP_ALLOC(b->host, 2 * n, &host));
    memcpy(host, b->sample_row_host, n * sizeof *host);
    b->chunk_host = host + n;
    for (int l = 0; l < n_levels; l++) {
        const int32_t *row = plan_of_level(host, b->n_samples, l);
        int32_t *chunk = plan_of_level(b->chunk_host, b->n_samples, l);

        chunk[0] = 0;
        for (int s = 0; s < b->n_samples; s++)
            chunk[s + 1] =
                chunk[s] + (row[s + 1] - row[s] + PLAN_CHUNK - 1) / PLAN_CHUNK;
    }
    return plan_upload(b, (void *)b->levels.sample_row, host, 2 * n * sizeof *host);
}

sp_status mark_children(cuda_plan_builder *b)
{
    const plan_levels *p = &b->levels;
    level_blocks blocks = {};

    for (int l = 1; l < p->n_levels; l++)
        blocks.first[l + 1] = blocks.first[l] + plan_blocks(p->n[l]);
    if (blocks.first[p->n_levels] == 0)
        return SP_OK;
    return PLAN_LAUNCH(b, mark_children_kernel, blocks.first[p->n_levels], PLAN_THREADS,
                       *p, blocks);
}

} // namespace

sp_status plan_alloc_levels(cuda_plan_builder *b)
{
    plan_levels *p = &b->levels;
    const size_t n = (size_t)p->n_levels * ((size_t)p->n_samples + 1);
    int32_t *table;

    SP_TRY(SP_ALLOC(b->arena, 2 * n, &table));
    p->sample_row = table;
    p->chunk = table + n;
    for (int l = 1; l < p->n_levels; l++) {
        SP_TRY(SP_ALLOC(b->arena, p->n[l - 1], &p->parent[l - 1]));
        SP_TRY(SP_ALLOC(b->arena, p->n[l], &p->key[l]));
        SP_TRY(SP_ALLOC(b->arena, p->n[l], &p->child[l]));
    }
    return SP_OK;
}

sp_status plan_upload_host_levels(cuda_plan_builder *b, const int32_t *coords,
                                  const int32_t *sample_row)
{
    const int n_levels = b->spec->n_levels, n_samples = b->n_samples;
    const size_t n_rows = (size_t)n_samples + 1;
    sp_plan_spec spec = *b->spec;
    sp_plan host;

    spec.n_maps = 0;
    SP_TRY(
        sp_cpu_plan_build(NULL, &spec, coords, sample_row, n_samples, b->host, &host));
    SP_TRY(SP_ALLOC(b->host, (size_t)n_levels * n_rows, &b->sample_row_host));
    b->plan->order = host.order;
    for (int l = 0; l < n_levels; l++) {
        b->levels.n[l] = host.level[l].n;
        memcpy(plan_of_level(b->sample_row_host, n_samples, l),
               host.level[l].sample_row, n_rows * sizeof *b->sample_row_host);
    }
    SP_TRY(plan_alloc_levels(b));
    SP_TRY(upload_tables(b));
    for (int l = 0; l < n_levels; l++) {
        const sp_level *level = &host.level[l];
        const size_t n = (size_t)level->n;

        SP_TRY(plan_upload(b, b->levels.key[l], level->key, n * sizeof *level->key));
        if (level->parent)
            SP_TRY(plan_upload(b, b->levels.parent[l], level->parent,
                               n * sizeof *level->parent));
        if (l > 0)
            SP_TRY(upload_children(b, &host, l));
    }
    return SP_OK;
}

sp_status plan_count_levels(cuda_plan_builder *b, const int32_t *rows, int32_t *sums,
                            int32_t *found, int32_t *found_host)
{
    const int n_levels = b->spec->n_levels, n_samples = b->n_samples;
    const size_t n_found = (size_t)n_levels * ((size_t)n_samples + 1);
    const heads h = heads_of(b, rows);
    const unsigned n_blocks = scan_blocks(h.n);
    plan_segments s;

    static_assert((int)SP_MAX_LEVELS <= (int)PLAN_GROUP && SP_MAX_LEVELS <= 32,
                  "levels are lanes and segments");
    s.n = n_levels;
    s.first[0] = 0;
    for (int l = 0; l < n_levels; l++) {
        s.first[l + 1] = s.first[l] + n_blocks;
        s.total[l] = plan_of_level(found, n_samples, l) + n_samples;
    }
    if (n_blocks)
        SP_TRY(PLAN_LAUNCH(b, count_heads_kernel, n_blocks, PLAN_THREADS, h, sums));
    SP_TRY(plan_scan_segments(b, sums, s));
    SP_TRY(plan_each(b, find_sample_rows{h, sums, n_blocks, found},
                     32 * (int64_t)n_samples));
    return plan_download(b, found_host, found, (n_found + (size_t)h.n) * sizeof *found);
}

sp_status plan_fill_levels(cuda_plan_builder *b, const int32_t *sums)
{
    const unsigned n_blocks = scan_blocks(b->levels.n[0]);

    SP_TRY(plan_alloc_levels(b));
    SP_TRY(upload_tables(b));
    if (n_blocks == 0 || b->levels.n_levels == 1)
        return SP_OK;
    SP_TRY(PLAN_LAUNCH(b, write_levels_kernel, n_blocks, PLAN_THREADS,
                       heads_of(b, b->levels.sample_row), b->levels, sums));
    return mark_children(b);
}

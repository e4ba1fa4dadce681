/* The order of the tiles and the pair lists of a map, both from its masks.
 *
 * The pairs of a sample and offset rise by output row. A block counts the pairs of a
 * chunk of rows, offset by offset. A scan of the counts in the sequence (sample,
 * offset, chunk) gives the position at which each block writes:
 *
 *     position   | sample 0: offset 0: chunk 0, 1, 2; offset 1: chunk 0 .. | sample 1 |
 *
 * Bytes, counted: order 48 n_out and the passes of the sort; pairs 8 n_words n_out + 12
 * m.
 */
#include <assert.h>

#include "cuda/plan/cuda_plan.cuh"

namespace
{

/* ---- order ---- */

/* The position of v in the Gray code: the i with v = i ^ i >> 1. */
__device__ uint32_t gray_place(uint32_t v)
{
    for (int by = 1; by < 32; by *= 2)
        v ^= v >> by;
    return v;
}

struct make_order_words {
    const uint32_t *mask;
    int64_t n;
    const int32_t *sample_row;
    int n_samples, kernel, key_bits;
    uint64_t *word;
    int32_t *row;

    /* The mask of the inner 3^3, x fastest. */
    __device__ uint32_t inner(int64_t o) const
    {
        const int lo = (kernel - 3) / 2;
        uint32_t m = 0;

        if (kernel == 3)
            return mask[o];
#pragma unroll 3
        for (int i = 0; i < 27; i++) {
            const int x = lo + i % 3, y = lo + i / 3 % 3, z = lo + i / 9;
            const int k = (z * kernel + y) * kernel + x;
            m |= (mask[k / 32 * n + o] >> k % 32 & 1) << i;
        }
        return m;
    }

    /* Sets bit j of plane[axis] (x, y, z) where the row has an offset in plane j of the
     * axis. */
    __device__ void planes_of(int64_t o, uint32_t (&plane)[3]) const
    {
        const int K = kernel * kernel * kernel;

        for (int w = 0; 32 * w < K; w++)
            for (uint32_t left = mask[w * n + o]; left; left &= left - 1) {
                const int k = 32 * w + __ffs((int)left) - 1;
                plane[0] |= 1u << k % kernel;
                plane[1] |= 1u << k / kernel % kernel;
                plane[2] |= 1u << k / (kernel * kernel);
            }
    }

    /* The part of the key for the two outer planes on either side of each axis. */
    __device__ uint64_t outer_key(int64_t o) const
    {
        uint32_t plane[3] = {}, bits = 0;

        if (kernel <= 3)
            return 0;
        planes_of(o, plane);
        for (int a = 0; a < 3; a++) {
            const uint32_t p = plane[(a + 2) % 3]; /* z, x, y */
            bits = bits << 4 | (p & 1) << 3 | (p >> (kernel - 1) & 1) << 2 |
                   (p >> 1 & 1) << 1 | (p >> (kernel - 2) & 1);
        }
        return gray_place(bits);
    }

    __device__ uint32_t inner_key(int64_t o) const
    {
        uint32_t m, planes;

        if (kernel < 3)
            return gray_place(mask[o]);
        m = inner(o);
        planes = (uint32_t)((m & 0x00001ff) != 0) << 5 | /* z - 1 */
                 (uint32_t)((m & 0x7fc0000) != 0) << 4 | /* z + 1 */
                 (uint32_t)((m & 0x1249249) != 0) << 3 | /* x - 1 */
                 (uint32_t)((m & 0x4924924) != 0) << 2 | /* x + 1 */
                 (uint32_t)((m & 0x01c0e07) != 0) << 1 | /* y - 1 */
                 (uint32_t)((m & 0x70381c0) != 0);       /* y + 1 */
        return gray_place(planes) << 26 | gray_place((m & 0x1fff) | m >> 14 << 13);
    }

    __device__ void operator()(int64_t o) const
    {
        const int32_t begin = sample_row[plan_sample(sample_row, n_samples, o)];

        word[o] = (uint64_t)(begin / CUDA_MAP_WINDOW) << key_bits | outer_key(o) << 32 |
                  inner_key(o);
        row[o] = (int32_t)o;
    }
};

enum { COUNT_BITS = 12 };

/* One warp for each whole tile: makes the words by which tiles with most offsets come
 * first. */
struct make_tile_words {
    const uint32_t *mask;
    int64_t n;
    const int32_t *sample_row;
    int n_samples, n_words;
    const int32_t *order;
    uint64_t *word;
    int32_t *tile;

    __device__ void operator()(int64_t i) const
    {
        const int32_t *row = order + i / 32 * CUDA_TILE_ROWS;
        const int lane = (int)(i % 32);
        int count = 0;

        for (int w = 0; w < n_words; w++) {
            uint32_t any = 0;

            for (int r = lane; r < CUDA_TILE_ROWS; r += 32)
                any |= mask[w * n + row[r]];
            for (int by = 16; by > 0; by /= 2)
                any |= __shfl_xor_sync(0xffffffffu, any, by);
            count += __popc(any);
        }
        if (lane)
            return;
        word[i / 32] =
            (uint64_t)(sample_row[plan_sample(sample_row, n_samples, row[0])] /
                       CUDA_MAP_WINDOW)
                << COUNT_BITS |
            (uint64_t)((1 << COUNT_BITS) - 1 - count);
        tile[i / 32] = (int32_t)(i / 32);
    }
};

/* Moves whole tiles; the last rows, fewer than a tile, stay where they are. */
struct move_tiles {
    const int32_t *from, *tile;
    int64_t n_tiles;
    int32_t *to;

    __device__ void operator()(int64_t i) const
    {
        const int64_t t = i / CUDA_TILE_ROWS, r = i % CUDA_TILE_ROWS;

        to[i] = from[t < n_tiles ? tile[t] * (int64_t)CUDA_TILE_ROWS + r : i];
    }
};

/* ---- pairs ---- */

struct pair_lists {
    const uint32_t *mask;
    int64_t n;
    int K, n_words, n_samples;
    const int32_t *sample_row, *chunk;
};

/* The rows of a block: one chunk of sample b, whose chunks are first .. first +
 * n_chunks
 * - 1. */
struct chunk_rows {
    int64_t row, end; /* row of this thread; end of the sample */
    int b, first, n_chunks;

    __device__ chunk_rows(const pair_lists &l)
    {
        b = plan_sample(l.chunk, l.n_samples, blockIdx.x);
        first = l.chunk[b];
        n_chunks = l.chunk[b + 1] - first;
        row = l.sample_row[b] + (int64_t)((int)blockIdx.x - first) * PLAN_CHUNK +
              threadIdx.x;
        end = l.sample_row[b + 1];
    }

    __device__ uint32_t word(const pair_lists &l, int w) const
    {
        return row < end ? l.mask[w * l.n + row] : 0;
    }

    /* The position of this chunk's count for offset k. */
    __device__ int64_t at(const pair_lists &l, int k) const
    {
        return (int64_t)first * l.K + (int64_t)k * n_chunks + ((int)blockIdx.x - first);
    }
};

enum { WARPS = PLAN_CHUNK / 32 };

/* Writes count[warp][k % 32] for the offsets of one word. Ends with a barrier. */
__device__ void count_word(uint32_t m, int n_offsets, int32_t (*count)[32])
{
    for (int k = 0; k < n_offsets; k++) {
        const uint32_t all = __ballot_sync(0xffffffffu, (int)(m >> k & 1));
        if (threadIdx.x % 32 == 0)
            count[threadIdx.x / 32][k] = __popc(all);
    }
    __syncthreads();
}

__global__ void __launch_bounds__(PLAN_CHUNK)
    count_pairs_kernel(pair_lists l, int32_t *position)
{
    sp_grid_wait();
    SP_SHARED(int32_t, count, [WARPS][32]);
    const chunk_rows rows(l);

    for (int w = 0; w < l.n_words; w++) {
        const int k = w * 32 + (int)threadIdx.x;
        count_word(rows.word(l, w), min(32, l.K - w * 32), count);
        if (threadIdx.x < 32 && k < l.K) {
            int32_t sum = 0;
            for (int warp = 0; warp < WARPS; warp++)
                sum += count[warp][threadIdx.x];
            position[rows.at(l, k)] = sum;
        }
        __syncthreads();
    }
}

struct scan_positions {
    int32_t *position;

    __device__ int32_t count(int64_t i) const { return position[i]; }
    __device__ void put(int64_t i, int32_t before) const { position[i] = before; }
};

struct take_starts {
    pair_lists l;
    const int32_t *position;
    int32_t *start;

    __device__ void operator()(int64_t i) const
    {
        const int b = (int)(i / l.K), k = (int)(i % l.K);
        const int64_t first = l.chunk[b];
        const int64_t n_chunks = b < l.n_samples ? l.chunk[b + 1] - first : 0;

        start[i] = position[first * l.K + k * n_chunks];
    }
};

__global__ void __launch_bounds__(PLAN_CHUNK)
    write_pairs_kernel(pair_lists l, const int32_t *first, const int32_t *nbr,
                       const int32_t *position, int32_t *pair_in, int32_t *pair_out)
{
    sp_grid_wait();
    SP_SHARED(int32_t, count, [WARPS][32]);
    const chunk_rows rows(l);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int32_t p = rows.row < rows.end ? first[rows.row] : 0;

    for (int w = 0; w < l.n_words; w++) {
        const uint32_t m = rows.word(l, w);
        const int n_offsets = min(32, l.K - w * 32);
        count_word(m, n_offsets, count);
        for (int k = 0; k < n_offsets; k++) {
            const uint32_t all = __ballot_sync(0xffffffffu, (int)(m >> k & 1));
            if (m >> k & 1) {
                int32_t to =
                    position[rows.at(l, w * 32 + k)] + __popc(all & ((1u << lane) - 1));
                for (int before = 0; before < warp; before++)
                    to += count[before][k];
                pair_in[to] = nbr[p++];
                pair_out[to] = (int32_t)rows.row;
            }
        }
        __syncthreads();
    }
}

pair_lists lists_of(const cuda_plan_builder *b, const cuda_plan_level *out,
                    const cuda_map *m)
{
    return {m->mask,      m->n_out,        m->K,      m->n_words,
            b->n_samples, out->sample_row, out->chunk};
}

} // namespace

sp_status plan_order_rows(cuda_plan_builder *b, int kernel, const cuda_plan_level *out,
                          const cuda_map *map, int32_t *order)
{
    const int window_bits = plan_bits((uint64_t)map->n_out / CUDA_MAP_WINDOW);
    const int key_bits = kernel < 3 ? map->K : kernel == 3 ? 32 : 44;
    const int64_t n_tiles = map->n_out / CUDA_TILE_ROWS;
    const size_t mark = b->arena->used;
    int32_t *row, *sorted, *tile;
    uint64_t *word;

    assert(map->K < 1 << COUNT_BITS);
    SP_TRY(SP_TAKE(b->arena, map->n_out, &word));
    SP_TRY(SP_TAKE(b->arena, map->n_out, &row));
    SP_TRY(SP_TAKE(b->arena, map->n_out, &sorted));
    SP_TRY(SP_TAKE(b->arena, n_tiles, &tile));
    SP_TRY(plan_each(b,
                     make_order_words{map->mask, map->n_out, out->sample_row,
                                      b->n_samples, kernel, key_bits, word, row},
                     map->n_out));
    SP_TRY(plan_sort(b, word, row, sorted, map->n_out, key_bits + window_bits));
    SP_TRY(plan_each(b,
                     make_tile_words{map->mask, map->n_out, out->sample_row,
                                     b->n_samples, map->n_words, sorted, word, row},
                     32 * n_tiles));
    SP_TRY(plan_sort(b, word, row, tile, (int32_t)n_tiles, COUNT_BITS + window_bits));
    SP_TRY(plan_each(b, move_tiles{sorted, tile, n_tiles, order}, map->n_out));
    sp_arena_rewind(b->arena, mark);
    return SP_OK;
}

sp_status plan_count_pairs(cuda_plan_builder *b, const cuda_plan_level *out,
                           const cuda_map *map, int32_t *position, int32_t *start)
{
    const pair_lists l = lists_of(b, out, map);
    const int32_t n_chunks = out->chunk_host[b->n_samples];
    const int64_t n = (int64_t)n_chunks * map->K;

    if (n_chunks) {
        SP_LAUNCH(count_pairs_kernel, (unsigned)n_chunks, PLAN_CHUNK, b->stream, l,
                  position);
        SP_TRY(plan_launched(b, "count_pairs_kernel"));
    }
    SP_TRY(plan_scan(b, scan_positions{position}, n, position + n));
    return plan_each(b, take_starts{l, position, start},
                     (int64_t)b->n_samples * map->K + 1);
}

sp_status plan_write_pairs(cuda_plan_builder *b, const cuda_plan_level *out,
                           const cuda_map *map, const int32_t *position,
                           int32_t *pair_in, int32_t *pair_out)
{
    const int32_t n_chunks = out->chunk_host[b->n_samples];

    if (n_chunks == 0)
        return SP_OK;
    SP_LAUNCH(write_pairs_kernel, (unsigned)n_chunks, PLAN_CHUNK, b->stream,
              lists_of(b, out, map), map->first, map->nbr, position, pair_in, pair_out);
    return plan_launched(b, "write_pairs_kernel");
}

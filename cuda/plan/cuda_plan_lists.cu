/* The order of the tiles and the pair lists of all maps, both from their masks.
 *
 * The output rows of all maps with keys of the same length are sorted together, with
 * the number of their map and window above the key; then the whole units of all maps by
 * number of offsets (cuda_map.h).
 *
 * The pairs of a sample and offset rise by output row. A block counts the pairs of a
 * chunk of rows, offset by offset. A scan of the counts in the sequence (sample,
 * offset, chunk) gives each block's position to write at:
 *
 *     position   | sample 0: offset 0: chunk 0, 1, 2; offset 1: chunk 0 .. | sample 1 |
 *
 * Bytes, counted: order 48 n_out and the passes of the sort; pairs 8 n_words n_out + 12
 * m.
 */
#include <algorithm>

#include "cuda/plan/cuda_plan.cuh"

namespace
{

/* ---- order ---- */

/* The position of v in the Gray code: the i with v = i ^ i >> 1. */
__device__ uint32_t plan_gray_place(uint32_t v)
{
    for (int by = 1; by < 32; by *= 2)
        v ^= v >> by;
    return v;
}

/* The rows of one map for which keys are made. */
struct key_rows {
    const uint32_t *mask;
    int64_t n;
    int kernel;

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

    /* Sets bit j of plane[axis] (x, y, z) if the row has an offset in plane j of the
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
        return plan_gray_place(bits);
    }

    __device__ uint32_t inner_key(int64_t o) const
    {
        uint32_t m, planes;

        if (kernel < 3)
            return plan_gray_place(mask[o]);
        m = inner(o);
        planes = (uint32_t)((m & 0x00001ff) != 0) << 5 | /* z - 1 */
                 (uint32_t)((m & 0x7fc0000) != 0) << 4 | /* z + 1 */
                 (uint32_t)((m & 0x1249249) != 0) << 3 | /* x - 1 */
                 (uint32_t)((m & 0x4924924) != 0) << 2 | /* x + 1 */
                 (uint32_t)((m & 0x01c0e07) != 0) << 1 | /* y - 1 */
                 (uint32_t)((m & 0x70381c0) != 0);       /* y + 1 */
        return plan_gray_place(planes) << 26 |
               plan_gray_place((m & 0x1fff) | m >> 14 << 13);
    }

    __device__ uint64_t key(int64_t o) const
    {
        return outer_key(o) << 32 | inner_key(o);
    }
};

/* The number of the window of row o, counted over all maps. */
__device__ uint64_t segment_of(const plan_levels &p, const plan_map &m, int64_t o)
{
    const int32_t *row = plan_of_level(p.sample_row, p.n_samples, m.to);
    const int32_t begin = row[plan_sample(row, p.n_samples, o)];

    return (uint64_t)(m.segment + begin / CUDA_MAP_WINDOW);
}

/* Maps that are sorted together: their keys have key_bits bits. A word is a row's key
 * with its segment, counted from the first of these maps, above it. */
struct make_order_words {
    plan_levels levels;
    int key_bits, segment, last; /* the first segment of these maps, and the last */
    int64_t row_at;              /* the first map's row_at */
    uint64_t *word;
    int32_t *row;

    bool has(const plan_map &m) const
    {
        return m.segment >= segment && m.segment <= last;
    }
    unsigned blocks(const plan_map &m) const { return plan_blocks(m.n_out); }
    __device__ void operator()(const plan_map &m, unsigned block) const
    {
        const int64_t o = plan_item(block), at = m.row_at - row_at + o;
        const key_rows rows = {m.mask, m.n_out, m.kernel};

        if (o >= m.n_out)
            return;
        word[at] =
            (segment_of(levels, m, o) - (uint64_t)segment) << key_bits | rows.key(o);
        row[at] = (int32_t)o;
    }
};

/* One warp for each whole unit: makes the words that sort tiles with most offsets
 * first in their window. */
struct make_tile_words {
    plan_levels levels;
    int count_bits; /* bits of the largest K */
    const int32_t *sorted;
    uint64_t *word;
    int32_t *tile;

    bool has(const plan_map &) const { return true; }
    unsigned blocks(const plan_map &m) const
    {
        return plan_blocks(m.n_out / CUDA_ORDER_ROWS * (int64_t)32);
    }
    __device__ void operator()(const plan_map &m, unsigned block) const
    {
        const int64_t t = plan_item(block) / 32;
        const int32_t *row = sorted + m.row_at + t * CUDA_ORDER_ROWS;
        const int lane = (int)threadIdx.x % 32;
        int count = 0;

        if (t >= m.n_out / CUDA_ORDER_ROWS)
            return;
        for (int w = 0; w < m.n_words; w++) {
            uint32_t any = 0;

            for (int r = lane; r < CUDA_ORDER_ROWS; r += 32)
                any |= m.mask[w * (int64_t)m.n_out + row[r]];
            for (int by = 16; by > 0; by /= 2)
                any |= __shfl_xor_sync(0xffffffffu, any, by);
            count += __popc(any);
        }
        if (lane)
            return;
        word[m.tile_at + t] = segment_of(levels, m, row[0]) << count_bits |
                              (uint64_t)((1 << count_bits) - 1 - count);
        tile[m.tile_at + t] = (int32_t)t;
    }
};

/* Moves whole units; the last rows of a map, fewer than a unit, are not moved. */
struct move_tiles {
    const int32_t *sorted, *tile;

    bool has(const plan_map &) const { return true; }
    unsigned blocks(const plan_map &m) const { return plan_blocks(m.n_out); }
    __device__ void operator()(const plan_map &m, unsigned block) const
    {
        const int64_t i = plan_item(block);
        const int64_t t = i / CUDA_ORDER_ROWS, r = i % CUDA_ORDER_ROWS;
        int64_t from = i;

        if (i >= m.n_out)
            return;
        if (t < m.n_out / CUDA_ORDER_ROWS)
            from = tile[m.tile_at + t] * (int64_t)CUDA_ORDER_ROWS + r;
        m.order[i] = sorted[m.row_at + from];
    }
};

/* ---- pairs ---- */

/* The rows of a block: one chunk of sample b; the sample's chunks are first .. first +
 * n_chunks - 1. */
struct chunk_rows {
    int64_t row, end;         /* row of this thread; end of the sample */
    int first, n_chunks, own; /* own: number of the block's chunk in the sample */

    __device__ chunk_rows(const plan_levels &p, const plan_map &m, unsigned block)
    {
        const int32_t *rows = plan_of_level(p.sample_row, p.n_samples, m.to);
        const int32_t *chunks = plan_of_level(p.chunk, p.n_samples, m.to);
        const int b = plan_sample(chunks, p.n_samples, block);

        first = chunks[b];
        n_chunks = chunks[b + 1] - first;
        own = (int)block - first;
        row = rows[b] + (int64_t)own * PLAN_CHUNK + threadIdx.x;
        end = rows[b + 1];
    }

    __device__ uint32_t word(const plan_map &m, int w) const
    {
        return row < end ? m.mask[w * (int64_t)m.n_out + row] : 0;
    }

    /* The position of this chunk's count for offset k. */
    __device__ int64_t at(const plan_map &m, int k) const
    {
        return (int64_t)first * m.K + (int64_t)k * n_chunks + own;
    }
};

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

/* A block per chunk of every map. */
struct each_chunk {
    plan_levels levels;

    bool has(const plan_map &) const { return true; }
    unsigned blocks(const plan_map &m) const { return (unsigned)m.n_chunks; }
};

struct write_counts : each_chunk {
    __device__ void operator()(const plan_map &m, unsigned block) const
    {
        SP_SHARED(int32_t, count, [PLAN_WARPS][32]);
        const chunk_rows rows(levels, m, block);

        for (int w = 0; w < m.n_words; w++) {
            const int k = w * 32 + (int)threadIdx.x;
            count_word(rows.word(m, w), min(32, m.K - w * 32), count);
            if (threadIdx.x < 32 && k < m.K) {
                int32_t sum = 0;
                for (int warp = 0; warp < PLAN_WARPS; warp++)
                    sum += count[warp][threadIdx.x];
                m.position[rows.at(m, k)] = sum;
            }
            __syncthreads();
        }
    }
};

struct scan_positions {
    bool has(const plan_map &) const { return true; }
    __host__ __device__ int64_t items(const plan_map &m) const
    {
        return (int64_t)m.n_chunks * m.K;
    }
    int32_t *total(const plan_map &m) const { return m.position + items(m); }
    __device__ int32_t count(const plan_map &m, int64_t i) const
    {
        return m.position[i];
    }
    __device__ void put(const plan_map &m, int64_t i, int32_t before) const
    {
        m.position[i] = before;
    }
};

struct take_starts {
    plan_levels levels;

    bool has(const plan_map &) const { return true; }
    unsigned blocks(const plan_map &m) const
    {
        return plan_blocks((int64_t)levels.n_samples * m.K + 1);
    }
    __device__ void operator()(const plan_map &m, unsigned block) const
    {
        const plan_levels &p = levels;
        const int32_t *chunk = plan_of_level(p.chunk, p.n_samples, m.to);
        const int64_t i = plan_item(block);
        const int b = (int)(i / m.K), k = (int)(i % m.K);

        if (i > (int64_t)p.n_samples * m.K)
            return;
        const int64_t first = chunk[b];
        const int64_t n_chunks = b < p.n_samples ? chunk[b + 1] - first : 0;
        m.start[i] = m.position[first * m.K + k * n_chunks];
    }
};

struct write_lists : each_chunk {
    __device__ void operator()(const plan_map &m, unsigned block) const
    {
        SP_SHARED(int32_t, count, [PLAN_WARPS][32]);
        const chunk_rows rows(levels, m, block);
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
        int32_t p = rows.row < rows.end ? m.first[rows.row] : 0;

        for (int w = 0; w < m.n_words; w++) {
            const uint32_t mask = rows.word(m, w);
            const int n_offsets = min(32, m.K - w * 32);
            count_word(mask, n_offsets, count);
            for (int k = 0; k < n_offsets; k++) {
                const uint32_t all = __ballot_sync(0xffffffffu, (int)(mask >> k & 1));
                if (mask >> k & 1) {
                    int32_t to = m.position[rows.at(m, w * 32 + k)] +
                                 __popc(all & ((1u << lane) - 1));
                    for (int before = 0; before < warp; before++)
                        to += count[before][k];
                    m.pair_in[to] = m.nbr[p++];
                    m.pair_out[to] = (int32_t)rows.row;
                }
            }
            __syncthreads();
        }
    }
};

int key_bits(const plan_map *m)
{
    return cuda_map_key_bits(m->kernel);
}

/* Sorts the rows of the maps begin .. end - 1. Their keys are of equal length. */
sp_status plan_lists_sort_rows(cuda_plan_builder *b, const plan_map *begin,
                               const plan_map *end, int32_t *sorted)
{
    const int64_t n = end[-1].row_at + end[-1].n_out - begin->row_at;
    const int last = end[-1].segment + end[-1].n_out / CUDA_MAP_WINDOW;
    const int bits = key_bits(begin);
    const size_t mark = b->arena->used;
    uint64_t *word;
    int32_t *row;

    if (n > INT32_MAX && !b->counts)
        return SP_FAIL(SP_EDATA,
                       "%lld output rows in kernel maps of one kind, at most "
                       "2^31: set batch.voxel_budget",
                       (long long)n);
    SP_TRY(SP_ALLOC(b->arena, n, &word));
    SP_TRY(SP_ALLOC(b->arena, n, &row));
    SP_TRY(plan_each_map(b, make_order_words{b->levels, bits, begin->segment, last,
                                             begin->row_at, word, row}));
    SP_TRY(plan_sort(b, word, row, sorted + begin->row_at, n,
                     bits + plan_bits((uint64_t)(last - begin->segment))));
    sp_arena_rewind(b->arena, mark);
    return SP_OK;
}

/* Sorts the whole units of all maps by window and number of offsets. */
sp_status sort_tiles(cuda_plan_builder *b, const int32_t *sorted, int64_t n,
                     int32_t *tile)
{
    const plan_map *last = &b->map[b->spec->n_maps - 1];
    const int n_segments = last->segment + last->n_out / CUDA_MAP_WINDOW + 1;
    int most = 0, bits;
    uint64_t *word;
    int32_t *number;

    for (int i = 0; i < b->spec->n_maps; i++)
        most = std::max(most, (int)b->map[i].K);
    bits = plan_bits((uint64_t)most);
    SP_TRY(SP_ALLOC(b->arena, n, &word));
    SP_TRY(SP_ALLOC(b->arena, n, &number));
    SP_TRY(plan_each_map(b, make_tile_words{b->levels, bits, sorted, word, number}));
    return plan_sort(b, word, number, tile, n,
                     bits + plan_bits((uint64_t)n_segments - 1));
}

} // namespace

sp_status plan_order_rows(cuda_plan_builder *b)
{
    const plan_map *end = b->map + b->spec->n_maps, *begin = b->map, *m;
    const int64_t n = end[-1].row_at + end[-1].n_out;
    const int64_t n_tiles = end[-1].tile_at + end[-1].n_out / CUDA_ORDER_ROWS;
    const size_t mark = b->arena->used;
    int32_t *sorted, *tile;

    SP_TRY(SP_ALLOC(b->arena, n, &sorted));
    SP_TRY(SP_ALLOC(b->arena, n_tiles, &tile));
    for (m = begin + 1; begin < end; begin = m++) {
        while (m < end && key_bits(m) == key_bits(begin))
            m++;
        SP_TRY(plan_lists_sort_rows(b, begin, m, sorted));
    }
    SP_TRY(sort_tiles(b, sorted, n_tiles, tile));
    SP_TRY(plan_each_map(b, move_tiles{sorted, tile}));
    sp_arena_rewind(b->arena, mark);
    return SP_OK;
}

sp_status plan_count_pairs(cuda_plan_builder *b)
{
    SP_TRY(plan_each_map(b, write_counts{{b->levels}}));
    SP_TRY(plan_scan_maps(b, scan_positions{}));
    return plan_each_map(b, take_starts{b->levels});
}

sp_status plan_write_pairs(cuda_plan_builder *b)
{
    return plan_each_map(b, write_lists{{b->levels}});
}

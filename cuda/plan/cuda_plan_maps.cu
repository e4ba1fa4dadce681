/* The neighbours of output rows.
 *
 * Output row o is at position p, in steps of the finer of the two levels. Its partner
 * at offset k is the voxel of level `from` at p + d_k (p - d_k if the map is swapped),
 * if there is one. It is found in one of two ways:
 *
 * - Below the level of the top map, the coarsest 3^3 map of the plan: every partner
 *   lies within one of its cells. Look up the ancestor's row of that map, then descend
 *   child by child. Siblings read the same rows, so no hash table is needed and little
 *   memory is read.
 * - Otherwise by binary search among the keys of the sample, as for the top map itself.
 *
 * A descent from the next coarser level's own 3^3 map would be shorter, but then each
 * level would wait for the one above. From the top map all other maps are built by the
 * same launches; the upper steps of neighbouring rows read the same children.
 *
 * Each map is traversed twice: first for the masks, whose scan gives the position of
 * each row's neighbours, then for the neighbours.
 *
 * Bytes, counted: 12 n_out + 4 m written for the map itself; 12 n_out and the
 * ancestors' rows read in each of the two passes.
 */
#include <assert.h>

#include "cuda/plan/cuda_plan.cuh"

namespace
{

/* The tables that look-ups read besides the map's own parameters. */
struct lookup {
    plan_levels levels;
    const uint32_t *top_mask; /* of the top map, if there is one */
    const int32_t *top_first, *top_nbr;
};

/* A partner along one axis: its bits of the partner's key (every third bit), and the
 * cell of `top` (0, 1 or 2) that holds it, if there is such a level. */
struct aim {
    bool is_there;
    uint64_t key;
    int cell;
};

__device__ aim aim_at(const plan_map &m, int own, int axis, int d)
{
    const int lo = sp_kernel_first(m.kernel);
    const int at = (own << m.down) + m.sign * (lo + d), partner = at >> m.up;
    aim a = {at >= 0 && at == partner << m.up, 0, 0};

    if (!a.is_there)
        return a;
    a.key = sp_morton_spread((uint32_t)partner) << axis;
    if (m.rise >= 0)
        a.cell = (partner >> m.fall) - (own >> m.rise) + 1;
    return a;
}

__device__ int32_t plan_maps_descend(const lookup &q, const plan_map &m,
                                     int32_t ancestor, int cell, uint64_t key)
{
    const uint32_t mask = q.top_mask[ancestor];
    int32_t row;

    if (!(mask >> cell & 1))
        return -1;
    row = q.top_nbr[q.top_first[ancestor] + __popc(mask & ((1u << cell) - 1))];
    for (int l = m.fall - 1; l >= 0; l--) {
        const plan_child c = q.levels.child[m.from + l + 1][row];
        const int bit = (int)(key >> 3 * l & 7);
        if (!(c.mask >> bit & 1))
            return -1;
        row = c.first + __popc(c.mask & ((1u << bit) - 1));
    }
    return row;
}

__device__ int32_t plan_search(const lookup &q, const plan_map &m, int sample,
                               uint64_t key)
{
    const plan_levels &p = q.levels;
    const int32_t *row = plan_of_level(p.sample_row, p.n_samples, m.from);
    const uint64_t *from = p.key[m.from];
    int32_t low = row[sample], high = row[sample + 1];
    const int32_t end = high;

    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (from[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && from[low] == key ? low : -1;
}

/* An output row, in the form that its look-ups use. */
struct viewpoint {
    int at[3];        /* coordinates */
    int32_t ancestor; /* on the top map's level */
    int sample;       /* sample whose keys are searched for partners */
};

__device__ viewpoint view_from(const lookup &q, const plan_map &m, int64_t o)
{
    const plan_levels &p = q.levels;
    const uint64_t key = p.key[m.to][o];
    viewpoint v = {
        {sp_morton_gather(key), sp_morton_gather(key >> 1), sp_morton_gather(key >> 2)},
        (int32_t)o,
        0};

    for (int l = 0; l < m.rise; l++)
        v.ancestor = p.parent[m.to + l][v.ancestor];
    if (m.rise < 0)
        v.sample =
            plan_sample(plan_of_level(p.sample_row, p.n_samples, m.to), p.n_samples, o);
    return v;
}

__device__ int32_t plan_find(const lookup &q, const plan_map &m, const viewpoint &v,
                             const aim &x, const aim &y, const aim &z)
{
    const uint64_t key = x.key | y.key | z.key;

    if (m.rise < 0)
        return plan_search(q, m, v.sample, key);
    return plan_maps_descend(q, m, v.ancestor, x.cell + 3 * y.cell + 9 * z.cell, key);
}

/* Calls visit->wants(k) for each offset and, if that is true and the row has a
 * partner, visit->found(k, row). */
template <class V>
__device__ void plan_maps_look_around(const lookup &q, const plan_map &m, int64_t o,
                                      V *visit)
{
    const viewpoint v = view_from(q, m, o);
    int k = 0;

    for (int dz = 0; dz < m.kernel; dz++) {
        const aim z = aim_at(m, v.at[2], 2, dz);
        for (int dy = 0; dy < m.kernel; dy++) {
            const aim y = aim_at(m, v.at[1], 1, dy);
            for (int dx = 0; dx < m.kernel; dx++, k++) {
                const aim x = aim_at(m, v.at[0], 0, dx);
                int32_t row = -1;
                if (visit->wants(k) && x.is_there && y.is_there && z.is_there)
                    row = plan_find(q, m, v, x, y, z);
                if (row >= 0)
                    visit->found(k, row);
            }
        }
    }
}

/* First pass: writes masks. A word is written when the next one begins. */
struct mask_writer {
    uint32_t *mask; /* of the row; its words are `pitch` apart */
    int64_t pitch;
    uint32_t word;
    int at;

    __device__ bool wants(int k)
    {
        if (k / 32 != at)
            flush();
        return true;
    }
    __device__ void found(int k, int32_t) { word |= 1u << k % 32; }
    __device__ void flush()
    {
        mask[at++ * pitch] = word;
        word = 0;
    }
};

/* Second pass: looks up only those offsets that the mask has. */
struct neighbour_writer {
    const uint32_t *mask;
    int64_t pitch;
    int32_t *nbr;

    __device__ bool wants(int k) const { return mask[k / 32 * pitch] >> k % 32 & 1; }
    __device__ void found(int, int32_t row) { *nbr++ = row; }
};

/* A thread per output row of the top map, which is traversed first, or of all others
 * together. */
struct each_row {
    lookup q;
    bool is_top;

    bool has(const plan_map &m) const { return m.is_top == is_top; }
    unsigned blocks(const plan_map &m) const { return plan_blocks(m.n_out); }
};

struct write_masks : each_row {
    __device__ void operator()(const plan_map &m, unsigned block) const
    {
        const int64_t o = plan_item(block);
        mask_writer w = {m.mask + o, m.n_out, 0, 0};

        if (o >= m.n_out)
            return;
        plan_maps_look_around(q, m, o, &w);
        w.flush();
    }
};

struct write_neighbours : each_row {
    __device__ void operator()(const plan_map &m, unsigned block) const
    {
        const int64_t o = plan_item(block);

        if (o >= m.n_out)
            return;
        neighbour_writer w = {m.mask + o, m.n_out, m.nbr + m.first[o]};
        plan_maps_look_around(q, m, o, &w);
    }
};

/* Counts the neighbours of each row: the scan gives `first`. */
struct count_neighbours {
    bool is_top;

    bool has(const plan_map &m) const { return m.is_top == is_top; }
    int32_t *total(const plan_map &m) const { return m.first + m.n_out; }
    __host__ __device__ int64_t items(const plan_map &m) const { return m.n_out; }
    __device__ int32_t count(const plan_map &m, int64_t o) const
    {
        int32_t sum = 0;

        for (int w = 0; w < m.n_words; w++)
            sum += __popc(m.mask[w * (int64_t)m.n_out + o]);
        return sum;
    }
    __device__ void put(const plan_map &m, int64_t o, int32_t before) const
    {
        m.first[o] = before;
    }
};

/* ---- choice between descent and search ---- */

/* Fills in how partners are found. */
void aim_map(sp_map_key key, int top_level, plan_map *m)
{
    const int to = key.level_out, from = key.level_in;
    const int fine = to < from ? to : from, coarse = to < from ? from : to;

    m->sign = sp_map_is_exchanged(key) ? -1 : 1;
    m->down = (int8_t)(to - fine);
    m->up = (int8_t)(from - fine);
    m->rise = -1;
    if (m->is_top || top_level < coarse ||
        top_level < fine + sp_kernel_reach(key.kernel))
        return;
    m->rise = (int8_t)(top_level - to);
    m->fall = (int8_t)(top_level - from);
}

/* ---- memory of the maps ---- */

void describe_map(const cuda_plan_builder *b, int at, int top, plan_map *m)
{
    const sp_map_key key = b->spec->map[at];

    *m = plan_map{};
    m->at = at;
    m->is_top = at == top;
    m->kernel = key.kernel;
    m->to = key.level_out;
    m->from = key.level_in;
    m->K = sp_kernel_volume(key);
    m->n_words = (m->K + 31) / 32;
    m->n_out = b->levels.n[m->to];
    m->n_chunks = b->counts
                      ? m->n_out / PLAN_CHUNK + b->n_samples
                      : plan_of_level(b->chunk_host, b->n_samples, m->to)[b->n_samples];
    aim_map(key, top < 0 ? -1 : b->spec->map[top].level_out, m);
}

/* Fills b->map, maps of equally long keys side by side. */
void describe_maps(cuda_plan_builder *b)
{
    const int top = cuda_map_find_top(b->spec);
    int64_t row_at = 0, tile_at = 0;
    int n = 0, segment = 0;

    for (int bits = 1; bits <= CUDA_MAP_KEY_BITS; bits++)
        for (int i = 0; i < b->spec->n_maps; i++)
            if (cuda_map_key_bits(b->spec->map[i].kernel) == bits)
                describe_map(b, i, top, &b->map[n++]);
    assert(n == b->spec->n_maps);
    for (plan_map *m = b->map; m < b->map + n; m++) {
        m->row_at = row_at;
        m->tile_at = tile_at;
        m->segment = segment;
        row_at += m->n_out;
        tile_at += m->n_out / CUDA_ORDER_ROWS;
        segment += m->n_out / CUDA_MAP_WINDOW + 1;
    }
}

size_t lists_of(const cuda_plan_builder *b, const plan_map &m)
{
    return (size_t)b->n_samples * (size_t)m.K + 1;
}

/* Takes the memory that does not depend on the number of pairs. All `start` are
 * adjacent, so that one copy reads them. */
sp_status plan_maps_alloc_rows(cuda_plan_builder *b, size_t *n_starts)
{
    int32_t *start;

    *n_starts = 0;
    for (int i = 0; i < b->spec->n_maps; i++) {
        plan_map *m = &b->map[i];
        const size_t n = (size_t)m->n_out;

        SP_TRY(SP_ALLOC(b->arena, n * (size_t)m->n_words, &m->mask));
        SP_TRY(SP_ALLOC(b->arena, n + 1, &m->first));
        SP_TRY(SP_ALLOC(b->arena, n, &m->order));
        SP_TRY(
            SP_ALLOC(b->arena, (size_t)m->n_chunks * (size_t)m->K + 1, &m->position));
        *n_starts += lists_of(b, *m);
    }
    SP_TRY(SP_ALLOC(b->arena, *n_starts, &start));
    for (int i = 0; i < b->spec->n_maps; i++) {
        b->map[i].start = start;
        start += lists_of(b, b->map[i]);
    }
    return SP_OK;
}

/* ---- the stages ---- */

/* Sets *pairs to the number that the device counted, or to an estimate's. */
sp_status read_pairs(const cuda_plan_builder *b, const plan_map &m,
                     const int32_t *counted, int64_t *pairs)
{
    *pairs = b->counts ? b->counts->pairs[m.at] : *counted;
    if (!b->counts && *pairs == INT32_MAX)
        return SP_FAIL(
            SP_EDATA, "more than 2^31 pairs in one kernel map: set batch.voxel_budget");
    return SP_OK;
}

/* Builds masks, `first` and neighbours of the top map; q has them then. */
sp_status build_top(cuda_plan_builder *b, plan_map *top, lookup *q)
{
    int32_t counted;
    int64_t pairs;

    SP_TRY(plan_each_map(b, write_masks{{*q, true}}));
    SP_TRY(plan_scan_maps(b, count_neighbours{true}));
    SP_TRY(plan_download(b, &counted, top->first + top->n_out, sizeof counted));
    SP_TRY(read_pairs(b, *top, &counted, &pairs));
    SP_TRY(SP_ALLOC(b->arena, pairs, &top->nbr));
    SP_TRY(plan_each_map(b, write_neighbours{{*q, true}}));
    q->top_mask = top->mask;
    q->top_first = top->first;
    q->top_nbr = top->nbr;
    return SP_OK;
}

/* Reads the numbers of pairs and takes memory for them. start_host: of all maps. */
sp_status plan_maps_alloc_pairs(cuda_plan_builder *b, int32_t *start_host,
                                size_t n_starts)
{
    SP_TRY(
        plan_download(b, start_host, b->map[0].start, n_starts * sizeof *start_host));
    for (int i = 0; i < b->spec->n_maps; i++) {
        plan_map *m = &b->map[i];
        int64_t pairs;

        SP_TRY(read_pairs(b, *m, start_host + lists_of(b, *m) - 1, &pairs));
        if (!m->is_top)
            SP_TRY(SP_ALLOC(b->arena, pairs, &m->nbr));
        SP_TRY(SP_ALLOC(b->arena, pairs, &m->pair_in));
        SP_TRY(SP_ALLOC(b->arena, pairs, &m->pair_out));
        start_host += lists_of(b, *m);
    }
    return SP_OK;
}

/* Fills in the map as the device's kernels read it, and the fields of sp_map that do
 * not depend on the device, as the host's builder does. */
sp_status publish(cuda_plan_builder *b, const plan_map *from, const int32_t *start_host)
{
    const sp_map_key key = b->spec->map[from->at];
    sp_map *map = &b->plan->map[from->at];
    cuda_map *m;

    SP_TRY(SP_ALLOC(b->host, 1, &m));
    *m = cuda_map{};
    m->K = from->K;
    m->n_words = from->n_words;
    m->n_in = b->levels.n[from->from];
    m->n_out = from->n_out;
    m->n_samples = b->n_samples;
    m->pairs = start_host[lists_of(b, *from) - 1];
    m->mask = from->mask;
    m->first = from->first;
    m->nbr = from->nbr;
    m->order = from->order;
    m->pair_in = from->pair_in;
    m->pair_out = from->pair_out;
    m->pair_start = start_host;
    map->device = m;
    map->key = key;
    map->K = m->K;
    map->n_in = m->n_in;
    map->n_out = m->n_out;
    map->pairs = m->pairs;
    map->centre = sp_kernel_centre(key);
    map->is_full = map->centre >= 0;
    return SP_OK;
}

} // namespace

sp_status plan_build_maps(cuda_plan_builder *b)
{
    const int n_maps = b->spec->n_maps;
    lookup q = {b->levels, NULL, NULL, NULL};
    int32_t *start_host;
    size_t n_starts;

    if (n_maps == 0)
        return SP_OK;
    describe_maps(b);
    SP_TRY(plan_maps_alloc_rows(b, &n_starts));
    SP_TRY(SP_ALLOC(b->host, n_starts, &start_host));
    for (int i = 0; i < n_maps; i++)
        if (b->map[i].is_top)
            SP_TRY(build_top(b, &b->map[i], &q));
    SP_TRY(plan_each_map(b, write_masks{{q, false}}));
    SP_TRY(plan_scan_maps(b, count_neighbours{false}));
    SP_TRY(plan_order_rows(b));
    SP_TRY(plan_count_pairs(b));
    SP_TRY(plan_maps_alloc_pairs(b, start_host, n_starts));
    SP_TRY(plan_each_map(b, write_neighbours{{q, false}}));
    SP_TRY(plan_write_pairs(b));
    if (b->counts)
        return SP_OK;
    for (int i = 0; i < n_maps; i++) {
        SP_TRY(publish(b, &b->map[i], start_host));
        start_host += lists_of(b, b->map[i]);
    }
    return SP_OK;
}

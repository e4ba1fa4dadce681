/* The neighbours of output rows.
 *
 * Output row o is at position p, in steps of the finer of the two levels. Its partner
 * at offset k is the voxel of level `from` at p + d_k (p - d_k where the map is
 * swapped), if there is one. It is found in one of two ways:
 *
 * - Below a level `top` whose 3^3 map exists, and within one cell of which every
 *   partner lies: look up the ancestor's row of that map, then descend child by child.
 *   Siblings read the same row, so no hash table is needed and little memory is read.
 * - Otherwise by binary search among the keys of the sample.
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

/* The parameters of a look-up in one map. */
struct lookup {
    int kernel, lo; /* edge; the lowest offset along an axis */
    int sign;       /* -1 where the map is swapped, else 1 */
    int down, up;   /* an output's coordinate is p >> down, a partner's p >> up */
    int n_samples;
    int32_t n_out;
    const uint64_t *to_key;               /* [n_out] */
    const int32_t *parent[SP_MAX_LEVELS]; /* of level `to` and coarser ones */
    const uint64_t *from_key;
    const int32_t *to_row, *from_row; /* [n_samples + 1] sample rows */
    /* Those of level from + 1 and coarser ones. */
    const cuda_plan_child *child[SP_MAX_LEVELS];
    int rise, fall; /* levels from `to` up to `top`, and from there down to `from`; rise
                     * -1: no such level, search */
    const uint32_t *top_mask;
    const int32_t *top_first, *top_nbr;
};

/* A partner along one axis: its bits of the partner's key (every third bit), and the
 * cell of `top` (0, 1 or 2) that holds it, where there is such a level. */
struct aim {
    bool is_there;
    uint64_t key;
    int cell;
};

__device__ aim aim_at(const lookup &q, int own, int axis, int d)
{
    const int at = (own << q.down) + q.sign * (q.lo + d), partner = at >> q.up;
    aim a = {at >= 0 && at == partner << q.up, 0, 0};

    if (!a.is_there)
        return a;
    a.key = plan_spread((uint32_t)partner) << axis;
    if (q.rise >= 0)
        a.cell = (partner >> q.fall) - (own >> q.rise) + 1;
    return a;
}

__device__ int32_t descend(const lookup &q, int32_t ancestor, int cell, uint64_t key)
{
    const uint32_t mask = q.top_mask[ancestor];
    int32_t row;

    if (!(mask >> cell & 1))
        return -1;
    row = q.top_nbr[q.top_first[ancestor] + __popc(mask & ((1u << cell) - 1))];
    for (int l = q.fall - 1; l >= 0; l--) {
        const cuda_plan_child c = q.child[l][row];
        const int bit = (int)(key >> 3 * l & 7);
        if (!(c.mask >> bit & 1))
            return -1;
        row = c.first + __popc(c.mask & ((1u << bit) - 1));
    }
    return row;
}

__device__ int32_t search(const lookup &q, int sample, uint64_t key)
{
    int32_t low = q.from_row[sample], high = q.from_row[sample + 1];
    const int32_t end = high;

    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (q.from_key[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && q.from_key[low] == key ? low : -1;
}

/* An output row, in the form that its look-ups use. */
struct viewpoint {
    int at[3];        /* coordinates */
    int32_t ancestor; /* in level top */
    int sample;       /* sample in whose keys partners are searched */
};

__device__ viewpoint view_from(const lookup &q, int64_t o)
{
    const uint64_t key = q.to_key[o];
    viewpoint v = {{plan_gather(key), plan_gather(key >> 1), plan_gather(key >> 2)},
                   (int32_t)o,
                   0};

    for (int l = 0; l < q.rise; l++)
        v.ancestor = q.parent[l][v.ancestor];
    if (q.rise < 0)
        v.sample = plan_sample(q.to_row, q.n_samples, o);
    return v;
}

__device__ int32_t find(const lookup &q, const viewpoint &v, const aim &x, const aim &y,
                        const aim &z)
{
    const uint64_t key = x.key | y.key | z.key;

    if (q.rise < 0)
        return search(q, v.sample, key);
    return descend(q, v.ancestor, x.cell + 3 * y.cell + 9 * z.cell, key);
}

/* Calls visit->wants(k) for each offset and, where that is true and the row has a
 * partner, visit->found(k, row). */
template <class V> __device__ void look_around(const lookup &q, int64_t o, V *visit)
{
    const viewpoint v = view_from(q, o);
    int k = 0;

    for (int dz = 0; dz < q.kernel; dz++) {
        const aim z = aim_at(q, v.at[2], 2, dz);
        for (int dy = 0; dy < q.kernel; dy++) {
            const aim y = aim_at(q, v.at[1], 1, dy);
            for (int dx = 0; dx < q.kernel; dx++, k++) {
                const aim x = aim_at(q, v.at[0], 0, dx);
                int32_t row = -1;
                if (visit->wants(k) && x.is_there && y.is_there && z.is_there)
                    row = find(q, v, x, y, z);
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

struct write_masks {
    lookup q;
    uint32_t *mask;

    __device__ void operator()(int64_t o) const
    {
        mask_writer w = {mask + o, q.n_out, 0, 0};

        look_around(q, o, &w);
        w.flush();
    }
};

struct write_neighbours {
    lookup q;
    const uint32_t *mask;
    const int32_t *first;
    int32_t *nbr;

    __device__ void operator()(int64_t o) const
    {
        neighbour_writer w = {mask + o, q.n_out, nbr + first[o]};

        look_around(q, o, &w);
    }
};

struct count_neighbours {
    const uint32_t *mask;
    int n_words;
    int64_t n;
    int32_t *first;

    __device__ int32_t count(int64_t o) const
    {
        int32_t sum = 0;

        for (int w = 0; w < n_words; w++)
            sum += __popc(mask[w * n + o]);
        return sum;
    }
    __device__ void put(int64_t o, int32_t before) const { first[o] = before; }
};

/* ---- choice between descent and search ---- */

/* The number of levels up from which every offset of the kernel is at most one step. */
int reach(int kernel)
{
    const int far = kernel % 2 ? kernel / 2 : kernel - 1;

    return far <= 1 ? 0 : far <= 2 ? 1 : far <= 4 ? 2 : 3;
}

void aim_from(const cuda_plan_builder *b, int top, int to, int from, lookup *q)
{
    const cuda_map *cube = b->cube[top];

    q->rise = top - to;
    q->fall = top - from;
    for (int l = 0; l < q->rise; l++)
        q->parent[l] = b->level[to + l].parent;
    for (int l = 0; l < q->fall; l++)
        q->child[l] = b->level[from + l + 1].child;
    q->top_mask = cube->mask;
    q->top_first = cube->first;
    q->top_nbr = cube->nbr;
}

lookup lookup_of(const cuda_plan_builder *b, sp_map_key key)
{
    const int to = key.level_out, from = key.level_in;
    const int fine = to < from ? to : from, coarse = to < from ? from : to;
    const bool is_swapped = to < from || (to == from && key.is_swapped);
    const int least = fine + reach(key.kernel);
    lookup q = {};

    q.kernel = key.kernel;
    q.lo = key.kernel % 2 ? -(key.kernel / 2) : 0;
    q.sign = is_swapped ? -1 : 1;
    q.down = to - fine;
    q.up = from - fine;
    q.n_samples = b->n_samples;
    q.n_out = b->level[to].n;
    q.to_key = b->level[to].key;
    q.from_key = b->level[from].key;
    q.to_row = b->level[to].sample_row;
    q.from_row = b->level[from].sample_row;
    q.rise = -1;
    for (int top = least > coarse ? least : coarse; top < b->spec->n_levels; top++)
        if (b->cube[top]) {
            aim_from(b, top, to, from, &q);
            break;
        }
    return q;
}

/* ---- one map ---- */

/* The arrays of a map while they are filled. */
struct arrays {
    uint32_t *mask;
    int32_t *first, *nbr, *order, *pair_in, *pair_out, *pair_start, *pair_start_host;
    int32_t *position; /* first pair of each sample, offset and chunk */
};

sp_status take_rows(cuda_plan_builder *b, const cuda_plan_level *out, const cuda_map *m,
                    arrays *a)
{
    const size_t n_lists = (size_t)b->n_samples * (size_t)m->K + 1;
    const size_t n = (size_t)m->n_out;

    SP_TRY(SP_TAKE(b->arena, n * (size_t)m->n_words, &a->mask));
    SP_TRY(SP_TAKE(b->arena, n + 1, &a->first));
    SP_TRY(SP_TAKE(b->arena, n, &a->order));
    SP_TRY(SP_TAKE(b->arena, n_lists, &a->pair_start));
    SP_TRY(SP_TAKE(b->host, n_lists, &a->pair_start_host));
    return SP_TAKE(b->arena, (size_t)out->chunk_host[b->n_samples] * (size_t)m->K + 1,
                   &a->position);
}

sp_status take_pairs(cuda_plan_builder *b, const cuda_map *m, arrays *a)
{
    SP_TRY(SP_TAKE(b->arena, m->pairs, &a->nbr));
    SP_TRY(SP_TAKE(b->arena, m->pairs, &a->pair_in));
    return SP_TAKE(b->arena, m->pairs, &a->pair_out);
}

void publish(const arrays *a, cuda_map *m)
{
    m->mask = a->mask;
    m->first = a->first;
    m->nbr = a->nbr;
    m->order = a->order;
    m->pair_in = a->pair_in;
    m->pair_out = a->pair_out;
    m->pair_start = a->pair_start;
    m->pair_start_host = a->pair_start_host;
}

/* Builds everything that does not need the number of pairs, and that number. */
sp_status build_rows(cuda_plan_builder *b, const lookup &q, const cuda_plan_level *out,
                     cuda_map *m, arrays *a)
{
    const size_t n_lists = (size_t)b->n_samples * (size_t)m->K + 1;

    SP_TRY(take_rows(b, out, m, a));
    publish(a, m);
    SP_TRY(plan_each(b, write_masks{q, a->mask}, m->n_out));
    SP_TRY(plan_scan(b, count_neighbours{a->mask, m->n_words, m->n_out, a->first},
                     m->n_out, a->first + m->n_out));
    SP_TRY(plan_order_rows(b, q.kernel, out, m, a->order));
    SP_TRY(plan_count_pairs(b, out, m, a->position, a->pair_start));
    SP_TRY(plan_download(b, a->pair_start_host, a->pair_start,
                         n_lists * sizeof *a->pair_start));
    m->pairs = a->pair_start_host[n_lists - 1];
    if (m->pairs == INT32_MAX)
        return SP_FAIL(
            SP_EDATA, "more than 2^31 pairs in one kernel map: set batch.voxel_budget");
    return SP_OK;
}

sp_status build_map(cuda_plan_builder *b, sp_map_key key, sp_map *map)
{
    const cuda_plan_level *out = &b->level[key.level_out];
    const lookup q = lookup_of(b, key);
    arrays a = {};
    cuda_map *m;

    SP_TRY(SP_TAKE(b->host, 1, &m));
    *m = cuda_map{};
    m->K = key.kernel * key.kernel * key.kernel;
    m->n_words = (m->K + 31) / 32;
    m->n_in = b->level[key.level_in].n;
    m->n_out = out->n;
    m->n_samples = b->n_samples;
    SP_TRY(build_rows(b, q, out, m, &a));
    SP_TRY(take_pairs(b, m, &a));
    publish(&a, m);
    SP_TRY(plan_each(b, write_neighbours{q, a.mask, a.first, a.nbr}, m->n_out));
    SP_TRY(plan_write_pairs(b, out, m, a.position, a.pair_in, a.pair_out));
    map->device = m;
    return SP_OK;
}

/* ---- all maps ---- */

/* Fills in the fields of sp_map that do not depend on the device, as the host's builder
 * does. */
void describe(const cuda_plan_builder *b, sp_map_key key, sp_map *map)
{
    const bool is_flat = key.level_in == key.level_out;

    map->key = key;
    map->K = key.kernel * key.kernel * key.kernel;
    map->n_in = b->level[key.level_in].n;
    map->n_out = b->level[key.level_out].n;
    map->is_full = is_flat;
    map->centre = !is_flat ? -1 : key.kernel % 2 ? map->K / 2 : 0;
}

bool is_cube(sp_map_key key)
{
    return key.level_in == key.level_out && key.kernel == 3 && !key.is_swapped;
}

} // namespace

/* The coarsest 3^3 map is built by search, the others by descent from coarser ones. */
sp_status plan_build_maps(cuda_plan_builder *b)
{
    const sp_plan_spec *spec = b->spec;

    for (int l = spec->n_levels - 1; l >= 0; l--)
        for (int i = 0; i < spec->n_maps; i++)
            if (is_cube(spec->map[i]) && spec->map[i].level_out == l) {
                SP_TRY(build_map(b, spec->map[i], &b->plan->map[i]));
                b->cube[l] = (const cuda_map *)b->plan->map[i].device;
            }
    for (int i = 0; i < spec->n_maps; i++) {
        sp_map *map = &b->plan->map[i];
        if (!is_cube(spec->map[i]))
            SP_TRY(build_map(b, spec->map[i], map));
        describe(b, spec->map[i], map);
        map->pairs = ((const cuda_map *)map->device)->pairs;
    }
    return SP_OK;
}

#include "cuda/plan/cuda_map_host.h"

#include <stdlib.h>
#include <string.h>

typedef struct row_key {
    int window;
    uint64_t key;
    int32_t row;
} row_key;

static bool map_has(const cuda_map *m, int32_t row, int k)
{
    return m->mask[(size_t)(k / 32) * (size_t)m->n_out + (size_t)row] >> k % 32 & 1;
}

static sp_status none_left(void)
{
    return SP_FAIL(SP_EMEM, "kernel map: out of memory");
}

/* Fills masks and neighbours: within a tile the pairs are sorted by rising offset. */
static sp_status map_copy_rows(const sp_map *from, cuda_map *m)
{
    const size_t n = (size_t)m->n_out;
    uint32_t *mask = calloc(n * (size_t)m->n_words + 1, sizeof *mask);
    int32_t *first = calloc(n + 1, sizeof *first), *at = malloc((n + 1) * sizeof *at);
    int32_t *nbr = malloc(((size_t)m->pairs + 1) * sizeof *nbr);
    const int n_lists = from->n_tiles * m->K;

    m->mask = mask;
    m->first = first;
    m->nbr = nbr;
    if (!mask || !first || !at || !nbr) {
        free(at);
        return none_left();
    }
    for (int64_t p = 0; p < m->pairs; p++)
        first[from->out[p] + 1]++;
    for (size_t i = 0; i < n; i++)
        first[i + 1] += first[i];
    for (size_t i = 0; i < n; i++)
        at[i] = first[i];
    for (int list = 0; list < n_lists; list++)
        for (int32_t p = from->start[list]; p < from->start[list + 1]; p++) {
            const int k = list % m->K;
            const size_t o = (size_t)from->out[p];
            mask[(size_t)(k / 32) * n + o] |= 1u << k % 32;
            nbr[at[o]++] = from->in[p];
        }
    free(at);
    return SP_OK;
}

static uint32_t map_gray_place(uint32_t v)
{
    uint32_t place = 0;

    for (; v; v >>= 1)
        place ^= v;
    return place;
}

/* True if plane j of an axis (0 is x) holds any offset. */
static uint32_t map_is_used(const cuda_map *m, int kernel, int32_t row, int axis, int j)
{
    for (int k = 0; k < m->K; k++) {
        const int at[3] = {k % kernel, k / kernel % kernel, k / kernel / kernel};
        if (at[axis] == j && map_has(m, row, k))
            return 1;
    }
    return 0;
}

/* Gives, for kernels wider than 3, the two outer planes on either side of z, x, y. */
static uint64_t outer_key(const cuda_map *m, int kernel, int32_t row)
{
    static const int axes[] = {2, 0, 1};
    const int plane[] = {0, kernel - 1, 1, kernel - 2};
    uint32_t bits = 0;

    for (int i = 0; kernel > 3 && i < 12; i++)
        bits = bits << 1 | map_is_used(m, kernel, row, axes[i / 4], plane[i % 4]);
    return map_gray_place(bits);
}

/* Joins two numbers: which outer planes of the inner 3^3 hold any offset, and its other
 * 26 offsets. Smaller kernels have the mask instead. */
static uint32_t inner_key(const cuda_map *m, int kernel, int32_t row)
{
    const int lo = (kernel - 3) / 2;
    uint32_t planes = 0, others = 0;
    int at = 0;

    if (kernel < 3)
        return map_gray_place(m->mask[row]);
    for (int z = 0; z < 3; z++)
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 3; x++) {
                const int k = ((z + lo) * kernel + y + lo) * kernel + x + lo;
                const bool is_centre = x == 1 && y == 1 && z == 1;
                if (map_has(m, row, k)) {
                    planes |= (uint32_t)(z == 0) << 5 | (uint32_t)(z == 2) << 4 |
                              (uint32_t)(x == 0) << 3 | (uint32_t)(x == 2) << 2 |
                              (uint32_t)(y == 0) << 1 | (uint32_t)(y == 2);
                    others |= (uint32_t)!is_centre << at;
                }
                at += !is_centre;
            }
    return map_gray_place(planes) << 26 | map_gray_place(others);
}

static int map_compare(const void *a, const void *b)
{
    const row_key *x = a, *y = b;

    if (x->window != y->window)
        return x->window < y->window ? -1 : 1;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* Orders whole units by falling number of their offsets; the keys' windows come
 * first. */
static void order_tiles(const cuda_map *m, const row_key *rows, row_key *tiles,
                        int32_t *order)
{
    const int n_tiles = m->n_out / CUDA_ORDER_ROWS;

    for (int t = 0; t < n_tiles; t++) {
        const row_key *row = rows + (size_t)t * CUDA_ORDER_ROWS;
        int absent = m->K;

        for (int k = 0; k < m->K; k++) {
            bool is_there = false;
            for (int r = 0; r < CUDA_ORDER_ROWS; r++)
                is_there = is_there || map_has(m, row[r].row, k);
            absent -= is_there;
        }
        tiles[t] = (row_key){row->window, (uint64_t)absent, t};
    }
    qsort(tiles, (size_t)n_tiles, sizeof *tiles, map_compare);
    for (int32_t i = 0; i < m->n_out; i++)
        order[i] = rows[i / CUDA_ORDER_ROWS < n_tiles
                            ? tiles[i / CUDA_ORDER_ROWS].row * CUDA_ORDER_ROWS +
                                  i % CUDA_ORDER_ROWS
                            : i]
                       .row;
}

static sp_status map_copy_order(const sp_map *from, cuda_map *m)
{
    const size_t n = (size_t)m->n_out + 1;
    row_key *rows = malloc(n * sizeof *rows), *tiles = malloc(n * sizeof *tiles);
    int32_t *order = malloc(n * sizeof *order);

    m->order = order;
    if (!rows || !tiles || !order) {
        free(rows);
        free(tiles);
        return none_left();
    }
    for (int b = 0; b < m->n_samples; b++) {
        const int32_t begin = from->tile_row[from->sample_tile[b]];
        for (int32_t i = begin; i < from->tile_row[from->sample_tile[b + 1]]; i++)
            rows[i] = (row_key){begin / CUDA_MAP_WINDOW,
                                outer_key(m, from->key.kernel, i) << 32 |
                                    inner_key(m, from->key.kernel, i),
                                i};
    }
    qsort(rows, (size_t)m->n_out, sizeof *rows, map_compare);
    order_tiles(m, rows, tiles, order);
    free(rows);
    free(tiles);
    return SP_OK;
}

static sp_status map_copy_pairs(const sp_map *from, cuda_map *m)
{
    const size_t n = (size_t)m->pairs + 1;
    int32_t *in = malloc(n * sizeof *in), *out = malloc(n * sizeof *out), at = 0;
    int32_t *start = malloc(((size_t)(m->n_samples * m->K) + 1) * sizeof *start);

    m->pair_in = in;
    m->pair_out = out;
    m->pair_start = start;
    if (!in || !out || !start)
        return none_left();
    for (int b = 0; b < m->n_samples; b++)
        for (int k = 0; k < m->K; k++) {
            start[b * m->K + k] = at;
            for (int t = from->sample_tile[b]; t < from->sample_tile[b + 1]; t++)
                for (int32_t p = from->start[t * m->K + k];
                     p < from->start[t * m->K + k + 1]; p++) {
                    in[at] = from->in[p];
                    out[at++] = from->out[p];
                }
        }
    start[m->n_samples * m->K] = at;
    return SP_OK;
}

sp_status cuda_map_host(const sp_map *from, int n_samples, cuda_map *to)
{
    *to = (cuda_map){.K = from->K,
                     .n_words = (from->K + 31) / 32,
                     .n_in = from->n_in,
                     .n_out = from->n_out,
                     .n_samples = n_samples,
                     .pairs = from->pairs};

    SP_TRY(map_copy_rows(from, to));
    SP_TRY(map_copy_order(from, to));
    return map_copy_pairs(from, to);
}

void cuda_map_host_free(cuda_map *m)
{
    free((void *)m->mask);
    free((void *)m->first);
    free((void *)m->nbr);
    free((void *)m->order);
    free((void *)m->pair_in);
    free((void *)m->pair_out);
    free((void *)m->pair_start);
    memset(m, 0, sizeof *m);
}

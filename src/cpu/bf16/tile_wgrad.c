/* Weight gradient in bf16 by tiles: dW[k] += x^T dy over the pairs of offset k.
 *
 * The products are summed over pairs, so a chunk is 32 pairs of rows. The rows of dy
 * are woven as in bf16_wgrad.c: a word has one column of two rows. The rows of x are
 * transposed, so that a row of a tile has one channel of 32 pairs.
 *
 *     x  [pairs of tiles][chunks][32 channels][16 words]
 *     dy [chunks * 16 words][columns of the panel]
 *
 * A run of chunks is gathered at a time, from one tile of rows or several, since dW is
 * loaded and stored once a run: 256 x 256 channels are 256 KiB, and a tile of rows has
 * few pairs of an offset. So a group of tiles is done offset by offset. If dW of all
 * offsets leaves room in L2, the group has as many tiles as have room for their rows
 * there too; if it does not, the group is the whole sample, and only dW[k] stays in L2.
 *
 * Chunks belong to tiles, and each element adds them tile after tile. So neither runs
 * nor groups split or reorder a sum, and a thread owns whole panels. */
#include "cpu/bf16/tile.h"

enum {
    RUN = 8,            /* chunks of pairs; of 32 channels they are 16 KiB */
    LD = CHANNELS + 16, /* no whole KiB: steps fall into different sets of L1 */
    L2_SHARE = 1 << 20  /* bytes, of the 2 MiB that processors with AMX have */
};

/* The chunks that are to be added to dW[k], and their gathered rows. */
typedef struct run {
    const sp_cpu_wgrad *g;
    int thread, n_chunks;
    row_list x_rows[RUN], dy_rows[RUN];     /* of the pairs of each chunk */
    float *dw;                              /* panels of the offset */
    const uint16_t *owner;                  /* [panels] */
    _Alignas(64) uint32_t woven[EDGE * LD]; /* a chunk of x */
    _Alignas(64) uint32_t x[CHANNELS / (2 * EDGE)][RUN][2 * SQUARE];
    _Alignas(64) uint32_t dy[RUN * EDGE * PANEL];
} run;

/* ---- gathering ---- */

/* Gathers columns of a chunk of up to CHUNK pairs; steps without pairs are zero. */
static void gather_chunk(row_list rows, int column, int c, int ld, uint32_t *word)
{
    weave_rows(rows, column, c, EDGE, ld, word);
    for (int step = (rows.n + 1) / 2; step < EDGE; step++)
        memset(word + (size_t)step * (size_t)ld, 0,
               (size_t)padded_columns(c) * sizeof *word);
}

/* Gathers c channels of x from c0 on, transposed. */
static void gather_x(run *r, int c0, int c)
{
    const size_t step = sizeof r->x[0] / sizeof r->x[0][0][0];

    for (int q = 0; q < r->n_chunks; q++) {
        if (gather_tiles(r->x_rows[q], c0, c, r->x[0][q], step))
            continue;
        gather_chunk(r->x_rows[q], c0, c, LD, r->woven);
        for (int j = 0; j < c; j += EDGE)
            ISA(transpose)
        ((const float *)(const void *)(r->woven + j), LD, EDGE, EDGE, EDGE,
         (float *)(void *)tile_of(r->x[0][q], step, j));
    }
}

/* Gathers the columns of a panel of dy. */
static void gather_dy(run *r, int at, int columns)
{
    const int width = min_i(columns, r->g->dy.c - at);
    uint32_t *to = r->dy;

    for (int q = 0; q < r->n_chunks; q++, to += EDGE * columns)
        if (!gather_words(r->dy_rows[q], at, width, columns, to))
            gather_chunk(r->dy_rows[q], at, width, columns, to);
}

/* ---- sums ---- */

/* Adds the products to dw [c][columns], two rows of tiles at a time. The last rows are
 * computed in a copy where dw ends within a tile. */
static void add_panel(const run *r, float *dw, int c, int columns)
{
    _Alignas(64) float copy[2 * EDGE * PANEL];
    const size_t row = (size_t)columns;
    tile_products m = {.b = r->dy,
                       .ld_a = EDGE * sizeof r->x[0][0][0],
                       .step_a = sizeof r->x[0][0],
                       .ld_b = row,
                       .ld = row,
                       .columns = columns / EDGE,
                       .n_chunks = r->n_chunks,
                       .is_added = true};

    for (int i = 0; i < c; i += m.rows * EDGE) {
        float *to = dw + (size_t)i * row;
        m.rows = c - i > EDGE ? 2 : 1;
        const int n = min_i(m.rows * EDGE, c - i);
        const size_t bytes = (size_t)n * row * sizeof *dw;
        m.a = (const char *)r->x[i / (2 * EDGE)];
        m.sum = n == m.rows * EDGE ? to : memcpy(copy, to, bytes);
        TILES(multiply)(&m);
        if (m.sum == copy)
            memcpy(to, copy, bytes);
    }
}

static void tile_add_channels(run *r, int c0)
{
    const int c_in = r->g->x.c, c_out = r->g->dy.c, c = min_i(CHANNELS, c_in - c0);
    bool has_x = false;

    for (int at = 0, columns, i = 0; at < c_out; at += columns, i++) {
        columns = panel_columns(at, c_out);
        if (r->owner[i] != r->thread)
            continue;
        if (!has_x)
            gather_x(r, c0, c);
        has_x = true;
        gather_dy(r, at, columns);
        add_panel(r, r->dw + (size_t)at * (size_t)c_in + (size_t)c0 * (size_t)columns,
                  c, columns);
    }
}

/* Adds the chunks that are collected. */
static void tile_add_run(run *r)
{
    for (int c0 = 0; r->n_chunks && c0 < r->g->x.c; c0 += CHANNELS)
        tile_add_channels(r, c0);
    r->n_chunks = 0;
}

/* Begins to fetch rows to L2: a chunk's rows are read again for each panel, and the
 * rows of a group of all tiles come from far. */
INLINE void fetch_rows(row_list rows)
{
    const int bytes = rows.t.c * (int)sp_elem_bytes(rows.t.elem);

    for (int i = 0; i < rows.n; i++) {
        const char *at = sp_row_bytes(rows.t, rows.row + rows.index[i]);
        for (int j = 0; j < bytes; j += 64)
            __builtin_prefetch(at + j, 0, 2);
    }
}

/* Collects the chunks of offset k of a tile. */
static void tile_collect(run *r, const tile *t, int k)
{
    for (int p = t->start[k]; p < t->start[k + 1]; p += CHUNK) {
        const int q = r->n_chunks++, n = min_i(CHUNK, t->start[k + 1] - p);
        r->x_rows[q] = (row_list){r->g->x, t->x_row, t->in + p, n};
        r->dy_rows[q] = (row_list){r->g->dy, t->y_row, t->out + p, n};
        fetch_rows(r->x_rows[q]);
        fetch_rows(r->dy_rows[q]);
        if (r->n_chunks == RUN)
            tile_add_run(r);
    }
}

/* ---- tiles ---- */

/* The number of tiles that are processed together. */
static int group_size(const sp_cpu_wgrad *g)
{
    const int64_t K = g->map ? g->map->K : 1, c_in = g->x.c, c_out = g->dy.c;
    const int64_t dw_bytes = 4 * K * c_in * c_out;
    const int64_t tile_bytes = 2 * SP_TILE * (c_in + c_out);

    if (dw_bytes > L2_SHARE)
        return count_tiles(g);
    return L2_SHARE / 2 < tile_bytes ? 1 : (int)(L2_SHARE / 2 / tile_bytes);
}

/* Adds tiles first .. last - 1, offset by offset. */
static void add_group(run *r, int first, int last)
{
    const sp_cpu_wgrad *g = r->g;
    const int c_in = g->x.c, c_out = g->dy.c, K = g->map ? g->map->K : 1;
    int32_t start[2];

    for (int k = 0; k < K; k++) {
        r->owner = g->owner + (size_t)k * (size_t)TILES(n_panels)(c_out);
        r->dw = g->dw + (size_t)k * (size_t)c_in * (size_t)padded_columns(c_out);
        for (int i = first; i < last; i++) {
            const tile t = tile_of_wgrad(g, i, start);
            tile_collect(r, &t, k);
        }
        tile_add_run(r);
    }
}

void TILES(wgrad)(const sp_cpu_wgrad *g, int thread)
{
    const int n = count_tiles(g), size = group_size(g);
    run r;

    r.g = g;
    r.thread = thread;
    r.n_chunks = 0;
    TILES(begin)();
    for (int i = 0; i < n; i += size)
        add_group(&r, i, min_i(i + size, n));
    TILES(end)();
}

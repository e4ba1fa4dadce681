/* Convolution of one tile of output rows in bf16 by tiles: the forward pass, and the
 * input gradient, as in bf16_conv.c.
 *
 * The pairs of an offset are taken 32 at a time. Their rows of x are gathered, chunk by
 * chunk, unless they are consecutive rows of x; they are multiplied with the panels of
 * the offset's weights, each of at most 32 columns; and the products of a panel, still
 * in L1, are added to the sums of the pairs' output rows. Keeping the sums of 16 output
 * rows in tile registers over all offsets instead would multiply rows of zeros for
 * every absent neighbour, which is most of them. */
#include "cpu/bf16/tile.h"

#include "cpu/bf16/bf16_sums.h"

#include <assert.h>

enum {
    GROUP = 16,   /* chunks that are gathered at a time: 32 KiB */
    COLUMNS = 256 /* with sums kept at a time: 512 KiB of L2 */
};

/* Buffers of one tile of output rows. */
typedef struct pair_rows {
    uint32_t x[GROUP][PAIRS][EDGE]; /* gathered rows of x */
    float products[PAIRS * PANEL];  /* [PAIRS][columns of the panel] */
} pair_rows;

/* Gathers channels c0 .. c0 + c - 1 of n rows of the input. */
static void tile_gather(const panel_sums *p, const int32_t *in, int n, int c0, int c,
                        pair_rows *to)
{
    for (int i = 0; i < n; i++) {
        const uint16_t *from = sp_row_bf16(p->c->x, p->t->x_row + in[i]) + c0;
        for (int q = 0; q * CHUNK < c; q++)
            copy_chunk(from + q * CHUNK, min_i(CHUNK, c - q * CHUNK), to->x[q][i]);
    }
}

/* Are these PAIRS consecutive rows? */
INLINE bool tile_is_run(const int32_t *in)
{
    int32_t other = 0;

    for (int i = 0; i < PAIRS; i++)
        other |= in[i] - in[0] - i;
    return other == 0;
}

/* Sets the left operand of channels c0 .. c0 + c - 1. */
static void tile_set_rows(const panel_sums *p, const int32_t *in, int n, int c0, int c,
                          pair_rows *rows, tile_products *m)
{
    const sp_tensor x = p->c->x;

    if (n == PAIRS && c % CHUNK == 0 && tile_is_run(in)) {
        m->a = (const char *)(sp_row_bf16(x, p->t->x_row + in[0]) + c0);
        m->ld_a = (size_t)x.ld * sizeof(uint16_t);
        m->step_a = CHUNK * sizeof(uint16_t);
        return;
    }
    tile_gather(p, in, n, c0, c, rows);
    m->a = (const char *)rows->x;
    m->ld_a = sizeof rows->x[0][0];
    m->step_a = sizeof rows->x[0];
}

/* Adds the products of n pairs to columns column .. column + ld - 1 of the sums of
 * their output rows; is_first: to `first`. */
static void add_products_of(const panel_sums *p, const float *products, int column,
                            int ld, const int32_t *out, int n, bool is_first)
{
    const int64_t row0 = p->t->row - p->t->y_row;

    for (int i = 0; i < n; i++, products += ld) {
        float *sum = p->sum + (out[i] - row0) * p->ld + column;
        const float *from = is_first ? p->first + column : sum;
        for (int j = 0; j < ld; j += LANES)
            store(sum + j, load(from + j) + load(products + j));
    }
}

/* Adds n pairs of an offset. w: its packed weights. The rows of x are gathered once if
 * they are not longer than the buffer. */
static void add_pairs(const panel_sums *p, const float *w, const int32_t *in,
                      const int32_t *out, int n, bool is_first, pair_rows *rows)
{
    const int c_in = p->c->x.c, n_words = chunks(c_in) * EDGE;
    int held = -1; /* the first channel of those that are gathered */
    tile_products m = {.sum = rows->products, .rows = n > EDGE ? 2 : 1};

    for (int column = 0, ld; column < p->ld; column += ld) {
        const float *panel = w + (size_t)(p->at + column) * (size_t)n_words;
        ld = min_i(PANEL, p->ld - column);
        m.ld = m.ld_b = (size_t)ld;
        m.columns = ld / EDGE;
        for (int c0 = 0; c0 < c_in; c0 += GROUP * CHUNK) {
            const int c = min_i(GROUP * CHUNK, c_in - c0);
            if (held != c0)
                tile_set_rows(p, in, n, c0, c, rows, &m);
            held = c0;
            m.b = (const uint32_t *)(const void *)(panel + (size_t)(c0 / 2) * m.ld_b);
            m.n_chunks = chunks(c);
            m.is_added = c0 > 0;
            TILES(multiply)(&m);
        }
        add_products_of(p, rows->products, column, ld, out, n, is_first);
    }
}

static void tile_add_offset(const panel_sums *p, int k, bool is_first)
{
    const tile *t = p->t;
    const float *w = p->c->w + (size_t)k * tile_words(p->c->x.c, p->c->y.c);
    _Alignas(64) pair_rows rows;

    for (int i = t->start[k], n; i < t->start[k + 1]; i += n) {
        n = min_i(PAIRS, t->start[k + 1] - i);
        add_pairs(p, w, t->in + i, t->out + i, n, is_first, &rows);
        ahead_step(p->next);
    }
}

static int tile_count_blocks(const sp_cpu_conv *c, const tile *t)
{
    const int pairs = t->start[t->K] - t->start[0];

    return pairs / PAIRS * ((c->y.c + COLUMNS - 1) / COLUMNS);
}

void TILES(conv_tile)(const sp_cpu_conv *c, int index)
{
    _Alignas(64) float sum[SP_TILE * COLUMNS], first[COLUMNS];
    int32_t start[2], piece_start[2];
    const tile all = tile_of_conv(c, index, start);
    ahead next = ahead_open(&all, &c->x, &c->y, tile_count_blocks(c, &all));
    panel_sums p = {.c = c, .sum = sum, .first = first, .next = &next};
    tile t;

    assert(!(c->bias && c->is_added) && c->x.elem == SP_ELEM_BF16);
    TILES(begin)();
    for (int64_t row = all.row; row < all.end; row = t.end) {
        t = piece_of(&all, c->map, row, piece_start);
        p.t = &t;
        for (p.at = 0; p.at < c->y.c; p.at += p.ld) {
            p.ld = min_i(COLUMNS, padded_columns(c->y.c) - p.at);
            p.width = min_i(p.ld, c->y.c - p.at);
            sum_panel(&p, tile_add_offset);
        }
    }
    TILES(end)();
}

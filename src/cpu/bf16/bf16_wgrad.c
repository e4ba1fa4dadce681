/* Weight gradient in bf16: dW[k] += x dy^T over the pairs of offset k.
 *
 * The operation of bf16.h sums two products, here of two pairs of rows. A run of pairs
 * is gathered first: the rows of x and of dy, two and two woven into words. The blocks
 * of mr input channels x nr vectors of output channels then read dense panels,
 *
 *     x   [steps][block of channels]    dy   [steps][nr vectors]
 *
 * so that a run may be twice as long as in cpu_vec_wgrad.c, and dW is loaded and stored
 * half as often. dW has the same panels.
 *
 * Each element is one chain of the operation over the pairs of a tile and offset, by
 * twos, tile after tile; an odd number of pairs is filled up with zero. Runs have even
 * lengths, so neither they nor blocks split the chain, and a thread owns whole panels,
 * so the number of threads changes nothing either. */
#include "cpu/bf16/bf16.h"
#include "cpu/bf16/bf16_weave.h"

enum {
    RUN = 192,           /* pairs; 96 steps of 64 words of dy are 24 KiB */
    CHANNELS = 256,      /* input channels gathered at a time */
    LD_X = CHANNELS + 16 /* no whole KiB: steps fall into different sets of L1 */
};

/* Operands of the blocks of one panel of dW. */
typedef struct wpanel {
    const uint32_t *x; /* [steps][LD_X] at the block's first channel */
    const float *dy;   /* [steps][nr * LANES] words */
    float *dw;
} wpanel;

INLINE void wblock(const wpanel *b, int n_steps, const int mr, const int nr)
{
    const uint32_t *x = b->x;
    const float *dy = b->dy;
    float *const dw = b->dw;
    vec sum[12][NR_MAX];
    int s = 0;

    UNROLL
    for (int i = 0; i < mr; i++) {
        UNROLL
        for (int j = 0; j < nr; j++)
            sum[i][j] = load(dw + (i * nr + j) * LANES);
    }
#define STEP(U)                                                                        \
    UNROLL                                                                             \
    for (int h = 0; h < HALVES; h++) {                                                 \
        vec g[NR_MAX];                                                                 \
        UNROLL                                                                         \
        for (int j = 0; j < nr; j++)                                                   \
            g[j] = half_of(load(dy + ((U)*nr + j) * LANES), h);                        \
        UNROLL                                                                         \
        for (int i = 0; i < mr; i++) {                                                 \
            vec a = half_of(word_at(x + (U)*LD_X + i), h);                             \
            UNROLL                                                                     \
            for (int j = 0; j < nr; j++)                                               \
                sum[i][j] = add_products(sum[i][j], a, g[j]);                          \
        }                                                                              \
    }
    for (; s + STEPS <= n_steps; s += STEPS, x += STEPS * LD_X) {
        STEP(0) FENCE STEP(1) FENCE STEP(2) FENCE STEP(3) dy += STEPS * nr * LANES;
    }
    for (; s < n_steps; s++, x += LD_X, dy += nr * LANES) {
        STEP(0)
    }
    UNROLL
    for (int i = 0; i < mr; i++) {
        UNROLL
        for (int j = 0; j < nr; j++)
            store(dw + (i * nr + j) * LANES, sum[i][j]);
    }
}

typedef void wblock_fn(const wpanel *, int);

#define SHAPE(M, N)                                                                    \
    static void wblock_##M##x##N(const wpanel *b, int n_steps)                         \
    {                                                                                  \
        wblock(b, n_steps, M, N);                                                      \
    }
#include "cpu/cpu_wgrad_blocks.inc"

/* ---- a tile ---- */

/* One run of pairs and the words gathered of it. */
typedef struct run {
    const sp_cpu_wgrad *g;
    const tile *t;
    int first, n;          /* pairs */
    float *dw;             /* panels of the offset */
    const uint16_t *owner; /* [panels] */
    int thread;
    uint32_t *x, *dy;
    ahead *next;
} run;

/* Adds the run to all blocks of one panel, over the gathered channels c0 .. c0 + c - 1.
 */
static void bf16_run_blocks(const run *r, float *dw, int c, int nr)
{
    const int n_blocks = (c + mr_max(nr) - 1) / mr_max(nr), n_steps = (r->n + 1) / 2;
    wpanel b = {.x = r->x, .dy = (const float *)(const void *)r->dy, .dw = dw};

    for (int i = 0; i < n_blocks; i++) {
        int mr = c / n_blocks + (i < c % n_blocks);
        wblocks[nr][mr](&b, n_steps);
        ahead_step(r->next);
        b.x += mr;
        b.dw += mr * nr * LANES;
    }
}

static void bf16_add_channels(const run *r, int c0)
{
    const tile *t = r->t;
    const int c_in = r->g->x.c, c_out = r->g->dy.c, nv = vectors(c_out);
    const int c = min_i(CHANNELS, c_in - c0);
    bool has_x = false;

    for (int v = 0, nr, i = 0; v < nv; v += nr, i++) {
        const int at = v * LANES;
        nr = panel_width(v, nv);
        if (r->owner[i] != r->thread)
            continue;
        if (!has_x)
            weave_rows((row_list){r->g->x, t->x_row, t->in + r->first, r->n}, c0, c,
                       LANES, LD_X, r->x);
        has_x = true;
        weave_rows((row_list){r->g->dy, t->y_row, t->out + r->first, r->n}, at,
                   min_i(nr * LANES, c_out - at), LANES, nr * LANES, r->dy);
        bf16_run_blocks(
            r, r->dw + (size_t)at * (size_t)c_in + (size_t)(c0 * nr) * LANES, c, nr);
    }
}

/* Adds the pairs of one offset in one tile, cut into runs of nearly equal, even length.
 */
static void bf16_wgrad_add_offset(run *r, int k)
{
    const tile *t = r->t;
    const int c_in = r->g->x.c, c_out = r->g->dy.c;

    r->owner = r->g->owner + (size_t)k * (size_t)ISA(n_panels)(c_out);
    r->dw = r->g->dw + (size_t)(k - r->g->k0) * packed_floats(c_in, c_out);
    for (r->first = t->start[k]; r->first < t->start[k + 1]; r->first += r->n) {
        const int left = t->start[k + 1] - r->first, runs = (left + RUN - 1) / RUN;
        r->n = min_i(left, ((left + runs - 1) / runs + 1) / 2 * 2);
        for (int c0 = 0; c0 < c_in; c0 += CHANNELS)
            bf16_add_channels(r, c0);
    }
}

static void bf16_add_tile(const sp_cpu_wgrad *g, const tile *t, int thread)
{
    _Alignas(64) uint32_t x[RUN / 2 * LD_X], dy[RUN / 2 * NR_MAX * LANES];
    ahead next = wgrad_ahead(g, t);
    run r = {.g = g, .t = t, .thread = thread, .x = x, .dy = dy, .next = &next};

    for (int k = g->k0; k < g->k1; k++)
        bf16_wgrad_add_offset(&r, k);
}

void PRODUCTS(wgrad)(const sp_cpu_wgrad *g, int thread)
{
    const unsigned before = flush_begin();
    int32_t start[2];

    for (int i = 0; i < count_tiles(g); i++) {
        const tile t = tile_of_wgrad(g, i, start);
        bf16_add_tile(g, &t, thread);
    }
    flush_end(before);
}

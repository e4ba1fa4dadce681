/* Weight gradient: dW[k] += x dy^T over the pairs of offset k.
 *
 * A block of mr input channels x nr vectors of output channels is kept in registers
 * over a run of pairs that is short enough for its rows of x and dy to stay in L1. dW
 * is laid out in panels like packed weights, so the sums of a block are consecutive
 * lines and not rows 1 KiB apart. All figures are measured: panels are 1-3 % faster
 * with 256 channels. Gathering a run's rows to dense panels first was slower (128
 * channels: 74 % of peak instead of 82 %), because the copy waits for L2 while the
 * blocks overlap the same misses with arithmetic. Keeping dW[k] in L2 over 4 or 8 tiles
 * of wide rows (256 channels, 1 MiB of L2) was 1 to 10 points slower than one tile at a
 * time.
 *
 * Each element is one chain of fused multiply-adds over the pairs, tile after tile.
 * Runs and blocks do not split it, and a thread owns whole panels, so the number of
 * threads changes nothing either. */
#include "cpu/cpu_vec.h"

enum { RUN = 96 /* pairs */ };

/* Operands of the blocks of one panel of dW. */
typedef struct wpanel {
    const float *x, *dy;
    float *dw;
    size_t ld_x, ld_dy;
    vmask tail; /* mask of the last vector of dy; dw is padded */
} wpanel;

INLINE void wblock(const wpanel *b, const int32_t *in, const int32_t *out, int n,
                   const int mr, const int nr)
{
    /* Local copies, because the compiler must assume that vector stores may change *b.
     */
    const size_t ld_x = b->ld_x, ld_dy = b->ld_dy;
    const float *const x0 = b->x, *const dy0 = b->dy;
    const vmask tail = b->tail;
    float *const dw = b->dw;
    vec sum[12][NR_MAX];
    int p = 0;

    UNROLL
    for (int i = 0; i < mr; i++) {
        UNROLL
        for (int j = 0; j < nr; j++)
            sum[i][j] = load(dw + (i * nr + j) * LANES);
    }
#define STEP(U)                                                                        \
    {                                                                                  \
        const float *x = x0 + (size_t)in[p + (U)] * ld_x;                              \
        const float *dy = dy0 + (size_t)out[p + (U)] * ld_dy;                          \
        vec g[NR_MAX];                                                                 \
        UNROLL                                                                         \
        for (int j = 0; j < nr; j++)                                                   \
            g[j] = j + 1 < nr ? load(dy + j * LANES) : load_m(dy + j * LANES, tail);   \
        UNROLL                                                                         \
        for (int i = 0; i < mr; i++) {                                                 \
            vec a = set1(x[i]);                                                        \
            UNROLL                                                                     \
            for (int j = 0; j < nr; j++)                                               \
                sum[i][j] = fma_v(a, g[j], sum[i][j]);                                 \
        }                                                                              \
    }
    for (; p + STEPS <= n; p += STEPS) {
        STEP(0) FENCE STEP(1) FENCE STEP(2) FENCE STEP(3)
    }
    for (; p < n; p++)
        STEP(0)
    UNROLL
    for (int i = 0; i < mr; i++) {
        UNROLL
        for (int j = 0; j < nr; j++)
            store(dw + (i * nr + j) * LANES, sum[i][j]);
    }
}

typedef void wblock_fn(const wpanel *, const int32_t *, const int32_t *, int);

#define SHAPE(M, N)                                                                    \
    static void wblock_##M##x##N(const wpanel *b, const int32_t *in,                   \
                                 const int32_t *out, int n)                            \
    {                                                                                  \
        wblock(b, in, out, n, M, N);                                                   \
    }
#include "cpu/cpu_wgrad_blocks.inc"

/* Adds one run of pairs to all blocks of one panel. */
static void vec_run_blocks(wpanel b, int c_in, int nr, const int32_t *in,
                           const int32_t *out, int n, ahead *next)
{
    int n_blocks = (c_in + mr_max(nr) - 1) / mr_max(nr);

    for (int i = 0; i < n_blocks; i++) {
        int mr = c_in / n_blocks + (i < c_in % n_blocks);
        wblocks[nr][mr](&b, in, out, n);
        ahead_step(next);
        b.x += mr;
        b.dw += mr * nr * LANES;
    }
}

/* Adds the pairs of one offset in one tile, cut into runs of nearly equal length. */
static void vec_wgrad_add_offset(const sp_cpu_wgrad *g, const tile *t, int k,
                                 int thread, ahead *next)
{
    const int c_in = g->x.c, c_out = g->dy.c, nv = vectors(c_out);
    const uint16_t *owner = g->owner + (size_t)k * (size_t)ISA(n_panels)(c_out);
    float *dw = g->dw + (size_t)(k - g->k0) * packed_floats(c_in, c_out);

    for (int p = t->start[k], n; p < t->start[k + 1]; p += n) {
        const int left = t->start[k + 1] - p, runs = (left + RUN - 1) / RUN;
        n = (left + runs - 1) / runs;
        for (int v = 0, nr, i = 0; v < nv; v += nr, i++) {
            nr = panel_width(v, nv);
            if (owner[i] != thread)
                continue;
            wpanel b = {.x = g->x.data + t->x_row * g->x.ld,
                        .dy = g->dy.data + t->y_row * g->dy.ld + v * LANES,
                        .ld_x = (size_t)g->x.ld,
                        .ld_dy = (size_t)g->dy.ld,
                        .dw = dw + (size_t)(v * LANES) * (size_t)c_in,
                        .tail =
                            first_lanes(min_i(LANES, c_out - (v + nr - 1) * LANES))};
            vec_run_blocks(b, c_in, nr, t->in + p, t->out + p, n, next);
        }
    }
}

static void vec_add_tile(const sp_cpu_wgrad *g, const tile *t, int thread)
{
    ahead next = wgrad_ahead(g, t);

    for (int k = g->k0; k < g->k1; k++)
        vec_wgrad_add_offset(g, t, k, thread, &next);
}

void ISA(wgrad)(const sp_cpu_wgrad *g, int thread)
{
    int32_t start[2];

    for (int i = 0; i < count_tiles(g); i++) {
        const tile t = tile_of_wgrad(g, i, start);
        vec_add_tile(g, &t, thread);
    }
}

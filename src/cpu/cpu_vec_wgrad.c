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
 * threads changes nothing either.
 *
 * If x has many zeros, as after an activation, each input channel takes only the pairs
 * of a run in which it is not zero, since a multiply-add by zero changes no sum but -0,
 * which unpack writes as 0. A block is then one channel x the vectors of a group of
 * panels (cpu_vec_listed.c has the same): 12 vectors have 13 loads for 12 multiply-adds,
 * and the rows of dy stay in L1 over all channels. With half of x zero it takes 0.6 to
 * 0.8 of the time (AVX2, Zen 3). */
#include "cpu/cpu_vec.h"

#include <assert.h>

enum {
    RUN = 96, /* pairs */
    /* If x has many zeros: pairs, whose rows of dy take 24 KiB of L1, and channels. */
    LIVE_RUN = LISTED_VECTORS * LANES > 96 ? 48 : 64,
    LIVE_CHANNELS = 256
};

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
            for (int j = 0; j < nr; j++) {                                             \
                sum[i][j] = fma_v(a, g[j], sum[i][j]);                                 \
                PIN(sum[i][j]);                                                        \
            }                                                                          \
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

/* ---- only the pairs in which a channel is not zero ---- */

/* A run of pairs. Rows are copied, since rows of 128 or 256 channels meet in few sets of
 * L1: not copied, 256 channels gained nothing. */
typedef struct live_run {
    const float *x_row[LIVE_RUN], *dy_row[LIVE_RUN];
    int n;
    /* Bit p % 32 of word p / 32: the channel is not zero in pair p. */
    uint32_t live[2][LIVE_CHANNELS];
    _Alignas(64) float x[LIVE_RUN][LIVE_CHANNELS + SP_CPU_LANES];
    _Alignas(64) float dy[LIVE_RUN * LISTED_VECTORS * LANES];
} live_run;

/* A group of panels. */
typedef struct live_group {
    float *dw[PANELS_MAX];
    int at[PANELS_MAX]; /* columns of dy before the panel */
    vmask tail;
} live_group;

/* Copies the channels c0 .. c0 + n - 1 of x and fills `live`. */
static void live_copy_x(live_run *r, int c0, int n)
{
    for (int v = 0; v < n; v += LANES) {
        const vmask here = first_lanes(min_i(LANES, n - v));
        for (int h = 0; h < 2; h++) {
            ivec bits = {0};
            for (int p = min_i(r->n, 32 * (h + 1)) - 1; p >= 32 * h; p--) {
                const vec x = load_m(r->x_row[p] + c0 + v, here);
                store(&r->x[p][v], x);
                bits = bits + bits - (ivec)(x != (vec){0});
            }
            memcpy(&r->live[h][v], &bits, sizeof bits);
        }
    }
}

/* Adds channels c0 .. c0 + n - 1 to np panels of na vectors, the last one of nb. */
INLINE void live_block(const live_group *g, live_run *r, int c0, int n, ahead *next,
                       const int np, const int na, const int nb)
{
    const int nv = (np - 1) * na + nb;

    for (size_t p = 0; p < (size_t)r->n; p++) {
        UNROLL
        for (int j = 0; j < nv; j++) {
            const float *from = r->dy_row[p] + g->at[j / na] + j % na * LANES;
            store(r->dy + p * (size_t)(nv * LANES) + j * LANES,
                  j + 1 < nv ? load(from) : load_m(from, g->tail));
        }
    }
    for (int i = 0; i < n; i++) {
        const int at = (c0 + i) * LANES; /* in a panel of one vector */
        uint64_t live = r->live[0][i] | (uint64_t)r->live[1][i] << 32;
        vec sum[LISTED_VECTORS];

        ahead_step(next);
        if (live == 0)
            continue;
        UNROLL
        for (int j = 0; j < nv; j++)
            sum[j] =
                load(g->dw[j / na] + at * (j / na + 1 < np ? na : nb) + j % na * LANES);
        for (; live; live &= live - 1) {
            const size_t p = (size_t)__builtin_ctzll(live);
            const vec a = set1(r->x[p][i]);
            const float *dy = r->dy + p * (size_t)(nv * LANES);
            UNROLL
            for (int j = 0; j < nv; j++)
                sum[j] = fma_v(a, load(dy + j * LANES), sum[j]);
        }
        UNROLL
        for (int j = 0; j < nv; j++)
            store(g->dw[j / na] + at * (j / na + 1 < np ? na : nb) + j % na * LANES,
                  sum[j]);
    }
}

typedef void live_fn(const live_group *g, live_run *r, int c0, int n, ahead *next);
#define LIVE(M, P, A, B)                                                               \
    static void live_block_##P##_##A##_##B(const live_group *g, live_run *r, int c0,   \
                                           int n, ahead *next)                         \
    {                                                                                  \
        live_block(g, r, c0, n, next, P, A, B);                                        \
    }
#define LIVE_NAME(M, P, A, B) [P][A][B] = live_block_##P##_##A##_##B,
LISTED_BLOCKS(LIVE)
static live_fn *const live_blocks[PANELS_MAX + 1][NR_MAX + 1][NR_MAX + 1] = {
    LISTED_BLOCKS(LIVE_NAME)};

/* Has `thread` the vectors for a group? */
static bool live_pays(const sp_cpu_wgrad *g, const uint16_t *owner, int thread,
                      int *n_panels)
{
    const int nv = vectors(g->dy.c);
    int n = 0;

    *n_panels = 0;
    for (int v = 0, i = 0; v < nv; v += panel_width(v, nv), i++)
        if (owner[i] == thread) {
            n += panel_width(v, nv);
            ++*n_panels;
        }
    return n >= WGRAD_LEAST;
}

/* Adds a run of pairs to the n_panels panels of the thread, which are nearly equal
 * groups. */
static void live_add_run(const sp_cpu_wgrad *g, live_run *r, const uint16_t *owner,
                         int thread, int n_panels, float *dw, ahead *next)
{
    const int c_in = g->x.c, nv = vectors(g->dy.c);

    for (int c0 = 0; c0 < c_in; c0 += LIVE_CHANNELS) {
        const int n = min_i(LIVE_CHANNELS, c_in - c0);

        live_copy_x(r, c0, n);
        for (int v = 0, i = 0, left = n_panels; left > 0;) {
            const int groups = (left + PANELS_MAX - 1) / PANELS_MAX;
            const int np = (left + groups - 1) / groups;
            live_group to;
            int width[PANELS_MAX];

            for (int q = 0; q < np; v += panel_width(v, nv), i++)
                if (owner[i] == thread) {
                    width[q] = panel_width(v, nv);
                    to.at[q] = v * LANES;
                    to.dw[q++] = dw + (size_t)(v * LANES) * (size_t)c_in;
                }
            to.tail = first_lanes(min_i(LANES, g->dy.c - (v - 1) * LANES));
            assert(live_blocks[np][width[0]][width[np - 1]]);
            live_blocks[np][width[0]][width[np - 1]](&to, r, c0, n, next);
            left -= np;
        }
    }
}

/* Adds the pairs of one offset in one tile, cut into runs of nearly equal length. */
static void vec_wgrad_add_offset(const sp_cpu_wgrad *g, const tile *t, int k,
                                 int thread, ahead *next)
{
    const int c_in = g->x.c, c_out = g->dy.c, nv = vectors(c_out);
    const uint16_t *owner = g->owner + (size_t)k * (size_t)ISA(n_panels)(c_out);
    const float *x = g->x.data + t->x_row * g->x.ld;
    const float *dy = g->dy.data + t->y_row * g->dy.ld;
    float *dw = g->dw + (size_t)(k - g->k0) * packed_floats(c_in, c_out);
    int n_panels;
    const bool is_live = g->has_zeros && live_pays(g, owner, thread, &n_panels);
    const int most = is_live ? LIVE_RUN : RUN;

    for (int p = t->start[k], n; p < t->start[k + 1]; p += n) {
        const int left = t->start[k + 1] - p, runs = (left + most - 1) / most;
        n = (left + runs - 1) / runs;
        if (is_live) {
            live_run r;
            r.n = n;
            for (int i = 0; i < n; i++) {
                r.x_row[i] = x + (int64_t)t->in[p + i] * g->x.ld;
                r.dy_row[i] = dy + (int64_t)t->out[p + i] * g->dy.ld;
            }
            live_add_run(g, &r, owner, thread, n_panels, dw, next);
            continue;
        }
        for (int v = 0, nr, i = 0; v < nv; v += nr, i++) {
            nr = panel_width(v, nv);
            if (owner[i] != thread)
                continue;
            wpanel b = {.x = x,
                        .dy = dy + v * LANES,
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

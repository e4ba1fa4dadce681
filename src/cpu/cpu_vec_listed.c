/* Convolution of one tile over the channels that are not zero. Activations leave about
 * half of a network's values zero, and a multiply-add by zero changes no sum (-0 becomes
 * 0). So the sums equal those of cpu_vec_conv.c: its chains without such steps.
 *
 * Channels are cut into runs of nearly equal length. For each row and run there is a
 * list (sp_cpu_isa.list_channels):
 *
 *     n | channel 1 | ... | channel n | a channel that is zero | the same | ...
 *
 * A block is rows x vectors of sums in registers. Step t multiplies the weights of
 * channel t of each row's own list, and the lists of rows with fewer channels go on with
 * a zero. Each sum loads its weights, which a dense block loads once for all rows: 2 rows
 * x 6 vectors have 14 loads for 12 multiply-adds, 1 row x 12 vectors 13. So the weights
 * of a run, of the panels of a block, stay in L1. */
#include "cpu/cpu_vec.h"

#include <assert.h>

/* Operands of the blocks of a group of panels of output channels. */
typedef struct listed_panels {
    const float *x;      /* at the first channel of the run */
    const uint8_t *list; /* of the run in row 0 */
    const float
        *w[PANELS_MAX]; /* weights of each panel at the first channel of the run */
    float *y;           /* at the first column */
    const float *first; /* initial value of the sums; NULL: y */
    size_t ld_x, ld_list, ld_y;
    vmask tail; /* mask of the last vector */
} listed_panels;

enum { LISTED_ROWS = 4 /* the most of a block */ };

/* np panels of na vectors, the last one of nb. */
INLINE void listed_block(const listed_panels *b, const int32_t *in, const int32_t *out,
                         const int mr, const int np, const int na, const int nb)
{
    const size_t ld_x = b->ld_x, ld_list = b->ld_list, ld_y = b->ld_y;
    const vmask tail = b->tail;
    const int nv = (np - 1) * na + nb;
    const float *w[PANELS_MAX], *x[LISTED_ROWS];
    const uint8_t *list[LISTED_ROWS];
    float *const y0 = b->y;
    vec sum[LISTED_ROWS][LISTED_VECTORS];
    long n = 0;

    UNROLL
    for (int q = 0; q < np; q++)
        w[q] = b->w[q];
    UNROLL
    for (int i = 0; i < mr; i++) {
        x[i] = b->x + (size_t)in[i] * ld_x;
        list[i] = b->list + (size_t)in[i] * ld_list + 1;
        n = list[i][-1] > n ? list[i][-1] : n;
    }
    UNROLL
    for (int i = 0; i < mr; i++) {
        const float *y = b->first ? b->first : y0 + (size_t)out[i] * ld_y;
        UNROLL
        for (int j = 0; j < nv; j++)
            sum[i][j] = j + 1 < nv ? load(y + j * LANES) : load_m(y + j * LANES, tail);
    }
    for (long t = 0; t < n; t++) {
        UNROLL
        for (int i = 0; i < mr; i++) {
            const size_t c = list[i][t];
            const vec a = set1(x[i][c]);
            UNROLL
            for (int j = 0; j < nv; j++) {
                const int q = j / na, width = q + 1 < np ? na : nb;
                const float *at = w[q] + (c * (size_t)width + (size_t)(j % na)) * LANES;
                sum[i][j] = fma_v(a, load(at), sum[i][j]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < mr; i++) {
        float *y = y0 + (size_t)out[i] * ld_y;
        UNROLL
        for (int j = 0; j + 1 < nv; j++)
            store(y + j * LANES, sum[i][j]);
        store_m(y + (nv - 1) * LANES, tail, sum[i][nv - 1]);
    }
}

typedef void listed_fn(const listed_panels *b, const int32_t *in, const int32_t *out);
#define BLOCK(M, P, A, B)                                                              \
    static void listed_block_##P##_##A##_##B(const listed_panels *b,                   \
                                             const int32_t *in, const int32_t *out)    \
    {                                                                                  \
        listed_block(b, in, out, M, P, A, B);                                          \
    }
#define NAME(M, P, A, B) [P][A][B] = {listed_block_##P##_##A##_##B, M},
LISTED_BLOCKS(BLOCK)
static const struct {
    listed_fn *run;
    int mr;
} listed_blocks[PANELS_MAX + 1][NR_MAX + 1][NR_MAX + 1] = {LISTED_BLOCKS(NAME)};

/* The last block repeats its last pair, whose sums are stored twice. */
static void listed_run_blocks(const listed_panels *b, const int32_t *in,
                              const int32_t *out, int n, listed_fn *run, int mr,
                              ahead *next)
{
    int32_t last[2][LISTED_ROWS];
    int i = 0;

    for (; i + mr <= n; i += mr) {
        run(b, in + i, out + i);
        ahead_step(next);
    }
    if (i == n)
        return;
    for (int k = 0; k < mr; k++) {
        last[0][k] = in[min_i(i + k, n - 1)];
        last[1][k] = out[min_i(i + k, n - 1)];
    }
    run(b, last[0], last[1]);
}

void ISA(add_listed)(const sp_cpu_conv *c, const tile *t, int k, bool is_first,
                     ahead *next)
{
    static const float zeros[LISTED_VECTORS * LANES];
    const int n = t->start[k + 1] - t->start[k], c_in = c->x.c, c_out = c->y.c;
    const int nv = vectors(c_out), run = sp_cpu_list_run(c_in);
    const float *w = c->w + (size_t)k * packed_floats(c_in, c_out);

    for (int v = 0, end; n && v < nv; v = end) {
        const int np = group_width(v, nv), na = panel_width(v, nv);
        listed_panels b = {.y = c->y.data + t->y_row * c->y.ld + v * LANES,
                           .ld_x = (size_t)c->x.ld,
                           .ld_list = sp_cpu_list_bytes(c_in),
                           .ld_y = (size_t)c->y.ld};
        int at[PANELS_MAX], width[PANELS_MAX];

        end = v;
        for (int q = 0; q < np; q++, end += width[q - 1]) {
            at[q] = end;
            width[q] = panel_width(end, nv);
        }
        b.tail = first_lanes(min_i(LANES, c_out - (end - 1) * LANES));
        assert(listed_blocks[np][na][width[np - 1]].run);
        for (int c0 = 0; c0 < c_in; c0 += run) {
            b.x = c->x.data + t->x_row * c->x.ld + c0;
            b.list = c->list + t->x_row * (int64_t)sp_cpu_list_bytes(c_in) +
                     c0 / run * (run + 1);
            for (int q = 0; q < np; q++)
                b.w[q] = w + (size_t)(at[q] * c_in + c0 * width[q]) * LANES;
            b.first = !is_first || c0 > 0 || c->is_added ? NULL
                      : c->bias                          ? c->bias + v * LANES
                                                         : zeros;
            listed_run_blocks(&b, t->in + t->start[k], t->out + t->start[k], n,
                              listed_blocks[np][na][width[np - 1]].run,
                              listed_blocks[np][na][width[np - 1]].mr, next);
        }
    }
}

/* ---- lists ---- */

/* Lists the channels of x [n]; writes up to LANES bytes after the list. */
static void list_run(const float *x, int n, uint8_t *list)
{
    int n_live = 0, zero = 0;

    for (int v = 0; v < n; v += LANES) {
        const int here = min_i(LANES, n - v);
        const unsigned live = lanes_not_zero(load_m(x + v, first_lanes(here)));
        const unsigned dead = ((1u << here) - 1) & ~live;

        list_lanes(live, v, list + 1 + n_live);
        n_live += __builtin_popcount(live);
        if (dead)
            zero = v + __builtin_ctz(dead);
    }
    list[0] = (uint8_t)n_live;
    memset(list + 1 + n_live, zero, (size_t)(n - n_live));
}

void ISA(list_channels)(sp_tensor x, int64_t row, int64_t end, uint8_t *list)
{
    const int run = sp_cpu_list_run(x.c);

    for (int64_t i = row; i < end; i++)
        for (int c = 0; c < x.c; c += run)
            list_run((const float *)sp_row(x, i) + c, min_i(run, x.c - c),
                     list + (size_t)i * sp_cpu_list_bytes(x.c) + c / run * (run + 1));
}

/* Convolution of one tile over the channels that are not zero, in AVX-512. Activations
 * leave about half of a network's values zero, and a multiply-add by zero changes no sum
 * (-0 becomes 0). So the sums are those of cpu_vec_conv.c: its chains without such steps.
 *
 * Channels are cut into runs of nearly equal length. For each row and run there is a
 * list (sp_cpu_isa.list_channels):
 *
 *     n | channel 1 | ... | channel n | a channel that is zero | the same | ...
 *
 * A block is rows x vectors of sums in registers. Step t multiplies the weights of
 * channel t of each row's own list, and the lists of rows with fewer channels go on with
 * a zero. Each sum loads its weights, which a dense block loads once for all rows: 2 rows
 * x 6 vectors have 14 loads for 12 multiply-adds. So the weights of a run, of two
 * panels, stay in L1. */
#include "cpu/cpu_vec.h"

#include <assert.h>

/* Operands of the blocks of two panels, or one, of output channels. */
typedef struct listed_panels {
    const float *x;       /* at the first channel of the run */
    const uint8_t *list;  /* of the run in row 0 */
    const float *wa, *wb; /* weights of each panel at the first channel of the run */
    float *y;             /* at the first column */
    const float *first;   /* initial value of the sums; NULL: y */
    size_t ld_x, ld_list, ld_y;
    vmask tail; /* mask of the last vector */
} listed_panels;

enum { LISTED_ROWS = 4 /* the most of a block */ };

/* na, nb: vectors of the panels; nb is 0 if there is one. */
INLINE void listed_block(const listed_panels *b, const int32_t *in, const int32_t *out,
                         const int mr, const int na, const int nb)
{
    const size_t ld_x = b->ld_x, ld_list = b->ld_list, ld_y = b->ld_y;
    const vmask tail = b->tail;
    const float *const wa = b->wa, *const wb = b->wb, *x[LISTED_ROWS];
    const uint8_t *list[LISTED_ROWS];
    float *const y0 = b->y;
    vec sum[LISTED_ROWS][2 * NR_MAX];
    long n = 0;

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
        for (int j = 0; j < na + nb; j++)
            sum[i][j] =
                j + 1 < na + nb ? load(y + j * LANES) : load_m(y + j * LANES, tail);
    }
    for (long t = 0; t < n; t++) {
        UNROLL
        for (int i = 0; i < mr; i++) {
            const size_t c = list[i][t];
            const vec a = set1(x[i][c]);
            UNROLL
            for (int j = 0; j < na; j++)
                sum[i][j] = fma_v(a, load(wa + (c * (size_t)na + (size_t)j) * LANES),
                                  sum[i][j]);
            UNROLL
            for (int j = 0; j < nb; j++)
                sum[i][na + j] = fma_v(
                    a, load(wb + (c * (size_t)nb + (size_t)j) * LANES), sum[i][na + j]);
        }
    }
    UNROLL
    for (int i = 0; i < mr; i++) {
        float *y = y0 + (size_t)out[i] * ld_y;
        UNROLL
        for (int j = 0; j + 1 < na + nb; j++)
            store(y + j * LANES, sum[i][j]);
        store_m(y + (na + nb - 1) * LANES, tail, sum[i][na + nb - 1]);
    }
}

/* Blocks of M rows for panels of A and B vectors: as many sums as hide the latency. */
typedef void listed_fn(const listed_panels *b, const int32_t *in, const int32_t *out);
#define LISTED_BLOCKS(X)                                                               \
    X(4, 3, 0) X(4, 4, 0) X(2, 3, 2) X(2, 3, 3) X(2, 4, 3) X(2, 4, 4)
#define BLOCK(M, A, B)                                                                 \
    static void listed_block_##A##_##B(const listed_panels *b, const int32_t *in,      \
                                       const int32_t *out)                             \
    {                                                                                  \
        listed_block(b, in, out, M, A, B);                                             \
    }
#define NAME(M, A, B) [A][B] = listed_block_##A##_##B,
#define ROWS(M, A, B) [A][B] = M,
LISTED_BLOCKS(BLOCK)
static listed_fn *const listed_blocks[NR_MAX + 1][NR_MAX + 1] = {LISTED_BLOCKS(NAME)};
static const int listed_rows[NR_MAX + 1][NR_MAX + 1] = {LISTED_BLOCKS(ROWS)};

/* The last block repeats its last pair, whose sums are stored twice. */
static void listed_run_blocks(const listed_panels *b, const int32_t *in,
                              const int32_t *out, int n, int na, int nb, ahead *next)
{
    listed_fn *const run = listed_blocks[na][nb];
    const int mr = listed_rows[na][nb];
    int32_t last[2][LISTED_ROWS];
    int i = 0;

    assert(run);
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
    static const float zeros[2 * NR_MAX * LANES];
    const int n = t->start[k + 1] - t->start[k], c_in = c->x.c, c_out = c->y.c;
    const int nv = vectors(c_out), run = sp_cpu_list_run(c_in);
    const float *w = c->w + (size_t)k * packed_floats(c_in, c_out);

    for (int v = 0, na, nb; n && v < nv; v += na + nb) {
        na = panel_width(v, nv);
        nb = v + na < nv ? panel_width(v + na, nv) : 0;
        for (int c0 = 0; c0 < c_in; c0 += run) {
            const listed_panels b = {
                .x = c->x.data + t->x_row * c->x.ld + c0,
                .list = c->list + t->x_row * (int64_t)sp_cpu_list_bytes(c_in) +
                        c0 / run * (run + 1),
                .wa = w + (size_t)(v * c_in + c0 * na) * LANES,
                .wb = w + (size_t)((v + na) * c_in + c0 * nb) * LANES,
                .y = c->y.data + t->y_row * c->y.ld + v * LANES,
                .first = !is_first || c0 > 0 || c->is_added ? NULL
                         : c->bias                          ? c->bias + v * LANES
                                                            : zeros,
                .ld_x = (size_t)c->x.ld,
                .ld_list = sp_cpu_list_bytes(c_in),
                .ld_y = (size_t)c->y.ld,
                .tail = first_lanes(min_i(LANES, c_out - (v + na + nb - 1) * LANES))};

            listed_run_blocks(&b, t->in + t->start[k], t->out + t->start[k], n, na, nb,
                              next);
        }
    }
}

/* ---- lists ---- */

/* Lists the channels of x [n]; writes up to LANES bytes after the list. */
static void list_run(const float *x, int n, uint8_t *list)
{
    __m512i channel =
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int n_live = 0, zero = 0;

    for (int v = 0; v < n; v += LANES) {
        const vmask here = first_lanes(min_i(LANES, n - v));
        const vmask live =
            _mm512_mask_cmp_ps_mask(here, load_m(x + v, here), set1(0), _CMP_NEQ_UQ);
        const __m512i some = _mm512_maskz_compress_epi32(live, channel);

        _mm_storeu_si128((__m128i *)(void *)(list + 1 + n_live),
                         _mm512_cvtepi32_epi8(some));
        n_live += __builtin_popcount(live);
        if (live != here)
            zero = v + __builtin_ctz((unsigned)(here & ~live));
        channel = _mm512_add_epi32(channel, _mm512_set1_epi32(LANES));
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

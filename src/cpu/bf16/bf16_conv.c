/* Convolution of one tile of output rows in bf16: the forward pass, and the input
 * gradient, as in cpu_vec_conv.c.
 *
 * The sums of a tile are kept in fp32 while its offsets are added, one panel of output
 * channels after another (bf16_sums.h).
 *
 * An output is one chain of the operation of bf16.h: y itself, the bias or 0, then the
 * centre offset of a full map, then the other offsets by rising k, in each the pairs of
 * input channels by rising index. Blocks, panels and tiles do not reorder or split that
 * chain, so the result does not depend on them. */
#include "cpu/bf16/bf16.h"
#include "cpu/bf16/bf16_sums.h"

#include <assert.h>

/* Words of one block of input channels: a panel of 128 x 64 words is 32 KiB. */
enum { WORDS = 128 };

/* Operands of the blocks of one panel of output channels. */
typedef struct panel {
    const uint16_t *x;  /* at the first input channel of the block of channels */
    const float *w;     /* words */
    float *sum;         /* rows of nr vectors */
    const float *first; /* initial value of the sums; NULL: those there */
    size_t ld_x;
    int32_t row0; /* of the entries of `out`: the tile's first row */
    int n_words;
    bool has_odd; /* a last channel without partner follows the words */
} panel;

INLINE void block(const panel *b, const int32_t *in, const int32_t *out, const int mr,
                  const int nr)
{
    /* Local copies, because the compiler must assume that vector stores may change *b.
     */
    const size_t ld_x = b->ld_x;
    const long n_words = b->n_words;
    const bool has_odd = b->has_odd;
    const int32_t row0 = b->row0;
    float *const sum0 = b->sum;
    const float *w = b->w;
    const uint16_t *x[12];
    vec sum[12][NR_MAX];
    long c = 0;

    UNROLL
    for (int i = 0; i < mr; i++)
        x[i] = b->x + (size_t)in[i] * ld_x;
    UNROLL
    for (int i = 0; i < mr; i++) {
        const float *s = b->first ? b->first : sum0 + (out[i] - row0) * nr * LANES;
        UNROLL
        for (int j = 0; j < nr; j++)
            sum[i][j] = load(s + j * LANES);
    }
#define ADD(W, X)                                                                      \
    UNROLL                                                                             \
    for (int h = 0; h < HALVES; h++) {                                                 \
        vec wv[NR_MAX];                                                                \
        UNROLL                                                                         \
        for (int j = 0; j < nr; j++)                                                   \
            wv[j] = half_of(load((W) + j * LANES), h);                                 \
        UNROLL                                                                         \
        for (int i = 0; i < mr; i++) {                                                 \
            vec a = half_of(X, h);                                                     \
            UNROLL                                                                     \
            for (int j = 0; j < nr; j++)                                               \
                sum[i][j] = add_products(sum[i][j], a, wv[j]);                         \
        }                                                                              \
    }
#define STEP(U) ADD(w + (U)*nr * LANES, word_at(x[i] + 2 * (c + (U))))
    for (; c + STEPS <= n_words; c += STEPS, w += STEPS * nr * LANES) {
        STEP(0) FENCE STEP(1) FENCE STEP(2) FENCE STEP(3)
    }
    for (; c < n_words; c++, w += nr * LANES) {
        STEP(0)
    }
    if (has_odd) {
        ADD(w, word_at(&(uint32_t){x[i][2 * c]}))
    }
    UNROLL
    for (int i = 0; i < mr; i++) {
        float *s = sum0 + (out[i] - row0) * nr * LANES;
        UNROLL
        for (int j = 0; j < nr; j++)
            store(s + j * LANES, sum[i][j]);
    }
}

#include "cpu/cpu_conv_blocks.inc"

/* Adds offset k over the tile. is_first: the sums have no value yet. */
static void bf16_conv_add_offset(const panel_sums *p, int k, bool is_first)
{
    const tile *t = p->t;
    const sp_tensor *x = &p->c->x;
    const int n = t->start[k + 1] - t->start[k], n_words = x->c / 2;
    const float *w = p->c->w + (size_t)k * packed_words(x->c, p->c->y.c) +
                     (size_t)p->at * (size_t)((x->c + 1) / 2);

    for (int c0 = 0; n && (c0 == 0 || c0 < n_words); c0 += WORDS) {
        panel b = {.x = sp_row_bf16(*x, t->x_row) + 2 * c0,
                   .w = w + (size_t)(c0 * p->ld),
                   .sum = p->sum,
                   .first = is_first && c0 == 0 ? p->first : NULL,
                   .ld_x = (size_t)x->ld,
                   .row0 = (int32_t)(t->row - t->y_row),
                   .n_words = min_i(WORDS, n_words - c0)};
        b.has_odd = x->c % 2 && c0 + b.n_words == n_words;
        run_blocks(&b, t->in + t->start[k], t->out + t->start[k], n, p->ld / LANES,
                   p->next);
    }
}

static int bf16_count_blocks(const sp_cpu_conv *c, const tile *t)
{
    int nv = vectors(c->y.c), nr = panel_width(0, nv);
    int pairs = t->start[t->K] - t->start[0];

    return pairs / mr_max(nr) * ((nv + nr - 1) / nr) *
           ((c->x.c / 2 + WORDS - 1) / WORDS + 1);
}

void PRODUCTS(conv_tile)(const sp_cpu_conv *c, int index)
{
    _Alignas(64) float sum[SP_TILE * NR_MAX * LANES], first[NR_MAX * LANES];
    const unsigned before = flush_begin();
    const int nv = vectors(c->y.c);
    int32_t start[2], piece_start[2];
    const tile all = tile_of_conv(c, index, start);
    ahead next = ahead_open(&all, &c->x, &c->y, bf16_count_blocks(c, &all));
    panel_sums p = {.c = c, .sum = sum, .first = first, .next = &next};
    tile t;

    assert(!(c->bias && c->is_added) && c->x.elem == SP_ELEM_BF16);
    for (int64_t row = all.row; row < all.end; row = t.end) {
        t = piece_of(&all, c->map, row, piece_start);
        p.t = &t;
        for (p.at = 0; p.at < c->y.c; p.at += p.ld) {
            p.ld = panel_width(p.at / LANES, nv) * LANES;
            p.width = min_i(p.ld, c->y.c - p.at);
            sum_panel(&p, bf16_conv_add_offset);
        }
    }
    flush_end(before);
}

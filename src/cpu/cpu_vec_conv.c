/* Convolution of one tile of output rows: the forward pass, and the input gradient,
 * which is the same with packed W^T (over the forward map with mirrored offsets if the
 * kernel is odd and the stride 1: the pair lists of k and K-1-k are then each other's
 * swap).
 *
 * For each offset, blocks of mr pairs x nr vectors of output channels are kept in
 * registers: the rows of y are loaded, c_in multiply-adds applied, and the rows stored.
 * x is read through row pointers, one broadcast for each input channel; no row is
 * gathered to memory. The tile's rows of x and y stay in L2 over its offsets.
 *
 * n pairs are cut into ceil(n / max) blocks of nearly equal size, with one function per
 * exact size, because a block of 1 or 2 rows has too few independent sums to hide the
 * latency of a multiply-add (4 cycles, 2 units: 8 sums).
 *
 * An output value is one chain of fused multiply-adds: the bias, then the centre offset
 * of a full map, then the other offsets by rising k, in each the input channels by
 * rising index. Blocks, panels and tiles do not reorder or split that chain, so the
 * result does not depend on them. cpu_vec_listed.c leaves multiply-adds by zero out of
 * it. */
#include "cpu/cpu_vec.h"

#include <assert.h>

/* Input channels of one block: a panel of 128 x 64 weights is 32 KiB. */
enum { CHANNELS = 128 };

/* Operands of the blocks of one panel of output channels. */
typedef struct panel {
    const float *x, *w; /* at the first input channel of the block of channels */
    float *y;           /* at the first column of the panel */
    const float *first; /* initial value of the sums; NULL: y */
    size_t ld_x, ld_y;
    int n_channels;
    vmask tail; /* mask of the panel's last vector */
    /* The norm that follows, at the first column of the panel, if these are the last
     * products of the rows; scale NULL: they are not, or there is no norm. */
    const float *scale, *shift, *res;
    size_t ld_res;
    float slope;
} panel;

INLINE vec load_part(const float *p, int j, int nr, vmask tail)
{
    return j + 1 < nr ? load(p + j * LANES) : load_m(p + j * LANES, tail);
}

/* The norm, the addition and the activation over a row of sums, as norm_apply has
 * them. */
INLINE void vec_finish_row(const panel *b, int32_t out, vec *sum, const int nr)
{
    const float *res = b->res ? b->res + (size_t)out * b->ld_res : NULL;
    const vec slope = set1(b->slope);

    UNROLL
    for (int j = 0; j < nr; j++) {
        vec v = fma_v(sum[j], load_part(b->scale, j, nr, b->tail),
                      load_part(b->shift, j, nr, b->tail));
        if (res)
            v += load_part(res, j, nr, b->tail);
        const ivec up = (ivec)(v > (vec){0});
        sum[j] = (vec)(((ivec)v & up) | ((ivec)(slope * v) & ~up));
    }
}

INLINE void block(const panel *b, const int32_t *in, const int32_t *out, const int mr,
                  const int nr)
{
    /* Local copies, because the compiler must assume that vector stores may change *b.
     */
    const size_t ld_x = b->ld_x, ld_y = b->ld_y;
    const long n_channels = b->n_channels;
    const vmask tail = b->tail;
    float *const y0 = b->y;
    const float *w = b->w, *x[12];
    vec sum[12][NR_MAX];
    long c = 0;

    UNROLL
    for (int i = 0; i < mr; i++)
        x[i] = b->x + (size_t)in[i] * ld_x;
    UNROLL
    for (int i = 0; i < mr; i++) {
        const float *y = b->first ? b->first : y0 + (size_t)out[i] * ld_y;
        UNROLL
        for (int j = 0; j < nr; j++)
            sum[i][j] = load_part(y, j, nr, tail);
    }
#define STEP(U)                                                                        \
    {                                                                                  \
        vec wv[NR_MAX];                                                                \
        UNROLL                                                                         \
        for (int j = 0; j < nr; j++)                                                   \
            wv[j] = load(w + ((U)*nr + j) * LANES);                                    \
        UNROLL                                                                         \
        for (int i = 0; i < mr; i++) {                                                 \
            vec a = set1(x[i][c + (U)]);                                               \
            UNROLL                                                                     \
            for (int j = 0; j < nr; j++) {                                             \
                sum[i][j] = fma_v(a, wv[j], sum[i][j]);                                \
                PIN(sum[i][j]);                                                        \
            }                                                                          \
        }                                                                              \
    }
    for (; c + STEPS <= n_channels; c += STEPS, w += STEPS * nr * LANES) {
        STEP(0) FENCE STEP(1) FENCE STEP(2) FENCE STEP(3)
    }
    for (; c < n_channels; c++, w += nr * LANES)
        STEP(0)
    if (b->scale) {
        UNROLL
        for (int i = 0; i < mr; i++)
            vec_finish_row(b, out[i], sum[i], nr);
    }
    UNROLL
    for (int i = 0; i < mr; i++) {
        float *y = y0 + (size_t)out[i] * ld_y;
        UNROLL
        for (int j = 0; j + 1 < nr; j++)
            store(y + j * LANES, sum[i][j]);
        store_m(y + (nr - 1) * LANES, tail, sum[i][nr - 1]);
    }
}

#include "cpu/cpu_conv_blocks.inc"

/* The initial value of the sums from vector v on; NULL: the present content of y. */
static const float *first_values(const sp_cpu_conv *c, int v)
{
    static const float zeros[LANES * NR_MAX];

    return c->is_added ? NULL : c->bias ? c->bias + v * LANES : zeros;
}

/* Has the panel's blocks finish their rows, of which vector v is the first. */
static void panel_set_norm(panel *b, const sp_cpu_conv *c, const tile *t, int v)
{
    const sp_tensor res = c->norm->res;

    b->scale = c->norm->scale + v * LANES;
    b->shift = c->norm->shift + v * LANES;
    b->slope = c->norm->slope;
    b->res = res.data ? res.data + t->y_row * res.ld + v * LANES : NULL;
    b->ld_res = (size_t)res.ld;
}

/* Adds offset k over the tile. is_first: the rows of y have no value yet. is_all: this
 * offset is all of every row, so that a norm can follow in registers. */
static void vec_conv_add_offset(const sp_cpu_conv *c, const tile *t, int k,
                                bool is_first, bool is_all, ahead *next)
{
    const int n = t->start[k + 1] - t->start[k], c_in = c->x.c, c_out = c->y.c;
    const int nv = vectors(c_out);
    const float *w = c->w + (size_t)k * packed_floats(c_in, c_out);

    if (c->list) {
        ISA(add_listed)(c, t, k, is_first, next);
        return;
    }
    for (int v = 0, nr; n && v < nv; v += nr) {
        nr = panel_width(v, nv);
        for (int c0 = 0; c0 < c_in; c0 += CHANNELS) {
            panel b = {.x = c->x.data + t->x_row * c->x.ld + c0,
                       .w = w + (size_t)(v * c_in + c0 * nr) * LANES,
                       .y = c->y.data + t->y_row * c->y.ld + v * LANES,
                       .first = is_first && c0 == 0 ? first_values(c, v) : NULL,
                       .ld_x = (size_t)c->x.ld,
                       .ld_y = (size_t)c->y.ld,
                       .n_channels = min_i(CHANNELS, c_in - c0),
                       .tail = first_lanes(min_i(LANES, c_out - (v + nr - 1) * LANES))};
            if (is_all && c->norm && c0 + CHANNELS >= c_in)
                panel_set_norm(&b, c, t, v);
            run_blocks(&b, t->in + t->start[k], t->out + t->start[k], n, nr, next);
        }
    }
}

static int vec_count_blocks(const sp_cpu_conv *c, const tile *t)
{
    int nv = vectors(c->y.c), nr = panel_width(0, nv);
    int pairs = t->start[t->K] - t->start[0];

    return pairs / mr_max(nr) * ((nv + nr - 1) / nr) *
           ((c->x.c + CHANNELS - 1) / CHANNELS);
}

static void begin_rows(const sp_cpu_conv *c, const tile *t)
{
    const size_t bytes = (size_t)c->y.c * sizeof(float);

    for (int64_t i = t->row; i < t->end; i++)
        if (c->bias)
            memcpy(sp_row(c->y, i), c->bias, bytes);
        else
            memset(sp_row(c->y, i), 0, bytes);
}

void ISA(conv_tile)(const sp_cpu_conv *c, int index)
{
    int32_t start[2];
    const tile t = tile_of_conv(c, index, start);
    const int centre = !c->map ? 0 : c->map->is_full ? c->map->centre : -1;
    const bool is_single = has_one_pair(c->map), is_all = !c->map || is_single;
    ahead next = ahead_open(&t, &c->x, &c->y, vec_count_blocks(c, &t));

    assert(!(c->bias && c->is_added));
    if (centre < 0 && !is_single && !c->is_added)
        begin_rows(c, &t);
    /* The centre offset writes every row, and so does a row's only pair: the rows need
     * not be zeroed, and one read is saved. */
    if (centre >= 0)
        vec_conv_add_offset(c, &t, centre, true, is_all, &next);
    for (int k = 0; k < t.K; k++)
        if (k != centre)
            vec_conv_add_offset(c, &t, k, is_single, is_all, &next);
    if (c->norm && !is_all) /* the rows are still in L2 */
        ISA(norm_apply)(c->norm, t.row, t.end);
}

/* ---- packing ---- */

int ISA(n_panels)(int c_out)
{
    return (vectors(c_out) + NR_MAX - 1) / NR_MAX;
}

/* The squares of LANES columns of w follow one another, so that the rows of `to` are
 * written from end to end. Words after w's are fetched meanwhile, as many as it has:
 * often they are the next ones to be transposed. */
void ISA(transpose)(const float *w, size_t ld, int n, int width, size_t ld_to,
                    float *to)
{
    const int n_whole = n / LANES * LANES, width_whole = width / LANES * LANES;
    const float *next = w + (size_t)width * ld;
    vec row[LANES];

    for (int i = 0; i < n_whole; i += LANES)
        for (int j = 0; j < width_whole; j += LANES) {
            UNROLL
            for (int r = 0; r < LANES; r++)
                row[r] = load(w + (size_t)(j + r) * ld + i);
            transpose_square(row);
            UNROLL
            for (int r = 0; r < LANES; r++)
                store(to + (size_t)(i + r) * ld_to + j, row[r]);
            fetch_floats(next + (size_t)i * (size_t)width_whole + j * LANES,
                         LANES * LANES);
        }
    for (int j = 0; j < width; j++)
        for (int i = j < width_whole ? n_whole : 0; i < n; i++)
            to[(size_t)i * ld_to + (size_t)j] = w[(size_t)j * ld + (size_t)i];
}

/* Copies columns at .. at + width - 1 of n rows of w [c_out] to rows of ld columns. */
static void pack_rows(const float *w, int n, int c_out, int at, int width, int ld,
                      float *to)
{
    fetch_floats(w + n * c_out + at * n, n * width);
    for (int i = 0; i < n; i++)
        memcpy(to + i * ld, w + i * c_out + at, (size_t)width * sizeof *w);
}

void ISA(pack)(const float *w, int c_in, int c_out, bool is_transposed, float *packed)
{
    const int nv = vectors(c_out), most = is_transposed ? c_in : PACK_ROWS;

    for (int i = 0; i < c_in; i += most)
        for (int v = 0, nr; v < nv; v += nr) {
            nr = panel_width(v, nv);
            const int at = v * LANES, ld = nr * LANES, width = min_i(ld, c_out - at);
            float *to = packed + (size_t)at * (size_t)c_in + (size_t)(i * ld);
            if (i == 0 && width < ld)
                memset(to, 0, (size_t)c_in * (size_t)ld * sizeof *to);
            if (is_transposed)
                ISA(transpose)
            (w + (size_t)at * c_in, (size_t)c_in, c_in, width, (size_t)ld, to);
            else pack_rows(w + (size_t)i * c_out, min_i(most, c_in - i), c_out, at,
                           width, ld, to);
        }
}

/* Weights of one offset that are written past the caches: a network of such layers has
 * more of them than a cache holds until the update reads them. */
enum { FAR_WEIGHTS = 96 * 96 };

/* Rows of w are passed from end to end, whose memory the processor then fetches ahead;
 * pieces of rows a KiB apart come singly. */
void ISA(unpack)(const float *packed, int c_in, int c_out, float *w, bool is_added)
{
    const int nv = vectors(c_out);

    if (!is_added && c_in * c_out >= FAR_WEIGHTS && c_out % LANES == 0 &&
        (uintptr_t)w % sizeof(vec) == 0) {
        for (int i = 0; i < c_in; i++)
            for (int v = 0, nr; v < nv; v += nr) {
                const float *from = packed + (size_t)v * LANES * (size_t)c_in;
                nr = panel_width(v, nv);
                for (int j = 0; j < nr; j++, w += LANES)
                    store_far(w, (vec){0} + load(from + (i * nr + j) * LANES));
            }
        far_end();
        return;
    }
    for (int i = 0; i < c_in; i++, w += c_out)
        for (int v = 0, nr; v < nv; v += nr) {
            nr = panel_width(v, nv);
            const int at = v * LANES, ld = nr * LANES, width = min_i(ld, c_out - at);
            const float *from = packed + (size_t)at * c_in + (size_t)i * ld;
            float *restrict to = w + at;
            for (int j = 0; j < width; j++)
                to[j] = (is_added ? to[j] : 0) + from[j];
        }
}

#define ENTRY(slot) .slot = ISA(slot),
const sp_cpu_isa ISA(isa) = {.name = ISA_NAME,
                             .is_here = IS_HERE,
                             .lanes = LANES,
                             .chunk = 1,
                             .wgrad_least = WGRAD_LEAST,
                             .bf16 = &ISA(bf16_isa),
                             SP_CPU_PRODUCTS(ENTRY) SP_CPU_PACKING(ENTRY)
                                 SP_CPU_ROWS(ENTRY) SP_CPU_FP32(ENTRY)};

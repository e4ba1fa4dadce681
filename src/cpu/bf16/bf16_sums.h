/* The sums of a tile of output rows in one panel of columns, for both orders of sums
 * (bf16_conv.c, tile_conv.c): they begin with y itself, the bias or 0, offsets are
 * added to them in fp32, and they are rounded once, when all offsets are in and, in an
 * evaluation, the norm after the convolution was applied. 512 rows
 * of 64 columns need 128 KiB of L2. The sums are kept apart from y, row after row and
 * padded to whole vectors: so only the final copy to y needs masks, and rows are not 1
 * KiB apart, which would put them into the same sets of L1. */
#ifndef SP_BF16_SUMS_H
#define SP_BF16_SUMS_H

#include "cpu/cpu_vec.h"

/* One panel of output channels of a tile. */
typedef struct panel_sums {
    const sp_cpu_conv *c;
    const tile *t;
    int at, ld;   /* its first output channel, and the columns of a row of sums */
    int width;    /* output channels in it */
    float *sum;   /* [rows][ld] */
    float *first; /* [ld] the bias or 0 */
    ahead *next;
} panel_sums;

/* The rows of a tile whose sums are kept at a time: all, or without a map, where each
 * row has one product, so few that sums and norm stay in L1. start [2] is filled. */
INLINE tile piece_of(const tile *all, const sp_map *map, int64_t row, int32_t *start)
{
    enum { PIECE = 64 };
    tile t = *all;

    if (map)
        return t;
    t.row = t.x_row = t.y_row = row;
    t.end = row + PIECE < all->end ? row + PIECE : all->end;
    start[0] = 0;
    start[1] = (int32_t)(t.end - row);
    t.start = start;
    return t;
}

/* Begins the sums with y itself, or with `first`. */
static void begin_sums(const panel_sums *p)
{
    for (int64_t i = p->t->row; i < p->t->end; i++) {
        float *__restrict sum = p->sum + (i - p->t->row) * p->ld;
        if (!p->c->is_added) {
            memcpy(sum, p->first, (size_t)p->ld * sizeof *sum);
            continue;
        }
        if (p->c->y.elem == SP_ELEM_BF16) {
            const uint16_t *__restrict y = sp_row_bf16(p->c->y, i) + p->at;
            for (int j = 0; j < p->width; j++)
                sum[j] = sp_bf16_to_float(y[j]);
        } else {
            memcpy(sum, sp_row(p->c->y, i) + p->at, (size_t)p->width * sizeof *sum);
        }
        for (int j = p->width; j < p->ld; j++)
            sum[j] = 0;
    }
}

/* The rows of a residual are fetched this far ahead: half of an evaluation's epilogue
 * waited for them, since a tile's sums have displaced them. */
enum { RES_AHEAD = 8 };

INLINE void fetch_res_row(const panel_sums *p, int64_t i)
{
    const sp_tensor *res = &p->c->norm->res;
    const size_t size = res->elem == SP_ELEM_BF16 ? sizeof(uint16_t) : sizeof(float);
    const char *row;

    if (!res->data || i >= p->t->end)
        return;
    row = sp_row_bytes(*res, i) + (size_t)p->at * size;
    for (size_t b = 0; b < (size_t)p->width * size; b += 64)
        __builtin_prefetch(row + b, 0, 2);
}

/* The norm, the addition and the activation of a row of sums, before it is rounded:
 * in fp32, so that the convolution's own output is never rounded. `res` may be the row
 * that is written afterwards. */
static void bf16_finish_row(const panel_sums *p, int64_t i, float *__restrict sum)
{
    const sp_norm_args *norm = p->c->norm;
    const float *__restrict scale = norm->scale + p->at;
    const float *__restrict shift = norm->shift + p->at;
    const float slope = norm->slope;
    const int width = p->width;

#define FINISH(RES)                                                                    \
    for (int j = 0; j < width; j++) {                                                  \
        float x = __builtin_fmaf(sum[j], scale[j], shift[j]) RES;                      \
        sum[j] = x > 0 ? x : slope * x;                                                \
    }
    if (norm->res.data && norm->res.elem == SP_ELEM_BF16) {
        const uint16_t *__restrict res = sp_row_bf16(norm->res, i) + p->at;
        FINISH(+sp_bf16_to_float(res[j]))
    } else if (norm->res.data) {
        const float *__restrict res = sp_row(norm->res, i) + p->at;
        FINISH(+res[j])
    } else {
        FINISH()
    }
#undef FINISH
}

static void write_rows(const panel_sums *p)
{
    const int width = p->width;

    for (int64_t i = p->t->row; i < p->t->end; i++) {
        if (p->c->norm) {
            fetch_res_row(p, i + RES_AHEAD);
            bf16_finish_row(p, i, p->sum + (i - p->t->row) * p->ld);
        }
        const float *__restrict sum = p->sum + (i - p->t->row) * p->ld;
        if (p->c->y.elem == SP_ELEM_BF16) {
            uint16_t *__restrict y = sp_row_bf16(p->c->y, i) + p->at;
            for (int j = 0; j < width; j++)
                y[j] = sp_bf16_of(sum[j]);
        } else {
            memcpy(sp_row(p->c->y, i) + p->at, sum, (size_t)width * sizeof *sum);
        }
    }
}

/* Adds offset k over the tile. is_first: the sums have no value yet. */
typedef void add_offset_fn(const panel_sums *p, int k, bool is_first);

/* Computes the panel's columns of y. The centre offset writes every sum, and so does a
 * row's only pair: the sums need no value before, and one read is saved. */
INLINE void sum_panel(const panel_sums *p, add_offset_fn *add_offset)
{
    const sp_cpu_conv *c = p->c;
    const int centre = !c->map ? 0 : c->map->is_full ? c->map->centre : -1;
    const bool is_single = has_one_pair(c->map) && !c->is_added;

    for (int j = 0; j < p->ld; j++)
        p->first[j] = c->bias && j < p->width ? c->bias[p->at + j] : 0;
    if (c->is_added || (centre < 0 && !is_single))
        begin_sums(p);
    if (centre >= 0)
        add_offset(p, centre, !c->is_added);
    for (int k = 0; k < p->t->K; k++)
        if (k != centre)
            add_offset(p, k, is_single);
    write_rows(p);
}

#endif

/* The loops of a plan with 16 lanes at a time.
 *
 * Per row: gather the ancestor's 32 words once; then, for each vector of offsets,
 * permute them by constants of the child position, test a bit and count bits. Per
 * offset: list the rows that have a partner by compressing row numbers under their
 * bits, then gather the partners of the listed rows. No branch depends on the data.
 * Compressing goes through a register, because compressing stores are slow on some
 * processors; the lanes stored beyond the last one are overwritten later. */
#include "cpu/cpu_plan.h"

#include <immintrin.h>

/* The 32 words of an ancestor. */
typedef struct words {
    __m512i lo, hi;
} words;

static inline words load_words(const int32_t *nbr, const uint32_t *child,
                               int32_t ancestor, bool is_leaf)
{
    const int32_t *row = nbr + (size_t)ancestor * PLAN_NBR;
    words w = {_mm512_load_si512(row), _mm512_load_si512(row + 16)};

    if (!is_leaf) {
        w.lo = _mm512_i32gather_epi32(w.lo, child, 4);
        w.hi = _mm512_i32gather_epi32(w.hi, child, 4);
    }
    return w;
}

/* Finds the partners of 16 lanes; returns which of them exist. */
static inline __mmask16 partners(words w, const uint32_t *from, const uint32_t *bit,
                                 const uint32_t *below, bool is_leaf, __m512i none,
                                 __m512i *row)
{
    __m512i v = _mm512_permutex2var_epi32(w.lo, _mm512_loadu_si512(from), w.hi), rank;

    if (is_leaf) {
        *row = v;
        return _mm512_cmpneq_epi32_mask(v, none);
    }
    rank = _mm512_popcnt_epi32(_mm512_and_si512(v, _mm512_loadu_si512(below)));
    *row = _mm512_add_epi32(_mm512_srli_epi32(v, 8), rank);
    return _mm512_test_epi32_mask(v, _mm512_loadu_si512(bit));
}

/* Finds the partners of a tile's rows, row [rows][pitch], and a bit for each that
 * exists, has [pitch / 16][SP_TILE]. Inlined with is_leaf and is_up as constants. */
static inline __attribute__((always_inline)) void look(const plan_lanes *w,
                                                       const plan_tile *tile,
                                                       int32_t *row, uint16_t *has,
                                                       int pitch, bool is_leaf,
                                                       bool is_up)
{
    const int32_t *nbr = w->top->nbr, *parent = w->to->parent;
    const uint32_t *child = w->top->child;
    const uint64_t *key = w->to->key;
    const __m512i none = _mm512_set1_epi32(w->from->n);
    int32_t first = tile->first, n = tile->last - first, i, now = -1;
    words near = {none, none};
    int k;

    for (i = 0; i < n; i++) {
        int32_t up = is_up ? parent[first + i] : first + i;
        int c = is_up ? (int)(key[first + i] & 7) : 0;
        if (up != now)
            near = load_words(nbr, child, up, is_leaf);
        now = up;
        for (k = 0; k < pitch; k += 16, row += 16) {
            __m512i v;
            has[k / 16 * SP_TILE + i] =
                (uint16_t)partners(near, &w->from_word[c][k], &w->bit[c][k],
                                   &w->below[c][k], is_leaf, none, &v);
            _mm512_store_si512(row, v);
        }
    }
}

/* Sets the bits where the neighbour table already holds the partners. */
static void look_in_table(const plan_lanes *w, const plan_tile *tile,
                          const int32_t *row, uint16_t *has)
{
    const __m512i none = _mm512_set1_epi32(w->from->n);
    int32_t n = tile->last - tile->first, i;

    for (i = 0; i < n; i++, row += PLAN_NBR) {
        has[i] = _mm512_cmpneq_epi32_mask(_mm512_load_si512(row), none);
        has[SP_TILE + i] = _mm512_cmpneq_epi32_mask(_mm512_load_si512(row + 16), none);
    }
}

/* Appends the rows first + 0, 1, ... whose bit is set to out; returns its new end. */
static inline int32_t *list_rows(const uint16_t *has, int bit, int32_t first, int32_t n,
                                 int32_t *out)
{
    const __m512i which = _mm512_set1_epi16((short)(1u << bit));
    __m512i row = _mm512_add_epi32(
        _mm512_set1_epi32(first),
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
    const __m512i step = _mm512_set1_epi32(16);
    int32_t i;

    for (i = 0; i < n; i += 32) {
        uint32_t m = _mm512_test_epi16_mask(_mm512_load_si512(has + i), which);
        _mm512_storeu_si512(out, _mm512_maskz_compress_epi32((__mmask16)m, row));
        out += __builtin_popcount(m & 0xffff);
        row = _mm512_add_epi32(row, step);
        _mm512_storeu_si512(out,
                            _mm512_maskz_compress_epi32((__mmask16)(m >> 16), row));
        out += __builtin_popcount(m >> 16);
        row = _mm512_add_epi32(row, step);
    }
    return out;
}

/* in[j] = column k of row out[j]. */
static inline void list_partners(const int32_t *row, int pitch, int k, int32_t first,
                                 const int32_t *out, int32_t n, int32_t *in)
{
    const __m512i at = _mm512_set1_epi32(k - first * pitch);
    const __m512i ld = _mm512_set1_epi32(pitch);
    int32_t j;

    for (j = 0; j < n; j += 16) {
        __mmask16 m = n - j < 16 ? (__mmask16)((1u << (n - j)) - 1) : (__mmask16)0xffff;
        __m512i i = _mm512_add_epi32(
            _mm512_mullo_epi32(_mm512_maskz_loadu_epi32(m, out + j), ld), at);
        _mm512_mask_storeu_epi32(
            in + j, m,
            _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), m, i, row, 4));
    }
}

static void avx512_lanes(const plan_lanes *w, plan_stage *stage, plan_tile *tile)
{
    int32_t *row = stage->in, *out = tile->pair, n = tile->last - tile->first, at = 0;
    uint16_t *has = (uint16_t *)stage->tag;
    int pitch = (w->K + 15) & ~15, k;

    /* Clears the rows beyond the tile in its last vector of 32. */
    for (k = 0; k < pitch; k += 16)
        _mm512_store_si512(has + k / 16 * SP_TILE + (n - 1) / 32 * 32,
                           _mm512_setzero_si512());
    if (w->is_table)
        look_in_table(w, tile, row = w->top->nbr + (size_t)tile->first * PLAN_NBR, has);
    else if (w->is_leaf && w->is_up)
        look(w, tile, row, has, pitch, true, true);
    else if (w->is_leaf)
        look(w, tile, row, has, pitch, true, false);
    else if (w->is_up)
        look(w, tile, row, has, pitch, false, true);
    else
        look(w, tile, row, has, pitch, false, false);
    for (k = 0; k < w->K; k++) {
        int32_t *end = list_rows(has + k / 16 * SP_TILE, k % 16, tile->first, n, out);
        tile->count[k] = (int32_t)(end - out);
        out = end;
    }
    tile->n = (int32_t)(out - tile->pair);
    for (k = 0; k < w->K; at += tile->count[k++])
        list_partners(row, pitch, k, tile->first, tile->pair + at, tile->count[k],
                      out + at);
}

/* Pairs the fine rows of a tile with their parents, in one pass for each child
 * position. */
static void avx512_children(const plan_lookup *q, plan_stage *stage, plan_tile *tile)
{
    const cpu_plan_level *fine = &q->level[q->is_swapped ? q->to : q->from];
    const uint32_t *child = q->level[q->to].child;
    int32_t i0 = q->is_swapped ? tile->first : (int32_t)(child[tile->first] >> 8), i;
    int32_t i1 = tile->last, n, *digit = stage->in, *in, *out;
    int k;

    if (!q->is_swapped) {
        uint32_t word = child[tile->last - 1];
        i1 = (int32_t)(word >> 8) + __builtin_popcount(word & 255);
    }
    n = i1 - i0;
    for (i = 0; i < n; i++)
        digit[i] = (int32_t)(fine->key[i0 + i] & 7);
    tile->n = n;
    out = tile->pair;
    in = tile->pair + n;
    for (k = 0; k < 8; k++) {
        const __m512i which = _mm512_set1_epi32(k);
        __m512i row = _mm512_add_epi32(
            _mm512_set1_epi32(i0),
            _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
        int32_t *from = out;
        for (i = 0; i < n; i += 16) {
            __mmask16 valid =
                n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)~0;
            __mmask16 m = _mm512_mask_cmpeq_epi32_mask(
                valid, _mm512_load_si512(digit + i), which);
            __m512i up = _mm512_maskz_loadu_epi32(valid, fine->parent + i0 + i);
            int count = __builtin_popcount(m);
            __mmask16 low = (__mmask16)((1u << count) - 1);
            _mm512_mask_storeu_epi32(
                out, low, _mm512_maskz_compress_epi32(m, q->is_swapped ? row : up));
            _mm512_mask_storeu_epi32(
                in, low, _mm512_maskz_compress_epi32(m, q->is_swapped ? up : row));
            out += count;
            in += count;
            row = _mm512_add_epi32(row, _mm512_set1_epi32(16));
        }
        tile->count[k] = (int32_t)(out - from);
    }
}

static void avx512_table(const plan_lanes *w, int32_t *nbr)
{
    const __m512i none = _mm512_set1_epi32(w->from->n);
    words near = {none, none};
    int32_t i, now = -1;

    for (i = 0; i < w->to->n; i++, nbr += PLAN_NBR) {
        int32_t up = w->to->parent[i];
        int c = (int)(w->to->key[i] & 7), half;
        if (up != now)
            near = load_words(w->top->nbr, w->top->child, up, false);
        now = up;
        for (half = 0; half < PLAN_NBR; half += 16) {
            __m512i v;
            __mmask16 has = partners(near, &w->from_word[c][half], &w->bit[c][half],
                                     &w->below[c][half], false, none, &v);
            _mm512_store_si512(nbr + half, _mm512_mask_mov_epi32(none, has, v));
        }
    }
}

const plan_loops sp_cpu_plan_avx512 = {
    .lanes = avx512_lanes, .children = avx512_children, .table = avx512_table};

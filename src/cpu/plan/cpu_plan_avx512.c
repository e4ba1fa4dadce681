/* The loops of a plan with 16 lanes at a time.
 *
 * Per row: gather the ancestor's 32 words once; then, for each vector of offsets,
 * permute them by constants of the child position, test a bit and count bits. Per
 * offset: list the rows that have a partner by compressing row numbers under their
 * bits, then gather the partners of the listed rows. No branch depends on the data.
 * Kernels of more than 32 offsets go through the words instead and sort the pairs
 * found. Compressing goes through a register, because compressing stores are slow on
 * some processors; the lanes stored beyond the last one are overwritten later. */
#include "cpu/plan/cpu_plan.h"

#include <immintrin.h>

#include "cpu/cpu.h"

/* sp_morton_spread of eight numbers. */
static inline __m512i spread(__m512i x)
{
    enum { OR_AND = 0xa8 }; /* (a | b) & c */

#define STEP(by, mask)                                                                 \
    x = _mm512_ternarylogic_epi64(x, _mm512_slli_epi64(x, by),                         \
                                  _mm512_set1_epi64(mask), OR_AND)
    STEP(32, 0x001f00000000ffff);
    STEP(16, 0x001f0000ff0000ff);
    STEP(8, 0x100f00f00f00f00f);
    STEP(4, 0x10c30c30c30c30c3);
    STEP(2, 0x1249249249249249);
#undef STEP
    return x;
}

/* Number `axis` of each of eight coordinates; a has their first 16 numbers, b the rest.
 */
static inline __m512i axis_of(__m512i a, __m512i b, int axis, int32_t base)
{
    const __m512i from = _mm512_add_epi32(
        _mm512_set1_epi32(axis),
        _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 21, 18, 15, 12, 9, 6, 3, 0));
    const __m256i v = _mm512_castsi512_si256(_mm512_permutex2var_epi32(a, from, b));

    return spread(_mm512_cvtepu32_epi64(_mm256_sub_epi32(v, _mm256_set1_epi32(base))));
}

static void avx512_keys(const int32_t *c, int32_t n, const int32_t base[3], int shift,
                        uint64_t *word)
{
    __m512i row = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    int32_t i;

    for (i = 0; i + 8 <= n; i += 8, c += 24) {
        const __m512i a = _mm512_loadu_si512(c);
        const __m512i b = _mm512_maskz_loadu_epi32(0xff, c + 16);
        const __m512i x = axis_of(a, b, 0, base[0]), y = axis_of(a, b, 1, base[1]);
        const __m512i key =
            _mm512_or_si512(_mm512_or_si512(x, _mm512_slli_epi64(y, 1)),
                            _mm512_slli_epi64(axis_of(a, b, 2, base[2]), 2));

        _mm512_storeu_si512(
            word + i,
            _mm512_or_si512(_mm512_sll_epi64(key, _mm_cvtsi32_si128(shift)), row));
        row = _mm512_add_epi64(row, _mm512_set1_epi64(8));
    }
    for (; i < n; i++, c += 3)
        word[i] = sp_morton_key(c, base) << shift | (uint64_t)i;
}

/* The 32 words of an ancestor. */
typedef struct words {
    __m512i lo, hi;
} words;

static inline __m512i iota(void)
{
    return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
}

/* Rows or their child words, for the first n of 16 lanes. */
static inline __m512i plan_words_of(const int32_t *row, int n, const uint32_t *child,
                                    bool is_leaf)
{
    const __m512i v = _mm512_loadu_si512(row);
    const __mmask16 m = n < 16 ? (__mmask16)((1u << n) - 1) : (__mmask16)0xffff;

    return is_leaf
               ? v
               : _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), m, v, child, 4);
}

/* `none` is the word of a neighbour that does not exist. */
static inline words plan_avx512_load_words(const cpu_plan_level *level,
                                           int32_t ancestor, bool is_leaf, __m512i none)
{
    const plan_near near = level->near[ancestor];
    const int32_t *row = level->nbr + near.at;
    const int n = __builtin_popcount(near.mask);
    const int n_lo = __builtin_popcount(near.mask & 0xffff);
    const __m512i first = plan_words_of(row, n, level->child, is_leaf);
    __m512i rest = _mm512_permutexvar_epi32(
        _mm512_add_epi32(iota(), _mm512_set1_epi32(n_lo)), first);

    if (n > 16)
        rest = plan_words_of(row + n_lo, n - n_lo, level->child, is_leaf);
    return (words){_mm512_mask_expand_epi32(none, (__mmask16)near.mask, first),
                   _mm512_mask_expand_epi32(none, (__mmask16)(near.mask >> 16), rest)};
}

/* Look-ups of up to 32 offsets stage no pairs, but the partners of a tile's rows, with
 * a bit for each that exists: row [rows][pitch], has [pitch / 16][SP_TILE]. */
static inline int32_t *plan_avx512_rows_of(const plan_stage *stage)
{
    return (int32_t *)(void *)stage->found;
}

static inline uint16_t *plan_bits_of(const plan_stage *stage)
{
    return (uint16_t *)(void *)stage->sorted;
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

/* Finds the partners of a tile's rows. Inlined with is_leaf and is_up as constants. */
static inline __attribute__((always_inline)) void plan_look(const plan_lanes *w,
                                                            const plan_tile *tile,
                                                            int32_t *row, uint16_t *has,
                                                            int pitch, bool is_leaf,
                                                            bool is_up)
{
    const int32_t *parent = w->to->parent;
    const uint64_t *key = w->to->key;
    const __m512i none =
        is_leaf ? _mm512_set1_epi32(w->from->n) : _mm512_setzero_si512();
    int32_t first = tile->first, n = tile->last - first, i, now = -1;
    words near = {none, none};
    int k;

    for (i = 0; i < n; i++) {
        int32_t up = is_up ? parent[first + i] : first + i;
        int c = is_up ? (int)(key[first + i] & 7) : 0;
        if (up != now)
            near = plan_avx512_load_words(w->top, up, is_leaf, none);
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

/* Appends the rows first + 0, 1, ... with their bit set to out; returns its new end. */
static inline int32_t *list_rows(const uint16_t *has, int bit, int32_t first, int32_t n,
                                 int32_t *out)
{
    const __m512i which = _mm512_set1_epi16((short)(1u << bit));
    __m512i row = _mm512_add_epi32(_mm512_set1_epi32(first), iota());
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

/* ---- look-ups of up to 32 offsets ---- */

/* Clears the bits of rows beyond a tile of n rows in its last vector of 32. */
static void clear_beyond(uint16_t *has, int pitch, int32_t n)
{
    for (int k = 0; k < pitch; k += 16)
        _mm512_store_si512(has + k / 16 * SP_TILE + (n - 1) / 32 * 32,
                           _mm512_setzero_si512());
}

static void look_at(const plan_lanes *w, const plan_tile *tile, int32_t *row,
                    uint16_t *has, int pitch)
{
    clear_beyond(has, pitch, tile->last - tile->first);
    if (w->is_leaf && w->is_up)
        plan_look(w, tile, row, has, pitch, true, true);
    else if (w->is_leaf)
        plan_look(w, tile, row, has, pitch, true, false);
    else if (w->is_up)
        plan_look(w, tile, row, has, pitch, false, true);
    else
        plan_look(w, tile, row, has, pitch, false, false);
}

static void narrow_find(const plan_lanes *w, plan_stage *stage, plan_tile *tile)
{
    int32_t *row = plan_avx512_rows_of(stage), *out = tile->out,
            n = tile->last - tile->first;
    uint16_t *has = plan_bits_of(stage);
    int pitch = (w->K + 15) & ~15, k;

    if (!w->is_table) /* else the table has staged its rows */
        look_at(w, tile, row, has, pitch);
    for (k = 0; k < w->K; k++) {
        int32_t *end = list_rows(has + k / 16 * SP_TILE, k % 16, tile->first, n, out);
        tile->count[k] = (int32_t)(end - out);
        out = end;
    }
    tile->n = (int32_t)(out - tile->out);
}

static void narrow_put(const plan_lanes *w, const plan_stage *stage, plan_tile *tile)
{
    int pitch = (w->K + 15) & ~15, at = 0, k;

    for (k = 0; k < w->K; at += tile->count[k++])
        list_partners(plan_avx512_rows_of(stage), pitch, k, tile->first, tile->out + at,
                      tile->count[k], tile->in + at);
}

/* ---- look-ups of more offsets ----
 * Most of them find nothing, so that lists by offset would cost more than the pairs.
 * The pairs are staged row by row, the children of a neighbour side by side. */

/* The words around an ancestor that are not empty. */
typedef struct near_words {
    int n;
    uint32_t word[PLAN_NBR];
    int32_t index[PLAN_NBR]; /* which of the 32 */
} near_words;

static inline void plan_avx512_list_words(const plan_lanes *w, int32_t ancestor,
                                          near_words *near)
{
    const plan_near v = w->top->near[ancestor];
    const int32_t *row = w->top->nbr + v.at;
    const __mmask16 lo = (__mmask16)v.mask, hi = (__mmask16)(v.mask >> 16);

    near->n = __builtin_popcount(v.mask);
    for (int j = 0; j < near->n; j += 16)
        _mm512_storeu_si512(near->word + j, plan_words_of(row + j, near->n - j,
                                                          w->top->child, w->is_leaf));
    _mm512_storeu_si512(near->index, _mm512_maskz_compress_epi32(lo, iota()));
    _mm512_storeu_si512(near->index + __builtin_popcount(lo),
                        _mm512_maskz_compress_epi32(
                            hi, _mm512_add_epi32(iota(), _mm512_set1_epi32(16))));
}

/* Stages the pairs of one row. Its tag without offset is `tag`. */
static inline void stage_row(const plan_word *aim, const near_words *near, uint32_t tag,
                             bool is_leaf, plan_stage *stage)
{
    const __m512i below = _mm512_setr_epi64(0, 1, 3, 7, 15, 31, 63, 127);
    const __m512i tags = _mm512_set1_epi64((int64_t)((uint64_t)tag << 32));
    uint64_t *found = stage->found + stage->n;

    for (int j = 0; j < near->n; j++) {
        const plan_word *at = &aim[near->index[j]];
        const uint32_t word = near->word[j];
        const __mmask8 m = (__mmask8)(is_leaf ? at->in_kernel : word & at->in_kernel);
        const __m512i offset =
            _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)at->offset));
        __m512i row = _mm512_set1_epi64(word);

        if (!is_leaf)
            row = _mm512_add_epi64(_mm512_srli_epi64(row, 8),
                                   _mm512_popcnt_epi64(_mm512_and_si512(row, below)));
        row =
            _mm512_or_si512(_mm512_or_si512(row, tags), _mm512_slli_epi64(offset, 32));
        _mm512_storeu_si512(found, _mm512_maskz_compress_epi64(m, row));
        found += __builtin_popcount(m);
    }
    stage->n = (int32_t)(found - stage->found);
}

static void wide_find(const plan_lanes *w, plan_stage *stage, plan_tile *tile)
{
    near_words near = {0};
    int32_t now = -1;

    stage->n = 0;
    stage->first = tile->first;
    for (int32_t i = tile->first; i < tile->last; i++) {
        const int32_t up = w->is_up ? w->to->parent[i] : i;
        const int c = w->is_up ? (int)(w->to->key[i] & 7) : 0;
        if (up != now)
            plan_avx512_list_words(w, up, &near);
        now = up;
        stage_row(w->word[c], &near, plan_tag(stage, i, 0), w->is_leaf, stage);
    }
    sp_cpu_plan_count_stage(stage, w->K, tile);
}

/* ---- the loops ---- */

static void avx512_find_lanes(const plan_lanes *w, plan_stage *stage, plan_tile *tile)
{
    if (w->K <= PLAN_NBR)
        narrow_find(w, stage, tile);
    else
        wide_find(w, stage, tile);
}

static void avx512_put_lanes(const plan_lanes *w, const plan_stage *stage,
                             plan_tile *tile)
{
    if (w->K <= PLAN_NBR)
        narrow_put(w, stage, tile);
    else
        sp_cpu_plan_sort_stage(stage, w->K, tile);
}

/* Pairs the fine rows of a tile with their parents, in one pass for each child
 * position. */
static void avx512_children(const plan_lookup *q, plan_stage *stage, plan_tile *tile)
{
    const cpu_plan_level *fine = &q->level[q->is_swapped ? q->to : q->from];
    const uint32_t *child = q->level[q->to].child;
    int32_t i0 = q->is_swapped ? tile->first : (int32_t)(child[tile->first] >> 8), i;
    int32_t i1 = tile->last, n, *digit = plan_avx512_rows_of(stage), *in, *out;
    int k;

    if (!q->is_swapped) {
        uint32_t word = child[tile->last - 1];
        i1 = (int32_t)(word >> 8) + __builtin_popcount(word & 255);
    }
    n = i1 - i0;
    for (i = 0; i < n; i++)
        digit[i] = (int32_t)(fine->key[i0 + i] & 7);
    tile->n = n;
    out = tile->out;
    in = tile->in;
    for (k = 0; k < 8; k++) {
        const __m512i which = _mm512_set1_epi32(k);
        __m512i row = _mm512_add_epi32(_mm512_set1_epi32(i0), iota());
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

/* Appends 16 lanes of a row to the table; returns its new end. */
static inline int32_t plan_append(int32_t *nbr, int32_t at, __mmask16 has, __m512i v)
{
    _mm512_storeu_si512(nbr + at, _mm512_maskz_compress_epi32(has, v));
    return at + __builtin_popcount(has);
}

static void avx512_table(const plan_lanes *w, cpu_plan_level *level, int32_t first,
                         int32_t last, plan_stage *stage)
{
    const __m512i none = _mm512_setzero_si512();
    uint16_t *has = stage ? plan_bits_of(stage) : NULL;
    int32_t *nbr = level->nbr, at = level->n_nbr, i, now = -1;
    words near = {none, none};

    if (has && first < last)
        clear_beyond(has, PLAN_NBR, last - first);
    for (i = first; i < last; i++) {
        int32_t up = level->parent[i];
        int c = (int)(level->key[i] & 7);
        __mmask16 lo, hi;
        __m512i v0, v1;
        if (up != now)
            near = plan_avx512_load_words(w->top, up, false, none);
        now = up;
        lo = partners(near, w->from_word[c], w->bit[c], w->below[c], false, none, &v0);
        hi = partners(near, &w->from_word[c][16], &w->bit[c][16], &w->below[c][16],
                      false, none, &v1);
        level->near[i] = (plan_near){(uint32_t)hi << 16 | lo, at};
        at = plan_append(nbr, plan_append(nbr, at, lo, v0), hi, v1);
        if (!has)
            continue;
        _mm512_store_si512(plan_avx512_rows_of(stage) + (i - first) * PLAN_NBR, v0);
        _mm512_store_si512(plan_avx512_rows_of(stage) + (i - first) * PLAN_NBR + 16,
                           v1);
        has[i - first] = lo;
        has[SP_TILE + i - first] = hi;
    }
    level->n_nbr = at;
}

const plan_loops sp_cpu_plan_avx512 = {.is_here = sp_cpu_has_avx512,
                                       .keys = avx512_keys,
                                       .find_lanes = avx512_find_lanes,
                                       .put_lanes = avx512_put_lanes,
                                       .children = avx512_children,
                                       .table = avx512_table};

/* The loops over lanes with 16 of them at a time: gather an ancestor's 32 words once,
 * then per vector of offsets a permute by constants of the child position, a bit test
 * and a population count. Pairs are compressed in registers (compressing stores are
 * slow on some processors) and stored whole; the next store overwrites what is beyond.
 */
#include "cpu_plan.h"

#include <immintrin.h>

/* The words of an ancestor. */
typedef struct words {
    __m512i lo, hi;
} words;

static inline words load_words(const int32_t *nbr, const uint32_t *child,
                               int32_t ancestor)
{
    const int32_t *row = nbr + (size_t)ancestor * PLAN_NBR;
    words w = {_mm512_load_si512(row), _mm512_load_si512(row + 16)};

    if (child) {
        w.lo = _mm512_i32gather_epi32(w.lo, child, 4);
        w.hi = _mm512_i32gather_epi32(w.hi, child, 4);
    }
    return w;
}

/* Partners of 16 lanes and which of them exist. */
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

/* Inlined with is_leaf and is_up as constants. */
static inline __attribute__((always_inline)) void rows(const plan_lanes *w,
                                                       int32_t first, int32_t last,
                                                       plan_stage *stage, bool is_leaf,
                                                       bool is_up)
{
    const int32_t *nbr = w->top->nbr, *parent = w->to->parent;
    const uint32_t *child = is_leaf ? NULL : w->top->child;
    const uint64_t *key = w->to->key;
    const __m512i lane =
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i none = _mm512_set1_epi32(w->from->n);
    int32_t *in = stage->in, i, now = -1;
    uint32_t *tag = stage->tag;
    words near = {none, none};
    int K = w->K, k;

    for (i = first; i < last; i++) {
        int32_t up = is_up ? parent[i] : i;
        int c = is_up ? (int)(key[i] & 7) : 0;
        uint32_t row_tag = (uint32_t)(i - first) << PLAN_TAG;
        if (up != now)
            near = load_words(nbr, child, up);
        now = up;
        for (k = 0; k < K; k += 16) {
            __m512i v, t;
            __mmask16 has = partners(near, &w->from_word[c][k], &w->bit[c][k],
                                     &w->below[c][k], is_leaf, none, &v);
            t = _mm512_add_epi32(lane, _mm512_set1_epi32((int)row_tag + k));
            _mm512_storeu_si512(in, _mm512_maskz_compress_epi32(has, v));
            _mm512_storeu_si512(tag, _mm512_maskz_compress_epi32(has, t));
            in += __builtin_popcount(has);
            tag += __builtin_popcount(has);
        }
    }
    stage->n = (int32_t)(in - stage->in);
}

static void avx512_rows(const plan_lanes *w, int32_t first, int32_t last,
                        plan_stage *stage)
{
    if (!w->is_leaf && w->is_up)
        rows(w, first, last, stage, false, true);
    else if (!w->is_leaf)
        rows(w, first, last, stage, false, false);
    else if (w->is_up)
        rows(w, first, last, stage, true, true);
    else
        rows(w, first, last, stage, true, false);
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
            near = load_words(w->top->nbr, w->top->child, up);
        now = up;
        for (half = 0; half < PLAN_NBR; half += 16) {
            __m512i v;
            __mmask16 has = partners(near, &w->from_word[c][half], &w->bit[c][half],
                                     &w->below[c][half], false, none, &v);
            _mm512_store_si512(nbr + half, _mm512_mask_mov_epi32(none, has, v));
        }
    }
}

const plan_loops sp_cpu_plan_avx512 = {.rows = avx512_rows, .table = avx512_table};

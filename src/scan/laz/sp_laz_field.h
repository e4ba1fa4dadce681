/* How the fields of points are coded, as far as several kinds of points share it:
 * integers by a prediction, medians, GPS times, colours, wave packets. Each function is
 * both directions (sp_laz_coder.h): it reads the value if enc is true and sets it if
 * enc is false. A structure that is all zero is ready, but integers need their number
 * of bits. */
#ifndef SP_LAZ_FIELD_H
#define SP_LAZ_FIELD_H

#include "base/sp_number.h"
#include "scan/laz/sp_laz_coder.h"

/* ---- integers ---- */

enum {
    LAZ_INTEGER_CONTEXTS = 22, /* at most */
    LAZ_MODELLED_BITS = 8      /* high bits of a correction that have a model */
};

/* Numbers of 8, 16 or 32 bits, coded as the difference to a guess, modulo 2^bits: first
 * k, the number of bits of the difference, by the model of the context, then the
 * difference itself by the model of k. */
typedef struct laz_integer {
    int bits;
    int k; /* of the last number */
    laz_bit one;
    laz_model *corrector[32], *size[LAZ_INTEGER_CONTEXTS];
} laz_integer;

LAZ_INLINE void laz_integer_open(laz_integer *i, int bits)
{
    i->bits = bits;
    i->one = laz_bit_start();
}

/* k bits hold the differences from 1 - 2^k to 2^k: those with 2^(k-1) and less are left
 * to smaller k, and the others are numbered from 0. */
LAZ_INLINE int32_t laz_correction(laz_coder *c, laz_integer *i, int k, int32_t d,
                                  bool enc)
{
    uint32_t u = 0, below = (UINT32_C(1) << k) - 1;

    if (enc)
        u = (uint32_t)d + (d < 0 ? below : UINT32_MAX);
    if (k <= LAZ_MODELLED_BITS) {
        u = laz_symbol(c, &i->corrector[k], 1u << k, u, enc);
    } else {
        int rest = k - LAZ_MODELLED_BITS;
        uint32_t high =
            laz_symbol(c, &i->corrector[k], 1 << LAZ_MODELLED_BITS, u >> rest, enc);

        u = high << rest | laz_code_bits(c, rest, u & ((UINT32_C(1) << rest) - 1), enc);
    }
    return (int32_t)(u >> (k - 1) ? u + 1 : u - below);
}

/* The difference to the guess; *size is the model of its size. */
LAZ_INLINE int32_t laz_difference(laz_coder *c, laz_integer *i, laz_model **size,
                                  int32_t d, bool enc)
{
    uint32_t less = enc ? (d <= 0 ? -(uint32_t)d : (uint32_t)d - 1) : 0;
    int k = less ? 32 - __builtin_clz(less) : 0;

    k = i->k = (int)laz_symbol(c, size, (unsigned)i->bits + 1, (unsigned)k, enc);
    if (k == 0)
        return (int32_t)laz_code_bit(c, &i->one, (unsigned)d, enc);
    return k < 32 ? laz_correction(c, i, k, d, enc) : INT32_MIN;
}

/* A number, guessed to be `guess`. Numbers of 8 and 16 bits come back without sign. */
LAZ_INLINE int32_t laz_number_at(laz_coder *c, laz_integer *i, laz_model **size,
                                 int32_t guess, int32_t x, bool enc)
{
    uint32_t d = (uint32_t)x - (uint32_t)guess;
    int unused = 32 - i->bits;

    d = (uint32_t)laz_difference(c, i, size, (int32_t)(d << unused) >> unused, enc);
    return (int32_t)(((uint32_t)guess + d) << unused >> unused);
}

LAZ_INLINE int32_t laz_number(laz_coder *c, laz_integer *i, int context, int32_t guess,
                              int32_t x, bool enc)
{
    return laz_number_at(c, i, &i->size[context], guess, x, enc);
}

/* The context of a number that follows one of k bits: in steps of two. */
LAZ_INLINE int laz_context(int k, int most)
{
    return k < most ? k & ~1 : most;
}

/* ---- the median of five ---- */

/* Five of the last numbers in order. A new one displaces the largest or the smallest,
 * by turns, so that the oldest leave sooner or later. */
typedef struct laz_median {
    int32_t v[5];
    bool is_low; /* the smallest goes next */
} laz_median;

LAZ_INLINE int32_t laz_lesser(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

LAZ_INLINE int32_t laz_greater(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

LAZ_INLINE void laz_median_add(laz_median *m, int32_t x)
{
    const int32_t *kept = m->v + m->is_low, middle = m->v[2];
    int32_t a = kept[0], b = kept[1], c = kept[2], d = kept[3];

    m->is_low = m->is_low ? x > middle : x >= middle;
    m->v[0] = laz_lesser(a, x);
    m->v[1] = laz_greater(a, laz_lesser(b, x));
    m->v[2] = laz_greater(b, laz_lesser(c, x));
    m->v[3] = laz_greater(c, laz_lesser(d, x));
    m->v[4] = laz_greater(d, x);
}

/* ---- GPS times ---- */

enum {
    LAZ_TIME_SERIES = 4,
    LAZ_TIME_MOST = 500,   /* multiples of the step that have a symbol: 0 to 500, */
    LAZ_TIME_LEAST = -10,  /* and -1 to -10, which are 501 to 510 */
    LAZ_TIME_SYMBOLS = 511 /* the multiples */
};

/* Times, as 64-bit integers, of up to four series between which points switch. A series
 * has its last time and a step; the next difference is about a multiple of it. The step
 * changes when four differences in a row are no multiple within bounds. */
typedef struct laz_times {
    unsigned last, next; /* the series now; the newest one */
    uint64_t time[LAZ_TIME_SERIES];
    int32_t step[LAZ_TIME_SERIES];
    int n_extreme[LAZ_TIME_SERIES];
    laz_model *first, *multiple; /* while the step is 0; otherwise */
    laz_integer difference;
} laz_times;

LAZ_INLINE void laz_times_open(laz_times *t, uint64_t time)
{
    t->time[0] = time;
    laz_integer_open(&t->difference, 32);
}

LAZ_INLINE bool laz_is_near(uint64_t a, uint64_t b)
{
    int64_t d = (int64_t)(a - b);

    return d == (int32_t)d;
}

/* The multiple of the step that d is nearest to, as a symbol. */
static inline unsigned laz_times_multiple(int32_t d, int32_t step)
{
    float ratio = (float)d / (float)step;
    int n;

    if (ratio >= (float)LAZ_TIME_MOST)
        return LAZ_TIME_MOST;
    if (ratio <= (float)LAZ_TIME_LEAST)
        return LAZ_TIME_MOST - LAZ_TIME_LEAST;
    n = (int)(ratio >= 0 ? ratio + 0.5f : ratio - 0.5f);
    return (unsigned)(n >= 0 ? n : LAZ_TIME_MOST - n);
}

/* Chooses how to code a time: by the step, as a new series (`full`), or by a switch to
 * the i-th series after this one (full + i). */
static inline unsigned laz_times_choose(const laz_times *t, uint64_t x, unsigned full,
                                        bool has_same)
{
    uint64_t last = t->time[t->last];
    int32_t step = t->step[t->last];

    if (has_same && x == last)
        return step == 0 ? 0 : LAZ_TIME_SYMBOLS;
    if (laz_is_near(x, last))
        return step == 0 ? has_same : laz_times_multiple((int32_t)(x - last), step);
    for (unsigned i = 1; i < LAZ_TIME_SERIES; i++)
        if (laz_is_near(x, t->time[(t->last + i) % LAZ_TIME_SERIES]))
            return full + i;
    return full;
}

LAZ_INLINE void laz_times_begin(laz_coder *c, laz_times *t, uint64_t x, bool enc)
{
    uint64_t last = t->time[t->last];
    uint32_t high = (uint32_t)laz_number(c, &t->difference, 8, (int32_t)(last >> 32),
                                         (int32_t)(x >> 32), enc);

    t->last = t->next = (t->next + 1) % LAZ_TIME_SERIES;
    t->time[t->last] = (uint64_t)high << 32 | laz_code_bits(c, 32, (uint32_t)x, enc);
    t->step[t->last] = 0;
    t->n_extreme[t->last] = 0;
}

/* Moves the series on by about the multiple `symbol` of its step. */
LAZ_INLINE void laz_times_move(laz_coder *c, laz_times *t, unsigned symbol, uint64_t x,
                               bool enc)
{
    unsigned s = t->last;
    int n = symbol <= LAZ_TIME_MOST ? (int)symbol : LAZ_TIME_MOST - (int)symbol;
    int context = n == 0                ? 7
                  : n == 1              ? 1
                  : n == LAZ_TIME_MOST  ? 4
                  : n == LAZ_TIME_LEAST ? 6
                  : n < 0               ? 5
                  : n < 10              ? 2
                                        : 3;
    uint32_t guess = (uint32_t)n * (uint32_t)t->step[s];
    int32_t d = laz_number(c, &t->difference, context, (int32_t)guess,
                           (int32_t)(x - t->time[s]), enc);

    t->time[s] += (uint64_t)(int64_t)d;
    if (n == 1) {
        t->n_extreme[s] = 0;
    } else if ((n == 0 || n == LAZ_TIME_MOST || n == LAZ_TIME_LEAST) &&
               ++t->n_extreme[s] > 3) {
        t->step[s] = d;
        t->n_extreme[s] = 0;
    }
}

/* A time in *p. has_same: the symbols have one for the last time once more. */
static inline void laz_times_code(laz_coder *c, laz_times *t, unsigned char *p,
                                  const bool has_same, const bool enc)
{
    uint64_t x = enc ? sp_get64(p) : 0;

    for (int turn = 0; turn < 2; turn++) {
        bool is_first = t->step[t->last] == 0;
        unsigned full = (is_first ? 1 : LAZ_TIME_SYMBOLS) + has_same, s = 0;

        if (enc)
            s = laz_times_choose(t, x, full, has_same);
        s = laz_symbol(c, is_first ? &t->first : &t->multiple, full + LAZ_TIME_SERIES,
                       s, enc);
        if (s > full) {
            t->last = (t->last + s - full) % LAZ_TIME_SERIES;
            continue;
        }
        if (s == full) {
            laz_times_begin(c, t, x, enc);
        } else if (has_same && s == full - 1 - is_first) {
            ; /* the last time once more */
        } else if (is_first) {
            s = t->last;
            t->step[s] =
                laz_number(c, &t->difference, 0, 0, (int32_t)(x - t->time[s]), enc);
            t->time[s] += (uint64_t)(int64_t)t->step[s];
            t->n_extreme[s] = 0;
        } else {
            laz_times_move(c, t, s, x, enc);
        }
        sp_put64(p, t->time[t->last]);
        return;
    }
    sp_laz_fault_set(c->fault, SP_EDATA, "switches its GPS times twice for one point");
    sp_put64(p, t->time[t->last]);
}

/* ---- colours ---- */

/* Models of a colour: `changed` codes which of its six bytes differ from the last one's
 * (bits 0 to 5) and whether it is not grey (bit 6), `byte` their differences. */
typedef struct laz_colours {
    laz_model *changed, *byte[6];
} laz_colours;

LAZ_INLINE int laz_byte_range(int x)
{
    return x < 0 ? 0 : x > 255 ? 255 : x;
}

/* A byte that differs from `last` if its bit is set; `guess` is near it. */
LAZ_INLINE unsigned char laz_byte(laz_coder *c, laz_model **model, bool is_changed,
                                  int last, int guess, unsigned char x, bool enc)
{
    if (!is_changed)
        return (unsigned char)last;
    return (unsigned char)(guess + (int)laz_symbol(c, model, 256,
                                                   (unsigned char)(x - guess), enc));
}

/* A byte of green and blue at p[at]: red's difference leads green, and the mean of
 * both leads blue. half: 0 the low bytes, 1 the high ones. */
LAZ_INLINE void laz_colours_half(laz_coder *c, laz_colours *m, unsigned changed,
                                 const unsigned char *last, unsigned char *p, int half,
                                 bool enc)
{
    int d = p[half] - last[half], green = 2 + half, blue = 4 + half;

    p[green] = laz_byte(c, &m->byte[green], changed >> green & 1, last[green],
                        laz_byte_range(d + last[green]), p[green], enc);
    d = (d + p[green] - last[green]) / 2;
    p[blue] = laz_byte(c, &m->byte[blue], changed >> blue & 1, last[blue],
                       laz_byte_range(d + last[blue]), p[blue], enc);
}

static inline void laz_colours_code(laz_coder *c, laz_colours *m,
                                    const unsigned char *last, unsigned char *p,
                                    const bool enc)
{
    unsigned changed = 0;

    if (enc) {
        for (int i = 0; i < 6; i++)
            changed |= (unsigned)(p[i] != last[i]) << i;
        changed |= (unsigned)(memcmp(p, p + 2, 4) != 0) << 6;
    }
    changed = laz_symbol(c, &m->changed, 128, changed, enc);
    for (int i = 0; i < 2; i++)
        p[i] = laz_byte(c, &m->byte[i], changed >> i & 1, last[i], last[i], p[i], enc);
    if (changed & 64) {
        for (int half = 0; half < 2; half++)
            laz_colours_half(c, m, changed, last, p, half, enc);
    } else {
        for (int i = 2; i < 6; i++)
            p[i] = p[i - 2];
    }
}

/* ---- wave packets ---- */

enum { LAZ_WAVE_BYTES = 29 };

/* The place of the packet is coded in one of four ways. */
typedef enum laz_wave_way {
    LAZ_WAVE_SAME,
    LAZ_WAVE_NEXT, /* after the last packet */
    LAZ_WAVE_NEAR, /* at a distance that 32 bits hold */
    LAZ_WAVE_FAR
} laz_wave_way;

typedef struct laz_waves {
    laz_model *index, *way[4];
    laz_integer offset, bytes, point, xyz;
    int32_t distance; /* the last one of LAZ_WAVE_NEAR */
    unsigned last_way;
} laz_waves;

LAZ_INLINE void laz_waves_open(laz_waves *w)
{
    laz_integer_open(&w->offset, 32);
    laz_integer_open(&w->bytes, 32);
    laz_integer_open(&w->point, 32);
    laz_integer_open(&w->xyz, 32);
}

LAZ_INLINE unsigned laz_waves_choose(uint64_t last, uint32_t bytes, uint64_t x)
{
    return x == last              ? LAZ_WAVE_SAME
           : x == last + bytes    ? LAZ_WAVE_NEXT
           : laz_is_near(x, last) ? LAZ_WAVE_NEAR
                                  : LAZ_WAVE_FAR;
}

LAZ_INLINE uint64_t laz_waves_offset(laz_coder *c, laz_waves *w,
                                     const unsigned char *last, uint64_t x, bool enc)
{
    uint64_t at = sp_get64(last + 1);
    uint32_t bytes = sp_get32(last + 9);
    unsigned way = enc ? laz_waves_choose(at, bytes, x) : 0;

    way = w->last_way = laz_symbol(c, &w->way[w->last_way], 4, way, enc);
    if (way == LAZ_WAVE_FAR)
        return laz_code_64(c, x, enc);
    if (way == LAZ_WAVE_NEAR) {
        w->distance = laz_number(c, &w->offset, 0, w->distance, (int32_t)(x - at), enc);
        return at + (uint64_t)(int64_t)w->distance;
    }
    return way == LAZ_WAVE_NEXT ? at + bytes : at;
}

/* A number of 32 bits at p, guessed to be the one at `last`. */
LAZ_INLINE void laz_code_32(laz_coder *c, laz_integer *i, int context,
                            const unsigned char *last, unsigned char *p, bool enc)
{
    sp_put32(p, (uint32_t)laz_number(c, i, context, (int32_t)sp_get32(last),
                                     (int32_t)sp_get32(p), enc));
}

static inline void laz_waves_code(laz_coder *c, laz_waves *w, const unsigned char *last,
                                  unsigned char *p, const bool enc)
{
    p[0] = (unsigned char)laz_symbol(c, &w->index, 256, p[0], enc);
    sp_put64(p + 1, laz_waves_offset(c, w, last, sp_get64(p + 1), enc));
    laz_code_32(c, &w->bytes, 0, last + 9, p + 9, enc);
    laz_code_32(c, &w->point, 0, last + 13, p + 13, enc);
    for (int a = 0; a < 3; a++)
        laz_code_32(c, &w->xyz, a, last + 17 + 4 * a, p + 17 + 4 * a, enc);
}

#endif

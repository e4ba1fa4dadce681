/* Points of formats 0 to 5: the parts of a record follow each other in one stream, each
 * coded with the record before as context. Files of 2010 and 2011 have parts of version
 * 1, later ones of version 2; the parts of a wave packet are the same. */
#include <assert.h>
#include <stdlib.h>

#include "base/sp_list.h"
#include "scan/laz/sp_laz_codec.h"
#include "scan/laz/sp_laz_field.h"

enum {
    /* Bytes of a record; the returns are their number and count, and two flags. */
    INTENSITY = 12,
    RETURNS = 14,
    CLASS = 15,
    ANGLE = 16,
    USER = 17,
    SOURCE = 18,
    /* Bits of the symbol that says which of them changed. */
    NEW_RETURNS = 32,
    NEW_INTENSITY = 16,
    NEW_CLASS = 8,
    NEW_ANGLE = 4,
    NEW_USER = 2,
    NEW_SOURCE = 1,
    POINT_MODELS = 48, /* that a point may create, without the extra bytes' models */
    OLD_MULTIPLES = 512
};

/* The first 20 bytes of a record. */
typedef struct point10 {
    laz_model *changed, *returns[256], *class[256], *user[256], *angle[2];
    laz_integer dx, dy, z, intensity, source;
    /* Version 2: by the kind of return; heights by the returns before or after. */
    laz_median median_x[16], median_y[16];
    uint16_t last_intensity[16];
    int32_t last_z[8];
    /* Version 1: the last three steps in x and y. */
    int32_t dx1[3], dy1[3];
    int turn; /* the oldest of them */
    laz_integer angle1;
} point10;

/* GPS times and colours of version 1. */
typedef struct times1 {
    int32_t step;
    int n_extreme;
    laz_model *first, *multiple;
    laz_integer difference;
} times1;

typedef struct colours1 {
    laz_model *changed;
    laz_integer byte;
} colours1;

typedef struct laz_pointwise {
    point10 point;
    laz_times times;
    times1 times1;
    laz_colours colours;
    colours1 colours1;
    laz_waves waves;
    laz_model **extra; /* one for each extra byte; in the pool */
    laz_integer extra1;
} laz_pointwise;

/* ---- points ---- */

/* The kind of a return, by the number of returns (row) and the return's own number.
 * Valid pairs are numbered, the others share these numbers. */
static const unsigned char return_kind[8][8] = {
    {15, 14, 13, 12, 11, 10, 9, 8},  {14, 0, 1, 3, 6, 10, 10, 9},
    {13, 1, 2, 4, 7, 11, 11, 10},    {12, 3, 4, 5, 8, 12, 12, 11},
    {11, 6, 7, 8, 9, 13, 13, 12},    {10, 10, 11, 12, 13, 14, 14, 13},
    {9, 10, 11, 12, 13, 14, 15, 14}, {8, 9, 10, 11, 12, 13, 14, 15}};

LAZ_INLINE unsigned kind_of(unsigned returns)
{
    return return_kind[returns >> 3 & 7][returns & 7];
}

LAZ_INLINE unsigned pointwise_changes(const unsigned char *last,
                                      unsigned last_intensity, const unsigned char *p)
{
    return (p[RETURNS] != last[RETURNS]) * NEW_RETURNS |
           (sp_get16(p + INTENSITY) != last_intensity) * NEW_INTENSITY |
           (p[CLASS] != last[CLASS]) * NEW_CLASS |
           (p[ANGLE] != last[ANGLE]) * NEW_ANGLE | (p[USER] != last[USER]) * NEW_USER |
           (sp_get16(p + SOURCE) != sp_get16(last + SOURCE)) * NEW_SOURCE;
}

/* A byte; its last value chooses the model. */
LAZ_INLINE void pointwise_code_byte(laz_coder *c, laz_model **models,
                                    unsigned is_changed, unsigned char last,
                                    unsigned char *p, bool enc)
{
    if (is_changed)
        *p = (unsigned char)laz_symbol(c, &models[last], 256, *p, enc);
    else
        *p = last;
}

LAZ_INLINE void code_source(laz_coder *c, point10 *s, unsigned is_changed,
                            const unsigned char *last, unsigned char *p, bool enc)
{
    uint32_t x = sp_get16(last + SOURCE);

    if (is_changed)
        x = (uint32_t)laz_number(c, &s->source, 0, (int32_t)x, sp_get16(p + SOURCE),
                                 enc);
    sp_put16(p + SOURCE, x);
}

/* The difference in x or y to the last point; returns it. */
LAZ_INLINE int32_t pointwise_code_step(laz_coder *c, laz_integer *i, int context,
                                       int32_t guess, const unsigned char *last,
                                       unsigned char *p, bool enc)
{
    uint32_t from = sp_get32(last);
    int32_t d = laz_number(c, i, context, guess, (int32_t)(sp_get32(p) - from), enc);

    sp_put32(p, from + (uint32_t)d);
    return d;
}

LAZ_INLINE void code_xyz(laz_coder *c, point10 *s, const unsigned char *last,
                         unsigned char *p, bool enc)
{
    int returns = p[RETURNS] >> 3 & 7, number = p[RETURNS] & 7,
        is_single = returns == 1;
    unsigned kind = kind_of(p[RETURNS]);
    int32_t *z = &s->last_z[abs(returns - number)];

    laz_median_add(&s->median_x[kind],
                   pointwise_code_step(c, &s->dx, is_single, s->median_x[kind].v[2],
                                       last, p, enc));
    laz_median_add(&s->median_y[kind],
                   pointwise_code_step(c, &s->dy, is_single + laz_context(s->dx.k, 20),
                                       s->median_y[kind].v[2], last + 4, p + 4, enc));
    *z = laz_number(c, &s->z, is_single + laz_context((s->dx.k + s->dy.k) / 2, 18), *z,
                    (int32_t)sp_get32(p + 8), enc);
    sp_put32(p + 8, (uint32_t)*z);
}

LAZ_INLINE void pointwise_code_point(laz_coder *c, point10 *s,
                                     const unsigned char *last, unsigned char *p,
                                     bool enc)
{
    unsigned changed = 0, kind;

    if (enc)
        changed = pointwise_changes(last, s->last_intensity[kind_of(p[RETURNS])], p);
    changed = laz_symbol(c, &s->changed, 64, changed, enc);
    pointwise_code_byte(c, s->returns, changed & NEW_RETURNS, last[RETURNS],
                        p + RETURNS, enc);
    kind = kind_of(p[RETURNS]);
    if (changed & NEW_INTENSITY)
        s->last_intensity[kind] =
            (uint16_t)laz_number(c, &s->intensity, kind < 3 ? (int)kind : 3,
                                 s->last_intensity[kind], sp_get16(p + INTENSITY), enc);
    sp_put16(p + INTENSITY, s->last_intensity[kind]);
    pointwise_code_byte(c, s->class, changed & NEW_CLASS, last[CLASS], p + CLASS, enc);
    p[ANGLE] = laz_byte(c, &s->angle[p[RETURNS] >> 6 & 1], changed & NEW_ANGLE,
                        last[ANGLE], last[ANGLE], p[ANGLE], enc);
    pointwise_code_byte(c, s->user, changed & NEW_USER, last[USER], p + USER, enc);
    code_source(c, s, changed & NEW_SOURCE, last, p, enc);
    code_xyz(c, s, last, p, enc);
}

/* ---- points of version 1 ---- */

LAZ_INLINE int32_t median_of_three(const int32_t *v)
{
    int32_t low = laz_lesser(v[0], v[1]), high = laz_greater(v[0], v[1]);

    return laz_greater(low, laz_lesser(high, v[2]));
}

/* Returns and intensity have each other's bit in version 1. */
LAZ_INLINE unsigned swap_two(unsigned changed)
{
    return (changed & 15) | (changed & NEW_RETURNS) >> 1 |
           (changed & NEW_INTENSITY) << 1;
}

LAZ_INLINE void code_point1(laz_coder *c, point10 *s, const unsigned char *last,
                            unsigned char *p, bool enc)
{
    unsigned changed =
        enc ? swap_two(pointwise_changes(last, sp_get16(last + INTENSITY), p)) : 0;
    uint32_t intensity = sp_get16(last + INTENSITY), angle = last[ANGLE];
    int k;

    s->dx1[s->turn] =
        pointwise_code_step(c, &s->dx, 0, median_of_three(s->dx1), last, p, enc);
    k = s->dx.k < 19 ? s->dx.k : 19;
    s->dy1[s->turn] = pointwise_code_step(c, &s->dy, k, median_of_three(s->dy1),
                                          last + 4, p + 4, enc);
    s->turn = (s->turn + 1) % 3;
    k = (s->dx.k + s->dy.k) / 2;
    laz_code_32(c, &s->z, k < 19 ? k : 19, last + 8, p + 8, enc);
    changed = swap_two(laz_symbol(c, &s->changed, 64, changed, enc));
    if (changed & NEW_INTENSITY)
        intensity = (uint32_t)laz_number(c, &s->intensity, 0, (int32_t)intensity,
                                         sp_get16(p + INTENSITY), enc);
    sp_put16(p + INTENSITY, intensity);
    pointwise_code_byte(c, s->returns, changed & NEW_RETURNS, last[RETURNS],
                        p + RETURNS, enc);
    pointwise_code_byte(c, s->class, changed & NEW_CLASS, last[CLASS], p + CLASS, enc);
    if (changed & NEW_ANGLE)
        angle =
            (uint32_t)laz_number(c, &s->angle1, k < 3, (int32_t)angle, p[ANGLE], enc);
    p[ANGLE] = (unsigned char)angle;
    pointwise_code_byte(c, s->user, changed & NEW_USER, last[USER], p + USER, enc);
    code_source(c, s, changed & NEW_SOURCE, last, p, enc);
}

/* ---- GPS times, colours and extra bytes of version 1 ---- */

enum { SAME = OLD_MULTIPLES - 1, FAR = OLD_MULTIPLES - 2, MOST = OLD_MULTIPLES - 3 };

/* The symbol of a time while the step is 0: the last once more, a step, or anew. */
enum { FIRST_SAME, FIRST_STEP, FIRST_FAR };

LAZ_INLINE void code_time1_step(laz_coder *c, times1 *s, unsigned symbol, uint64_t last,
                                unsigned char *p, bool enc)
{
    int context = symbol == 0   ? 2
                  : symbol == 1 ? 1
                  : symbol < 10 ? 3
                  : symbol < 50 ? 4
                                : 5;
    uint32_t guess = symbol == 0 ? (uint32_t)(s->step / 4) : symbol * (uint32_t)s->step;
    int32_t d = laz_number(c, &s->difference, context, (int32_t)guess,
                           (int32_t)(sp_get64(p) - last), enc);

    sp_put64(p, last + (uint64_t)(int64_t)d);
    if (symbol == 0 || symbol == MOST)
        s->n_extreme++;
    if (symbol == 1 || s->n_extreme > 3) {
        s->step = d;
        s->n_extreme = 0;
    }
}

static unsigned choose_time1(const times1 *s, uint64_t last, uint64_t x)
{
    unsigned n;

    if (s->step == 0)
        return x == last ? FIRST_SAME : laz_is_near(x, last) ? FIRST_STEP : FIRST_FAR;
    if (x == last || !laz_is_near(x, last))
        return x == last ? SAME : FAR;
    n = laz_times_multiple((int32_t)(x - last), s->step);
    return n > LAZ_TIME_MOST ? 0 : n;
}

LAZ_INLINE void code_time1(laz_coder *c, times1 *s, const unsigned char *before,
                           unsigned char *p, bool enc)
{
    uint64_t last = sp_get64(before);
    unsigned symbol = enc ? choose_time1(s, last, sp_get64(p)) : 0;

    if (s->step == 0) {
        symbol = laz_symbol(c, &s->first, 3, symbol, enc);
        if (symbol == FIRST_STEP) {
            s->step =
                laz_number(c, &s->difference, 0, 0, (int32_t)(sp_get64(p) - last), enc);
            sp_put64(p, last + (uint64_t)(int64_t)s->step);
            return;
        }
        symbol = symbol == FIRST_SAME ? SAME : FAR;
    } else {
        symbol = laz_symbol(c, &s->multiple, OLD_MULTIPLES, symbol, enc);
    }
    if (symbol == SAME)
        sp_put64(p, last);
    else if (symbol == FAR)
        sp_put64(p, laz_code_64(c, sp_get64(p), enc));
    else
        code_time1_step(c, s, symbol, last, p, enc);
}

LAZ_INLINE void code_colour1(laz_coder *c, colours1 *s, const unsigned char *last,
                             unsigned char *p, bool enc)
{
    unsigned changed = 0;

    for (int i = 0; i < 6; i++)
        changed |= (unsigned)(p[i] != last[i]) << i;
    changed = laz_symbol(c, &s->changed, 64, changed, enc);
    for (int i = 0; i < 6; i++)
        p[i] = changed >> i & 1
                   ? (unsigned char)laz_number(c, &s->byte, i, last[i], p[i], enc)
                   : last[i];
}

/* ---- records ---- */

LAZ_INLINE void pointwise_code_extra(laz_coder *c, laz_pointwise *s,
                                     const sp_laz_item *item, const unsigned char *last,
                                     unsigned char *p, bool enc)
{
    for (int i = 0; i < item->bytes; i++)
        if (item->version == 1)
            p[i] = (unsigned char)laz_number_at(c, &s->extra1, &s->extra[i], last[i],
                                                p[i], enc);
        else
            p[i] = laz_byte(c, &s->extra[i], true, last[i], last[i], p[i], enc);
}

LAZ_INLINE void pointwise_code_record(laz_coder *c, laz_pointwise *s,
                                      const sp_laz_format *format,
                                      const unsigned char *last, unsigned char *p,
                                      bool enc)
{
    for (int i = 0; i < format->n_items; i++) {
        const sp_laz_item *item = &format->item[i];
        int at = item->at, is_old = item->version == 1;

        if (item->type == SP_LAZ_POINT10 && is_old)
            code_point1(c, &s->point, last + at, p + at, enc);
        else if (item->type == SP_LAZ_POINT10)
            pointwise_code_point(c, &s->point, last + at, p + at, enc);
        else if (item->type == SP_LAZ_GPSTIME11 && is_old)
            code_time1(c, &s->times1, last + at, p + at, enc);
        else if (item->type == SP_LAZ_GPSTIME11)
            laz_times_code(c, &s->times, p + at, true, enc);
        else if (item->type == SP_LAZ_RGB12 && is_old)
            code_colour1(c, &s->colours1, last + at, p + at, enc);
        else if (item->type == SP_LAZ_RGB12)
            laz_colours_code(c, &s->colours, last + at, p + at, enc);
        else if (item->type == SP_LAZ_WAVEPACKET13)
            laz_waves_code(c, &s->waves, last + at, p + at, enc);
        else
            pointwise_code_extra(c, s, item, last + at, p + at, enc);
    }
}

sp_status sp_laz_pointwise_decode(laz_codec *z, unsigned char *records, int64_t n)
{
    size_t bytes = (size_t)z->format->record_bytes;
    const unsigned char *last = z->last;

    for (; n > 0 && !z->fault.what; n--, records += bytes) {
        SP_TRY(sp_laz_pool_reserve(&z->pool, POINT_MODELS));
        pointwise_code_record(z->coder, z->pointwise, z->format, last, records, false);
        last = records;
        z->fault.point++;
    }
    if (last != z->last)
        memcpy(z->last, last, bytes);
    return SP_OK;
}

sp_status sp_laz_pointwise_encode(laz_codec *z, const unsigned char *records, int64_t n)
{
    size_t bytes = (size_t)z->format->record_bytes;

    for (; n > 0 && !z->fault.what; n--, records += bytes) {
        SP_TRY(sp_laz_pool_reserve(&z->pool, POINT_MODELS));
        memcpy(z->record, records, bytes);
        pointwise_code_record(z->coder, z->pointwise, z->format, z->last, z->record,
                              true);
        memcpy(z->last, records, bytes);
        z->fault.point++;
    }
    return SP_OK;
}

/* ---- the beginning of a chunk ---- */

sp_status sp_laz_pointwise_create(laz_codec *z)
{
    assert(z->format && z->format->compressor != SP_LAZ_LAYERED);
    return SP_NEW(&z->pointwise, 1, "a LAZ coder");
}

void sp_laz_pointwise_destroy(laz_codec *z)
{
    free(z->pointwise);
    z->pointwise = NULL;
}

sp_status sp_laz_pointwise_begin(laz_codec *z)
{
    laz_pointwise *s = z->pointwise;

    assert(z->pointwise && z->last);
    memset(s, 0, sizeof *s);
    laz_integer_open(&s->point.dx, 32);
    laz_integer_open(&s->point.dy, 32);
    laz_integer_open(&s->point.z, 32);
    laz_integer_open(&s->point.intensity, 16);
    laz_integer_open(&s->point.source, 16);
    laz_integer_open(&s->point.angle1, 8);
    laz_integer_open(&s->times1.difference, 32);
    laz_integer_open(&s->colours1.byte, 8);
    laz_integer_open(&s->extra1, 8);
    laz_waves_open(&s->waves);
    for (int i = 0; i < z->format->n_items; i++) {
        const sp_laz_item *item = &z->format->item[i];

        if (item->type == SP_LAZ_GPSTIME11)
            laz_times_open(&s->times, sp_get64(z->last + item->at));
        if (item->type == SP_LAZ_BYTE)
            SP_TRY(sp_laz_extra_create(z, item->bytes, item->version == 1 ? 9 : 256,
                                       NULL, &s->extra));
    }
    return SP_OK;
}

/* Points of formats 6 to 10: each field has a stream of its own, a layer, so that a
 * field can be read without the others. The first layer has all that others depend on:
 * the scanner's channel, which of the rarely changing fields change, the return counts,
 * and x and y. Each channel has its own context: models, and the last point. */
#include <assert.h>
#include <stdlib.h>

#include "base/sp_list.h"
#include "scan/laz/sp_laz_codec.h"
#include "scan/laz/sp_laz_field.h"

enum {
    CHANNELS = 4,
    POINT_BYTES = 30,
    /* Bytes of a record. */
    INTENSITY = 12,
    RETURNS = 14, /* number of the return, number of returns */
    FLAGS = 15,   /* classification flags, channel, scan direction, edge of line */
    CLASS = 16,
    USER = 17,
    ANGLE = 18,
    SOURCE = 20,
    TIME = 22,
    /* Layers of a point; the layers of the items after it follow. */
    LAYER_XY = 0,
    LAYER_Z,
    LAYER_CLASS,
    LAYER_FLAGS,
    LAYER_INTENSITY,
    LAYER_ANGLE,
    LAYER_USER,
    LAYER_SOURCE,
    LAYER_TIME,
    POINT_LAYERS,
    /* Bits of the symbol that says which fields changed. The two low bits are of the
     * return's number: the same, one more, one less, other. */
    NEW_CHANNEL = 64,
    NEW_SOURCE = 32,
    NEW_TIME = 16,
    NEW_ANGLE = 8,
    NEW_RETURNS = 4,
    NUMBER_MORE = 1,
    NUMBER_LESS = 2,
    NUMBER_OTHER = 3,
    POINT_MODELS = 80 /* that a point may create, without the extra bytes' models */
};

typedef struct context {
    bool is_used, had_new_time;
    unsigned char last[POINT_BYTES];
    laz_model *changed[8], *channel, *returns[16], *number[16], *number_same_time;
    laz_model *class[64], *flags[64], *user[64];
    laz_integer dx, dy, z, intensity, angle, source;
    laz_median median_x[12], median_y[12]; /* kind of return, time is new */
    int32_t last_z[8];
    uint16_t last_intensity[8];
    laz_times times;
} context;

/* An item after the point. `last` has its bytes for each channel. */
typedef struct side {
    const sp_laz_item *item;
    int layer, channel; /* its first layer; the context of the last point */
    bool is_used[CHANNELS];
    unsigned char *last; /* [CHANNELS][item->bytes] */
    laz_colours colours[CHANNELS];
    laz_model *nir[CHANNELS][3]; /* what changed, low byte, high byte */
    laz_waves waves[CHANNELS];
    laz_model **extra[CHANNELS]; /* [item->bytes]; in the pool */
} side;

typedef struct laz_layered {
    int channel; /* of the last point */
    context context[CHANNELS];
    int n_sides;
    side side[SP_LAZ_ITEMS];
} laz_layered;

/* The kind of a return, by the number of returns n (row) and the return's number. */
static const unsigned char return_kind[16][16] = {
    {0, 1, 2, 3, 4, 5, 3, 4, 4, 5, 5, 5, 5, 5, 5, 5},
    {1, 0, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3},
    {2, 1, 2, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3},
    {3, 3, 4, 5, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4},
    {4, 3, 4, 4, 5, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4},
    {5, 3, 4, 4, 4, 5, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4},
    {3, 3, 4, 4, 4, 4, 5, 4, 4, 4, 4, 4, 4, 4, 4, 4},
    {4, 3, 4, 4, 4, 4, 4, 5, 4, 4, 4, 4, 4, 4, 4, 4},
    {4, 3, 4, 4, 4, 4, 4, 4, 5, 4, 4, 4, 4, 4, 4, 4},
    {5, 3, 4, 4, 4, 4, 4, 4, 4, 5, 4, 4, 4, 4, 4, 4},
    {5, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5, 4, 4, 4, 4, 4},
    {5, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 4, 4, 4},
    {5, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 4, 4},
    {5, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 4},
    {5, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5},
    {5, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5}};

/* ---- the first layer ---- */

static void open_context(context *x, const unsigned char *last)
{
    memset(x, 0, sizeof *x);
    x->is_used = true;
    memcpy(x->last, last, POINT_BYTES);
    laz_integer_open(&x->dx, 32);
    laz_integer_open(&x->dy, 32);
    laz_integer_open(&x->z, 32);
    laz_integer_open(&x->intensity, 16);
    laz_integer_open(&x->angle, 16);
    laz_integer_open(&x->source, 16);
    laz_times_open(&x->times, sp_get64(last + TIME));
    for (int i = 0; i < 8; i++) {
        x->last_z[i] = (int32_t)sp_get32(last + 8);
        x->last_intensity[i] = sp_get16(last + INTENSITY);
    }
}

static inline unsigned layered_changes(const unsigned char *last,
                                       const unsigned char *p)
{
    unsigned step = (p[RETURNS] - (unsigned)last[RETURNS]) & 15;

    return (sp_get16(p + SOURCE) != sp_get16(last + SOURCE)) * NEW_SOURCE |
           (sp_get64(p + TIME) != sp_get64(last + TIME)) * NEW_TIME |
           (sp_get16(p + ANGLE) != sp_get16(last + ANGLE)) * NEW_ANGLE |
           (p[RETURNS] >> 4 != last[RETURNS] >> 4) * NEW_RETURNS |
           (step == 0    ? 0
            : step == 1  ? NUMBER_MORE
            : step == 15 ? NUMBER_LESS
                         : NUMBER_OTHER);
}

/* Says what changed with respect to the last point of the same channel, and goes over
 * to the context of this channel, which begins with the last point of all. */
LAZ_INLINE context *code_changes(laz_codec *z, const unsigned char *p,
                                 unsigned *changed, bool enc)
{
    laz_layered *s = z->layered;
    laz_coder *c = &z->coder[LAYER_XY];
    context *from = &s->context[s->channel];
    unsigned number = from->last[RETURNS] & 15, returns = from->last[RETURNS] >> 4;
    unsigned to = p[FLAGS] >> 4 & 3, what = 0, step;

    if (enc) {
        const context *x = s->context[to].is_used ? &s->context[to] : from;

        what = layered_changes(x->last, p) | ((int)to != s->channel) * NEW_CHANNEL;
    }
    *changed = what =
        laz_symbol(c,
                   &from->changed[(number == 1) | (number >= returns) << 1 |
                                  from->had_new_time << 2],
                   128, what, enc);
    if (!(what & NEW_CHANNEL))
        return from;
    step = (to - (unsigned)s->channel - 1) & 3;
    step = laz_symbol(c, &from->channel, 3, step, enc);
    s->channel = (s->channel + (int)step + 1) & 3;
    if (!s->context[s->channel].is_used)
        open_context(&s->context[s->channel], from->last);
    return &s->context[s->channel];
}

/* Number of returns and of the return; returns them as their byte. */
LAZ_INLINE unsigned code_returns(laz_coder *c, context *x, unsigned changed,
                                 unsigned given, bool enc)
{
    unsigned was = x->last[RETURNS] & 15, n = x->last[RETURNS] >> 4, number = was;

    if (changed & NEW_RETURNS)
        n = laz_symbol(c, &x->returns[n], 16, given >> 4, enc);
    if ((changed & 3) == NUMBER_MORE)
        number = was + 1;
    else if ((changed & 3) == NUMBER_LESS)
        number = was + 15;
    else if ((changed & 3) == NUMBER_OTHER && changed & NEW_TIME)
        number = laz_symbol(c, &x->number[was], 16, given & 15, enc);
    else if ((changed & 3) == NUMBER_OTHER)
        number = was + 2 +
                 laz_symbol(c, &x->number_same_time, 13, (given - was - 2) & 15, enc);
    return n << 4 | (number & 15);
}

/* A step in x or y, guessed by the median of the steps of the same kind. */
LAZ_INLINE void layered_code_step(laz_coder *c, laz_integer *i, int place,
                                  laz_median *median, const unsigned char *last,
                                  unsigned char *p, bool enc)
{
    uint32_t from = sp_get32(last);
    int32_t d =
        laz_number(c, i, place, median->v[2], (int32_t)(sp_get32(p) - from), enc);

    laz_median_add(median, d);
    sp_put32(p, from + (uint32_t)d);
}

/* ---- the other layers ---- */

/* Is the layer to be coded? While encoding all are, and those with an `is_new` value
 * are marked. */
LAZ_INLINE bool layer_has(laz_codec *z, int layer, bool is_new, bool enc)
{
    if (enc)
        z->is_used[layer] |= is_new;
    return enc || z->is_used[layer];
}

/* A byte; the caller chooses its model. */
LAZ_INLINE void layered_code_byte(laz_codec *z, int layer, laz_model **model,
                                  unsigned n, unsigned last, unsigned char *p, bool enc)
{
    if (layer_has(z, layer, *p != last, enc))
        *p = (unsigned char)laz_symbol(&z->coder[layer], model, n, *p, enc);
    else
        *p = (unsigned char)last;
}

/* A number of 16 bits that is coded if it `is_new`. */
LAZ_INLINE void code_rare(laz_codec *z, int layer, laz_integer *i, int place,
                          bool is_new, const unsigned char *last, unsigned char *p,
                          bool enc)
{
    uint32_t x = sp_get16(last);

    if (layer_has(z, layer, is_new, enc) && is_new)
        x = (uint32_t)laz_number(&z->coder[layer], i, place, (int32_t)x, sp_get16(p),
                                 enc);
    sp_put16(p, x);
}

LAZ_INLINE void code_z(laz_codec *z, context *x, int is_single, int level,
                       unsigned char *p, bool enc)
{
    uint32_t last = sp_get32(x->last + 8);
    int place = is_single + laz_context((x->dx.k + x->dy.k) / 2, 18);

    if (layer_has(z, LAYER_Z, sp_get32(p + 8) != last, enc))
        last = (uint32_t)(x->last_z[level] = laz_number(&z->coder[LAYER_Z], &x->z,
                                                        place, x->last_z[level],
                                                        (int32_t)sp_get32(p + 8), enc));
    sp_put32(p + 8, last);
}

/* place: first and last return, and whether the time is new. */
LAZ_INLINE void code_intensity(laz_codec *z, context *x, int place, unsigned char *p,
                               bool enc)
{
    uint32_t last = sp_get16(x->last + INTENSITY);
    uint16_t *guess = &x->last_intensity[place];

    if (layer_has(z, LAYER_INTENSITY, sp_get16(p + INTENSITY) != last, enc))
        last = *guess =
            (uint16_t)laz_number(&z->coder[LAYER_INTENSITY], &x->intensity, place >> 1,
                                 *guess, sp_get16(p + INTENSITY), enc);
    sp_put16(p + INTENSITY, last);
}

LAZ_INLINE unsigned flags_of(unsigned byte)
{
    return (byte & 15) | (byte >> 2 & 0x30);
}

/* The six flags, without the channel, which is between them. */
LAZ_INLINE void code_flags(laz_codec *z, context *x, unsigned char *p, bool enc)
{
    unsigned last = flags_of(x->last[FLAGS]);
    unsigned char flags = (unsigned char)flags_of(p[FLAGS]);

    layered_code_byte(z, LAYER_FLAGS, &x->flags[last], 64, last, &flags, enc);
    p[FLAGS] =
        (unsigned char)((flags & 15) | (flags & 0x30) << 2 | z->layered->channel << 4);
}

LAZ_INLINE void code_time(laz_codec *z, context *x, bool is_new, unsigned char *p,
                          bool enc)
{
    if (layer_has(z, LAYER_TIME, is_new, enc) && is_new)
        laz_times_code(&z->coder[LAYER_TIME], &x->times, p + TIME, false, enc);
    else
        memcpy(p + TIME, x->last + TIME, 8);
}

/* Returns whether the point is of another channel than the one before. */
LAZ_INLINE bool layered_code_point(laz_codec *z, unsigned char *p, bool enc)
{
    laz_coder *c = &z->coder[LAYER_XY];
    unsigned changed, is_new_time, kind;
    context *x = code_changes(z, p, &changed, enc);
    int n, number, is_single, place;

    is_new_time = (changed & NEW_TIME) != 0;
    p[RETURNS] = (unsigned char)code_returns(c, x, changed, p[RETURNS], enc);
    n = p[RETURNS] >> 4;
    number = p[RETURNS] & 15;
    is_single = n == 1;
    place = (number == 1) << 1 | (number >= n);
    kind = return_kind[n][number] * 2u + is_new_time;
    layered_code_step(c, &x->dx, is_single, &x->median_x[kind], x->last, p, enc);
    layered_code_step(c, &x->dy, is_single + laz_context(x->dx.k, 20),
                      &x->median_y[kind], x->last + 4, p + 4, enc);
    code_z(z, x, is_single, abs(n - number) < 7 ? abs(n - number) : 7, p, enc);
    layered_code_byte(z, LAYER_CLASS,
                      &x->class[(x->last[CLASS] & 31) << 1 | (place == 3)], 256,
                      x -> last[CLASS], p + CLASS, enc);
    code_flags(z, x, p, enc);
    code_intensity(z, x, place << 1 | (int)is_new_time, p, enc);
    code_rare(z, LAYER_ANGLE, &x->angle, (int)is_new_time, changed & NEW_ANGLE,
              x->last + ANGLE, p + ANGLE, enc);
    layered_code_byte(z, LAYER_USER, &x->user[x->last[USER] / 4], 256, x->last[USER],
                      p + USER, enc);
    code_rare(z, LAYER_SOURCE, &x->source, 0, changed & NEW_SOURCE, x->last + SOURCE,
              p + SOURCE, enc);
    code_time(z, x, is_new_time, p, enc);
    x->had_new_time = is_new_time;
    memcpy(x->last, p, POINT_BYTES);
    return changed & NEW_CHANNEL;
}

/* ---- the items after the point ---- */

/* Begins the context of a channel with the item's bytes of another one's last point. */
static sp_status layered_open_side(laz_codec *z, side *e, int channel,
                                   const unsigned char *last)
{
    memmove(e->last + channel * e->item->bytes, last, (size_t)e->item->bytes);
    e->is_used[channel] = true;
    e->colours[channel] = (laz_colours){0};
    memset(e->nir[channel], 0, sizeof e->nir[channel]);
    e->waves[channel] = (laz_waves){0};
    laz_waves_open(&e->waves[channel]);
    if (e->item->type != SP_LAZ_BYTE14)
        return SP_OK;
    return sp_laz_extra_create(z, e->item->bytes, 256,
                               z->pool.is_decoding ? z->is_used + e->layer : NULL,
                               &e->extra[channel]);
}

/* Version 3 has two errors that are part of the format now, and that version 4 is
 * without. Only the point that changes to another channel has the context of its
 * channel, all others have channel 0's. And if this context is not new, the first point
 * in it has, and becomes, the last point of the context before. */
static inline int context_of(const side *e, int channel, bool is_new_channel)
{
    return e->item->version == 3 && !is_new_channel ? 0 : channel;
}

static inline unsigned char *layered_last_of(const side *e, int channel, bool was_used)
{
    bool is_before = e->item->version == 3 && was_used;

    return e->last + (is_before ? e->channel : channel) * e->item->bytes;
}

LAZ_INLINE void code_nir(laz_coder *c, laz_model **m, const unsigned char *last,
                         unsigned char *p, bool enc)
{
    unsigned changed = (p[0] != last[0]) | (p[1] != last[1]) << 1;

    changed = laz_symbol(c, &m[0], 4, changed, enc);
    for (int i = 0; i < 2; i++)
        p[i] = laz_byte(c, &m[1 + i], changed >> i & 1, last[i], last[i], p[i], enc);
}

LAZ_INLINE void layered_code_extra(laz_codec *z, side *e, int channel,
                                   unsigned char *last, unsigned char *p, bool enc)
{
    for (int i = 0; i < e->item->bytes; i++) {
        if (layer_has(z, e->layer + i, p[i] != last[i], enc))
            p[i] = laz_byte(&z->coder[e->layer + i], &e->extra[channel][i], true,
                            last[i], last[i], p[i], enc);
        else
            p[i] = last[i];
        last[i] = p[i];
    }
}

/* Colours, near infrared, or a wave packet: `bytes` bytes that share a layer. */
LAZ_INLINE void code_part(laz_codec *z, side *e, int channel, int part, size_t bytes,
                          unsigned char *last, unsigned char *p, bool enc)
{
    laz_coder *c = &z->coder[e->layer + part];

    if (!layer_has(z, e->layer + part, memcmp(p, last, bytes) != 0, enc))
        memcpy(p, last, bytes);
    else if (e->item->type == SP_LAZ_WAVEPACKET14)
        laz_waves_code(c, &e->waves[channel], last, p, enc);
    else if (part == 0)
        laz_colours_code(c, &e->colours[channel], last, p, enc);
    else
        code_nir(c, e->nir[channel], last, p, enc);
    memcpy(last, p, bytes);
}

LAZ_INLINE sp_status code_side(laz_codec *z, side *e, bool is_new_channel,
                               unsigned char *p, bool enc)
{
    int channel = context_of(e, z->layered->channel, is_new_channel);
    unsigned char *last = layered_last_of(e, channel, e->is_used[channel]);

    if (!e->is_used[channel])
        SP_TRY(layered_open_side(z, e, channel, e->last + e->channel * e->item->bytes));
    e->channel = channel;
    switch (e->item->type) {
    case SP_LAZ_BYTE14:
        layered_code_extra(z, e, channel, last, p, enc);
        break;
    case SP_LAZ_WAVEPACKET14:
        code_part(z, e, channel, 0, LAZ_WAVE_BYTES, last, p, enc);
        break;
    default:
        code_part(z, e, channel, 0, 6, last, p, enc);
        if (e->item->type == SP_LAZ_RGBNIR14)
            code_part(z, e, channel, 1, 2, last + 6, p + 6, enc);
    }
    return SP_OK;
}

/* ---- records ---- */

LAZ_INLINE sp_status layered_code_record(laz_codec *z, unsigned char *p, bool enc)
{
    laz_layered *s = z->layered;
    bool is_new_channel;

    SP_TRY(sp_laz_pool_reserve(&z->pool, POINT_MODELS));
    is_new_channel = layered_code_point(z, p, enc);
    for (int i = 0; i < s->n_sides; i++)
        SP_TRY(code_side(z, &s->side[i], is_new_channel, p + s->side[i].item->at, enc));
    z->fault.point++;
    return SP_OK;
}

sp_status sp_laz_layered_decode(laz_codec *z, unsigned char *records, int64_t n)
{
    for (; n > 0 && !z->fault.what; n--, records += z->format->record_bytes)
        SP_TRY(layered_code_record(z, records, false));
    return SP_OK;
}

sp_status sp_laz_layered_encode(laz_codec *z, const unsigned char *records, int64_t n)
{
    size_t bytes = (size_t)z->format->record_bytes;

    for (; n > 0 && !z->fault.what; n--, records += bytes) {
        memcpy(z->record, records, bytes);
        SP_TRY(layered_code_record(z, z->record, true));
    }
    return SP_OK;
}

/* ---- the beginning of a chunk ---- */

sp_status sp_laz_layered_create(laz_codec *z)
{
    laz_layered *s;
    int layer = POINT_LAYERS;

    assert(z->format && z->format->compressor == SP_LAZ_LAYERED);
    SP_TRY(SP_NEW(&z->layered, 1, "a LAZ coder"));
    s = z->layered;
    s->n_sides = z->format->n_items - 1;
    for (int i = 0; i < s->n_sides; i++) {
        side *e = &s->side[i];

        e->item = &z->format->item[1 + i];
        e->layer = layer;
        layer += sp_laz_layers(e->item);
        SP_TRY(SP_NEW(&e->last, CHANNELS * e->item->bytes, "a LAZ coder"));
    }
    return SP_OK;
}

void sp_laz_layered_destroy(laz_codec *z)
{
    for (int i = 0; z->layered && i < z->layered->n_sides; i++)
        free(z->layered->side[i].last);
    free(z->layered);
    z->layered = NULL;
}

sp_status sp_laz_layered_begin(laz_codec *z)
{
    laz_layered *s = z->layered;

    assert(z->layered && z->last);
    s->channel = z->last[FLAGS] >> 4 & 3;
    for (int i = 0; i < CHANNELS; i++)
        s->context[i].is_used = false;
    open_context(&s->context[s->channel], z->last);
    for (int i = 0; i < s->n_sides; i++) {
        side *e = &s->side[i];

        memset(e->is_used, 0, sizeof e->is_used);
        e->channel = s->channel;
        SP_TRY(layered_open_side(z, e, s->channel, z->last + e->item->at));
    }
    return SP_OK;
}

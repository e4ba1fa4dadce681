/* The arithmetic coder of LAZ: adaptive models of symbols and bits, and the two
 * directions of coding, each a few inline functions.
 *
 *     laz_pool      memory of the models of one chunk
 *        |
 *     laz_model  --+
 *     laz_bit    --+-- laz_symbol, laz_code_bit, laz_code_bits --> laz_coder --> bytes
 *                                                              <--           <--
 *
 * A description of a field is written once, for both directions: each function takes
 * the value and `enc`, which is a constant after inlining. If enc is true the value is
 * coded and returned; if it is false the value is ignored, and the one decoded is
 * returned.
 *
 * A decoder cannot crash on damaged bytes: every symbol that it returns is below the
 * number of symbols of its model, bytes beyond the end are zeros, and the first damage
 * seen is recorded in the fault, which the loop over points looks at.
 *
 * The method is the published one of A. Said, "Introduction to Arithmetic Coding -
 * Theory and Practice" (HP Laboratories, 2004), with 32-bit intervals, 15-bit
 * probabilities of symbols and 13-bit ones of bits. */
#ifndef SP_LAZ_CODER_H
#define SP_LAZ_CODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/sp_error.h"

/* Both directions are constants to the compiler, which makes two coders. If the
 * sanitizers look at each access, inlining takes ten times as long and shows them
 * nothing more. */
#ifdef __SANITIZE_ADDRESS__
#define LAZ_INLINE static inline
#else
#define LAZ_INLINE static inline __attribute__((always_inline))
#endif

enum {
    LAZ_SYMBOL_BITS = 15, /* a probability is a 15-bit number */
    LAZ_BIT_BITS = 13,
    LAZ_BIT_CYCLE = 64,      /* the most bits between two updates of a laz_bit */
    LAZ_SHORTEST = 1 << 24,  /* an interval is at least this long between symbols */
    LAZ_SEARCHED = 16,       /* models of more symbols have a table for decoding */
    LAZ_MOST_SYMBOLS = 516,  /* of a model */
    LAZ_INPUT_BYTES = 32768, /* of a block read from the file */
    LAZ_TAIL = 4             /* bytes at the end of a stream */
};

/* The first thing found wrong with a chunk; `what` is NULL while all is well. */
typedef struct laz_fault {
    sp_status code;
    const char *what;
    int64_t point; /* the point of the chunk that is being coded */
    int64_t at;    /* the point where it was found */
} laz_fault;

void sp_laz_fault_set(laz_fault *fault, sp_status code, const char *what)
    __attribute__((cold));

/* ---- models ---- */

/* How often each of n symbols came, halved now and then, and the probabilities that
 * follow from it, which are computed anew after `cycle` symbols. */
typedef struct laz_model {
    uint16_t n;
    uint16_t until, cycle; /* symbols to the next update; between two updates */
    uint16_t shift;        /* bits from a value to its cell of the table; 0: no table */
    uint32_t total;        /* sum of the counts at the last update */
} laz_model;

/* The numbers of a model: start [n], the sums of the probabilities of the symbols
 * before; count [n]; and if there is a table, for each cell the last symbol that starts
 * at or before it. */
LAZ_INLINE uint16_t *laz_numbers(laz_model *m)
{
    return (uint16_t *)(m + 1);
}

/* One bit; its zero is counted. */
typedef struct laz_bit {
    uint32_t zeros, total, share, until, cycle;
} laz_bit;

typedef struct laz_block {
    unsigned char *at; /* [bytes] */
    size_t bytes;
} laz_block;

/* Memory for the models of one chunk, in blocks that stay for the next chunk. */
typedef struct laz_pool {
    laz_block *block; /* [n] */
    int n, current;
    size_t used;      /* bytes of the current block */
    bool is_decoding; /* models get a table */
} laz_pool;

void sp_laz_pool_destroy(laz_pool *pool);
/* Forgets all models; the memory stays. */
void sp_laz_pool_reset(laz_pool *pool);
/* Makes sure that `n` models of at most LAZ_MOST_SYMBOLS symbols can be created.
 * SP_EMEM. */
sp_status sp_laz_pool_reserve(laz_pool *pool, size_t n);
/* Returns `bytes` zero bytes, which live until the reset. NULL if out of memory. */
void *sp_laz_pool_alloc(laz_pool *pool, size_t bytes);
/* A model of n symbols of equal probability, in memory that was reserved. */
laz_model *sp_laz_model_create(laz_pool *pool, unsigned n) __attribute__((cold));
void sp_laz_model_update(laz_model *m);

LAZ_INLINE laz_bit laz_bit_start(void)
{
    laz_bit b = {1, 2, 1 << (LAZ_BIT_BITS - 1), 4, 4};

    return b;
}
void sp_laz_bit_update(laz_bit *b);

/* ---- the coder ---- */

/* Bytes of a file that a decoder reads in blocks. */
typedef struct laz_input {
    int fd;
    int64_t at, end;       /* the next byte to read; the first not to be read */
    unsigned char *buffer; /* [LAZ_TAIL + LAZ_INPUT_BYTES] */
} laz_input;

/* One stream of bytes. The interval is [low, low + length); a decoder knows only how
 * far the code is above `low`. */
typedef struct laz_coder {
    uint32_t low, length, code;
    unsigned char *at, *end; /* next byte; end of the bytes or of the room for them */
    unsigned char *begin;    /* encoding: the buffer, which grows; owned */
    laz_input *input;        /* decoding: more bytes come from here, or NULL */
    laz_pool *pool;
    laz_fault *fault;
} laz_coder;

/* Begins to encode into the buffer `begin`, which is created if it is NULL and which
 * the caller frees, and ends it; then the bytes are begin .. at. SP_EMEM. */
sp_status sp_laz_encode_begin(laz_coder *c);
void sp_laz_encode_end(laz_coder *c);
/* Begins to decode the bytes at .. end, and checks the end of a stream: exactly all of
 * its bytes are read, and they end as an encoder ends. With is_exact false the stream
 * may be followed by other bytes. */
void sp_laz_decode_begin(laz_coder *c);
void sp_laz_decode_end(laz_coder *c, bool is_exact);

/* The rare cases of the functions below. */
unsigned sp_laz_refill(laz_coder *c) __attribute__((cold));
void sp_laz_grow(laz_coder *c) __attribute__((cold));
void sp_laz_carry(laz_coder *c) __attribute__((cold));

LAZ_INLINE void laz_scale_decoder(laz_coder *c)
{
    while (c->length < LAZ_SHORTEST) {
        c->code = c->code << 8 | (c->at < c->end ? *c->at++ : sp_laz_refill(c));
        c->length <<= 8;
    }
}

LAZ_INLINE void laz_scale_encoder(laz_coder *c)
{
    while (c->length < LAZ_SHORTEST) {
        if (c->at == c->end)
            sp_laz_grow(c);
        *c->at++ = (unsigned char)(c->low >> 24);
        c->low <<= 8;
        c->length <<= 8;
    }
}

LAZ_INLINE void laz_raise(laz_coder *c, uint32_t by)
{
    c->low += by;
    if (c->low < by)
        sp_laz_carry(c);
}

LAZ_INLINE void laz_count(laz_model *m, unsigned symbol)
{
    laz_numbers(m)[m->n + symbol]++;
    if (--m->until == 0)
        sp_laz_model_update(m);
}

/* The symbol with v in its interval, by bisection between bounds from the table. */
LAZ_INLINE unsigned laz_find(laz_model *m, uint32_t v)
{
    const uint16_t *start = laz_numbers(m);
    unsigned low = 0, high = m->n;

    if (v >> LAZ_SYMBOL_BITS)
        v = (1 << LAZ_SYMBOL_BITS) - 1;
    if (m->shift) {
        const uint16_t *cell = start + 2 * m->n + (v >> m->shift);

        low = cell[0];
        high = cell[1] + 1u;
    }
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;

        if (start[middle] <= v)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static inline unsigned laz_decode_symbol(laz_coder *c, laz_model *m)
{
    uint32_t length = c->length, unit = length >> LAZ_SYMBOL_BITS, from;
    unsigned s = laz_find(m, c->code / unit);
    const uint16_t *start = laz_numbers(m) + s;

    from = start[0] * unit;
    if (s + 1u < m->n)
        length = start[1] * unit;
    c->code -= from;
    c->length = length - from;
    laz_scale_decoder(c);
    laz_count(m, s);
    return s;
}

static inline void laz_encode_symbol(laz_coder *c, laz_model *m, unsigned s)
{
    uint32_t length = c->length, unit = length >> LAZ_SYMBOL_BITS, from;
    const uint16_t *start = laz_numbers(m) + s;

    from = start[0] * unit;
    if (s + 1u < m->n)
        length = start[1] * unit;
    laz_raise(c, from);
    c->length = length - from;
    laz_scale_encoder(c);
    laz_count(m, s);
}

/* A symbol of the model in *slot, which is created with n symbols at its first use. */
LAZ_INLINE unsigned laz_symbol(laz_coder *c, laz_model **slot, unsigned n, unsigned s,
                               bool enc)
{
    if (__builtin_expect(!*slot, 0))
        *slot = sp_laz_model_create(c->pool, n);
    if (!enc)
        return laz_decode_symbol(c, *slot);
    laz_encode_symbol(c, *slot, s);
    return s;
}

LAZ_INLINE unsigned laz_code_bit(laz_coder *c, laz_bit *b, unsigned bit, bool enc)
{
    uint32_t from = b->share * (c->length >> LAZ_BIT_BITS);

    if (!enc)
        bit = c->code >= from;
    if (bit == 0) {
        c->length = from;
        b->zeros++;
    } else {
        if (enc)
            laz_raise(c, from);
        else
            c->code -= from;
        c->length -= from;
    }
    if (enc)
        laz_scale_encoder(c);
    else
        laz_scale_decoder(c);
    if (--b->until == 0)
        sp_laz_bit_update(b);
    return bit;
}

/* n bits of equal probability, 1 to 19. */
LAZ_INLINE uint32_t laz_code_few(laz_coder *c, int n, uint32_t v, bool enc)
{
    c->length >>= n;
    if (enc) {
        laz_raise(c, v * c->length);
        laz_scale_encoder(c);
        return v;
    }
    v = c->code / c->length;
    c->code -= v * c->length;
    laz_scale_decoder(c);
    if (v >> n) {
        sp_laz_fault_set(c->fault, SP_EDATA, "has bits that no encoder writes");
        v = 0;
    }
    return v;
}

/* n bits, 1 to 32: more than 19 are coded as the 16 low ones and the others. */
LAZ_INLINE uint32_t laz_code_bits(laz_coder *c, int n, uint32_t v, bool enc)
{
    uint32_t low;

    if (n <= 19)
        return laz_code_few(c, n, v, enc);
    low = laz_code_few(c, 16, v & 0xffff, enc);
    return low | laz_code_few(c, n - 16, v >> 16, enc) << 16;
}

LAZ_INLINE uint64_t laz_code_64(laz_coder *c, uint64_t v, bool enc)
{
    uint32_t low = laz_code_bits(c, 32, (uint32_t)v, enc);

    return low | (uint64_t)laz_code_bits(c, 32, (uint32_t)(v >> 32), enc) << 32;
}

#endif

/* Models and the ends of streams; sp_laz_coder.h has the rest. */
#include "scan/laz/sp_laz_coder.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/sp_list.h"
#include "base/sp_number.h"

enum {
    BLOCK_BYTES = 1 << 20,
    ALIGNMENT = 16,
    FIRST_BUFFER = 4096,
    MOST_COUNTED = 1 << LAZ_SYMBOL_BITS,
    LONG_END = 1 << 25 /* intervals above end with 3 zero bytes, others with 2 */
};

void sp_laz_fault_set(laz_fault *fault, sp_status code, const char *what)
{
    assert(fault && code != SP_OK && what);
    if (fault->what)
        return;
    fault->code = code;
    fault->what = what;
    fault->at = fault->point;
}

/* ---- memory ---- */

void sp_laz_pool_destroy(laz_pool *pool)
{
    for (int i = 0; i < pool->n; i++)
        free(pool->block[i].at);
    free(pool->block);
    *pool = (laz_pool){0};
}

void sp_laz_pool_reset(laz_pool *pool)
{
    pool->current = 0;
    pool->used = 0;
}

static sp_status coder_add_block(laz_pool *pool, size_t bytes)
{
    unsigned char *at = aligned_alloc(64, sp_multiple(bytes, 64));

    if (!at || !sp_list_grow(&pool->block, pool->n, sizeof *pool->block)) {
        free(at);
        return SP_FAIL(SP_EMEM, "no memory for the models of a LAZ chunk");
    }
    pool->block[pool->n++] = (laz_block){at, bytes};
    return SP_OK;
}

/* Goes on to a block that has room for `bytes` bytes. */
static sp_status coder_make_room(laz_pool *pool, size_t bytes)
{
    while (pool->current < pool->n) {
        if (pool->block[pool->current].bytes - pool->used >= bytes)
            return SP_OK;
        pool->current++;
        pool->used = 0;
    }
    return coder_add_block(pool, bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES);
}

void *sp_laz_pool_alloc(laz_pool *pool, size_t bytes)
{
    unsigned char *at;

    bytes = sp_multiple(bytes, ALIGNMENT);
    if (coder_make_room(pool, bytes) != SP_OK)
        return NULL;
    at = pool->block[pool->current].at + pool->used;
    pool->used += bytes;
    return memset(at, 0, bytes);
}

/* ---- models ---- */

/* Cells of the table: about a quarter of the symbols. */
static int table_bits(unsigned n)
{
    int bits = 3;

    while (n > 1u << (bits + 2))
        bits++;
    return bits;
}

static size_t model_bytes(unsigned n)
{
    size_t numbers = 2 * n + (1u << table_bits(n)) + 1;

    return sp_multiple(sizeof(laz_model) + numbers * sizeof(uint16_t), ALIGNMENT);
}

sp_status sp_laz_pool_reserve(laz_pool *pool, size_t n)
{
    return coder_make_room(pool, n * model_bytes(LAZ_MOST_SYMBOLS));
}

static void fill_table(laz_model *m)
{
    const uint16_t *start = laz_numbers(m);
    uint16_t *cell = laz_numbers(m) + 2 * m->n;
    unsigned n_cells = 1u << (LAZ_SYMBOL_BITS - m->shift), t = 0;

    for (unsigned s = 1; s < m->n; s++)
        while (t << m->shift < start[s])
            cell[t++] = (uint16_t)(s - 1);
    while (t <= n_cells)
        cell[t++] = (uint16_t)(m->n - 1);
}

void sp_laz_model_update(laz_model *m)
{
    uint16_t *start = laz_numbers(m), *count = start + m->n;
    uint32_t scale, sum = 0, most = (m->n + 6u) << 3, cycle = m->cycle * 5u / 4;

    m->total += m->cycle;
    if (m->total > MOST_COUNTED) {
        m->total = 0;
        for (unsigned s = 0; s < m->n; s++) {
            count[s] = (uint16_t)((count[s] + 1) >> 1);
            m->total += count[s];
        }
    }
    scale = UINT32_C(0x80000000) / m->total;
    for (unsigned s = 0; s < m->n; s++) {
        start[s] = (uint16_t)((scale * sum) >> (31 - LAZ_SYMBOL_BITS));
        sum += count[s];
    }
    if (m->shift)
        fill_table(m);
    m->cycle = m->until = (uint16_t)(cycle < most ? cycle : most);
}

laz_model *sp_laz_model_create(laz_pool *pool, unsigned n)
{
    laz_model *m = (laz_model *)(pool->block[pool->current].at + pool->used);

    pool->used += model_bytes(n);
    assert(pool->used <= pool->block[pool->current].bytes);
    m->n = (uint16_t)n;
    m->shift = 0;
    if (pool->is_decoding && n > LAZ_SEARCHED)
        m->shift = (uint16_t)(LAZ_SYMBOL_BITS - table_bits(n));
    for (unsigned s = 0; s < n; s++)
        laz_numbers(m)[n + s] = 1;
    m->total = 0;
    m->cycle = (uint16_t)n;
    sp_laz_model_update(m);
    m->cycle = m->until = (uint16_t)((n + 6) >> 1);
    return m;
}

void sp_laz_bit_update(laz_bit *b)
{
    b->total += b->cycle;
    if (b->total > 1u << LAZ_BIT_BITS) {
        b->total = (b->total + 1) >> 1;
        b->zeros = (b->zeros + 1) >> 1;
        b->total += b->zeros == b->total;
    }
    b->share = (b->zeros * (UINT32_C(0x80000000) / b->total)) >> (31 - LAZ_BIT_BITS);
    b->cycle = b->cycle * 5 / 4;
    if (b->cycle > LAZ_BIT_CYCLE)
        b->cycle = LAZ_BIT_CYCLE;
    b->until = b->cycle;
}

/* ---- encoding ---- */

/* Doubles the buffer. Without memory the coder writes over its own bytes, and the fault
 * says so. */
void sp_laz_grow(laz_coder *c)
{
    size_t used = (size_t)(c->at - c->begin), bytes = 2 * used;
    unsigned char *grown = realloc(c->begin, bytes);

    assert(c->begin && c->at <= c->end);
    if (grown) {
        c->begin = grown;
        c->at = grown + used;
        c->end = grown + bytes;
        return;
    }
    sp_laz_fault_set(c->fault, SP_EMEM, "no memory for the compressed points");
    c->at = c->begin;
}

/* Adds 1 to the bytes that are written already. */
void sp_laz_carry(laz_coder *c)
{
    unsigned char *p = c->at;

    while (p > c->begin && ++*--p == 0)
        ;
}

sp_status sp_laz_encode_begin(laz_coder *c)
{
    if (!c->begin) {
        c->begin = malloc(FIRST_BUFFER);
        if (!c->begin)
            return SP_FAIL(SP_EMEM, "no memory for compressed points");
        c->end = c->begin + FIRST_BUFFER;
    }
    c->low = 0;
    c->length = UINT32_MAX;
    c->at = c->begin;
    return SP_OK;
}

/* Writes the few bytes that select the interval, for any bytes after them, and zeros,
 * so that a decoder, which reads ahead, has read exactly all bytes at the end. */
void sp_laz_encode_end(laz_coder *c)
{
    bool is_long = c->length > LONG_END;

    assert(c->begin && c->at >= c->begin);
    laz_raise(c, is_long ? LAZ_SHORTEST : LAZ_SHORTEST >> 1);
    c->length = is_long ? LAZ_SHORTEST >> 1 : LAZ_SHORTEST >> 9;
    laz_scale_encoder(c);
    for (int n = is_long ? 3 : 2; n > 0; n--) {
        if (c->at == c->end)
            sp_laz_grow(c);
        *c->at++ = 0;
    }
}

/* ---- decoding ---- */

/* Reads the next block and returns its first byte. The last bytes of the block before
 * stay in front of it for sp_laz_decode_end. */
unsigned sp_laz_refill(laz_coder *c)
{
    laz_input *input = c->input;
    int64_t bytes = input ? input->end - input->at : 0;
    ssize_t got;

    if (bytes <= 0) {
        sp_laz_fault_set(c->fault, SP_EDATA, "ends in the middle of a point");
        return 0;
    }
    bytes = bytes < LAZ_INPUT_BYTES ? bytes : LAZ_INPUT_BYTES;
    memmove(input->buffer, c->end - LAZ_TAIL, LAZ_TAIL);
    do
        got = pread(input->fd, input->buffer + LAZ_TAIL, (size_t)bytes, input->at);
    while (got < 0 && errno == EINTR);
    c->at = c->end = input->buffer + LAZ_TAIL;
    if (got <= 0) {
        sp_laz_fault_set(c->fault, got < 0 ? SP_EIO : SP_EDATA,
                         got < 0 ? "cannot be read" : "is beyond the end of the file");
        input->end = input->at;
        return 0;
    }
    input->at += got;
    c->end += got;
    return *c->at++;
}

void sp_laz_decode_begin(laz_coder *c)
{
    c->length = UINT32_MAX;
    c->code = 0;
    for (int i = 0; i < LAZ_TAIL; i++)
        c->code = c->code << 8 | (c->at < c->end ? *c->at++ : sp_laz_refill(c));
    if (c->code == UINT32_MAX) {
        sp_laz_fault_set(c->fault, SP_EDATA, "begins as no stream does");
        c->code = 0;
    }
}

/* An encoder ends with the code LAZ_SHORTEST (half of it for short intervals) above the
 * low end of the interval, less the low bytes, which are zeros. */
void sp_laz_decode_end(laz_coder *c, bool is_exact)
{
    bool is_long = c->length > LONG_END, is_left = c->at < c->end;
    uint32_t most = is_long ? LAZ_SHORTEST : LAZ_SHORTEST >> 1;
    uint32_t least = is_long ? 1 : most - 0xffff;

    if (c->input)
        is_left = is_left || c->input->at < c->input->end;
    if (is_exact && is_left)
        sp_laz_fault_set(c->fault, SP_EDATA, "has bytes left after its last point");
    if (c->code < least || c->code > most || c->at[-1] || c->at[-2] ||
        (is_long && c->at[-3]))
        sp_laz_fault_set(c->fault, SP_EDATA, "does not end as a stream does");
}

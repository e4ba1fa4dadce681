/* CRC32C through tables, 8 bytes at a time, which runs everywhere; and the choice of
 * the fastest form that the processor has. */
#include "base/sp_crc.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/sp_number.h"
#include "config.h"

static uint32_t by_byte[8][256]; /* register after a byte and i zero bytes */

static const uint32_t polynomial = 0x82f63b78; /* bit-reversed 0x1edc6f41 */

static void fill_tables(void)
{
    for (uint32_t v = 0; v < 256; v++) {
        uint32_t crc = v;

        for (int i = 0; i < 8; i++)
            crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
        by_byte[0][v] = crc;
    }
    for (int i = 1; i < 8; i++)
        for (int v = 0; v < 256; v++)
            by_byte[i][v] =
                by_byte[i - 1][v] >> 8 ^ by_byte[0][by_byte[i - 1][v] & 255];
}

#define DECLARE(name) extern const sp_crc_form sp_crc_##name;
SP_CRC_FORMS(DECLARE)
const sp_crc_form sp_crc_table = {.sum = sp_crc32c_table};
static const sp_crc_form *form; /* the one that is used */

static void choose_form(void)
{
#define ENTRY(name) &sp_crc_##name,
    static const sp_crc_form *const forms[] = {SP_CRC_FORMS(ENTRY)};
    int i = 0;

    fill_tables();
    while (forms[i]->is_here && !forms[i]->is_here())
        i++;
    form = forms[i];
}

static void crc_prepare(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, choose_form);
}

uint32_t sp_crc32c_table(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    assert(data || bytes == 0);
    crc_prepare();
    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint32_t next = 0;

        for (int i = 0; i < 8; i++)
            next ^= by_byte[7 - i][(i < 4 ? at[i] ^ (crc >> 8 * i) : at[i]) & 255];
        crc = next;
    }
    for (; bytes > 0; bytes--, at++)
        crc = crc >> 8 ^ by_byte[0][(crc ^ *at) & 255];
    return ~crc;
}

uint32_t sp_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    assert(data || bytes == 0);
    crc_prepare();
    return form->sum(crc, data, bytes);
}

/* The product of two polynomials modulo the checksum's polynomial. Bit 31 is the
 * constant term. */
static uint32_t times(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (; a; a <<= 1) {
        product ^= a >> 31 ? b : 0;
        b = b >> 1 ^ (b & 1 ? polynomial : 0);
    }
    return product;
}

/* Each byte more multiplies the checksum of the bytes before it by x^8. */
uint32_t sp_crc32c_join(uint32_t crc, uint32_t next, uint64_t bytes)
{
    for (uint32_t power = 0x00800000; bytes > 0; bytes >>= 1) {
        crc = bytes & 1 ? times(power, crc) : crc;
        power = times(power, power);
    }
    return crc ^ next;
}

uint32_t sp_crc32c_texts(uint32_t crc, const char *name, int n, char *const *text)
{
    if (!text)
        return crc;
    crc = sp_crc32c(crc, name, strlen(name));
    for (int i = 0; i < n; i++)
        crc = sp_crc32c(crc, text[i], strlen(text[i]) + 1);
    return crc;
}

/* Unrolled: the test of a register needs fewer instructions than the loop around it. */
SP_WIDE bool sp_words_invalid(const void *data, size_t bytes, sp_word kind)
{
    const unsigned char *at = data, *end = at + bytes;
    uint32_t seen = 0, x;

    assert(data || bytes == 0);
    assert(bytes % sizeof x == 0);
    if (kind == SP_COORD)
#pragma GCC unroll 4
        for (; at < end; at += sizeof x) {
            memcpy(&x, at, sizeof x);
            seen |= x ^ (x + x);
        }
    else
#pragma GCC unroll 4
        for (; at < end; at += sizeof x) {
            memcpy(&x, at, sizeof x);
            seen |= x ^ (x + SP_EXPONENT_STEP);
        }
    return (seen & sp_tell_tale(kind)) != 0;
}

uint32_t sp_crc32c_checked(uint32_t crc, const void *data, size_t bytes, sp_word kind,
                           bool *is_invalid)
{
    enum { NEAR = 16 * 1024 }; /* fits the first-level cache */
    const char *at = data;
    size_t n;

    assert(data || bytes == 0);
    assert(bytes % sizeof(uint32_t) == 0);
    assert(is_invalid);
    crc_prepare();
    if (form->checked)
        return form->checked(crc, data, bytes, kind, is_invalid);
    for (*is_invalid = false; bytes > 0; bytes -= n, at += n) {
        n = bytes < NEAR ? bytes : NEAR;
        crc = sp_crc32c(crc, at, n);
        *is_invalid |= sp_words_invalid(at, n, kind);
    }
    return crc;
}

/* The register of a CRC is linear: that of A followed by B is that of A moved on over
 * as many zero bytes as B has, xor that of B begun from zero. The instruction takes 3
 * cycles and one can start each cycle, so three neighbouring parts run side by side and
 * are joined thus.
 */
#include "sp_crc.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { LONG = 4096, SHORT = 256 };             /* bytes of one of the three parts */
static const uint32_t polynomial = 0x82f63b78; /* bit-reversed 0x1edc6f41 */

static uint32_t by_byte[8][256];   /* register after a byte and i zero bytes */
static uint32_t over_long[4][256]; /* register moved on over LONG zero bytes */
static uint32_t over_short[4][256];
static bool has_instruction;

static uint32_t move_on(uint32_t crc, size_t zeros)
{
    while (zeros-- > 0)
        crc = crc >> 8 ^ by_byte[0][crc & 255];
    return crc;
}

static void fill_over(uint32_t over[4][256], size_t zeros)
{
    uint32_t bit[32];

    for (int i = 0; i < 32; i++)
        bit[i] = move_on((uint32_t)1 << i, zeros);
    for (int k = 0; k < 4; k++)
        for (int v = 0; v < 256; v++) {
            over[k][v] = 0;
            for (int i = 0; i < 8; i++)
                over[k][v] ^= v >> i & 1 ? bit[8 * k + i] : 0;
        }
}

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
    fill_over(over_long, LONG);
    fill_over(over_short, SHORT);
#if defined(__x86_64__)
    has_instruction = __builtin_cpu_supports("sse4.2");
#endif
}

static void prepare(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, fill_tables);
}

static uint64_t word_at(const unsigned char *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof word);
    return word;
}

uint32_t sp_crc32c_table(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    prepare();
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

#if defined(__x86_64__)

static uint32_t moved(uint32_t over[4][256], uint32_t crc)
{
    return over[0][crc & 255] ^ over[1][crc >> 8 & 255] ^ over[2][crc >> 16 & 255] ^
           over[3][crc >> 24];
}

/* Three parts of `part` bytes each. */
__attribute__((target("sse4.2"))) static inline uint64_t three_parts(
    uint64_t crc, const unsigned char *at, size_t part, uint32_t over[4][256])
{
    uint64_t second = 0, third = 0;

    for (const unsigned char *end = at + part; at < end; at += 8) {
        crc = __builtin_ia32_crc32di(crc, word_at(at));
        second = __builtin_ia32_crc32di(second, word_at(at + part));
        third = __builtin_ia32_crc32di(third, word_at(at + 2 * part));
    }
    crc = moved(over, (uint32_t)crc) ^ second;
    return moved(over, (uint32_t)crc) ^ third;
}

__attribute__((target("sse4.2"))) static uint32_t by_instruction(
    uint32_t start, const unsigned char *at, size_t bytes)
{
    uint64_t crc = ~start;

    for (; bytes >= 3 * LONG; bytes -= 3 * LONG, at += 3 * LONG)
        crc = three_parts(crc, at, LONG, over_long);
    for (; bytes >= 3 * SHORT; bytes -= 3 * SHORT, at += 3 * SHORT)
        crc = three_parts(crc, at, SHORT, over_short);
    for (; bytes >= 8; bytes -= 8, at += 8)
        crc = __builtin_ia32_crc32di(crc, word_at(at));
    for (; bytes > 0; bytes--, at++)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *at);
    return ~(uint32_t)crc;
}

#endif

uint32_t sp_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    prepare();
#if defined(__x86_64__)
    if (has_instruction)
        return by_instruction(crc, data, bytes);
#endif
    return sp_crc32c_table(crc, data, bytes);
}

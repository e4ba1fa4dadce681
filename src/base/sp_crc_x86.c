/* CRC32C by instructions of x86-64, in two forms. configure uses this file if the
 * compiler knows them.
 *
 *   instruction  SSE 4.2. The register of a CRC is linear: the register of A followed
 *                by B is A's register advanced over len(B) zero bytes, xor the register
 *                of B started from zero. The instruction takes 3 cycles and one can
 *                start each cycle, so three neighbouring parts are computed at once and
 *                joined by this rule.
 *   product      Carry-less products in 512-bit registers. Data D bits before other
 *                data counts as its remainder times x^D, so it is multiplied by x^D
 *                mod P and added to that data (folding). Measured, this is twice as
 *                fast as the instruction; sharing the data between both forms gained
 *                no more than another sixth.
 */
#include "base/sp_crc.h"

#include <immintrin.h>
#include <string.h>

/* Bytes of one of three parts. */
enum { LONG = 4000, SHORT = 256 };

static uint32_t over_long[4][256]; /* register advanced over LONG zero bytes */
static uint32_t over_short[4][256];
/* x^D mod P to fold over 256 or 64 bytes: low, high half */
static uint64_t by_256[2], by_64[2];

static uint64_t word_at(const unsigned char *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof word);
    return word;
}

/* ---- instruction ---- */

#define NARROW __attribute__((target("sse4.2")))

/* Advances the register over zero bytes, a multiple of 8. */
NARROW static uint32_t crc_move_on(uint32_t crc, size_t zeros)
{
    uint64_t moved = crc;

    for (; zeros > 0; zeros -= 8)
        moved = __builtin_ia32_crc32di(moved, 0);
    return (uint32_t)moved;
}

static void fill_over(uint32_t over[4][256], size_t zeros)
{
    uint32_t bit[32];

    for (int i = 0; i < 32; i++)
        bit[i] = crc_move_on((uint32_t)1 << i, zeros);
    for (int k = 0; k < 4; k++)
        for (int v = 0; v < 256; v++) {
            over[k][v] = 0;
            for (int i = 0; i < 8; i++)
                over[k][v] ^= v >> i & 1 ? bit[8 * k + i] : 0;
        }
}

static uint32_t moved(uint32_t over[4][256], uint32_t crc)
{
    return over[0][crc & 255] ^ over[1][crc >> 8 & 255] ^ over[2][crc >> 16 & 255] ^
           over[3][crc >> 24];
}

/* Advances the register over three neighbouring parts of `part` bytes each. */
NARROW static inline uint64_t three_parts(uint64_t crc, const unsigned char *at,
                                          size_t part, uint32_t over[4][256])
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

NARROW static uint32_t by_instruction(uint32_t start, const void *data, size_t bytes)
{
    const unsigned char *at = data;
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

static bool has_instruction(void)
{
    if (!__builtin_cpu_supports("sse4.2"))
        return false;
    fill_over(over_long, LONG);
    fill_over(over_short, SHORT);
    return true;
}

const sp_crc_form sp_crc_instruction = {has_instruction, by_instruction, NULL};

/* ---- product ---- */

#define WIDE __attribute__((target("avx512f,vpclmulqdq,sse4.2")))

/* Returns x^n mod P. The coefficient of x^0 is the highest of the 64 bits. */
static uint64_t power(int n)
{
    const uint32_t polynomial = 0x82f63b78; /* bit-reversed 0x1edc6f41 */
    uint32_t value = 0x80000000u;

    while (n-- > 0)
        value = value >> 1 ^ (value & 1 ? polynomial : 0);
    return (uint64_t)value << 32;
}

/* In this order of bits a product comes out multiplied by x, hence the -1. The first 8
 * of 16 bytes are 64 bits further from the data that they are folded into, hence the
 * +64. */
static void fill_folds(void)
{
    by_256[0] = power(8 * 256 + 64 - 1);
    by_256[1] = power(8 * 256 - 1);
    by_64[0] = power(8 * 64 + 64 - 1);
    by_64[1] = power(8 * 64 - 1);
}

WIDE static inline __m512i fold(__m512i a, __m512i over, __m512i data)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, over, 0x00),
                                     _mm512_clmulepi64_epi128(a, over, 0x11), data,
                                     0x96); /* xor of three */
}

WIDE static inline __m512i pair(const uint64_t halves[2])
{
    return _mm512_broadcast_i32x4(
        _mm_set_epi64x((long long)halves[1], (long long)halves[0]));
}

/* Joins four accumulators, which hold neighbouring data, into one register. */
WIDE static inline uint64_t crc_join(const __m512i a[4])
{
    __m512i over = pair(by_64), last = a[0];
    uint64_t word[8], crc = 0;

    for (int i = 1; i < 4; i++)
        last = fold(last, over, a[i]);
    _mm512_storeu_si512(word, last);
    for (int i = 0; i < 8; i++)
        crc = __builtin_ia32_crc32di(crc, word[i]);
    return crc;
}

/* Tests 16 words as sp_words_invalid does and accumulates the result in `seen`. */
WIDE static inline __m512i crc_look(__m512i seen, __m512i x, sp_word kind)
{
    __m512i sum =
        _mm512_add_epi32(x, kind == SP_COORD ? x : _mm512_set1_epi32(SP_EXPONENT_STEP));

    return _mm512_ternarylogic_epi32(seen, x, sum, 0xf6); /* seen | (x ^ sum) */
}

/* Checksum and, unless is_invalid is NULL, the test of the words in one pass. Each call
 * is compiled for its kind. */
WIDE __attribute__((always_inline)) static inline uint32_t by_product(
    uint32_t start, const unsigned char *at, size_t bytes, sp_word kind,
    bool *is_invalid)
{
    const size_t part = sizeof(__m512i), round = 4 * part;
    __m512i a[4] = {_mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~start))};
    __m512i over = pair(by_256), seen = _mm512_setzero_si512(), data;
    bool is_begun = false;
    uint64_t crc = (uint32_t)~start;

    for (; bytes >= round; bytes -= round, at += round, is_begun = true)
        for (size_t i = 0; i < 4; i++) {
            data = _mm512_loadu_si512(at + part * i);
            seen = is_invalid ? crc_look(seen, data, kind) : seen;
            a[i] = is_begun ? fold(a[i], over, data) : _mm512_xor_si512(a[i], data);
        }
    if (is_begun)
        crc = crc_join(a);
    if (is_invalid)
        *is_invalid =
            ((uint32_t)_mm512_reduce_or_epi32(seen) & sp_tell_tale(kind)) != 0 ||
            sp_words_invalid(at, bytes, kind);
    return by_instruction(~(uint32_t)crc, at, bytes);
}

WIDE static uint32_t sum_alone(uint32_t crc, const void *data, size_t bytes)
{
    return by_product(crc, data, bytes, SP_COORD, NULL);
}

WIDE static uint32_t sum_checked(uint32_t crc, const void *data, size_t bytes,
                                 sp_word kind, bool *is_invalid)
{
    return kind == SP_COORD ? by_product(crc, data, bytes, SP_COORD, is_invalid)
                            : by_product(crc, data, bytes, SP_FLOAT, is_invalid);
}

static bool has_product(void)
{
    fill_folds();
    return has_instruction() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("vpclmulqdq");
}

const sp_crc_form sp_crc_product = {has_product, sum_alone, sum_checked};

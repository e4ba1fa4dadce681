#include <assert.h>

#include "health/sp_siphash.h"

typedef struct state {
    uint64_t v0, v1, v2, v3;
} state;

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

/* The SipRound of the paper, figure 2.1. */
static void siphash_mix(state *s, int n_rounds)
{
    for (int i = 0; i < n_rounds; i++) {
        s->v0 += s->v1;
        s->v2 += s->v3;
        s->v1 = rotate(s->v1, 13) ^ s->v0;
        s->v3 = rotate(s->v3, 16) ^ s->v2;
        s->v0 = rotate(s->v0, 32);
        s->v2 += s->v1;
        s->v0 += s->v3;
        s->v1 = rotate(s->v1, 17) ^ s->v2;
        s->v3 = rotate(s->v3, 21) ^ s->v0;
        s->v2 = rotate(s->v2, 32);
    }
}

/* The number that up to eight bytes form, the first byte lowest. */
static uint64_t siphash_number(const uint8_t *bytes, size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum |= (uint64_t)bytes[i] << 8 * i;
    return sum;
}

static void absorb(state *s, uint64_t word)
{
    s->v3 ^= word;
    siphash_mix(s, 2);
    s->v0 ^= word;
}

uint64_t sp_siphash(const uint8_t key[SP_SIPHASH_KEY], const void *data, size_t bytes)
{
    const uint8_t *at = data;
    const uint64_t k0 = siphash_number(key, 8), k1 = siphash_number(key + 8, 8);
    state s = {k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d),
               k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573)};
    size_t i;

    assert(key && (data || bytes == 0));
    for (i = 0; i + 8 <= bytes; i += 8)
        absorb(&s, siphash_number(at + i, 8));
    /* The highest byte of the last word is the length modulo 256. */
    absorb(&s, siphash_number(at + i, bytes - i) | (uint64_t)(bytes & 0xff) << 56);
    s.v2 ^= 0xff;
    siphash_mix(&s, 4);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

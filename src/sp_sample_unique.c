/* Whether the coordinates of a sample are unique. */
#include <string.h>

#include "sp_shard_internal.h"

static inline uint64_t key_of(const int32_t *c)
{
    return (uint64_t)(c[0] + SP_COORD_LIMIT) << 40 |
           (uint64_t)(c[1] + SP_COORD_LIMIT) << 20 | (uint64_t)(c[2] + SP_COORD_LIMIT);
}

static inline uint64_t key_of_reversed(const int32_t *c)
{
    return (uint64_t)(c[2] + SP_COORD_LIMIT) << 40 |
           (uint64_t)(c[1] + SP_COORD_LIMIT) << 20 | (uint64_t)(c[0] + SP_COORD_LIMIT);
}

/* Rows sorted with x or with z slowest, as most writers leave them, have no duplicates
 * if each is above the one before; a pass without branches tells. */
static inline bool is_sorted(const int32_t *coords, int64_t n, bool is_reversed)
{
    enum { STRETCH = 1024 };
    bool is_falling = false;

    for (int64_t done = 1; done < n && !is_falling; done += STRETCH) {
        int64_t end = n < done + STRETCH ? n : done + STRETCH;

        for (int64_t i = done; i < end; i++) {
            const int32_t *c = coords + 3 * i;

            is_falling |= is_reversed ? key_of_reversed(c) <= key_of_reversed(c - 3)
                                      : key_of(c) <= key_of(c - 3);
        }
    }
    return !is_falling;
}

bool sp_unique_by_order(const int32_t *coords, int64_t n)
{
    return is_sorted(coords, n, false) || is_sorted(coords, n, true);
}

static int slot_bits(int64_t n)
{
    int bits = 6;

    while ((int64_t)1 << bits < 2 * n) /* at most half full */
        bits++;
    return bits;
}

size_t sp_unique_slots(int64_t n)
{
    return (size_t)1 << slot_bits(n);
}

/* Open addressing, looked up a few rows ahead so that the misses of the cache overlap.
 */
int64_t sp_unique_find(const int32_t *coords, int64_t n, uint64_t *keys, size_t slots)
{
    enum { AHEAD = 12 };
    const uint64_t factor = 0x9e3779b97f4a7c15u; /* 2^64 over the golden ratio */
    int shift = 64 - slot_bits(n);

    memset(keys, 0xff, slots * sizeof *keys);
    for (int64_t i = 0; i < n; i++) {
        uint64_t key = key_of(coords + 3 * i), slot = key * factor >> shift;

        if (i + AHEAD < n)
            __builtin_prefetch(
                &keys[key_of(coords + 3 * (i + AHEAD)) * factor >> shift], 1);
        while (keys[slot] != UINT64_MAX && keys[slot] != key)
            slot = (slot + 1) & (slots - 1);
        if (keys[slot] == key)
            return i;
        keys[slot] = key;
    }
    return -1;
}

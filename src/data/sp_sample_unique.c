/* Checks that the coordinates of a sample are unique. */
#include <assert.h>
#include <string.h>

#include "data/sp_shard_internal.h"

static inline uint64_t key_of(const int32_t *c)
{
    return (uint64_t)(c[0] + SP_COORD_LIMIT) << 40 |
           (uint64_t)(c[1] + SP_COORD_LIMIT) << 20 | (uint64_t)(c[2] + SP_COORD_LIMIT);
}

/* The orders of rows that prove them unique: x slowest, z slowest, by Morton key. */
typedef enum order { BY_X, BY_Z, BY_MORTON, N_ORDERS } order;

/* True if b comes before c with `slow` as the slowest axis. Without branches, since
 * these cost more here than evaluating both sides. */
static inline bool is_below(const int32_t *b, const int32_t *c, int slow, int fast)
{
    return (b[slow] < c[slow]) |
           ((b[slow] == c[slow]) &
            ((b[1] < c[1]) | ((b[1] == c[1]) & (b[fast] < c[fast]))));
}

/* True if the highest bit of a is lower than b's. */
static inline bool is_shorter(uint32_t a, uint32_t b)
{
    return (a < b) & (a < (a ^ b));
}

/* True if the Morton key of b is below c's, without making the keys (T. M. Chan, 2002):
 * the axis with the highest bit in its difference decides, and of several the last. */
static inline bool is_below_morton(const int32_t *b, const int32_t *c)
{
    uint32_t x = (uint32_t)(b[0] ^ c[0]), y = (uint32_t)(b[1] ^ c[1]);
    uint32_t z = (uint32_t)(b[2] ^ c[2]);
    bool is_y = !is_shorter(y, x), is_z = !is_shorter(z, is_y ? y : x);
    int32_t low = is_y ? b[1] : b[0], high = is_y ? c[1] : c[0];

    return (is_z ? b[2] : low) < (is_z ? c[2] : high);
}

static inline bool follows(const int32_t *c, order by)
{
    if (by == BY_MORTON)
        return is_below_morton(c - 3, c);
    return by == BY_X ? is_below(c - 3, c, 0, 2) : is_below(c - 3, c, 2, 0);
}

/* True if each of the rows first .. end - 1 comes after the row before it. */
static inline bool is_rising(const int32_t *coords, int64_t first, int64_t end,
                             order by)
{
    int is_falling = 0;

    for (int64_t i = first; i < end; i++)
        is_falling |= !follows(coords + 3 * i, by);
    return !is_falling;
}

SP_WIDE static bool is_rising_any(const int32_t *coords, int64_t first, int64_t end,
                                  order by)
{
    if (by == BY_MORTON)
        return is_rising(coords, first, end, BY_MORTON);
    return by == BY_X ? is_rising(coords, first, end, BY_X)
                      : is_rising(coords, first, end, BY_Z);
}

bool sp_unique_by_order(const int32_t *coords, int64_t n)
{
    enum { STRETCH = 1024 };

    assert(n >= 0);
    for (int by = 0; by < N_ORDERS; by++) {
        int64_t done = 1, end;

        for (; done < n; done = end) {
            end = n < done + STRETCH ? n : done + STRETCH;
            if (!is_rising_any(coords, done, end, (order)by))
                break;
        }
        if (done >= n)
            return true;
    }
    return false;
}

static int slot_bits(int64_t n)
{
    int bits = 6;

    while ((int64_t)1 << bits < 2 * n) /* the table is at most half full */
        bits++;
    return bits;
}

size_t sp_unique_slots(int64_t n)
{
    assert(n >= 0);
    return (size_t)1 << slot_bits(n);
}

/* Looks for duplicates in a table with open addressing. Places are computed a few rows
 * ahead, so that cache misses overlap. */
int64_t sp_unique_find(const int32_t *coords, int64_t n, uint64_t *keys, size_t slots)
{
    enum { AHEAD = 12 };
    const uint64_t factor = 0x9e3779b97f4a7c15u; /* 2^64 over the golden ratio */
    int shift = 64 - slot_bits(n);

    assert(slots >= sp_unique_slots(n));
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

/* Morton keys of one sample and their order.
 *
 * A key is relative to a base of its sample. The base is a multiple of the coarsest
 * stride, so that dividing keys divides coordinates, and near the sample, so that keys
 * are short. The row number is kept in the low bits of the sorted word, so that sorting
 * moves one 8-byte word per row. If key and row do not fit into 64 bits, the key is
 * sorted in two halves. */
#include "cpu/plan/cpu_plan.h"

#include "cpu/cpu.h"

#include <assert.h>
#include <string.h>

enum { DIGIT = 11, MAX_PASSES = 8, INSERTION = 32, HALF_BITS = 30 };

static int bit_width(uint64_t v)
{
    return v ? 64 - __builtin_clzll(v) : 0;
}

sp_status sp_cpu_plan_range(const int32_t *c, int32_t n, int sample, int32_t lo[3],
                            int32_t hi[3])
{
    enum { WIDTH = 3 * 16 }; /* whole vectors of whole coordinates */
    const size_t size = 3 * (size_t)n;
    int32_t least[WIDTH], most[WIDTH];
    size_t i = 0;

    assert(n > 0);
    for (int j = 0; j < WIDTH; j++)
        least[j] = INT32_MAX, most[j] = INT32_MIN;
    for (; i + WIDTH <= size; i += WIDTH)
        for (int j = 0; j < WIDTH; j++) {
            least[j] = c[i + (size_t)j] < least[j] ? c[i + (size_t)j] : least[j];
            most[j] = c[i + (size_t)j] > most[j] ? c[i + (size_t)j] : most[j];
        }
    for (int j = 0; i < size; i++, j++) {
        least[j] = c[i] < least[j] ? c[i] : least[j];
        most[j] = c[i] > most[j] ? c[i] : most[j];
    }
    for (int d = 0; d < 3; d++)
        lo[d] = least[d], hi[d] = most[d];
    for (int j = 3; j < WIDTH; j++) {
        lo[j % 3] = least[j] < lo[j % 3] ? least[j] : lo[j % 3];
        hi[j % 3] = most[j] > hi[j % 3] ? most[j] : hi[j % 3];
    }
    for (int d = 0; d < 3; d++)
        if (lo[d] < -SP_COORD_LIMIT || hi[d] >= SP_COORD_LIMIT)
            return SP_FAIL(SP_EDATA,
                           "sample %d of the batch: coordinate %c spans [%d, %d], "
                           "expected within [%d, %d)",
                           sample, 'x' + d, lo[d], hi[d], -SP_COORD_LIMIT,
                           SP_COORD_LIMIT);
    return SP_OK;
}

sp_status sp_cpu_plan_check(const int32_t *c, int32_t first, int32_t n, int sample,
                            const uint64_t *key, const int32_t *order)
{
    for (int32_t i = 1; i < n; i++)
        if (key[i] == key[i - 1]) {
            const int32_t *at = c + 3 * (size_t)order[i];
            return SP_FAIL(SP_EDATA,
                           "sample %d of the batch: coordinate (%d, %d, %d) occurs "
                           "twice, in rows %d and %d",
                           sample, at[0], at[1], at[2], order[i - 1] - first,
                           order[i] - first);
        }
    return SP_OK;
}

static void insertion_sort(uint64_t *a, int32_t n, int lo)
{
    int32_t j;

    for (int32_t i = 1; i < n; i++) {
        uint64_t v = a[i];
        for (j = i; j > 0 && a[j - 1] >> lo > v >> lo; j--)
            a[j] = a[j - 1];
        a[j] = v;
    }
}

/* Sorts n words by their bits lo .. hi - 1, stably; no bits above hi are set. b has the
 * size of a, and count has room for MAX_PASSES histograms. Returns the array that holds
 * the result. */
static uint64_t *radix_sort(uint64_t *a, uint64_t *b, int32_t n, int lo, int hi,
                            uint32_t *count)
{
    int digit = n < 4096 ? 8 : DIGIT, passes = (hi - lo + digit - 1) / digit;
    int width = passes ? (hi - lo + passes - 1) / passes : 0;
    uint64_t mask = ((uint64_t)1 << width) - 1;

    if (n <= INSERTION) {
        insertion_sort(a, n, lo);
        return a;
    }
    memset(count, 0, (size_t)passes * (mask + 1) * sizeof *count);
    for (int32_t i = 0; i < n; i++)
        for (int p = 0; p < passes; p++)
            count[(uint64_t)p << width | (a[i] >> (lo + p * width) & mask)]++;
    for (int p = 0; p < passes; p++) {
        uint32_t sum = 0, *at = count + ((uint64_t)p << width);
        uint64_t *swap = a;
        for (uint64_t j = 0; j <= mask; j++) {
            uint32_t c = at[j];
            at[j] = sum;
            sum += c;
        }
        for (int32_t i = 0; i < n; i++)
            b[at[a[i] >> (lo + p * width) & mask]++] = a[i];
        a = b;
        b = swap;
    }
    return a;
}

/* Sorts with key and row in one word. */
static void sort_narrow(const int32_t *c, int32_t n, const int32_t base[3],
                        int key_bits, const plan_sort *s, uint64_t *key, int32_t *order)
{
    int shift = bit_width((uint64_t)n);
    const uint64_t *sorted;

    s->loops->keys(c, n, base, shift, s->a);
    sorted = radix_sort(s->a, s->b, n, shift, shift + key_bits, s->count);
    for (int32_t i = 0; i < n; i++) {
        order[i] = (int32_t)(sorted[i] & (((uint64_t)1 << shift) - 1));
        key[i] = sorted[i] >> shift;
    }
}

/* Sorts by the low half of the key, then stably by the high half. */
static void sort_wide(const int32_t *c, int32_t n, const int32_t base[3], int key_bits,
                      const plan_sort *s, uint64_t *key, int32_t *order)
{
    int shift = bit_width((uint64_t)n);
    uint64_t row = ((uint64_t)1 << shift) - 1, low = ((uint64_t)1 << HALF_BITS) - 1;
    uint64_t *once, *twice;

    for (int32_t i = 0; i < n; i++)
        s->a[i] = (sp_morton_key(c + 3 * (size_t)i, base) & low) << shift | (uint64_t)i;
    once = radix_sort(s->a, s->b, n, shift, shift + HALF_BITS, s->count);
    for (int32_t i = 0; i < n; i++) {
        uint64_t r = once[i] & row;
        once[i] = sp_morton_key(c + 3 * r, base) >> HALF_BITS << shift | r;
    }
    twice = radix_sort(once, once == s->a ? s->b : s->a, n, shift,
                       shift + key_bits - HALF_BITS, s->count);
    for (int32_t i = 0; i < n; i++) {
        order[i] = (int32_t)(twice[i] & row);
        key[i] = sp_morton_key(c + 3 * (size_t)order[i], base);
    }
}

uint64_t *sp_cpu_plan_sort_keys(const plan_sort *s, int32_t n, int bits)
{
    assert(n >= 0 && 0 <= bits && bits < 64);
    return radix_sort(s->a, s->b, n, 0, bits, s->count);
}

sp_status sp_cpu_plan_sort_open(plan_sort *s, const plan_loops *loops, sp_arena *arena,
                                int64_t n_max)
{
    s->loops = loops;
    SP_TRY(SP_ALLOC(arena, n_max, &s->a));
    SP_TRY(SP_ALLOC(arena, n_max, &s->b));
    return SP_ALLOC(arena, MAX_PASSES << DIGIT, &s->count);
}

sp_status sp_cpu_plan_sort(const int32_t *c, int32_t n, int sample, int n_levels,
                           const plan_sort *s, uint64_t *key, int32_t *order,
                           int32_t base[3], int *bits)
{
    int32_t hi[3];
    uint64_t range = 0;

    assert(n >= 0 && n_levels > 0 && n_levels <= PLAN_LEVELS);
    *bits = 0;
    memset(base, 0, 3 * sizeof *base);
    if (n == 0)
        return SP_OK;
    SP_TRY(sp_cpu_plan_range(c, n, sample, base, hi));
    for (int d = 0; d < 3; d++) {
        base[d] &= -(1 << (n_levels - 1));
        range |= (uint64_t)(hi[d] - base[d]);
    }
    *bits = bit_width(range);
    if (3 * *bits + bit_width((uint64_t)n) <= 64)
        sort_narrow(c, n, base, 3 * *bits, s, key, order);
    else
        sort_wide(c, n, base, 3 * *bits, s, key, order);
    return sp_cpu_plan_check(c, 0, n, sample, key, order);
}

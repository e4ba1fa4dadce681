/* Rows that stand in a known order are proven unique by it and any row that repeats is
 * found in each order, at each place. */
#include "fixtures/test.h"

#include "base/sp_rng.h"
#include "data/sp_shard_internal.h"

enum { N = 3000, SLOTS = 8192 };

static int32_t coords[N][3];
static int order; /* 0: x varies slowest, 1: z varies slowest, 2: Morton order */

static uint64_t spread(int32_t c)
{
    uint64_t key = 0;

    for (int i = 0; i < 20; i++)
        key |= (uint64_t)((uint32_t)(c + SP_COORD_LIMIT) >> i & 1) << 3 * i;
    return key;
}

static uint64_t key_of(const int32_t *c)
{
    uint64_t x = (uint64_t)(c[0] + SP_COORD_LIMIT),
             y = (uint64_t)(c[1] + SP_COORD_LIMIT);
    uint64_t z = (uint64_t)(c[2] + SP_COORD_LIMIT);

    if (order == 2)
        return spread(c[0]) | spread(c[1]) << 1 | spread(c[2]) << 2;
    return order == 0 ? x << 40 | y << 20 | z : z << 40 | y << 20 | x;
}

static int by_key(const void *a, const void *b)
{
    uint64_t p = key_of(a), q = key_of(b);

    return (p > q) - (p < q);
}

/* Numbers are small, of both signs, and at the ends of the range; they are sorted and
 * repeats removed. */
static int draw(void)
{
    static const int32_t end[] = {-SP_COORD_LIMIT, SP_COORD_LIMIT - 1, -1, 0};
    sp_rng rng = sp_rng_open(1, SP_RNG_SCENE, 0, 0);
    int n = 1;

    for (int i = 0; i < N; i++)
        for (int a = 0; a < 3; a++) {
            uint32_t u = sp_rng_u32(&rng);

            coords[i][a] = u % 8 == 0 ? end[u >> 8 & 3] : (int32_t)(u >> 8 & 63) - 32;
        }
    qsort(coords, N, sizeof *coords, by_key);
    for (int i = 1; i < N; i++)
        if (key_of(coords[i]) != key_of(coords[n - 1]))
            memmove(coords[n++], coords[i], sizeof *coords);
    return n;
}

TEST(order_proves)
{
    static uint64_t keys[SLOTS];

    for (order = 0; order < 3; order++) {
        int n = draw();

        assert_true(n > N / 2 && sp_unique_slots(n) <= SLOTS);
        assert_true(sp_unique_by_order(coords[0], n));
        assert_int_equal(sp_unique_find(coords[0], n, keys, sp_unique_slots(n)), -1);
        for (int i = 1; i < n; i += 1 + i / 5) {
            int32_t kept[3];

            memcpy(kept, coords[i], sizeof kept);
            memcpy(coords[i], coords[i - 1], sizeof kept);
            assert_false(sp_unique_by_order(coords[0], n));
            assert_int_equal(sp_unique_find(coords[0], n, keys, sp_unique_slots(n)), i);
            memcpy(coords[i], kept, sizeof kept);
        }
    }
}

TEST(few_rows_are_unique)
{
    assert_true(sp_unique_by_order(coords[0], 0));
    assert_true(sp_unique_by_order(coords[0], 1));
}

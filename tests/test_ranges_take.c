/* Ranges do not overlap, free neighbours join, and the end is where the last one
 * was. */
#include "test.h"

#include "sp_ranges.h"
#include "sp_rng.h"

enum { MOST = 40, TURNS = 20000 };

typedef struct held {
    int range, holders;
    size_t at, bytes;
} held;

static void ranges_never_overlap(void **state)
{
    sp_rng r = sp_rng_open(3, SP_RNG_SCENE, 0, 0);
    held all[MOST];
    sp_ranges ranges;
    int n = 0;

    (void)state;
    OK(sp_ranges_create(&ranges, MOST));
    for (int turn = 0; turn < TURNS; turn++) {
        if (n < MOST && (n == 0 || sp_rng_u32(&r) % 2)) {
            size_t bytes = sp_rng_u32(&r) % 3000;
            held h = {.range = sp_ranges_take(&ranges, bytes), .holders = 1};

            h.at = ranges.range[h.range].at;
            h.bytes = ranges.range[h.range].bytes;
            assert_true(h.bytes >= bytes && h.bytes > 0 && h.at % 128 == 0);
            assert_true(h.at + h.bytes <= ranges.end);
            for (int i = 0; i < n; i++)
                assert_true(h.at >= all[i].at + all[i].bytes ||
                            all[i].at >= h.at + h.bytes);
            if (sp_rng_u32(&r) % 4 == 0) {
                sp_ranges_hold(&ranges, h.range);
                h.holders = 2;
            }
            all[n++] = h;
        } else {
            held *h = &all[sp_rng_u32(&r) % (uint32_t)n];

            sp_ranges_drop(&ranges, h->range);
            if (--h->holders == 0)
                *h = all[--n];
        }
    }
    assert_true(ranges.end < (size_t)MOST * 3000 * 2);
    sp_ranges_destroy(&ranges);
}

static void what_was_dropped_is_used_again(void **state)
{
    sp_ranges r;
    int a, b, c, d;

    (void)state;
    OK(sp_ranges_create(&r, 4));
    a = sp_ranges_take(&r, 1000);
    b = sp_ranges_take(&r, 500);
    c = sp_ranges_take(&r, 2000);
    assert_int_equal(r.end, 1024 + 512 + 2048);
    sp_ranges_drop(&r, b);
    d = sp_ranges_take(&r, 100); /* the smallest free one */
    assert_int_equal(r.range[d].at, 1024);
    sp_ranges_drop(&r, d);
    sp_ranges_drop(&r, a);
    d = sp_ranges_take(&r, 1500); /* a and b, joined */
    assert_int_equal(r.range[d].at, 0);
    sp_ranges_drop(&r, c);
    c = sp_ranges_take(&r, 3000); /* the free end, made longer */
    assert_int_equal(r.range[c].at, 1536);
    assert_int_equal(r.end, 1536 + 3072);
    sp_ranges_reset(&r);
    assert_int_equal(r.range[sp_ranges_take(&r, 1)].at, 0);
    sp_ranges_destroy(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_never_overlap),
        cmocka_unit_test(what_was_dropped_is_used_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

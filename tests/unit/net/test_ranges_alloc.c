/* Ranges do not overlap, free neighbours join, and the end is where the last one
 * was. */
#include "fixtures/test.h"

#include "base/sp_rng.h"
#include "net/sp_ranges.h"

enum { MOST = 40, TURNS = 20000 };

typedef struct held {
    int range, holders;
    size_t at, bytes;
} held;

TEST(ranges_never_overlap)
{
    sp_rng r = sp_rng_open(3, SP_RNG_SCENE, 0, 0);
    held all[MOST];
    CLOSED_BY(sp_ranges_destroy) sp_ranges ranges;
    int n = 0;

    OK(sp_ranges_create(&ranges, MOST));
    for (int turn = 0; turn < TURNS; turn++) {
        if (n < MOST && (n == 0 || sp_rng_u32(&r) % 2)) {
            const size_t bytes = sp_rng_u32(&r) % 3000, end = ranges.end;
            const bool has_room = sp_ranges_has_room(&ranges, bytes, 0);
            held h = {.range = turn / 2 % 2 ? sp_ranges_alloc_above(&ranges, bytes, 0)
                                            : sp_ranges_alloc(&ranges, bytes),
                      .holders = 1};

            h.at = ranges.range[h.range].at;
            h.bytes = ranges.range[h.range].bytes;
            assert_true(h.bytes >= bytes && h.bytes > 0 && h.at % 128 == 0);
            assert_true(h.at + h.bytes <= ranges.end);
            assert_true(has_room == (ranges.end == end));
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
}

static size_t take(sp_ranges *r, size_t bytes, bool is_high, int *range)
{
    *range = is_high ? sp_ranges_alloc_above(r, bytes, 0) : sp_ranges_alloc(r, bytes);
    return r->range[*range].at;
}

TEST(what_was_dropped_is_used_again)
{
    const bool LOW = false, HIGH = true;
    CLOSED_BY(sp_ranges_destroy) sp_ranges r;
    int a, b, c, d, e;

    OK(sp_ranges_create(&r, 5));
    take(&r, 1000, LOW, &a);
    take(&r, 500, HIGH, &b);
    take(&r, 2000, LOW, &c);
    assert_int_equal(r.end, 1024 + 512 + 2048);
    sp_ranges_drop(&r, b);
    assert_int_equal(take(&r, 100, LOW, &d), 1024);        /* its lower end */
    assert_int_equal(take(&r, 128, HIGH, &e), 1024 + 384); /* its upper end */
    sp_ranges_drop(&r, d);
    sp_ranges_drop(&r, e);
    sp_ranges_drop(&r, a);
    assert_int_equal(take(&r, 1500, LOW, &d), 0); /* a and b have been joined */
    sp_ranges_drop(&r, c);
    assert_int_equal(take(&r, 3000, HIGH, &c), 1536); /* the free end has grown */
    assert_int_equal(r.end, 1536 + 3072);
    sp_ranges_reset(&r);
    assert_int_equal(take(&r, 1, LOW, &a), 0);
}

/* Ranges from below and from above leave no gap between them while they fit into the
 * memory that was reserved. */
TEST(reserved_from_both_sides)
{
    CLOSED_BY(sp_ranges_destroy) sp_ranges r;
    int kept, passing;

    OK(sp_ranges_create(&r, 5));
    sp_ranges_reserve(&r, 1000);
    assert_int_equal(r.end, 1024);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(take(&r, 100, true, &passing), 1024 - 128);
        assert_int_equal(take(&r, 128, false, &kept), 128 * i);
        sp_ranges_drop(&r, passing);
    }
    assert_int_equal(r.end, 1024);
    sp_ranges_reserve(&r, 512); /* this much is free already */
    assert_int_equal(r.end, 1024);
}

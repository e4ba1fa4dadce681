#include "net/sp_ranges.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_number.h"

enum { ALIGN = 128 };

sp_status sp_ranges_create(sp_ranges *ranges, int most)
{
    assert(most > 0);
    memset(ranges, 0, sizeof *ranges);
    ranges->max = 2 * most + 1; /* between two held ranges one may be free */
    SP_TRY(SP_NEW(&ranges->range, ranges->max, "a table of ranges"));
    sp_ranges_reset(ranges);
    return SP_OK;
}

void sp_ranges_destroy(sp_ranges *ranges)
{
    free(ranges->range);
    memset(ranges, 0, sizeof *ranges);
}

void sp_ranges_reset(sp_ranges *ranges)
{
    ranges->n = 0;
    ranges->first_unused = ranges->last = -1;
    ranges->end = 0;
}

/* Inserts a range after `prev` and returns its number. */
static int ranges_insert(sp_ranges *r, int prev, size_t at, size_t bytes)
{
    int i = r->first_unused, next = prev < 0 ? -1 : r->range[prev].next;

    if (i >= 0)
        r->first_unused = r->range[i].next;
    else
        i = r->n++;
    assert(i < r->max);
    r->range[i] = (sp_range){.at = at, .bytes = bytes, .prev = prev, .next = next};
    if (prev >= 0)
        r->range[prev].next = i;
    if (next >= 0)
        r->range[next].prev = i;
    else
        r->last = i;
    return i;
}

/* Joins range i, which is free, with the next one, which is free too. */
static void absorb_next(sp_ranges *r, int i)
{
    int gone = r->range[i].next, next = r->range[gone].next;

    r->range[i].bytes += r->range[gone].bytes;
    r->range[i].next = next;
    if (next >= 0)
        r->range[next].prev = i;
    else
        r->last = i;
    r->range[gone].n_holders = -1;
    r->range[gone].next = r->first_unused;
    r->first_unused = gone;
}

size_t sp_ranges_aligned(size_t bytes)
{
    return bytes ? sp_multiple(bytes, ALIGN) : ALIGN;
}

/* Moves the span's end so that a free range of at least that many bytes is there, and
 * returns its number. */
static int ranges_extend(sp_ranges *r, size_t bytes)
{
    if (r->last < 0 || r->range[r->last].n_holders > 0)
        ranges_insert(r, r->last, r->end, 0);
    if (r->range[r->last].bytes < bytes)
        r->range[r->last].bytes = bytes;
    r->end = r->range[r->last].at + r->range[r->last].bytes;
    return r->last;
}

void sp_ranges_reserve(sp_ranges *ranges, size_t bytes)
{
    if (bytes)
        ranges_extend(ranges, sp_ranges_aligned(bytes));
}

/* A free range with upper `bytes` that begin at `least` or above. */
static int ranges_find(const sp_ranges *r, size_t bytes, size_t least, bool is_high)
{
    int found = -1;

    for (int i = r->last; i >= 0; i = r->range[i].prev) {
        const sp_range *range = &r->range[i];

        if (range->n_holders != 0 || range->bytes < bytes ||
            range->at + range->bytes - bytes < least)
            continue;
        found = i;
        if (is_high)
            break;
    }
    return found;
}

bool sp_ranges_has_room(const sp_ranges *ranges, size_t bytes, size_t least)
{
    return ranges_find(ranges, sp_ranges_aligned(bytes), least, true) >= 0;
}

static int ranges_alloc(sp_ranges *ranges, size_t bytes, size_t least, bool is_high)
{
    sp_range *range = ranges->range;
    size_t rest;
    int i;

    bytes = sp_ranges_aligned(bytes);
    i = ranges_find(ranges, bytes, least, is_high);
    if (i < 0)
        i = ranges_extend(ranges, bytes);
    rest = range[i].bytes - bytes;
    if (rest > 0 && !is_high) {
        range[i].bytes = bytes;
        ranges_insert(ranges, i, range[i].at + bytes, rest);
    } else if (rest > 0) {
        range[i].bytes = rest;
        i = ranges_insert(ranges, i, range[i].at + rest, bytes);
    }
    range[i].n_holders = 1;
    return i;
}

int sp_ranges_alloc(sp_ranges *ranges, size_t bytes)
{
    return ranges_alloc(ranges, bytes, 0, false);
}

int sp_ranges_alloc_above(sp_ranges *ranges, size_t bytes, size_t least)
{
    return ranges_alloc(ranges, bytes, least, true);
}

void sp_ranges_hold(sp_ranges *ranges, int range)
{
    assert(ranges->range[range].n_holders > 0);
    ranges->range[range].n_holders++;
}

void sp_ranges_drop(sp_ranges *ranges, int range)
{
    sp_range *all = ranges->range;
    int prev = all[range].prev, next = all[range].next;

    assert(all[range].n_holders > 0);
    if (--all[range].n_holders > 0)
        return;
    if (next >= 0 && all[next].n_holders == 0)
        absorb_next(ranges, range);
    if (prev >= 0 && all[prev].n_holders == 0)
        absorb_next(ranges, prev);
}

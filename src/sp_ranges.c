#include "sp_ranges.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 128 };

sp_status sp_ranges_create(sp_ranges *ranges, int most)
{
    memset(ranges, 0, sizeof *ranges);
    ranges->max = 2 * most + 1; /* between any two held ones one may be free */
    ranges->range = calloc((size_t)ranges->max, sizeof *ranges->range);
    if (!ranges->range)
        return SP_FAIL(SP_EMEM, "table of %d ranges: out of memory", ranges->max);
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

/* A range behind `prev`. */
static int insert(sp_ranges *r, int prev, size_t at, size_t bytes)
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

/* Joins the range with its next one, which is free as it is. */
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

static int find(const sp_ranges *r, size_t bytes)
{
    int i, best = -1;

    for (i = r->last; i >= 0; i = r->range[i].prev)
        if (r->range[i].n_holders == 0 && r->range[i].bytes >= bytes &&
            (best < 0 || r->range[i].bytes <= r->range[best].bytes))
            best = i;
    return best;
}

int sp_ranges_take(sp_ranges *ranges, size_t bytes)
{
    sp_ranges *r = ranges;
    int i;

    bytes = bytes ? (bytes + ALIGN - 1) / ALIGN * ALIGN : ALIGN;
    i = find(r, bytes);
    if (i < 0) { /* at the end, which may be free, but too short */
        if (r->last < 0 || r->range[r->last].n_holders > 0)
            insert(r, r->last, r->end, 0);
        i = r->last;
        r->range[i].bytes = bytes;
        r->end = r->range[i].at + bytes;
    }
    if (r->range[i].bytes > bytes) {
        insert(r, i, r->range[i].at + bytes, r->range[i].bytes - bytes);
        r->range[i].bytes = bytes;
    }
    r->range[i].n_holders = 1;
    return i;
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

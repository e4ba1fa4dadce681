/* An allocator of ranges within one span of memory, which are taken and dropped in any
 * order. It keeps only numbers, so that the memory of a network can be estimated
 * without allocating it.
 *
 *     low  | held | free | held | held | free |  high = end
 *
 * A range is cut from the lowest free one that fits (side low: from its lower end) or
 * from the highest one (side high: from its upper end). If no free range fits, the
 * range is appended and the end of the span moves. Ranges that are kept for long and
 * ranges that are soon dropped are on opposite sides, so that neither leaves gaps among
 * the other. Free neighbours are joined. */
#ifndef SP_RANGES_H
#define SP_RANGES_H

#include <stddef.h>

#include "base/sp_error.h"

typedef struct sp_range {
    size_t at, bytes;
    int n_holders;  /* 0: the range is free */
    int prev, next; /* neighbours, -1 at the ends */
} sp_range;

typedef struct sp_ranges {
    sp_range *range; /* [max] */
    int max, n;      /* n: numbers given out; unused ones in a list by next */
    int first_unused, last;
    size_t end; /* the span's end, bytes */
} sp_ranges;

/* All functions are local; numbers are bytes.
 *
 * Creates an empty span with room for `most` ranges held at once. SP_EMEM. */
sp_status sp_ranges_create(sp_ranges *ranges, int most);
void sp_ranges_destroy(sp_ranges *ranges);
/* Drops all ranges; the span is empty. */
void sp_ranges_reset(sp_ranges *ranges);
/* Leaves at least `bytes` between the last range that is held and the span's end. */
void sp_ranges_reserve(sp_ranges *ranges, size_t bytes);
/* The size of a range for `bytes` bytes: rounded up to a multiple of 128. */
size_t sp_ranges_aligned(size_t bytes);
/* True if `bytes` bytes find a free range within the span, not below an offset. */
bool sp_ranges_has_room(const sp_ranges *ranges, size_t bytes, size_t least);
/* Takes a range of at least that many bytes (sp_ranges_aligned) with one holder from
 * the low side and returns its number in ranges->range. It cannot fail: the span grows,
 * and no more than `most` ranges may be held. */
int sp_ranges_alloc(sp_ranges *ranges, size_t bytes);
/* The same from the high side, but not below an offset. */
int sp_ranges_alloc_above(sp_ranges *ranges, size_t bytes, size_t least);
/* Adds a holder to a range, or removes one; without holders it is free. */
void sp_ranges_hold(sp_ranges *ranges, int range);
void sp_ranges_drop(sp_ranges *ranges, int range);

#endif

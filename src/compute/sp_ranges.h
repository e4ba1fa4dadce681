/* Ranges of one span of memory, taken and dropped in any order: numbers alone, so that
 * what a network will take can be told without taking it.
 *
 *     low  | held | free | held | held | free |  high = end
 *
 * A range is taken of the lowest free one that fits, from below, or of the highest, from
 * above; where none fits, at the end, which moves. So what is kept for long and what is
 * soon dropped leave each other no gaps. Free neighbours become one.
 */
#ifndef SP_RANGES_H
#define SP_RANGES_H

#include <stddef.h>

#include "base/sp_error.h"

typedef enum sp_ranges_side { SP_RANGES_LOW, SP_RANGES_HIGH } sp_ranges_side;

typedef struct sp_range {
    size_t at, bytes;
    int n_holders;  /* 0: free */
    int prev, next; /* neighbours; -1: none */
} sp_range;

typedef struct sp_ranges {
    sp_range *range; /* [max] */
    int max, n;      /* n: numbers given out; unused ones in a list by next */
    int first_unused, last;
    size_t end; /* of the span */
} sp_ranges;

/* Room for `most` ranges held at once. SP_EMEM. */
sp_status sp_ranges_create(sp_ranges *ranges, int most);
void sp_ranges_destroy(sp_ranges *ranges);
/* Nothing is taken. */
void sp_ranges_reset(sp_ranges *ranges);
/* The span's end is so far behind its last holder, if it was nearer. */
void sp_ranges_reserve(sp_ranges *ranges, size_t bytes);
/* What a range of so many bytes takes: rounded up to 128. */
size_t sp_ranges_aligned(size_t bytes);
/* The number of a range with one holder. */
int sp_ranges_take(sp_ranges *ranges, size_t bytes, sp_ranges_side side);
/* One holder more, one less. */
void sp_ranges_hold(sp_ranges *ranges, int range);
void sp_ranges_drop(sp_ranges *ranges, int range);

#endif

/* Ranges of one span of memory, taken and dropped in any order: numbers alone, so that
 * what a network will take can be told without taking it.
 *
 *     | held | free | held | held | free |          end
 *
 * A range goes where the free one is smallest that fits, else at the end; free
 * neighbours become one.
 */
#ifndef SP_RANGES_H
#define SP_RANGES_H

#include <stddef.h>

#include "sp_error.h"

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
/* The number of a range with one holder; bytes are rounded up to 128. */
int sp_ranges_take(sp_ranges *ranges, size_t bytes);
/* One holder more, one less. */
void sp_ranges_hold(sp_ranges *ranges, int range);
void sp_ranges_drop(sp_ranges *ranges, int range);

#endif

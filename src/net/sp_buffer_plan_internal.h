/* Inside sp_buffer_plan: sp_buffer_plan_restore.c gives dropped activations back to the
 * backward pass; sp_buffer_plan.c does the rest. */
#ifndef SP_BUFFER_PLAN_INTERNAL_H
#define SP_BUFFER_PLAN_INTERNAL_H

#include "net/sp_buffer_plan.h"

#define SP_BUFFER_NOWHERE ((sp_buffer_place){.range = -1})

/* The end of the span where a matrix is placed. */
typedef struct sp_buffer_side {
    bool is_high;
    size_t least; /* on the high side: the least offset */
} sp_buffer_side;

/* True if the forward pass leaves the activation in memory for the backward pass. */
bool sp_buffer_plan_keeps(const sp_buffer_plan *a, int storage);
/* Gives the value its activation's memory: its storage's, which the first value in it
 * allocates from this side of the span. */
void sp_buffer_plan_hold(sp_buffer_plan *a, int v, sp_buffer_side from);
/* True if a matrix of v's storage finds memory within the span. */
bool sp_buffer_plan_has_room(const sp_buffer_plan *a, int v);
/* Drops the activation of a storage with all its columns. */
void sp_buffer_plan_drop_act(sp_buffer_plan *a, int storage);

#endif

/* Inside sp_assign: sp_assign_restore.c gives dropped activations back to the backward
 * pass; sp_assign.c does the rest. */
#ifndef SP_ASSIGN_INTERNAL_H
#define SP_ASSIGN_INTERNAL_H

#include "net/sp_assign.h"

#define SP_ASSIGN_NOWHERE ((sp_assign_place){.range = -1})

/* The end of the span where a matrix is placed. */
typedef struct sp_assign_side {
    bool is_high;
    size_t least; /* on the high side: the least offset */
} sp_assign_side;

/* True if the forward pass leaves the activation in memory for the backward pass. */
bool sp_assign_keeps(const sp_assign *a, int home);
/* Gives the value its activation's memory: its home's, which the first value in it
 * allocates from this side of the span. */
void sp_assign_hold(sp_assign *a, int v, sp_assign_side from);
/* Drops the activation of a home with all its columns. */
void sp_assign_drop_act(sp_assign *a, int home);

#endif

/* The position of a run in its data. */
#ifndef SP_POSITION_H
#define SP_POSITION_H

#include <stdint.h>

/* Checkpoints store it. */
typedef struct sp_position {
    int64_t epoch;    /* counts from 0 */
    int64_t position; /* samples of this epoch that all ranks together have used */
} sp_position;

/* The epoch of the last step, from 1; 0 before the first. */
static inline int64_t sp_position_epochs(sp_position at)
{
    return at.epoch + (at.position > 0);
}

#endif

/* The values that an optimizer keeps for each parameter. A row of the table is all that
 * creation, the foresight of memory, checkpoints and the load of one need to know of a
 * value. sp_saver writes all of them: copies of those on a device, and on the host the
 * optimizer's own, which stay as they are until it is done. By its values a checkpoint
 * tells which optimizer wrote it; in a run that goes on with another one all values
 * begin as zeros (read_optim in run/sp_checkpoint.c). Its arithmetic is the update
 * rule's (sp_optim_step). */
#ifndef SP_KEPT_H
#define SP_KEPT_H

#include "deck/sp_deck.h"

typedef enum sp_kept_index {
    SP_KEPT_M, /* momentum of SGD, first moment of AdamW */
    SP_KEPT_V, /* second moment of AdamW */
    SP_N_KEPT
} sp_kept_index;

typedef struct sp_kept_value {
    const char *group;                        /* group in a checkpoint: "/optim/m" */
    bool (*is_kept)(const sp_config *config); /* does a run of this deck keep it? */
} sp_kept_value;

extern const sp_kept_value sp_kept[SP_N_KEPT];

/* The number of values that a run of this deck keeps for each parameter. */
int sp_kept_count(const sp_config *config);

#endif

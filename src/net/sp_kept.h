/* The values that an optimizer keeps for each parameter. A row of the table is all that
 * creation, the foresight of memory, checkpoints and the load of one need to know of a
 * value. sp_saver writes all of them: copies of those on a device, and on the host the
 * optimizer's own, which stay as they are until it is done. By its values a checkpoint
 * tells which optimizer wrote it; in a run that goes on with another one all values
 * begin as zeros (read_optim in checkpoint/sp_checkpoint.c). Its arithmetic is the update
 * rule's (sp_optim_step).
 *
 * The table does not tell that the network computes with a value, as with an average of
 * the weights. Evaluations read net->param: a training would exchange the two pointers
 * around sp_evaluate_pass (evaluate in train/sp_train.c) and call sp_net_updated after
 * each exchange; eval, predict and label read a file's weights by
 * sp_checkpoint_read_open without an optimizer, which would read the value's group in
 * place of /params. An average would begin as the weights, at the update with t 0, and
 * lacks those of frozen layers, whose values stay 0. */
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

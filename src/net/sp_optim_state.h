/* The values that an optimizer keeps for each parameter. A row of the table has all
 * that creation, the estimate of memory, checkpoints and their loading need to know of
 * a value. sp_saver writes all of them: copies of those on a device, and on the host
 * the optimizer's own, unchanged until it is done. The values in a checkpoint show
 * which optimizer wrote it; in a run that goes on with another one all values begin as
 * zeros (read_optim in checkpoint/sp_checkpoint.c). Its arithmetic is the update rule's
 * (sp_optim_step).
 *
 * The averages of train.ema and train.average_tail are kept values too: they begin as the weights and the
 * buffers, are complete for frozen layers, and evaluations compute with them in place of
 * both (sp_learner_exchange_average in api/sp_learner.h). They belong to no
 * optimizer: a file without them, or with another optimizer's state, changes nothing
 * about the rest. */
#ifndef SP_OPTIM_STATE_H
#define SP_OPTIM_STATE_H

#include "deck/sp_deck.h"
#include "net/sp_graph.h"

typedef enum sp_optim_state_index {
    SP_OPTIM_STATE_M,           /* momentum of SGD, first moment of AdamW */
    SP_OPTIM_STATE_V,           /* second moment of AdamW */
    SP_OPTIM_STATE_EMA,         /* average of the weights */
    SP_OPTIM_STATE_EMA_BUFFERS, /* average of the running statistics */
    SP_N_OPTIM_STATES
} sp_optim_state_index;

typedef struct sp_optim_state {
    const char *group;                        /* group in a checkpoint: "/optim/m" */
    bool (*is_kept)(const sp_config *config); /* does a run of this deck keep it? */
    bool is_average;    /* of the weights; else the optimizer's state */
    bool is_of_buffers; /* laid out as the graph's buffers; else as its parameters */
} sp_optim_state;

extern const sp_optim_state sp_optim_states[SP_N_OPTIM_STATES];

/* The floats of value i in a run of this network. Pure. */
int64_t sp_optim_state_floats(const sp_graph *graph, int i);
/* The floats of all values that a run of this deck keeps. Pure. */
int64_t sp_optim_state_total(const sp_config *config, const sp_graph *graph);

#endif

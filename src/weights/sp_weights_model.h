/* A trained model in host memory; `weights export` writes it in other forms. */
#ifndef SP_WEIGHTS_MODEL_H
#define SP_WEIGHTS_MODEL_H

#include <limits.h>

#include "checkpoint/sp_checkpoint.h"
#include "net/sp_graph.h"

typedef struct sp_weights_model {
    char path[PATH_MAX];       /* of the checkpoint */
    sp_checkpoint_state state; /* deck NULL: the file holds only weights */
    sp_normalization norm;
    sp_config config; /* of the file's deck, or the one that was given */
    sp_graph graph;
    float *param, *running; /* flat buffers of the graph */
} sp_weights_model;

/* Reads a run folder (best.h5, else its newest checkpoint), a checkpoint, or a file
 * with only weights, which needs a deck (else NULL). Local. SP_EUSAGE: the deck is
 * missing; SP_EDATA, SP_EIO, SP_EMEM. Close in any case. */
sp_status sp_weights_model_open(sp_weights_model *model, const char *path,
                                const char *deck);
void sp_weights_model_close(sp_weights_model *model);

#endif

#include "weights/sp_weights_model.h"

#include <stdlib.h>
#include <string.h>

void sp_weights_model_close(sp_weights_model *m)
{
    sp_checkpoint_state_destroy(&m->state);
    sp_normalization_destroy(&m->norm);
    sp_config_destroy(&m->config);
    sp_graph_destroy(&m->graph);
    free(m->param);
    free(m->running);
    memset(m, 0, sizeof *m);
}

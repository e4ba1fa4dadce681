/* Checkpoints for sp_model_open, in the full library. */
#include "api/sp_model.h"

sp_status sp_model_read_checkpoint(sp_weights_model *model, const char *path)
{
    return sp_weights_model_open(model, path, NULL);
}

/* Inside of sp_model_open: a packed model, or in the full library a checkpoint too. */
#ifndef SP_MODEL_H
#define SP_MODEL_H

#include "weights/sp_weights_model.h"

/* Reads a file that is not a packed model. Defined in sp_model_checkpoint.c: a run
 * folder or a checkpoint. In the library for prediction it is in no_checkpoint.c:
 * SP_EDATA says how to make a packed model. */
sp_status sp_model_read_checkpoint(sp_weights_model *model, const char *path);

#endif

/* `sptrain check MODEL`: describes a trained model, without its data. */
#ifndef SP_CHECK_MODEL_H
#define SP_CHECK_MODEL_H

#include <stdbool.h>

#include "base/sp_error.h"

/* True if the word names a model (a folder, an HDF5 file or a packed model) and not a deck. Local. */
bool sp_check_is_model(const char *word);
/* Prints the network of a checkpoint, its state, and how scans became the samples of
 * its training. `model` is a checkpoint, a packed model, or a run folder: its best.h5
 * is used, else its newest checkpoint. Local: it needs no ranks. SP_EUSAGE: the folder
 * has no checkpoint; SP_EDATA, SP_EIO, SP_EMEM. */
sp_status sp_check_model(const char *model);

#endif

/* Checkpoints for sp_model_open, in the full library. */
#include "api/sp_model.h"

#include "h5/sp_h5.h"

sp_status sp_model_read_checkpoint(sp_weights_model *model, const char *path)
{
    const sp_status rc = sp_weights_model_open(model, path, NULL);

    sp_h5_keep_child(false);
    return rc;
}

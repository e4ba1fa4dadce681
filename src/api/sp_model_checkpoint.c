/* Checkpoints for sp_model_open, in the full library. */
#include "api/sp_model.h"

#include "api/api.h"

sp_status sp_model_read_checkpoint(sp_weights_model *model, const char *path)
{
    sp_status rc;

    api_lock_files();
    rc = sp_weights_model_open(model, path, NULL);
    api_unlock_files();
    return rc;
}

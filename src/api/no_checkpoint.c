/* sp_model_open without HDF5: packed models only. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "api/sp_model.h"

sp_status sp_model_read_checkpoint(sp_weights_model *model, const char *path)
{
    memset(model, 0, sizeof *model);
    if (access(path, R_OK) != 0)
        return SP_FAIL(errno == ENOENT || errno == ENOTDIR ? SP_EDATA : SP_EIO,
                       "%s: cannot open: %s", path, strerror(errno));
    return SP_FAIL(SP_EDATA,
                   "%s: is no packed model; this library reads no other file (sptrain "
                   "weights export MODEL --packed -o OUT.spm writes one)",
                   path);
}

/* A trained network ready to run over data.val: what eval and predict share. Network,
 * columns and feature statistics come from the checkpoint's deck; command-line keys
 * win. */
#ifndef SP_INFER_H
#define SP_INFER_H

#include <limits.h>

#include "train/sp_session.h"

typedef struct sp_infer {
    sp_session session;
    char path[PATH_MAX]; /* of the checkpoint */
    sp_checkpoint_state state;
    sp_sampler sampler;
    sp_loader *loader;
} sp_infer;

/* Collective, agreed. */
sp_status sp_infer_open(sp_infer *infer, const sp_command *command);
/* Reports rc and frees; see sp_session_close. */
sp_status sp_infer_close(sp_infer *infer, sp_status rc);

#endif

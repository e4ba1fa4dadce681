/* Checkpoints beside the training. Rank 0 only.
 *
 *   training thread:  post: copy the state into the reserve  -->  next steps
 *   saver thread:     write, flush, verify, rename, link best.h5, delete old ones
 *
 * The reserve (parameters, buffers, moments) is allocated once. One checkpoint is under
 * way at a time: a post waits for the one before it.
 */
#ifndef SP_SAVER_H
#define SP_SAVER_H

#include <limits.h>

#include "run/sp_checkpoint.h"
#include "net/sp_net.h"
#include "run/sp_run.h"

typedef struct sp_saver sp_saver;

/* What became of a post. */
typedef struct sp_saved {
    sp_status rc;
    sp_error_record error; /* where rc is not SP_OK */
    int64_t step;
    double write_s; /* from post to the end, beside the training */
    double cpu_s;   /* of a core, for that */
    char path[PATH_MAX];
} sp_saved;

/* Starts the thread. Arguments are borrowed until destroy. SP_EMEM. */
sp_status sp_saver_create(sp_saver **saver, sp_run *run, const sp_net *net,
                          const sp_optim *optim, const sp_normalization *norm,
                          int keep);
/* Ends the thread when what is under way is written. NULL is fine. */
void sp_saver_destroy(sp_saver *saver);
/* Copy and begin to write; the result of an earlier post must have been collected.
 * state->deck is copied. SP_EMEM. */
sp_status sp_saver_post(sp_saver *saver, const sp_checkpoint_state *state,
                        bool is_best);
/* True, with the result, if a post has come to its end since; with is_waiting, once it
 * has. False where there is none. */
bool sp_saver_collect(sp_saver *saver, bool is_waiting, sp_saved *saved);

#endif

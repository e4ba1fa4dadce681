/* Checkpoints written while the training continues. Rank 0 only.
 *
 *   training thread:  post  -->  forward, backward  -->  await  -->  update  --> ...
 *   saver thread:      '--> write arrays ----------------^ flush, verify, rename,
 *                                                          link best.h5, prune
 *
 * On the host the saver writes parameters and kept values in place: they are lent to it
 * until the next update, which is most of a step away, and a network's memory is not
 * needed twice. A device's are copied into host memory that is allocated once, as are
 * the running statistics, which every forward pass moves. One checkpoint is written at
 * a time: the caller collects its result before the next post.
 */
#ifndef SP_SAVER_H
#define SP_SAVER_H

#include <limits.h>

#include "net/sp_net.h"
#include "net/sp_optim.h"
#include "checkpoint/sp_checkpoint.h"
#include "run/sp_run.h"

typedef struct sp_saver sp_saver;

/* Result of a post. */
typedef struct sp_saved {
    sp_status rc;
    sp_error_record error; /* valid if rc is not SP_OK */
    int64_t step;
    double best;    /* the best score; its weights are in best.h5 now; NAN: not new */
    double write_s; /* from post to the end of writing, while the training continues */
    double cpu_s;   /* core time of the saver thread for it */
    char path[PATH_MAX];
} sp_saved;

/* Starts the thread. Arguments are borrowed until destroy. SP_EMEM. */
sp_status sp_saver_create(sp_saver **saver, sp_run *run, const sp_net *net,
                          const sp_optim *optim, const sp_normalization *norm,
                          int keep);
/* Waits for a checkpoint that is being written and ends the thread. NULL is
 * accepted. */
void sp_saver_destroy(sp_saver *saver);
/* Has the thread write the present state. Parameters and kept values stay unchanged
 * until sp_saver_await; the result of an earlier post must have been collected.
 * state->deck is copied. SP_EMEM. */
sp_status sp_saver_post(sp_saver *saver, const sp_checkpoint_state *state,
                        bool is_best);
/* True while the latest post still needs parameters and kept values as they were. */
bool sp_saver_reads(sp_saver *saver);
/* Waits until it does not: from then on the caller may change them. */
void sp_saver_await(sp_saver *saver);
/* True, with the result, if the latest post has ended and was not collected yet;
 * is_waiting: waits for that end. False if there is no such post. */
bool sp_saver_collect(sp_saver *saver, bool is_waiting, sp_saved *saved);

#endif

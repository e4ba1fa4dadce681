/* The beginning of a training run (new, from weights, or from a checkpoint) and its
 * checkpoints. */
#ifndef SP_RESUME_H
#define SP_RESUME_H

#include "train/sp_trainer.h"

/* Collective: sets state and weights to begin with: new ones, init_from's, or the
 * newest checkpoint's. */
sp_status sp_resume_begin(sp_trainer *trainer);
/* Collective, agreed, for a check without a run folder: refuses what sp_resume_begin
 * would refuse to continue from. The data are open. */
sp_status sp_resume_check(const sp_learner *learner, sp_device *device);
/* True if the state has reached the epochs or steps that the deck asks for. Local; the
 * same on all ranks. */
bool sp_resume_is_complete(const sp_trainer *trainer);
/* Local, before the first step: starts the saver, which allocates its memory during the
 * first steps. Only rank 0 does anything. */
void sp_resume_prepare(sp_trainer *trainer);
/* Collective: saves the present state as a checkpoint, which is written while the next
 * steps run; is_best: as best.h5 too. A failure to write is a warning. is_final:
 * returns when the file is written, and a failure is the run's (SP_EIO), agreed. */
sp_status sp_resume_save(sp_trainer *trainer, bool is_best, bool is_final);
/* Reports the result of a checkpoint that has been written since. At any
 * time; local. */
void sp_resume_poll(sp_trainer *trainer);
/* Collective: all ranks learn the best score that has its weights on disk; waits for a
 * checkpoint that is being written. */
sp_status sp_resume_agree_best(sp_trainer *trainer);
/* Waits until the checkpoint that is being written no longer needs the present weights;
 * the caller is about to change them. Local. */
void sp_resume_await(sp_trainer *trainer);

#endif

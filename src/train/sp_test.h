/* The evaluation of data.test: once, after a training, with its best weights. Nothing is
 * chosen by it. */
#ifndef SP_TEST_H
#define SP_TEST_H

#include "train/sp_trainer.h"

/* Checks before a training that data.test can be evaluated after it: SP_EDATA without
 * labels, or if eval.merge finds no blocks. Local. */
sp_status sp_test_check(const sp_config *config, const sp_dataset *test);
/* Evaluates data.test, if the deck has it, with the weights of best.h5, or the final
 * weights if no evaluation chose any, and writes the event "test". The training's
 * loaders are closed and its weights replaced: only the end of the run may follow.
 * check_stop as in sp_evaluate_pass. Collective, agreed. */
sp_status sp_test_run(sp_trainer *trainer, sp_status (*check_stop)(void *arg));

#endif

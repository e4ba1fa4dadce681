/* The commands of sptrain that run a network, and the flow of a training run.
 *
 *     main         --> sp_train                                       (sp_train.c)
 *       setup:         sp_trainer_open                              (sp_trainer.c)
 *                        sp_device, sp_data_sets, sp_network, sp_learner,
 *                        sp_evaluator                                   (src/api)
 *                        sp_resume_begin: fresh, init_from or checkpoint
 *                                                                   (sp_resume.c)
 *                        sp_memory_bound: micro-batches that fit the memory
 *       each step:     sp_session_run_or_abort --> sp_step_run      (api/sp_step.c)
 *                                           --> sp_output_step      (sp_output.c)
 *       between steps: sp_evaluate_pass --> sp_output_eval        (sp_evaluate.c)
 *                      sp_resume_save --> saver thread          (run/sp_saver.h)
 *       end:           sp_output_end, sp_trainer_close
 *
 * Within a step a rank that fails cannot inform the others, so it ends all of them
 * (sp_session_run_or_abort). Between steps they agree. eval and predict open the same
 * parts by sp_infer_open (sp_infer.c).
 *
 * All commands but launch are collective. They report their own failures and return the
 * exit status.
 */
#ifndef SP_TRAIN_H
#define SP_TRAIN_H

#include "train/sp_session.h"

sp_status sp_train(const sp_command *command);
sp_status sp_eval(const sp_command *command);
sp_status sp_predict(const sp_command *command);
/* `sptrain calibrate RUN [SECTION.KEY=VALUE ...]`, on its own words (argv[0] is
 * "calibrate"): finds the temperature and the classes' features of a run's model on its
 * data.val, and stores them in the checkpoint (checkpoint/sp_calibration.h). */
sp_status sp_calibrate(int argc, char **argv, sp_comm *comm);

/* argv is "launch [-n N] [--dry-run] ARGS...", after the program's name. Replaces this
 * process by `mpiexec -n N sptrain ARGS...`, with one rank for each CUDA device that
 * this process sees, else for each NUMA node of its cores. Returns after --dry-run,
 * which prints that line, after --help, and after a failure, which it does not report.
 * Local. SP_EUSAGE. */
sp_status sp_launch(int argc, char **argv);

#endif

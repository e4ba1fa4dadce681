/* The commands of sptrain, and the flow of a training run.
 *
 *     sp_main      --> sp_train                                      (sp_train.c)
 *       setup:         sp_session_open, _device, _transport, _data, _net
 *                                       (sp_session*.c, sp_mapping.c, sp_selftest*.c)
 *                      buckets, optimizer, loaders
 *                      sp_resume_begin: fresh, init_from or checkpoint (sp_resume.c)
 *                      sp_session_cut: micro-batches that fit the memory
 *       each step:     sp_loader_next --> forward --> loss --> backward
 *                      --> sp_bucket_wait --> sp_optim_step --> sp_net_sync_running
 *       between steps: sp_report_step, sp_report_epoch           (sp_report.c)
 *                      sp_evaluate_pass --> sp_report_eval        (sp_evaluate.c)
 *                      sp_resume_save --> saver thread            (run/sp_saver.h)
 *       end:           sp_report_end, sp_session_close
 *
 * Within a step a rank that fails cannot tell the others: is_alone of the session is
 * set, and sp_session_close aborts all ranks. Between steps they agree. eval and
 * predict open the same session by sp_infer_open (sp_eval.c); check and preflight
 * without a run folder.
 *
 * All commands are collective. They report their own failures and return the exit
 * status.
 */
#ifndef SP_TRAIN_H
#define SP_TRAIN_H

#include "session/sp_session.h"

sp_status sp_train(const sp_command *command);
sp_status sp_eval(const sp_command *command);
sp_status sp_predict(const sp_command *command);
sp_status sp_check(const sp_command *command);
sp_status sp_preflight(const sp_command *command);

#endif

/* The output of a run: the console of rank 0, and metrics.jsonl, evaluations.jsonl and
 * TensorBoard's events in the run folder. Rank 0 prints and writes; all values cover
 * all ranks. Collective and agreed, except sp_output_step and sp_output_live, which
 * belong to a step: the other ranks return from them at once. */
#ifndef SP_OUTPUT_H
#define SP_OUTPUT_H

#include "train/sp_trainer.h"

struct sp_predict_files;

/* Prints the log's first line: ranks, device, transport. */
void sp_output_machine(const sp_device *device);
/* Prints data, batch and network, and warnings about the deck. */
void sp_output_header(const sp_trainer *trainer);
/* Prints only data and batch. */
void sp_output_data(const sp_learner *learner, const sp_comm *comm,
                    const sp_data_sets *data);
/* Writes deck.resolved, the start or resume event and the status "running". */
sp_status sp_output_start(sp_trainer *trainer);
/* Writes the step event and prints one line; called for steps that are logged. */
sp_status sp_output_step(sp_trainer *trainer, const sp_step_report *step);
/* Draws the live line, if there is one; called for every step. */
void sp_output_live(sp_trainer *trainer, const sp_step_report *step);
/* Prints the line of an epoch and updates the status. */
sp_status sp_output_epoch(sp_trainer *trainer, const sp_step_report *step);
/* Writes the end event and the status. state: "done" or "stopped"; message: the reason,
 * or "". */
sp_status sp_output_end(sp_trainer *trainer, const char *state, const char *message);
/* Warns of settings that may not be meant: the size of the batch and its learning rate,
 * momentum that nobody asked for, ranks without samples, files that are in data.train
 * and data.val, classes that only data.val has. SP_EMPI, SP_EMEM. */
sp_status sp_output_notes(const sp_learner *learner, sp_comm *comm,
                          const sp_data_sets *data);
/* Writes the test event and prints one line. weights: "best.h5", or "" for the last ones;
 * step, epoch: theirs. Collective, agreed. */
sp_status sp_output_test(sp_session *session, const sp_evaluator *evaluator,
                         const sp_metrics *metrics, const char *weights, int64_t step,
                         int64_t epoch, int64_t *metrics_bytes);
/* Writes the eval event, with its position, and prints one line. checkpoint: the
 * checkpoint of `sptrain eval`, which writes to evaluations.jsonl too, with checkpoint,
 * data and arguments of the command; NULL in a training. averaged: the results of the
 * averaged weights; NULL if weights are not averaged. sets: [n_sets] results of
 * data.val_sets; NULL if there are no such sets. *metrics_bytes, unless NULL, becomes the
 * length of metrics.jsonl. */
sp_status sp_output_eval(sp_session *session, const sp_evaluator *evaluator,
                         const sp_metrics *metrics, const sp_metrics *averaged,
                         const sp_metrics *sets, const char *checkpoint,
                         int64_t *metrics_bytes);
/* Rank 0, of `sptrain predict`: writes the predict event, with the contents of the
 * files, of a set of n_samples. Local. SP_EIO. */
sp_status sp_output_predict(sp_session *session, int64_t n_samples,
                            const char *checkpoint,
                            const struct sp_predict_files *files);
/* Prints the IoU of each class as a table. */
void sp_output_table(const sp_network *network, const sp_metrics *metrics);
/* Rank 0, with run.report_every: starts a child process that writes report.html and
 * report.csv of the run folder, and then run.after_save with the report. Returns at
 * once. */
void sp_output_renew(sp_session *session);

#endif

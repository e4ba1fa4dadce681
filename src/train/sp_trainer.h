/* State of a training run, shared by sp_train.c (steps and epochs), sp_resume.c
 * (checkpoints) and sp_report.c (console and metrics.jsonl). */
#ifndef SP_TRAINER_H
#define SP_TRAINER_H

#include "comm/sp_table.h"
#include "net/sp_metrics.h"
#include "run/sp_saver.h"
#include "session/sp_session.h"
#include "train/sp_evaluate.h"

/* Results of one optimizer step, over all ranks. */
typedef struct sp_step_report {
    int64_t step, samples; /* step: number from 1; samples: running total */
    int64_t epoch;         /* number from 0 */
    double loss;           /* NAN: no voxel was labelled */
    double lr, grad_norm;  /* learning rate; norm of the mean gradient, not clipped */
    double voxels;         /* of the step */
    double step_s, data_wait_s, comm_exposed_s; /* of the slowest rank */
    int n_samples, n_micro;                     /* of this step */
    int64_t cost_max, cost_sum; /* sums over the micro-batches; see sp_batch */
    bool is_end;                /* the step was the last of its epoch */
    bool is_skipped;            /* a number was not finite: the weights are unchanged */
} sp_step_report;

typedef struct sp_trainer {
    sp_session session;
    /* The loaders' planners distribute samples by them. */
    sp_sampler sampler, val_sampler;
    sp_loader *loader, *val_loader; /* val_loader NULL: no evaluation */
    sp_buckets buckets;
    sp_optim optim;
    sp_metrics metrics;
    sp_table times;            /* times of steps, over the ranks */
    sp_saver *saver;           /* rank 0, from the first step on; else NULL */
    sp_checkpoint_state state; /* present position of the run; sp_resume.c saves it */
    /* Samples of the whole training; INT64_MAX: more than can be counted. */
    int64_t total_samples;
    double begin_s, step_begin_s;
    /* Seconds since this start; save_s: the training waited. */
    double train_s, eval_s, save_s;
    /* Seconds of the last checkpoint, which nothing overlaps. */
    double save_last_s;
    /* Seconds of checkpoints written while the training went on. */
    double write_s, write_cpu_s;
    double replica_s;   /* seconds of comparing the ranks' weights, without waits */
    int64_t first_step; /* steps done before this start */
    bool is_resumed;
    bool must_stop; /* agreed: a signal, or a time limit */
} sp_trainer;

/* ---- sp_resume.c ---- */

/* Collective: sets state and weights to begin with: new ones, those of init_from, or
 * those of the newest checkpoint. */
sp_status sp_resume_begin(sp_trainer *trainer);
/* True if the state has reached the epochs or steps that the deck asks for. */
bool sp_resume_is_complete(const sp_trainer *trainer);
/* Local, before the first step: starts the saver, which allocates its memory during the
 * first steps. Rank 0 alone does anything. */
void sp_resume_prepare(sp_trainer *trainer);
/* Collective: saves the present state as a checkpoint, which is written while the next
 * steps run; is_best: as best.h5 too. A failure to write is a warning. is_final:
 * returns when the file is written, and a failure is the run's (SP_EIO), agreed. */
sp_status sp_resume_save(sp_trainer *trainer, bool is_best, bool is_final);
/* Reports the result of a checkpoint that has been written since. At any
 * time; local. */
void sp_resume_poll(sp_trainer *trainer);

/* ---- sp_report.c: rank 0 prints and writes ----
 * Collective and agreed, except sp_report_step, which belongs to a step: the other
 * ranks return from it at once. */

/* Prints the log's first line: ranks, device, transport. */
void sp_report_machine(const sp_session *session);
/* Prints data, batch and network, and warnings about the deck. */
void sp_report_header(const sp_trainer *trainer);
/* Writes deck.resolved, the start or resume event and the status "running". */
sp_status sp_report_start(sp_trainer *trainer);
/* Writes the step event and prints one line; called for steps that are logged. */
sp_status sp_report_step(sp_trainer *trainer, const sp_step_report *step);
/* Prints the line of an epoch and updates the status. */
sp_status sp_report_epoch(sp_trainer *trainer, const sp_step_report *step);
/* Writes the end event and the status. state: "done" or "stopped"; message: the reason,
 * or "". */
sp_status sp_report_end(sp_trainer *trainer, const char *state, const char *message);
/* Warns where some ranks get no sample in a full step. Any rank may call; rank 0
 * prints. */
void sp_report_idle(const sp_session *session, const sp_sampler *sampler);
/* Writes the eval event of a training and prints one line. *bytes becomes the length of
 * metrics.jsonl. */
sp_status sp_report_eval(sp_session *session, const sp_metrics *metrics, int64_t epoch,
                         int64_t step, int64_t *bytes);
/* The same for `sptrain eval`: writes to evaluations.jsonl, with checkpoint, data and
 * arguments of the command. */
sp_status sp_report_evaluation(sp_session *session, const sp_metrics *metrics,
                               const char *checkpoint);
/* Prints the IoU of each class as a table. */
void sp_report_table(const sp_session *session, const sp_metrics *metrics);

#endif

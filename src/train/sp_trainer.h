/* State of a training run, shared by sp_train.c (steps and epochs), sp_resume.c
 * (checkpoints) and sp_report.c (console and metrics.jsonl). */
#ifndef SP_TRAINER_H
#define SP_TRAINER_H

#include "train/sp_evaluate.h"
#include "net/sp_metrics.h"
#include "run/sp_saver.h"
#include "train/sp_session.h"
#include "comm/sp_table.h"

/* What one optimizer step did; world values. */
typedef struct sp_step_report {
    int64_t step, samples; /* from 1; running total of samples */
    int64_t epoch;         /* from 0 */
    double loss;           /* NAN: no labelled voxel */
    double lr, grad_norm;
    double voxels;
    double step_s, data_wait_s, comm_exposed_s; /* the slowest rank's */
    int n_samples, n_micro;                     /* of this step */
    int64_t cost_max, cost_sum; /* sums over micro-batches, see sp_batch */
    bool is_end;                /* it was the epoch's last */
    bool is_skipped;            /* non-finite: weights unchanged */
} sp_step_report;

typedef struct sp_trainer {
    sp_session session;
    sp_sampler sampler, val_sampler; /* the loaders' planners deal by them */
    sp_loader *loader, *val_loader;  /* val_loader NULL: no evaluation */
    sp_buckets buckets;
    sp_optim optim;
    sp_metrics metrics;
    sp_table times;            /* of steps, over the ranks */
    sp_saver *saver;           /* rank 0, from the first step on */
    sp_checkpoint_state state; /* where the run stands; sp_resume.c writes it out */
    int64_t total_samples;     /* of the whole training */
    double base_lr;            /* train.lr scaled by train.lr_scale */
    double begin_s, step_begin_s;
    double train_s, eval_s, save_s; /* totals of this start; save_s: training waited */
    double save_last_s;          /* for the last checkpoint, with nothing beside it */
    double write_s, write_cpu_s; /* checkpoints written beside the training */
    double replica_s;            /* comparing the ranks' weights, without waits */
    int64_t first_step;          /* steps done before this start */
    bool is_resumed;
    bool must_stop; /* agreed: signal or time limit */
} sp_trainer;

/* ---- sp_resume.c ---- */

/* Collective: state and weights to begin with: fresh, init_from, or the newest
 * checkpoint. */
sp_status sp_resume_begin(sp_trainer *trainer);
/* True if the deck asks for no more than the state has. */
bool sp_resume_is_complete(const sp_trainer *trainer);
/* Local, before the first step: memory for checkpoints, found beside the first
 * steps. */
void sp_resume_prepare(sp_trainer *trainer);
/* Collective: checkpoint of the present state, written beside the next steps; is_best:
 * as best.h5 too. A failure to write is a warning. is_final: returns when it is
 * written, and a failure is the run's (SP_EIO), agreed. */
sp_status sp_resume_save(sp_trainer *trainer, bool is_best, bool is_final);
/* Say what became of a checkpoint under way; any time. Local. */
void sp_resume_poll(sp_trainer *trainer);

/* ---- sp_report.c: rank 0 prints and writes ----
 * Collective and agreed, but for sp_report_step, which is within a step: there the
 * others return at once. */

/* The log's first line: ranks, device, transport. */
void sp_report_machine(const sp_session *session);
void sp_report_header(const sp_trainer *trainer);
sp_status sp_report_start(sp_trainer *trainer);
sp_status sp_report_step(sp_trainer *trainer, const sp_step_report *step);
sp_status sp_report_epoch(sp_trainer *trainer, const sp_step_report *step);
/* state "done" or "stopped"; message "" or why. */
sp_status sp_report_end(sp_trainer *trainer, const char *state, const char *message);
/* Warns where ranks get no sample in a full step. Any rank may call; rank 0 prints. */
void sp_report_idle(const sp_session *session, const sp_sampler *sampler);
/* The eval event of a training and one line. metrics.jsonl's length in *bytes. */
sp_status sp_report_eval(sp_session *session, const sp_metrics *metrics, int64_t epoch,
                         int64_t step, int64_t *bytes);
/* The same of `sptrain eval`, into evaluations.jsonl, with what was asked for. */
sp_status sp_report_evaluation(sp_session *session, const sp_metrics *metrics,
                               const char *checkpoint);
/* Per-class IoU as a table. */
void sp_report_table(const sp_session *session, const sp_metrics *metrics);

#endif

/* A training run, from its set-up to its end.
 *
 *     sp_train.c      steps and epochs, and when to evaluate, save and stop
 *     sp_trainer.c    set-up and end: the parts that the steps need
 *     sp_times.h      the times of a step
 *     sp_resume.h     the beginning of a run, and its checkpoints
 *     sp_output.h     console and metrics.jsonl
 */
#ifndef SP_TRAINER_H
#define SP_TRAINER_H

#include "api/sp_evaluator.h"
#include "api/sp_learner.h"
#include "api/sp_step.h"
#include "checkpoint/sp_checkpoint.h"
#include "net/sp_metrics.h"
#include "report/sp_progress.h"
#include "train/sp_session.h"
#include "train/sp_times.h"

/* The report of one optimizer step. */
typedef struct sp_step_report {
    int64_t step, samples; /* step: number from 1; samples: running total */
    int64_t epoch;         /* number from 0 */
    sp_rates rates;
    /* Seconds of the step and of its parts, and of building plans meanwhile; of the
     * slowest rank once it is logged. The parts are NAN if the host does not wait
     * for the device. */
    double step_s, forward_s, backward_s, update_s, plan_s;
    /* Bytes in use on the device, or of the process on the host; set if the step is
     * logged: the greatest of the ranks. NAN: not known. */
    double memory_bytes;
    bool is_end;           /* the step was the last of its epoch */
    sp_step_result result; /* its waits: the slowest rank's once it is logged */
} sp_step_report;

typedef struct sp_trainer {
    sp_session session;
    sp_device device;
    sp_data_sets data;
    sp_network network;
    sp_learner learner;
    sp_evaluator evaluator;
    sp_budgets budgets;
    sp_metrics metrics;  /* results of the latest evaluation */
    sp_metrics averaged; /* with train.ema: the averaged weights' */
    sp_metrics *sets; /* [n_val_sets] of data.val_sets; NULL: there are no such sets */
    sp_times times;
    /* Rank 0, from the first step on; else NULL (sp_resume.h). */
    struct sp_saver *saver;
    sp_checkpoint_state state; /* present position of the run; sp_resume.c saves it */

    /* The plan of the training, fixed once it is set up. */
    bool is_evaluated;     /* epochs end with an evaluation on data.val */
    int64_t total_samples; /* samples of the training; INT64_MAX: too many to count */

    sp_pace pace;        /* samples a second of the training steps */
    double drawn_s;      /* when the live line was drawn */
    double memory_bytes; /* in use in the latest step that was logged */
    double score;        /* mean IoU of the latest evaluation; NAN before the first */
    int64_t n_evals;     /* evaluations since this start */
    int64_t first_epoch; /* from 0; this start began in it */

    double begin_s; /* when the program began, by sp_now_s */
    /* Seconds since this start; save_s: the training waited. */
    double train_s, eval_s, save_s;
    /* Sums over the steps with a finite loss since the epoch, or within it this start,
     * began: the loss times its weight, and the weight. */
    double loss_sum, weight_sum;
    double pictures_s; /* the part of eval_s that pictures of samples took */
    /* Seconds of the last checkpoint, which nothing overlaps. */
    double save_last_s;
    /* Seconds of checkpoints written while the training went on. */
    double write_s, write_cpu_s;
    double replica_s;   /* seconds of comparing the ranks' weights, without waits */
    int64_t first_step; /* steps done before this start */
    bool is_resumed;
    bool must_stop; /* agreed: a signal, or a time limit */
} sp_trainer;

/* Collective, agreed: opens the parts of a training and finds its first step. The
 * trainer need not be zeroed; sp_trainer_close follows in any case. */
sp_status sp_trainer_open(sp_trainer *trainer, const sp_command *command);
/* Collective, agreed: the loader begins, and the start is written to the log and the
 * run folder. To be called once, before the first step. */
sp_status sp_trainer_begin(sp_trainer *trainer);
/* Steps of the whole training; INT64_MAX: too many to count. */
int64_t sp_trainer_steps(const sp_trainer *trainer);
/* Estimated seconds that the training will still need, evaluations included; NAN: not
 * known. Local. */
double sp_trainer_left_s(const sp_trainer *trainer);
/* Collective, agreed: compares the weights of all ranks. SP_ENUMERIC names those that
 * differ. */
sp_status sp_trainer_check_replicas(sp_trainer *trainer);
/* Local: reports rc (see sp_session_report), frees everything and returns rc. */
sp_status sp_trainer_close(sp_trainer *trainer, sp_status rc);

#endif

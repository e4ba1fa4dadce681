/* A training run, from its set-up to its end.
 *
 *     sp_train.c      steps and epochs, and when to evaluate, save and stop
 *     sp_trainer.c    set-up and end; what the steps need to know of the resources
 *     sp_resume.h     the beginning of a run, and its checkpoints
 *     sp_report.h     console and metrics.jsonl
 */
#ifndef SP_TRAINER_H
#define SP_TRAINER_H

#include "comm/sp_table.h"
#include "net/sp_metrics.h"
#include "run/sp_checkpoint.h"
#include "session/sp_session.h"
#include "session/sp_step.h"

/* One optimizer step as it is reported. */
typedef struct sp_step_report {
    int64_t step, samples; /* step: number from 1; samples: running total */
    int64_t epoch;         /* number from 0 */
    double lr;             /* learning rate */
    double step_s;         /* seconds; of the slowest rank once it is logged */
    bool is_end;           /* the step was the last of its epoch */
    sp_step_result result; /* its waits: those of the slowest rank once it is logged */
} sp_step_report;

typedef struct sp_trainer {
    struct sp_resources *resources; /* owned */
    sp_session *session;            /* that of the resources */
    sp_metrics metrics;             /* of the latest evaluation */
    sp_table times;                 /* times of steps, over the ranks */
    struct sp_saver
        *saver; /* rank 0, from the first step on; else NULL (sp_resume.h) */
    sp_checkpoint_state state; /* present position of the run; sp_resume.c saves it */

    /* The plan of the training, fixed once it is set up. */
    bool is_evaluated;     /* epochs end with an evaluation on data.val */
    int64_t step_samples;  /* of a full step, in the world */
    int64_t epoch_samples; /* of the training set */
    int64_t total_samples; /* of the whole training; INT64_MAX: too many to count */

    double begin_s; /* when the program began, by sp_now_s */
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

/* The times of a step that are reduced over the ranks. */
enum { SP_TIME_STEP, SP_TIME_DATA_WAIT, SP_TIME_COMM_EXPOSED, SP_TIMES };

/* Collective, agreed: opens the resources of a training and finds out where it begins.
 * sp_trainer_close follows in any case. SP_EMEM if there is no memory for the trainer
 * itself; else errors of the parts. */
sp_status sp_trainer_open(sp_trainer **trainer, const sp_command *command);
/* Collective, agreed: the loader begins, and the log and the run folder tell of the
 * start. To be called once, before the first step. */
sp_status sp_trainer_begin(sp_trainer *trainer);
/* Learning rate of the next step. */
double sp_trainer_lr(const sp_trainer *trainer);
/* Collective, agreed: compares the weights of all ranks. SP_ENUMERIC names those that
 * differ. */
sp_status sp_trainer_check_replicas(sp_trainer *trainer);
/* Reports rc (see sp_session_report), frees everything and returns rc. */
sp_status sp_trainer_close(sp_trainer *trainer, sp_status rc);

#endif

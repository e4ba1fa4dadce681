/* The outputs of this rank, which a thread writes while the network computes.
 *
 *     label_writer_make   a job: the result of a scan, or of the rows of it that this
 *                         rank writes, which the caller opens and sizes
 *     label_writer_push   the thread writes rows as far as they are placed, once the
 *                         outputs before are done
 *     label_result_place  the caller places labelled rows (label_result.h)
 *     label_result_complete  the caller places no more: all rows are final
 *
 * The results of at most LABEL_WRITER_JOBS scans are in memory. */
#ifndef LABEL_WRITER_H
#define LABEL_WRITER_H

#include "base/sp_task.h"
#include "label/label_result.h"

enum { LABEL_WRITER_JOBS = 2, LABEL_ALL_SCANS = -1 };

typedef enum label_step {
    LABEL_WHOLE, /* all rows --> output */
    LABEL_PART,  /* this rank's rows --> temporary file */
    LABEL_JOIN   /* temporary files of all ranks --> output; the result has no rows */
} label_step;

typedef struct label_job {
    int scan;
    label_step step;
    label_result result;
    struct label_job *next;
} label_job;

typedef struct label_writer {
    /* Does a job. Called by the thread. */
    sp_status (*write)(void *arg, const label_job *job);
    void *arg;
    label_job *first; /* the one that is being written, and the others in order */
    int n_held;       /* of these, jobs with rows */
    bool is_ending, has_failed;
    sp_error_record error; /* where has_failed */
    sp_task task;
    pthread_mutex_t lock;
    pthread_cond_t change;
} label_writer;

/* Starts the thread. SP_EMEM. It must not be moved; close it in any case. */
sp_status label_writer_open(label_writer *writer,
                            sp_status (*write)(void *arg, const label_job *job),
                            void *arg);
/* Ends the thread: outputs that are not done are given up. */
void label_writer_close(label_writer *writer);
/* Makes a job with an empty result. SP_EMEM. It is pushed or freed. */
sp_status label_writer_make(label_job **job, int scan, label_step step);
void label_writer_free(label_job *job);
/* Hands a job over; its result already has its size. The caller may place rows in the
 * result until it calls label_result_complete, which it does unless it closes the
 * writer. Waits until there is room. Failures of earlier outputs; SP_EMEM: the job is
 * still the caller's. */
sp_status label_writer_push(label_writer *writer, label_job *job);
/* Returns the failure of an output, or SP_OK, without waiting. */
sp_status label_writer_check(label_writer *writer);
/* Waits until no job of this scan is left; LABEL_ALL_SCANS: until all outputs are
 * complete. Failures of any. */
sp_status label_writer_wait(label_writer *writer, int scan);

#endif

/* Samples that a thread makes while the network computes on the one before.
 *
 *     thread   job 0 --make--> slot 0, job 1 --make--> slot 1, waits, job 2 --> slot 0
 *     caller   label_ahead_next --> slot 0 ... label_ahead_next gives slot 0 back
 */
#ifndef LABEL_AHEAD_H
#define LABEL_AHEAD_H

#include "base/sp_task.h"
#include "scan/sp_gridding.h"

enum { LABEL_AHEAD_NAME = 4096, LABEL_AHEAD_SLOTS = 2 };

/* A sample with what else is kept of its points. Its memory is used again. */
typedef struct label_sample {
    char name[LABEL_AHEAD_NAME]; /* for messages */
    /* The whole scan is damaged, as this says, and there is no sample; else "". */
    char fault[SP_ERROR_MESSAGE];
    sp_grid grid;     /* grid.sample is the sample */
    int64_t n_points; /* points that it was made of, with the margins' points */
    int64_t n_rows;   /* of a whole scan, also rows without a point */
    /* [grid.sample.n_points] 1: the point keeps its code; twice the cell of the map
     * (label_raster.h) that it lies in */
    uint32_t *mark;
    size_t mark_room;
} label_sample;

/* The samples that the thread makes. */
typedef struct label_ahead_jobs {
    int64_t n;
    /* Makes the sample of job k. Called by the thread. */
    sp_status (*make)(void *arg, int64_t k, label_sample *sample);
    /* Job k is not to be begun while the caller holds a sample, as the memory of both
     * might be too much; NULL: no job is such. */
    bool (*is_large)(void *arg, int64_t k);
    void *arg;
} label_ahead_jobs;

typedef struct label_ahead {
    label_ahead_jobs jobs;
    label_sample slot[LABEL_AHEAD_SLOTS];
    int64_t n_made, n_taken, n_released;
    bool is_ending, has_failed;
    sp_task task;
    pthread_mutex_t lock;
    pthread_cond_t change;
} label_ahead;

/* Makes it ready; nothing is made yet. It must not be moved. Destroy it in any case
 * after this. */
void label_ahead_create(label_ahead *ahead);
void label_ahead_destroy(label_ahead *ahead);
/* Begins with job 0. SP_EMEM. Stop it in any case. */
sp_status label_ahead_start(label_ahead *ahead, const label_ahead_jobs *jobs);
/* Gives the sample before back and waits for the next one, in the order of the jobs;
 * there is one. Returns what its make returned. */
sp_status label_ahead_next(label_ahead *ahead, label_sample **sample);
/* Ends the thread, after the job that it is at; no sample is valid any more. */
void label_ahead_stop(label_ahead *ahead);

#endif

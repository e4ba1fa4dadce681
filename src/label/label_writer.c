#include "label/label_writer.h"

#include <stdlib.h>

#include "base/sp_list.h"

sp_status label_writer_make(label_job **job, int scan, label_step step)
{
    SP_TRY(SP_NEW(job, 1, "a scan"));
    (*job)->scan = scan;
    (*job)->step = step;
    return SP_OK;
}

void label_writer_free(label_job *job)
{
    if (job)
        label_result_free(&job->result);
    free(job);
}

/* ---- the thread ---- */

/* Notes the outcome, so that the caller can meet a failure before the job is complete.
 */
static void note(label_writer *w, sp_status rc)
{
    pthread_mutex_lock(&w->lock);
    if (rc != SP_OK && !w->has_failed) {
        w->has_failed = true;
        sp_error_save(&w->error);
    }
    pthread_mutex_unlock(&w->lock);
}

/* Removes the first job, once its result is complete. */
static void remove_first(label_writer *w)
{
    label_job *job = w->first;

    label_result_wait(&job->result);
    pthread_mutex_lock(&w->lock);
    w->first = job->next;
    w->n_held -= job->result.n > 0;
    pthread_cond_broadcast(&w->change);
    pthread_mutex_unlock(&w->lock);
    label_writer_free(job);
}

/* Waits for a job; NULL: no job will come. */
static label_job *next_job(label_writer *w, bool *has_failed)
{
    label_job *job;

    pthread_mutex_lock(&w->lock);
    while (!w->first && !w->is_ending)
        pthread_cond_wait(&w->change, &w->lock);
    job = w->first;
    *has_failed = w->has_failed;
    pthread_mutex_unlock(&w->lock);
    return job;
}

static sp_status write_all(void *arg)
{
    label_writer *w = arg;
    label_job *job;
    bool has_failed;

    while ((job = next_job(w, &has_failed))) {
        if (!has_failed)
            note(w, w->write(w->arg, job));
        remove_first(w);
    }
    return SP_OK;
}

/* ---- the caller ---- */

sp_status label_writer_open(label_writer *w,
                            sp_status (*write)(void *arg, const label_job *job),
                            void *arg)
{
    *w = (label_writer){.write = write, .arg = arg};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->change, NULL);
    return sp_task_start(&w->task, write_all, w);
}

void label_writer_close(label_writer *w)
{
    if (!w->write)
        return;
    pthread_mutex_lock(&w->lock);
    w->is_ending = true;
    for (label_job *job = w->first; job; job = job->next)
        label_result_give_up(&job->result);
    pthread_cond_broadcast(&w->change);
    pthread_mutex_unlock(&w->lock);
    sp_task_drop(&w->task);
    pthread_cond_destroy(&w->change);
    pthread_mutex_destroy(&w->lock);
    *w = (label_writer){0};
}

sp_status label_writer_push(label_writer *w, label_job *job)
{
    label_job **last = &w->first;

    SP_TRY(label_writer_check(w));
    SP_TRY(label_result_share(&job->result));
    pthread_mutex_lock(&w->lock);
    while (job->result.n > 0 && w->n_held >= LABEL_WRITER_JOBS)
        pthread_cond_wait(&w->change, &w->lock);
    while (*last)
        last = &(*last)->next;
    *last = job;
    w->n_held += job->result.n > 0;
    pthread_cond_broadcast(&w->change);
    pthread_mutex_unlock(&w->lock);
    return SP_OK;
}

sp_status label_writer_check(label_writer *w)
{
    bool has_failed;

    pthread_mutex_lock(&w->lock);
    has_failed = w->has_failed;
    pthread_mutex_unlock(&w->lock);
    return has_failed ? sp_error_raise(&w->error) : SP_OK;
}

static bool has_job(const label_writer *w, int scan)
{
    for (const label_job *job = w->first; job; job = job->next)
        if (job->scan == scan || scan == LABEL_ALL_SCANS)
            return true;
    return false;
}

sp_status label_writer_wait(label_writer *w, int scan)
{
    pthread_mutex_lock(&w->lock);
    while (has_job(w, scan))
        pthread_cond_wait(&w->change, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return label_writer_check(w);
}

#include "label/label_ahead.h"

#include <assert.h>
#include <stdlib.h>

void label_ahead_create(label_ahead *a)
{
    *a = (label_ahead){0};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->change, NULL);
}

void label_ahead_destroy(label_ahead *a)
{
    label_ahead_stop(a);
    for (int i = 0; i < LABEL_AHEAD_SLOTS; i++) {
        sp_grid_destroy(&a->slot[i].grid);
        free(a->slot[i].mark);
    }
    pthread_cond_destroy(&a->change);
    pthread_mutex_destroy(&a->lock);
}

/* ---- the thread ---- */

static bool must_wait(const label_ahead *a, int64_t k)
{
    const label_ahead_jobs *jobs = &a->jobs;
    const int64_t held = k - a->n_released; /* slots with samples */

    return held == LABEL_AHEAD_SLOTS ||
           (held > 0 && jobs->is_large && jobs->is_large(jobs->arg, k));
}

/* Waits for a free slot; false: it is to end. */
static bool wait_for_slot(label_ahead *a, int64_t k)
{
    bool is_ending;

    pthread_mutex_lock(&a->lock);
    while (!a->is_ending && must_wait(a, k))
        pthread_cond_wait(&a->change, &a->lock);
    is_ending = a->is_ending;
    pthread_mutex_unlock(&a->lock);
    return !is_ending;
}

static sp_status make_all(void *arg)
{
    label_ahead *a = arg;
    sp_status rc = SP_OK;

    for (int64_t k = 0; rc == SP_OK && k < a->jobs.n && wait_for_slot(a, k); k++) {
        rc = a->jobs.make(a->jobs.arg, k, &a->slot[k % LABEL_AHEAD_SLOTS]);
        pthread_mutex_lock(&a->lock);
        a->n_made += rc == SP_OK;
        a->has_failed = rc != SP_OK;
        pthread_cond_broadcast(&a->change);
        pthread_mutex_unlock(&a->lock);
    }
    return rc;
}

/* ---- the caller ---- */

sp_status label_ahead_start(label_ahead *a, const label_ahead_jobs *jobs)
{
    assert(!a->task.is_started);
    a->jobs = *jobs;
    a->n_made = a->n_taken = a->n_released = 0;
    a->is_ending = a->has_failed = false;
    return jobs->n > 0 ? sp_task_start(&a->task, make_all, a) : SP_OK;
}

sp_status label_ahead_next(label_ahead *a, label_sample **sample)
{
    bool is_made;

    assert(a->n_taken < a->jobs.n);
    pthread_mutex_lock(&a->lock);
    a->n_released = a->n_taken;
    pthread_cond_broadcast(&a->change);
    while (a->n_made == a->n_taken && !a->has_failed)
        pthread_cond_wait(&a->change, &a->lock);
    is_made = a->n_made > a->n_taken;
    *sample = &a->slot[a->n_taken % LABEL_AHEAD_SLOTS];
    a->n_taken += is_made;
    pthread_mutex_unlock(&a->lock);
    return is_made ? SP_OK : sp_task_join(&a->task);
}

void label_ahead_stop(label_ahead *a)
{
    pthread_mutex_lock(&a->lock);
    a->is_ending = true;
    pthread_cond_broadcast(&a->change);
    pthread_mutex_unlock(&a->lock);
    sp_task_drop(&a->task);
}

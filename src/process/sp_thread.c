#include "process/sp_thread.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>

int sp_thread_start(pthread_t *thread, void *(*work)(void *arg), void *arg)
{
    sigset_t most, before;
    int failed;

    assert(thread && work);
    sigfillset(&most);
    sigdelset(&most, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &most, &before); /* a new thread inherits the mask */
    failed = pthread_create(thread, NULL, work, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

/* Waits until all threads that could be started are there. */
static void *stay(void *arg)
{
    pthread_mutex_t *all_there = arg;

    pthread_mutex_lock(all_there);
    pthread_mutex_unlock(all_there);
    return NULL;
}

int sp_thread_try(int n)
{
    pthread_mutex_t all_there = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *thread = calloc((size_t)n, sizeof *thread);
    int started = 0;

    assert(n > 0);
    pthread_mutex_lock(&all_there);
    while (thread && started < n &&
           sp_thread_start(&thread[started], stay, &all_there) == 0)
        started++;
    pthread_mutex_unlock(&all_there);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    free(thread);
    return started;
}

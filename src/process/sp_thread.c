#include "process/sp_thread.h"

#include <assert.h>
#include <signal.h>

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

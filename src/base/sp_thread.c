#include "base/sp_thread.h"

#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>

#include "base/sp_log.h"
#include "base/sp_machine.h"

/* malloc of glibc reserves 64 to 128 MiB of addresses for each thread that uses it, too
 * much under a limit of addresses: of 1.5 GB, ten threads reserved nearly all that the
 * arenas had left. Then all threads share the first one's. */
static void share_addresses(void)
{
#ifdef M_ARENA_MAX
    if (sp_machine_address_space() != SIZE_MAX)
        mallopt(M_ARENA_MAX, 1);
#endif
}

/* The work of a thread. It logs to the same place as the thread that started it. */
typedef struct thread_start {
    void *(*work)(void *arg);
    void *arg;
    const sp_log_route *route;
} thread_start;

static void *thread_main(void *arg)
{
    const thread_start start = *(thread_start *)arg;

    free(arg);
    sp_log_set_route(start.route);
    return start.work(start.arg);
}

int sp_thread_start(pthread_t *thread, void *(*work)(void *arg), void *arg)
{
    thread_start *start = malloc(sizeof *start);
    sigset_t most, before;
    int failed;

    assert(thread && work);
    if (!start)
        return ENOMEM;
    *start = (thread_start){work, arg, sp_log_current_route()};
    share_addresses();
    sigfillset(&most);
    sigdelset(&most, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &most, &before); /* a new thread inherits the mask */
    failed = pthread_create(thread, NULL, thread_main, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        free(start);
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

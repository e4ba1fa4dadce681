#include "base/sp_thread.h"

#include <assert.h>
#include <limits.h>
#include <malloc.h>
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_machine.h"

/* malloc of glibc takes 64 to 128 MiB of addresses for each thread that uses it, which
 * a limit of addresses does not have: of 1.5 GB, ten threads took nearly all that the
 * arenas had left. All threads share the first one's then. */
static void share_addresses(void)
{
#ifdef M_ARENA_MAX
    if (sp_machine_address_space() != SIZE_MAX)
        mallopt(M_ARENA_MAX, 1);
#endif
}

int sp_thread_start(pthread_t *thread, void *(*work)(void *arg), void *arg)
{
    sigset_t most, before;
    int failed;

    assert(thread && work);
    share_addresses();
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

void sp_thread_wait_asleep(char **argv)
{
    enum { MOST_CORES = 16 };
    uint64_t set[SP_CORE_WORDS];
    const int cores = sp_machine_cores(set);
    char own[PATH_MAX];

    if (sp_machine_has_valgrind())
        return; /* it would not look at the program that is executed */
    if (omp_get_thread_limit() < 2 || cores < 2 || cores > MOST_CORES ||
        getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") ||
        getenv("KMP_BLOCKTIME") || setenv("OMP_WAIT_POLICY", "passive", 1) != 0)
        return;
    /* executed by its name, which ps and pkill show */
    execv(sp_file_of_program(own), argv);
}

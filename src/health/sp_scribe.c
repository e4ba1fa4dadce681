#include "health/sp_scribe.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/sp_list.h"
#include "base/sp_thread.h"

enum { PATIENCE_S = 5 };

struct sp_scribe {
    const sp_heartbeats *beats;
    int rank;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t changed;
    int64_t work, waits;
    bool is_new, is_ending;
};

static void *scribe_main(void *arg)
{
    sp_scribe *s = arg;

    pthread_mutex_lock(&s->lock);
    for (;;) {
        int64_t work = s->work, waits = s->waits;

        if (!s->is_new && s->is_ending)
            break;
        if (!s->is_new) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        s->is_new = false;
        pthread_mutex_unlock(&s->lock);
        sp_heartbeat_put_signs(s->beats, s->rank, work, waits);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

sp_status sp_scribe_start(sp_scribe **scribe, const sp_heartbeats *beats, int rank)
{
    sp_scribe *s;
    int failed;

    assert(beats && rank >= 0);
    *scribe = NULL;
    SP_TRY(SP_NEW(&s, 1, "the thread that writes heartbeats"));
    s->beats = beats;
    s->rank = rank;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    failed = sp_thread_start(&s->thread, scribe_main, s);
    if (failed) {
        free(s);
        return SP_FAIL(SP_EMEM, "cannot start the thread that writes heartbeats: %s",
                       strerror(failed));
    }
    *scribe = s;
    return SP_OK;
}

void sp_scribe_write(sp_scribe *s, int64_t work, int64_t waits)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->work = work;
    s->waits = waits;
    s->is_new = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void sp_scribe_stop(sp_scribe *s)
{
    struct timespec until;

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->is_ending = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    if (pthread_timedjoin_np(s->thread, NULL, &until) != 0)
        return; /* the thread still uses its memory */
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}

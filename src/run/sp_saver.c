#include "run/sp_saver.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_file.h"
#include "base/sp_log.h"
#include "process/sp_fault.h"
#include "process/sp_thread.h"

typedef enum saver_state { SAVER_IDLE, SAVER_BUSY, SAVER_DONE } saver_state;

struct sp_saver {
    sp_run *run;
    const sp_net *net;
    const sp_normalization *norm;
    const sp_optim *from;
    int keep;
    char dir[PATH_MAX - 64];
    float *param, *running; /* the reserve */
    sp_optim optim;         /* its kept values are part of the reserve */
    sp_checkpoint_state state;
    bool is_best;
    sp_saved saved;
    double begin_s;
    pthread_t thread;
    bool is_started, is_ending;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t changed;
    saver_state phase;
};

/* ---- saver thread ---- */

/* Gives the step's file as a second name (hard link) to best.h5, so that it needs no
 * second copy. False where the file system has no hard links. */
static bool link_best(const char *best, const char *path)
{
    char temporary[PATH_MAX + 16];

    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    unlink(temporary);
    if (link(best, temporary) != 0)
        return false;
    return rename(temporary, path) == 0 && sp_file_sync_folder_of(path) == SP_OK;
}

static sp_status write_to(sp_saver *s, const char *path)
{
    return sp_checkpoint_write(path, s->net->graph, &s->state, s->norm, s->param,
                               s->running, &s->optim);
}

/* A file of weights that are not finite would push out the last good one. */
static sp_status check_weights(const sp_saver *s)
{
    char fault[SP_CHECKPOINT_FAULT];

    sp_checkpoint_find_fault(s->net->graph, s->param, s->running, fault);
    if (!fault[0])
        return SP_OK;
    return SP_FAIL(SP_ENUMERIC,
                   "%s: %s: the training has diverged (train.lr, train.grad_clip)",
                   s->saved.path, fault);
}

static sp_status write_all(sp_saver *s)
{
    char best[PATH_MAX];

    SP_TRY(check_weights(s));
    snprintf(best, sizeof best, "%s/best.h5", s->dir);
    SP_TRY(sp_file_make_folder(s->dir));
    /* The checkpoint stores the length of this file. */
    SP_TRY(sp_run_sync_metrics(s->run));
    /* best.h5 is written first. A run killed between the two files continues from the
     * previous checkpoint and finds the best weights again; in the other order it would
     * continue from this step as if best.h5 were there. */
    if (s->is_best)
        SP_TRY(write_to(s, best));
    if (!s->is_best || !link_best(best, s->saved.path))
        SP_TRY(write_to(s, s->saved.path));
    sp_fault_at("linked", s->state.step);
    return sp_checkpoint_prune(s->dir, s->keep);
}

static void save(sp_saver *s)
{
    double begin_cpu_s = sp_clock_s(CLOCK_THREAD_CPUTIME_ID);

    s->saved.rc = write_all(s);
    if (s->saved.rc != SP_OK)
        sp_error_save(&s->saved.error);
    s->saved.write_s = sp_now_s() - s->begin_s;
    s->saved.cpu_s = sp_clock_s(CLOCK_THREAD_CPUTIME_ID) - begin_cpu_s;
}

static void touch(float *reserve, int64_t n)
{
    if (reserve)
        memset(reserve, 0, (size_t)n * sizeof *reserve);
}

/* Writes to every page of the reserve, since the system allocates a page at its first
 * store. The saver thread does so during the first steps; otherwise the training would
 * wait for it during the first copy. */
static void touch_reserve(sp_saver *s)
{
    const sp_graph *graph = s->net->graph;

    touch(s->param, graph->n_floats);
    for (int i = 0; i < SP_N_KEPT; i++)
        touch(s->optim.kept[i], graph->n_floats);
    touch(s->running, graph->n_buffer_floats);
}

static void *saver_main(void *arg)
{
    sp_saver *s = arg;

    touch_reserve(s);
    pthread_mutex_lock(&s->lock);
    s->phase = SAVER_IDLE;
    pthread_cond_broadcast(&s->changed);
    while (!s->is_ending || s->phase == SAVER_BUSY) {
        if (s->phase != SAVER_BUSY) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        save(s);
        pthread_mutex_lock(&s->lock);
        s->phase = SAVER_DONE;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- start and end ---- */

static float *reserve(const float *like, int64_t n, bool *is_short)
{
    float *copy = like ? malloc((size_t)n * sizeof *copy + 1) : NULL;

    *is_short = *is_short || (like && !copy);
    return copy;
}

static sp_status make_reserve(sp_saver *s)
{
    const sp_graph *graph = s->net->graph;
    bool is_short = false;

    s->param = reserve(s->net->param, graph->n_floats, &is_short);
    s->running = reserve(s->net->running, graph->n_buffer_floats, &is_short);
    s->optim = *s->from;
    for (int i = 0; i < SP_N_KEPT; i++)
        s->optim.kept[i] = reserve(s->from->kept[i], graph->n_floats, &is_short);
    return is_short
               ? SP_FAIL(SP_EMEM,
                         "no memory for the copy that a checkpoint is written from")
               : SP_OK;
}

static sp_status start_thread(sp_saver *s)
{
    const int failed = sp_thread_start(&s->thread, saver_main, s);

    if (failed)
        return SP_FAIL(SP_EMEM, "cannot start the saver's thread: %s",
                       strerror(failed));
    s->is_started = true;
    return SP_OK;
}

sp_status sp_saver_create(sp_saver **saver, sp_run *run, const sp_net *net,
                          const sp_optim *optim, const sp_normalization *norm, int keep)
{
    sp_saver *s = calloc(1, sizeof *s);

    assert(run && net && optim);
    assert(keep > 0);
    *saver = s;
    if (!s)
        return SP_FAIL(SP_EMEM, "no memory for the thread that saves");
    s->run = run;
    s->net = net;
    s->from = optim;
    s->norm = norm;
    s->keep = keep;
    snprintf(s->dir, sizeof s->dir, "%s/checkpoints", run->dir);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->phase = SAVER_BUSY; /* the thread first touches the reserve */
    SP_TRY(make_reserve(s));
    SP_TRY(start_thread(s));
    return SP_OK;
}

void sp_saver_destroy(sp_saver *s)
{
    if (!s)
        return;
    if (s->is_started) {
        pthread_mutex_lock(&s->lock);
        s->is_ending = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s->param);
    free(s->running);
    for (int i = 0; i < SP_N_KEPT; i++)
        free(s->optim.kept[i]);
    sp_checkpoint_state_destroy(&s->state);
    free(s);
}

/* ---- training thread ---- */

static sp_status copy_floats(sp_saver *s, float *to, const float *from, int64_t n)
{
    sp_backend *backend = s->net->backend;

    if (!to)
        return SP_OK;
    return backend->ops->download(backend, to, from, (size_t)n * sizeof *to);
}

static sp_status take_snapshot(sp_saver *s)
{
    const sp_graph *graph = s->net->graph;

    SP_TRY(copy_floats(s, s->param, s->net->param, graph->n_floats));
    for (int i = 0; i < SP_N_KEPT; i++)
        SP_TRY(copy_floats(s, s->optim.kept[i], s->from->kept[i], graph->n_floats));
    SP_TRY(copy_floats(s, s->running, s->net->running, graph->n_buffer_floats));
    s->optim.t = s->from->t;
    return SP_OK;
}

sp_status sp_saver_post(sp_saver *s, const sp_checkpoint_state *state, bool is_best)
{
    char *deck = strdup(state->deck);

    assert(state->deck);
    if (!deck)
        return SP_FAIL(SP_EMEM, "no memory for the deck of a checkpoint");
    free(s->state.deck);
    s->state = *state;
    s->state.deck = deck;
    s->is_best = is_best;
    memset(&s->saved, 0, sizeof s->saved);
    s->saved.step = state->step;
    snprintf(s->saved.path, sizeof s->saved.path, "%s/step-%09lld.h5", s->dir,
             (long long)state->step);
    SP_TRY(take_snapshot(s));
    s->begin_s = sp_now_s();
    pthread_mutex_lock(&s->lock);
    s->phase = SAVER_BUSY;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return SP_OK;
}

bool sp_saver_collect(sp_saver *s, bool is_waiting, sp_saved *saved)
{
    bool is_done;

    assert(saved);
    pthread_mutex_lock(&s->lock);
    while (is_waiting && s->phase == SAVER_BUSY)
        pthread_cond_wait(&s->changed, &s->lock);
    is_done = s->phase == SAVER_DONE;
    if (is_done) {
        *saved = s->saved;
        s->phase = SAVER_IDLE;
    }
    pthread_mutex_unlock(&s->lock);
    return is_done;
}

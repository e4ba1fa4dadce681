#include "run/sp_saver.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_fault.h"
#include "base/sp_file.h"
#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "base/sp_log.h"
#include "base/sp_thread.h"

typedef enum saver_state { SAVER_IDLE, SAVER_BUSY, SAVER_DONE } saver_state;

struct sp_saver {
    sp_run *run;
    const sp_net *net;
    const sp_normalization *norm;
    const sp_optim *from;
    int keep;
    char dir[PATH_MAX - 64];
    /* Parameters and kept values belong to the network and the optimizer; they are not
     * copies. */
    bool is_lent;
    float *param, *running; /* the arrays that are written */
    sp_optim optim;         /* its kept values are written too */
    sp_checkpoint_state state;
    bool is_best;
    sp_saved saved;
    double begin_s;
    pthread_t thread;
    bool is_started, is_ending;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t changed;
    saver_state phase;
    bool is_reading; /* the lent arrays have not been written yet */
};

/* ---- saver thread ---- */

/* Lets the training thread change the arrays. */
static void end_reading(void *saver)
{
    sp_saver *s = saver;

    pthread_mutex_lock(&s->lock);
    s->is_reading = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Makes best.h5 a hard link to the step's file, so that no second copy is needed. False
 * if the file system has no hard links. */
static bool link_best(const char *best, const char *path)
{
    char temporary[PATH_MAX + 16];

    snprintf(temporary, sizeof temporary, "%s" SP_FILE_UNFINISHED, path);
    unlink(temporary);
    if (link(best, temporary) != 0)
        return false;
    return sp_file_rename(temporary, path) == SP_OK;
}

/* is_last: no other file is written from the arrays. */
static sp_status write_to(sp_saver *s, const char *path, bool is_last)
{
    const sp_checkpoint_arrays arrays = {.param = s->param,
                                         .running = s->running,
                                         .optim = &s->optim,
                                         .on_written = is_last ? end_reading : NULL,
                                         .arg = s};

    return sp_checkpoint_write(path, s->net->graph, &s->state, s->norm, &arrays);
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

static sp_status saver_write_all(sp_saver *s)
{
    char best[PATH_MAX];

    SP_TRY(check_weights(s));
    snprintf(best, sizeof best, "%s/best.h5", s->dir);
    SP_TRY(sp_file_make_folder(s->dir));
    /* The checkpoint stores the length of metrics.jsonl. */
    SP_TRY(sp_run_sync_metrics(s->run));
    /* best.h5 is written first. A run killed between the two files continues from the
     * previous checkpoint and finds the best weights again; in the other order it would
     * continue from this step as if best.h5 were there. */
    if (s->is_best) {
        SP_TRY(write_to(s, best, false));
        s->saved.best = s->state.best;
    }
    if (!s->is_best || !link_best(best, s->saved.path))
        SP_TRY(write_to(s, s->saved.path, true));
    end_reading(s);
    sp_fault_at("linked", s->state.step);
    return sp_checkpoint_prune(s->dir, s->keep);
}

static void save(sp_saver *s)
{
    double begin_cpu_s = sp_clock_s(CLOCK_THREAD_CPUTIME_ID);

    sp_liveness_file_begin();
    s->saved.rc = saver_write_all(s);
    sp_liveness_file_end();
    if (s->saved.rc != SP_OK)
        sp_error_save(&s->saved.error);
    end_reading(s); /* after a failure too */
    s->saved.write_s = sp_now_s() - s->begin_s;
    s->saved.cpu_s = sp_clock_s(CLOCK_THREAD_CPUTIME_ID) - begin_cpu_s;
}

static void touch(float *copy, int64_t n)
{
    if (copy)
        memset(copy, 0, (size_t)n * sizeof *copy);
}

/* Writes to every page of the copies, since the system allocates a page at its first
 * store. The saver thread does so during the first steps; otherwise the training would
 * wait for it during the first copy. */
static void touch_copies(sp_saver *s)
{
    const sp_graph *graph = s->net->graph;

    touch(s->running, graph->n_buffer_floats);
    if (s->is_lent)
        return;
    touch(s->param, graph->n_floats);
    for (int i = 0; i < SP_N_OPTIM_STATES; i++)
        touch(s->optim.state[i], sp_optim_state_floats(graph, i));
}

static void *saver_main(void *arg)
{
    sp_saver *s = arg;

    touch_copies(s);
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

static float *room_for(const float *array, int64_t n, bool *is_short)
{
    float *copy = array ? malloc((size_t)n * sizeof *copy + 1) : NULL;

    *is_short = *is_short || (array && !copy);
    return copy;
}

static sp_status saver_make_room(sp_saver *s)
{
    const sp_graph *graph = s->net->graph;
    bool is_short = false;

    s->is_lent = s->net->backend->ops->is_host;
    s->running = room_for(s->net->running, graph->n_buffer_floats, &is_short);
    s->optim = *s->from;
    s->param = s->net->param;
    for (int i = 0; !s->is_lent && i < SP_N_OPTIM_STATES; i++)
        s->optim.state[i] =
            room_for(s->from->state[i], sp_optim_state_floats(graph, i), &is_short);
    if (!s->is_lent)
        s->param = room_for(s->net->param, graph->n_floats, &is_short);
    return is_short
               ? SP_FAIL(SP_EMEM,
                         "no memory for the copy that a checkpoint is written from")
               : SP_OK;
}

sp_status sp_saver_create(sp_saver **saver, sp_run *run, const sp_net *net,
                          const sp_optim *optim, const sp_normalization *norm, int keep)
{
    sp_saver *s;
    int failed;

    assert(run && net && optim);
    assert(keep > 0);
    SP_TRY(SP_NEW(saver, 1, "the thread that saves"));
    s = *saver;
    s->run = run;
    s->net = net;
    s->from = optim;
    s->norm = norm;
    s->keep = keep;
    snprintf(s->dir, sizeof s->dir, "%s/checkpoints", run->dir);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->phase = SAVER_BUSY; /* the thread first touches the copies */
    SP_TRY(saver_make_room(s));
    failed = sp_thread_start(&s->thread, saver_main, s);
    if (failed)
        return SP_FAIL(SP_EMEM, "cannot start the saver's thread: %s",
                       strerror(failed));
    s->is_started = true;
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
    free(s->running);
    if (!s->is_lent)
        free(s->param);
    for (int i = 0; !s->is_lent && i < SP_N_OPTIM_STATES; i++)
        free(s->optim.state[i]);
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

static sp_status saver_copy_state(sp_saver *s)
{
    const sp_graph *graph = s->net->graph;

    s->optim.t = s->from->t;
    SP_TRY(copy_floats(s, s->running, s->net->running, graph->n_buffer_floats));
    if (s->is_lent)
        return SP_OK;
    for (int i = 0; i < SP_N_OPTIM_STATES; i++)
        SP_TRY(copy_floats(s, s->optim.state[i], s->from->state[i],
                           sp_optim_state_floats(graph, i)));
    return copy_floats(s, s->param, s->net->param, graph->n_floats);
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
    s->saved.best = NAN;
    snprintf(s->saved.path, sizeof s->saved.path, "%s/step-%09lld.h5", s->dir,
             (long long)state->step);
    SP_TRY(saver_copy_state(s));
    s->begin_s = sp_now_s();
    pthread_mutex_lock(&s->lock);
    s->phase = SAVER_BUSY;
    s->is_reading = s->is_lent;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return SP_OK;
}

bool sp_saver_reads(sp_saver *s)
{
    bool is_reading;

    pthread_mutex_lock(&s->lock);
    is_reading = s->is_reading;
    pthread_mutex_unlock(&s->lock);
    return is_reading;
}

void sp_saver_await(sp_saver *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->is_reading)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
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

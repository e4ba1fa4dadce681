#include "health/sp_watchdog.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "base/sp_log.h"
#include "base/sp_thread.h"
#include "health/sp_watchdog_internal.h"

#define INTERVAL_S 1.0 /* between signs of life; at most a quarter of the limit */
#define TOLD_S     2.0 /* for the watchdog to report if MPI failed first */
enum { FILE_PATIENCE_S = 5 };

_Static_assert((int)SP_AUTH_PHASES == (int)SP_PHASE_COUNT, "what a frame may say");

/* ---- heartbeat.bin ---- */

/* A thread that writes this rank's signs of life into heartbeat.bin: the watchdog must
 * not wait for a hanging file system. */
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
    struct sp_scribe *s = arg;

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

static sp_status scribe_start(struct sp_scribe **scribe, const sp_heartbeats *beats,
                              int rank)
{
    struct sp_scribe *s;
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

/* Leaves the counts for the thread, which writes the latest ones, and returns at once.
 */
static void scribe_write(struct sp_scribe *s, int64_t work, int64_t waits)
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

/* Ends the thread when it has written the rest, or abandons it after FILE_PATIENCE_S if
 * the file system does not answer. */
static void scribe_stop(struct sp_scribe *s)
{
    struct timespec until;

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->is_ending = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += FILE_PATIENCE_S;
    if (pthread_timedjoin_np(s->thread, NULL, &until) != 0)
        return; /* the thread still uses its memory */
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}

/* ---- signs ---- */

sp_watched *sp_watchdog_own_row(sp_watchdog *w)
{
    return &w->row[w->run->comm->rank == 0 ? 0 : 1];
}

/* Collects this rank's present signs. They are copied into heartbeat.bin too, for
 * processes that have no connection to this rank. */
void sp_watchdog_collect(sp_watchdog *w, sp_status_frame *status, sp_frame_kind kind,
                         int code)
{
    sp_heartbeat *beat = w->run->beat;
    sp_liveness liveness;

    sp_liveness_read(&liveness);
    memset(status, 0, sizeof *status);
    status->rank = w->run->comm->rank;
    status->kind = kind;
    status->code = code;
    status->work = liveness.work;
    status->waits = liveness.waits;
    status->is_waiting = liveness.is_waiting;
    status->phase = __atomic_load_n(&beat->phase, __ATOMIC_RELAXED);
    status->epoch = __atomic_load_n(&beat->epoch, __ATOMIC_RELAXED);
    status->step = __atomic_load_n(&beat->step, __ATOMIC_RELAXED);
    __atomic_load(&w->own_s, &status->own_s, __ATOMIC_RELAXED);
    status->own_phase = __atomic_load_n(&w->own_phase, __ATOMIC_RELAXED);
    memcpy(status->host, w->run->comm->host, sizeof status->host);
    scribe_write(w->scribe, liveness.work, liveness.waits);
}

/* While a thread of this process waits for the file system, and for no longer than
 * file_wait_s, the process is at work by being alive. */
static void watch_files(sp_watchdog *w)
{
    sp_liveness liveness;

    sp_liveness_read(&liveness);
    if (liveness.file_s < w->interval_s) {
        w->is_file_told = false;
        return;
    }
    if (liveness.file_s < w->file_wait_s)
        sp_liveness_count();
    if (liveness.file_s < w->limit_s / 2 || w->is_file_told)
        return;
    w->is_file_told = true;
    sp_log_warn(
        "rank %d/%d host %s has waited for the file system for %.0f s, in phase "
        "%s; the run goes on when it answers within run.file_wait_s = %g",
        w->run->comm->rank, w->run->comm->size, w->run->comm->host, liveness.file_s,
        sp_phase_name((sp_phase)w->run->beat->phase), w->file_wait_s);
}

static void watchdog_note(sp_watched *r, const sp_status_frame *status)
{
    double now = sp_now_s();

    r->heard_s = now;
    if (status->work != r->status.work)
        r->worked_s = r->changed_s = now;
    if (status->waits != r->status.waits)
        r->changed_s = now;
    r->status = *status;
}

/* Updates a row from heartbeat.bin, for a rank without a connection. */
static void note_record(sp_watchdog *w, sp_watched *r, int rank)
{
    sp_heartbeat beat;
    sp_status_frame status = {.rank = rank};

    if (!sp_heartbeat_get(w->run->beats, rank, &beat) || !beat.counter)
        return;
    status.work = beat.work + beat.counter;
    status.waits = beat.waits;
    status.phase = beat.phase;
    status.epoch = beat.epoch;
    status.step = beat.step;
    memcpy(status.host, beat.host, sizeof status.host);
    if (status.work != r->status.work || status.waits != r->status.waits)
        watchdog_note(r, &status);
}

/* ---- a connection that is proven ---- */

/* Closes a connection with invalid frames. The rank is watched through heartbeat.bin
 * from then on. */
static void watchdog_give_up(sp_watched *r)
{
    sp_log_warn("watchdog: what rank %d sends is not of this run; its connection is "
                "closed",
                r->status.rank);
    sp_auth_socket_close(&r->link);
    r->state = SP_WATCHED_ABSENT;
}

/* Acts on a frame. Only rank 0 may make others leave, and never with success. */
static void heed(sp_watchdog *w, sp_watched *r, const sp_status_frame *status)
{
    watchdog_note(r, status);
    if (status->kind == SP_FRAME_LEAVE && w->run->comm->rank != 0)
        sp_watchdog_leave(w, status->code);
    r->state = status->kind == SP_FRAME_END ? SP_WATCHED_ENDED : SP_WATCHED_LINKED;
}

static void watchdog_receive(sp_watchdog *w, sp_watched *r)
{
    sp_auth_socket_event event = SP_AUTH_ARRIVED;
    sp_status_frame status;

    while (event == SP_AUTH_ARRIVED) {
        event = sp_auth_socket_receive(&r->link, &status);
        if (event == SP_AUTH_ARRIVED)
            heed(w, r, &status);
    }
    if (event == SP_AUTH_FOREIGN)
        watchdog_give_up(r);
    if (event != SP_AUTH_GONE)
        return;
    sp_auth_socket_close(&r->link);
    if (r->state == SP_WATCHED_LINKED)
        sp_watchdog_diagnose_dead(w, r);
}

/* ---- the thread ---- */

static int fill_poll(sp_watchdog *w)
{
    int n = 0;

    w->fd[n++] = (struct pollfd){w->wake[0], POLLIN, 0};
    for (int i = 0; i < w->n_listeners && sp_now_s() >= w->accepts_from_s; i++)
        w->fd[n++] = (struct pollfd){w->listener[i], POLLIN, 0};
    for (int i = 0; i < w->n_fresh; i++)
        w->fd[n++] = (struct pollfd){w->fresh[i].fd, POLLIN, 0};
    for (int r = 0; r < w->n_rows; r++)
        if (w->row[r].link.fd >= 0) {
            const bool is_connecting = w->row[r].link.stage == SP_AUTH_CONNECTING;

            w->fd[n++] =
                (struct pollfd){w->row[r].link.fd, is_connecting ? POLLOUT : POLLIN, 0};
        }
    return n;
}

/* Milliseconds until the thread has something to do even if nothing arrives. */
static int patience_ms(const sp_watchdog *w)
{
    const double accept_s = sp_watchdog_accept_s(w);

    return 1 + (int)(1e3 * (accept_s < w->interval_s ? accept_s : w->interval_s));
}

static void listen_to_all(sp_watchdog *w)
{
    sp_watchdog_accept(w);
    if (w->run->comm->rank != 0)
        sp_watchdog_connect(w, sp_now_s());
    for (int r = 0; r < w->n_rows; r++)
        watchdog_receive(w, &w->row[r]);
}

static void watchdog_say(sp_watchdog *w, sp_frame_kind kind, int code)
{
    sp_status_frame status;
    sp_watched *own = sp_watchdog_own_row(w);

    sp_watchdog_collect(w, &status, kind, code);
    watchdog_note(own, &status);
    for (int r = 0; r < w->n_rows; r++)
        sp_auth_socket_send(&w->row[r].link, &status);
}

/* Reads the records of ranks without a connection from heartbeat.bin. */
static void watchdog_look_around(sp_watchdog *w)
{
    for (int i = 0; i < w->n_rows; i++) {
        sp_watched *r = &w->row[i];

        if (r->state == SP_WATCHED_ABSENT && r != sp_watchdog_own_row(w))
            note_record(w, r, i);
    }
}

static void *watchdog_watch(void *arg)
{
    sp_watchdog *w = arg;
    bool is_root = w->run->comm->rank == 0;
    double last_s = sp_now_s(), now;

    listen_to_all(w); /* starts the connection to rank 0 */
    while (w->stop_code < 0) {
        poll(w->fd, (nfds_t)fill_poll(w), patience_ms(w));
        now = sp_now_s();
        /* After a pause of this process itself all clocks restart; it would count as
         * silence of the others. */
        for (int r = 0; now - last_s > 3 * w->interval_s + 2 && r < w->n_rows; r++)
            w->row[r].heard_s = w->row[r].changed_s = w->row[r].worked_s = now;
        listen_to_all(w);
        if (now - last_s < 0.9 * w->interval_s)
            continue;
        last_s = now;
        watch_files(w);
        watchdog_say(w, SP_FRAME_ALIVE, 0);
        watchdog_look_around(w);
        /* Rank 0 judges first; the margin gives the others time to receive it. */
        sp_watchdog_judge(w, is_root ? 0 : 2 * w->interval_s + 1);
        if (is_root)
            sp_watchdog_judge_speed(w);
    }
    return NULL;
}

/* ---- start and stop ---- */

static sp_status watchdog_allocate(sp_watchdog **watchdog, sp_run *run, double limit_s,
                                   double file_wait_s)
{
    const sp_comm *comm = run->comm;
    size_t size = (size_t)comm->size;
    double now = sp_now_s();
    sp_watchdog *w = *watchdog = calloc(1, sizeof *w);

    if (!w)
        return SP_FAIL(SP_EMEM, "no memory for the watchdog");
    w->run = run;
    w->limit_s = limit_s;
    w->file_wait_s = file_wait_s;
    sp_machine_look_at_kills(&w->kills);
    w->interval_s = limit_s / 4 < INTERVAL_S ? limit_s / 4 : INTERVAL_S;
    w->wake[0] = w->wake[1] = -1;
    w->stop_code = -1;
    w->begin_s = now;
    w->n_rows = comm->rank == 0 ? comm->size : 2;
    w->row = calloc((size_t)w->n_rows, sizeof *w->row);
    w->n_places = comm->rank == 0 ? comm->size + SP_DOOR_STRANGERS : 0;
    w->fresh = calloc((size_t)w->n_places + 1, sizeof *w->fresh);
    w->fd =
        calloc(1 + SP_AUTH_ADDRESSES + (size_t)w->n_places + size + 1, sizeof *w->fd);
    for (int r = 0; w->row && r < w->n_rows; r++) {
        w->row[r].link.fd = -1;
        w->row[r].status.rank = comm->rank == 0 || r == 0 ? r : comm->rank;
        w->row[r].heard_s = w->row[r].changed_s = w->row[r].worked_s = now;
    }
    if (!w->row || !w->fresh || !w->fd)
        return SP_FAIL(SP_EMEM, "no memory for the watchdog of %d ranks", comm->size);
    if (pipe2(w->wake, O_CLOEXEC) != 0)
        return SP_FAIL(SP_EMEM, "watchdog: %s", strerror(errno));
    return scribe_start(&w->scribe, run->beats, comm->rank);
}

/* The thread may get SIGALRM, which set_last_minute uses. */
static sp_status start_thread(sp_watchdog *w)
{
    const int failed = sp_thread_start(&w->thread, watchdog_watch, w);

    if (failed)
        return SP_FAIL(SP_EMEM, "watchdog: cannot start its thread: %s",
                       strerror(failed));
    w->is_started = true;
    return SP_OK;
}

static sp_status watchdog_start(sp_watchdog **watchdog, sp_run *run, double limit_s,
                                double file_wait_s)
{
    SP_TRY(sp_comm_agree(run->comm,
                         watchdog_allocate(watchdog, run, limit_s, file_wait_s)));
    if (run->comm->size > 1)
        SP_TRY(sp_watchdog_listen(*watchdog));
    return sp_comm_agree(run->comm, start_thread(*watchdog));
}

sp_status sp_watchdog_start(sp_watchdog **watchdog, sp_run *run, double limit_s,
                            double file_wait_s)
{
    sp_status rc;

    assert(watchdog && run->beat && run->comm);
    *watchdog = NULL;
    if (limit_s <= 0)
        return SP_OK;
    rc = watchdog_start(watchdog, run, limit_s, file_wait_s);
    if (rc != SP_OK) {
        sp_watchdog_stop(*watchdog, rc);
        *watchdog = NULL;
    }
    return rc;
}

void sp_watchdog_step(sp_watchdog *watchdog, const double own_s[SP_PHASE_COUNT])
{
    double *mean, sum = 0;
    int64_t most = 0;

    if (!watchdog)
        return;
    mean = watchdog->phase_s;
    for (int p = 0; p < SP_PHASE_COUNT; p++) {
        const double s = fmax(0, own_s[p]); /* rounding may give -1e-9 */

        mean[p] = watchdog->own_s > 0 ? 0.8 * mean[p] + 0.2 * s : s;
        sum += mean[p];
        most = mean[p] > mean[most] ? p : most;
    }
    __atomic_store_n(&watchdog->own_phase, most, __ATOMIC_RELAXED);
    __atomic_store(&watchdog->own_s, &sum, __ATOMIC_RELAXED);
}

double sp_watchdog_cpu_s(const sp_watchdog *watchdog)
{
    struct timespec t;
    clockid_t clock;

    if (!watchdog || pthread_getcpuclockid(watchdog->thread, &clock) != 0 ||
        clock_gettime(clock, &t) != 0)
        return 0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void close_all(sp_watchdog *w)
{
    for (int r = 0; w->row && r < w->n_rows; r++)
        sp_auth_socket_close(&w->row[r].link);
    for (int i = 0; i < w->n_fresh; i++)
        sp_auth_socket_close(&w->fresh[i]);
    sp_watchdog_stop_listening(w);
    for (int i = 0; i < 2; i++)
        if (w->wake[i] >= 0)
            close(w->wake[i]);
}

void sp_watchdog_stop(sp_watchdog *w, sp_status code)
{
    if (!w)
        return;
    /* MPI may notice a lost peer before the watchdog does, but the watchdog knows which
     * rank it is. */
    if (code == SP_EMPI)
        sp_sleep_s(TOLD_S);
    w->stop_code = code;
    if (w->is_started) {
        if (write(w->wake[1], "", 1) != 1)
            sp_log_warn("watchdog: %s", strerror(errno));
        pthread_join(w->thread, NULL);
        sp_watchdog_accept(w); /* a rank that has just connected learns of it too */
        watchdog_say(w, SP_FRAME_END, code);
    }
    close_all(w);
    scribe_stop(w->scribe);
    free(w->row);
    free(w->fresh);
    free(w->fd);
    free(w);
}

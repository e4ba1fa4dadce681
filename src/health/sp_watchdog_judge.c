/* Judgement: which rank is lost, what is reported, and how all ranks leave. */
#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sp_list.h"
#include "base/sp_liveness.h"
#include "base/sp_log.h"
#include "health/sp_watchdog_internal.h"

#define GRACE_S     3.0  /* time for the training thread to leave by sp_comm_abort */
#define SPEECH_S    0.5  /* time for another process to report the cause */
#define DIAGNOSIS_S 10   /* time for all that a diagnosis writes, on a hung disk too */
#define END_S       10.0 /* time for others to follow a rank that ends with an error */
#define SLOW_RATIO  1.5
enum { RECORDER_TRIES = 200 }; /* one a millisecond */

/* ---- the end ---- */

static void leave_now(int number)
{
    (void)number;
    _exit(SP_EMPI);
}

/* From this call on the process ends within DIAGNOSIS_S, whatever blocks. */
static void set_last_minute(void)
{
    struct sigaction action = {.sa_handler = leave_now};

    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    alarm(DIAGNOSIS_S);
}

void sp_watchdog_leave(sp_watchdog *w, int code)
{
    sp_status_frame status;

    assert(code != 0);
    set_last_minute();
    sp_watchdog_collect(w, &status, SP_FRAME_LEAVE, code);
    for (int r = 0; w->run->comm->rank == 0 && r < w->n_rows; r++)
        sp_auth_socket_send(&w->row[r].link, &status);
    sp_exit_request(code);
    sp_sleep_s(GRACE_S);
    _exit(code);
}

/* Reports the loss, if no other process has, and makes all ranks leave. The caller has
 * marked a lost rank in heartbeat.bin for the next start, before anything else: a
 * launcher may kill this process within milliseconds. */
static void diagnose(sp_watchdog *w, const char *text) __attribute__((noreturn));
static void diagnose(sp_watchdog *w, const char *text)
{
    const sp_heartbeat *beat = w->run->beat;

    set_last_minute();
    if (sp_run_claim_diagnosis(w->run->dir)) {
        SP_FAIL(SP_EMPI, "%s", text);
        sp_log_error(sp_error_last());
        sp_run_status(w->run, "failed", SP_EMPI, beat->epoch, beat->step, text);
    } else {
        /* Once this process leaves, the launcher kills the others, among them the one
         * that is about to report. It is given time. */
        sp_sleep_s(SPEECH_S);
    }
    sp_watchdog_leave(w, SP_EMPI);
}

static void watchdog_describe(const sp_watchdog *w, const sp_watched *r, char *text,
                              size_t size)
{
    snprintf(text, size, "rank %d/%d host %s", r->status.rank, w->run->comm->size,
             r->status.host[0] ? r->status.host : "(not heard yet)");
}

/* Describes the rank's position. If heartbeat.bin is shared, its record is newer than
 * the last frame. */
static void watchdog_place(const sp_watchdog *w, const sp_watched *r, char *text,
                           size_t size)
{
    sp_heartbeat beat;
    bool is_newer = sp_heartbeat_get(w->run->beats, r->status.rank, &beat) &&
                    beat.counter && beat.step >= r->status.step;

    snprintf(text, size, "phase %s, epoch %lld, step %lld",
             sp_phase_name((sp_phase)(is_newer ? beat.phase : r->status.phase)),
             (long long)(is_newer ? beat.epoch : r->status.epoch),
             (long long)(is_newer ? beat.step : r->status.step));
}

/* Replaces the row's rank by the one that the node's crash recorder has marked: it
 * knows which of several ranks died first. */
static void ask_recorder(sp_watchdog *w, sp_watched *r)
{
    sp_heartbeat beat;
    int lost = -1;

    if (!w->run->beats || strcmp(r->status.host, w->run->comm->host) != 0)
        return;
    for (int i = 0; i < RECORDER_TRIES && lost < 0; i++) {
        lost = sp_heartbeat_lost(w->run->beats);
        if (lost < 0)
            sp_sleep_s(0.001);
    }
    if (lost < 0 || !sp_heartbeat_get(w->run->beats, lost, &beat))
        return;
    r->status.rank = lost;
    memcpy(r->status.host, beat.host, sizeof r->status.host);
}

void sp_watchdog_diagnose_dead(sp_watchdog *w, const sp_watched *row)
{
    char who[128], where[128], kills[384] = "", text[896];
    sp_watched copy = *row, *r = &copy;

    ask_recorder(w, r);
    sp_heartbeat_mark_lost(w->run->beats, r->status.rank, SP_LOST_DEAD);
    watchdog_describe(w, r, who, sizeof who);
    watchdog_place(w, r, where, sizeof where);
    if (strcmp(r->status.host, w->run->comm->host) == 0)
        sp_machine_tell_kills(&w->kills, kills, sizeof kills);
    snprintf(text, sizeof text,
             "%s died: its connection closed without a message; last heard %.1f s "
             "before, in %s%s",
             who, sp_now_s() - r->heard_s, where, kills);
    diagnose(w, text);
}

static void diagnose_silent(sp_watchdog *w, const sp_watched *r, double now)
{
    char who[128], where[128], text[512];
    bool is_heard = now - r->heard_s < w->limit_s / 2;

    sp_heartbeat_mark_lost(w->run->beats, r->status.rank,
                           is_heard ? SP_LOST_HUNG : SP_LOST_SILENT);
    watchdog_describe(w, r, who, sizeof who);
    watchdog_place(w, r, where, sizeof where);
    if (is_heard)
        snprintf(text, sizeof text,
                 "%s hangs: no progress for %.1f s in %s (run.watchdog_s = %g; set it "
                 "higher if this is merely slow)",
                 who, now - r->changed_s, where, w->limit_s);
    else
        snprintf(text, sizeof text,
                 "%s is silent: no sign of life for %.1f s, last in %s; its process is "
                 "stopped, or its node or network is gone (run.watchdog_s = %g)",
                 who, now - r->heard_s, where, w->limit_s);
    diagnose(w, text);
}

static void diagnose_stuck(sp_watchdog *w, double since_s)
{
    char where[128], text[512];

    watchdog_place(w, sp_watchdog_own_row(w), where, sizeof where);
    snprintf(text, sizeof text,
             "all ranks wait for each other for %.1f s in %s: the transport between "
             "them is lost (run.watchdog_s = %g)",
             since_s, where, w->limit_s);
    diagnose(w, text);
}

/* ---- judging ---- */

void sp_watchdog_judge(sp_watchdog *w, double margin_s)
{
    double now = sp_now_s(), worked_s = 0;
    const sp_watched *worst = NULL;
    bool are_all_waiting = w->n_rows == w->run->comm->size;

    assert(margin_s >= 0);
    for (int i = 0; i < w->n_rows; i++) {
        const sp_watched *r = &w->row[i];

        if (r->state == SP_WATCHED_ENDED) {
            if (r->status.code != SP_OK && r->status.code != SP_ELIMIT &&
                now - r->heard_s > END_S)
                sp_watchdog_leave(w, r->status.code);
            are_all_waiting = false;
            continue;
        }
        /* a stopped rank's last report was that it waits */
        are_all_waiting = are_all_waiting && r->status.is_waiting &&
                          now - r->heard_s < w->limit_s / 2;
        worked_s = r->worked_s > worked_s ? r->worked_s : worked_s;
        if ((r->state == SP_WATCHED_LINKED || r->status.host[0]) &&
            (!worst || r->changed_s < worst->changed_s))
            worst = r;
    }
    if (worst && now - worst->changed_s > w->limit_s + margin_s)
        diagnose_silent(w, worst, now);
    if (are_all_waiting && w->n_rows > 1 && now - worked_s > w->limit_s)
        diagnose_stuck(w, now - worked_s);
}

/* ---- stragglers ---- */

static void tell_slow(sp_watchdog *w, sp_watched *r, double median, double now)
{
    char who[128];
    double ratio = r->status.own_s / median;

    if (ratio <= SLOW_RATIO) {
        r->slow_s = 0;
        r->is_slow_told = r->is_slow_told && ratio > 0.8 * SLOW_RATIO;
        return;
    }
    if (r->slow_s == 0)
        r->slow_s = now;
    if (r->is_slow_told || now - r->slow_s < w->limit_s / 2)
        return;
    r->is_slow_told = true;
    watchdog_describe(w, r, who, sizeof who);
    sp_log_warn0("%s is slow: %.3f s of own work a step, %.1f times the median of the "
                 "ranks, mostly in phase %s",
                 who, r->status.own_s, ratio,
                 sp_phase_name((sp_phase)r->status.own_phase));
}

void sp_watchdog_judge_speed(sp_watchdog *w)
{
    double own[64], now = sp_now_s(), median;
    int n = w->n_rows, stride = (n + 63) / 64, k = 0;

    assert(w->n_rows > 0);
    if (w->row[0].status.step == w->judged_step)
        return; /* while all wait for a rank that is lost, no other gets slower */
    w->judged_step = w->row[0].status.step;
    for (int r = 0; r < n; r++)
        if (w->row[r].status.own_s <= 0)
            return;
    for (int r = 0; r < n; r += stride) /* 64 of many ranks suffice for the median */
        own[k++] = w->row[r].status.own_s;
    qsort(own, (size_t)k, sizeof *own, sp_by_double);
    median = own[(k - 1) / 2];
    for (int r = 0; n > 1 && r < n; r++)
        tell_slow(w, &w->row[r], median, now);
}

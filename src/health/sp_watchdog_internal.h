/* Shared by the files of the watchdog: sp_watchdog.c (the thread), sp_watchdog_accept.c
 * (connection of the ranks), sp_watchdog_judge.c (diagnosis of a lost rank). */
#ifndef SP_WATCHDOG_INTERNAL_H
#define SP_WATCHDOG_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <time.h>

#include "base/sp_machine.h"
#include "health/sp_auth_socket.h"
#include "health/sp_watchdog.h"

typedef enum sp_watched_state {
    SP_WATCHED_ABSENT,
    SP_WATCHED_LINKED,
    SP_WATCHED_ENDED
} sp_watched_state;

/* State of one rank as far as this process knows it. Times are on its own clock. */
typedef struct sp_watched {
    sp_status_frame status; /* the latest status received */
    sp_watched_state state;
    sp_auth_socket link;
    /* Times of the latest sign of any kind, of the latest that showed work or a turn of
     * a wait, and of the latest that showed work. */
    double heard_s, changed_s, worked_s;
    /* The rank has been slow since then; 0: it is not slow. */
    double slow_s;
    bool is_slow_told; /* a warning of it was printed */
} sp_watched;

struct sp_watchdog {
    sp_run *run;
    double limit_s, interval_s; /* run.watchdog_s; time between signs of life */
    double file_wait_s;         /* run.file_wait_s */
    bool is_file_told;          /* a warning of the wait at hand was printed */
    sp_machine_kills kills;     /* before the run */
    struct sp_scribe *scribe;   /* writes this rank's signs into heartbeat.bin */
    sp_auth_socket_address
        address; /* addresses of rank 0's listeners, and the run's secret */
    int wake[2]; /* pipe that wakes the thread at the end */
    pthread_t thread;
    bool is_started;
    sp_watched *row; /* [n_rows] rank 0: all ranks; elsewhere rank 0 and this rank */
    int n_rows;
    int64_t judged_step; /* the step of the latest judgement of speeds */
    struct pollfd *fd;   /* [descriptors at most: wake, listeners, fresh, rows] */

    /* Rank 0 of several ranks, until all ranks have connected. */
    int listener[SP_AUTH_ADDRESSES], n_listeners;
    /* [n_places] accepted connections that have not proven to be a rank's */
    sp_auth_socket *fresh;
    int n_fresh, n_places;
    double accepts_from_s; /* no connection is accepted before this time */

    /* The other ranks, until they are connected to rank 0. */
    uint32_t at_address;        /* index of the address to try next */
    double next_try_s, begin_s; /* time of the next attempt; of the start */
    bool has_warned;

    volatile int stop_code; /* -1: keep running; else the exit code of this rank */
    /* Seconds of own work a step by phase, smoothed, only of the training thread; their
     * sum and the phase that has most of them, which the watchdog's thread reads. */
    double phase_s[SP_PHASE_COUNT];
    double own_s;
    int64_t own_phase;
};

/* All that follows is local but sp_watchdog_listen. Once the watchdog's thread has
 * started, only it calls these, until sp_watchdog_stop has ended it.
 *
 * The row of this rank, within w. */
sp_watched *sp_watchdog_own_row(sp_watchdog *w);
/* Sets *status to the present signs of life of this rank, of this kind and with this
 * exit code, and writes its counts of work into heartbeat.bin. */
void sp_watchdog_collect(sp_watchdog *w, sp_status_frame *status, sp_frame_kind kind,
                         int code);

/* Rank 0 has one place a rank, and this many more, for connections that have not proven
 * to be a rank's. */
enum { SP_DOOR_STRANGERS = 64 };

/* Rank 0 begins to listen, and all ranks learn its addresses. If it cannot, it warns
 * and the ranks have no address. Collective, on two ranks at least, before the thread
 * starts. SP_EMEM; SP_EMPI. */
sp_status sp_watchdog_listen(sp_watchdog *w);
/* Rank 0: accepts waiting connections, moves those that have proven to be a rank's to
 * their rows and drops strangers. Once all ranks have connected, the listeners are
 * closed. */
void sp_watchdog_accept(sp_watchdog *w);
/* Seconds until rank 0 has to look at the listeners again even if nothing arrives;
 * INFINITY: no such time. */
double sp_watchdog_accept_s(const sp_watchdog *w);
/* Closes the listeners. Connections stay. */
void sp_watchdog_stop_listening(sp_watchdog *w);
/* The other ranks: advances the connection to rank 0 by one step, if it is not open
 * yet. */
void sp_watchdog_connect(sp_watchdog *w, double now);

/* Ends the process with `code` and prints nothing; rank 0 makes the other ranks leave
 * with the same code. */
void sp_watchdog_leave(sp_watchdog *w, int code) __attribute__((noreturn));
/* The connection of r closed without an end frame: reports r as dead and ends all
 * ranks. */
void sp_watchdog_diagnose_dead(sp_watchdog *w, const sp_watched *r)
    __attribute__((noreturn));
/* Looks at the watched rank that has been silent for longest, and at whether all wait
 * for each other, and does not return if a rank is lost or all are stuck. margin_s is
 * added to the limit, so that rank 0 reports first. */
void sp_watchdog_judge(sp_watchdog *w, double margin_s);
/* Rank 0: warns of ranks that have been slow for long. */
void sp_watchdog_judge_speed(sp_watchdog *w);

#endif

/* Shared by the files of the watchdog: sp_watchdog.c (the thread), sp_watchdog_door.c
 * (how ranks are connected), sp_watchdog_judge.c (who is lost, and what then). */
#ifndef SP_WATCHDOG_INTERNAL_H
#define SP_WATCHDOG_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <time.h>

#include "comm/sp_link.h"
#include "run/sp_watchdog.h"

typedef enum sp_row_state { SP_ROW_ABSENT, SP_ROW_LINKED, SP_ROW_ENDED } sp_row_state;

/* State of one rank as far as it is known; times are this process's. */
typedef struct sp_row {
    sp_signs signs; /* the last ones */
    sp_row_state state;
    sp_link link;
    double heard_s, changed_s, worked_s; /* any sign; work or waits; work */
    double slow_s;                       /* since when it is slow; 0: it is not */
    bool is_slow_told;
    int seen[SP_PHASE_COUNT]; /* at work, by phase */
} sp_row;

struct sp_watchdog {
    sp_run *run;
    double limit_s, interval_s;
    sp_link_address address;
    int wake[2];
    pthread_t thread;
    bool is_started;
    sp_row *row; /* [n_rows]: all on rank 0; elsewhere rank 0's and the own one */
    int n_rows;
    struct pollfd *fd; /* [what there can be] */

    /* rank 0 of several, until all ranks have come */
    int listener[SP_LINK_ADDRESSES], n_listeners;
    sp_link *fresh; /* [n_places] accepted, and not proven to be a rank's */
    int n_fresh, n_places;
    double deaf_until_s; /* nobody is accepted before */

    /* the other ranks, until they are connected */
    uint32_t at_address; /* the one to try next */
    double next_try_s, begin_s;
    bool has_warned;

    volatile int stop_code; /* -1: goes on */
    double own_s;           /* written by the training thread */
};

/* This rank's row; its signs as they are now. */
sp_row *sp_watchdog_own_row(sp_watchdog *w);
void sp_watchdog_take_own(sp_watchdog *w, sp_signs *signs, sp_signs_kind kind,
                          int code);

/* Places of rank 0 for connections that have proven nothing, besides one a rank. */
enum { SP_DOOR_STRANGERS = 64 };

/* Collective, several ranks: rank 0 begins to listen, all learn where. */
sp_status sp_watchdog_open_door(sp_watchdog *w);
/* Rank 0: accept who waits, see who has proven to be a rank, send strangers away; once
 * all ranks have come the door is closed. */
void sp_watchdog_look_at_door(sp_watchdog *w);
/* Seconds until rank 0 is to look again, whoever comes; INFINITY: no need. */
double sp_watchdog_door_s(const sp_watchdog *w);
void sp_watchdog_close_door(sp_watchdog *w);
/* The other ranks: one more step of connecting to rank 0, if it takes one. */
void sp_watchdog_connect(sp_watchdog *w, double now);

/* The process ends with `code`, without a word of its own. */
void sp_watchdog_leave(sp_watchdog *w, int code) __attribute__((noreturn));
/* The connection of r closed: it is named, everybody leaves. */
void sp_watchdog_diagnose_dead(sp_watchdog *w, const sp_row *r)
    __attribute__((noreturn));
/* Returns if nobody is lost: of the ranks this one watches, the one silent for longest;
 * margin_s beyond the limit leaves rank 0 the first word. */
void sp_watchdog_judge(sp_watchdog *w, double margin_s);
/* Rank 0: report who has been slow for long. */
void sp_watchdog_judge_speed(sp_watchdog *w);
void sp_watchdog_pause(double s);

#endif

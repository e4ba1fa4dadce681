/* The run folder (SPEC section 6): lock, status.json, heartbeat.bin, metrics.jsonl,
 * deck.resolved, old-NNN. Rank 0 owns all files but its own heartbeat record of each rank.
 */
#ifndef SP_RUN_H
#define SP_RUN_H

#include <stdio.h>

#include "sp_comm.h"
#include "sp_deck.h"

/* X(name, text) of what a rank is doing. */
#define SP_PHASE_LIST(X)                                                                 \
    X(SP_PHASE_START, "start")                                                           \
    X(SP_PHASE_READ, "read")                                                             \
    X(SP_PHASE_PLAN, "plan")                                                             \
    X(SP_PHASE_FORWARD, "forward")                                                       \
    X(SP_PHASE_BACKWARD, "backward")                                                     \
    X(SP_PHASE_REDUCE, "reduce")                                                         \
    X(SP_PHASE_UPDATE, "update")                                                         \
    X(SP_PHASE_EVAL, "eval")                                                             \
    X(SP_PHASE_SAVE, "save")                                                             \
    X(SP_PHASE_LOAD, "load")                                                             \
    X(SP_PHASE_END, "end")

#define SP_PHASE_ENUM(name, text) name,
typedef enum sp_phase { SP_PHASE_LIST(SP_PHASE_ENUM) SP_PHASE_COUNT } sp_phase;
#undef SP_PHASE_ENUM

/* One rank's record in heartbeat.bin, 128 bytes, written in place through a mapping. */
typedef struct sp_heartbeat {
    char host[64];
    int64_t pid, step, epoch;
    double time;     /* seconds since 1970 */
    int64_t phase;   /* sp_phase */
    int64_t counter; /* advances with every write */
    int64_t reserved[2];
} sp_heartbeat;

typedef struct sp_run {
    char *dir; /* "" : no folder (check, preflight) */
    sp_comm *comm;
    FILE *metrics;          /* rank 0 */
    sp_heartbeat *beat;     /* this rank's record */
    struct sp_run_impl *impl;
} sp_run;

/* Collective: create the folder, lock it (SP_EIO names host and pid of the owner), report who
 * was lost in an earlier unfinished run, map the heartbeat. */
sp_status sp_run_open(sp_run *run, const char *dir, sp_comm *comm);
/* Collective: move everything to old-NNN/ (resume = "never"). */
sp_status sp_run_set_aside(sp_run *run);
/* Releases the lock. Does not write status.json. */
void sp_run_close(sp_run *run);

/* This rank, now. Cheap: a few stores. */
void sp_run_beat(sp_run *run, sp_phase phase, int64_t epoch, int64_t step);
const char *sp_phase_name(sp_phase phase);

/* Rank 0 (or, for a failure, the rank that diagnosed it): replace status.json atomically.
 * state "running", "done", "stopped", "failed". */
sp_status sp_run_status(sp_run *run, const char *state, sp_status code, int64_t epoch,
                        int64_t step, const char *message);
/* True if status.json says state "done"; its step in *step. */
bool sp_run_is_done(const char *dir, int64_t *step);

/* Rank 0: text file in the folder, replaced atomically. */
sp_status sp_run_write_text(sp_run *run, const char *name, const char *text);
/* Rank 0: cut metrics.jsonl to `bytes` (continuing). */
sp_status sp_run_truncate_metrics(sp_run *run, int64_t bytes);
/* Rank 0: one JSON object as a line, flushed; *bytes (may be NULL): length of the file. */
sp_status sp_run_event(sp_run *run, const char *json_line, int64_t *bytes);
/* Rank 0: run after_save in a child with a time limit; failure is a warning. */
void sp_run_after_save(sp_run *run, const char *command, const char *path);

/* `sptrain status DIR`: print state and who was last heard. SP_EIO if there is no run. */
sp_status sp_run_print_status(const char *dir, FILE *to);

#endif

/* The run folder (README, "The run folder"): lock, status.json, heartbeat.bin,
 * metrics.jsonl, deck.resolved, old-NNN. Rank 0 owns all files but its own heartbeat
 * record of each rank. Failures of the file system are SP_EIO with path and the
 * system's text.
 */
#ifndef SP_RUN_H
#define SP_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "comm/sp_comm.h"
#include "run/sp_heartbeat.h"

typedef struct sp_run {
    char *dir; /* "" : no folder (check, preflight) */
    const char
        *task; /* whose status it is: "" training (after open), "eval", "predict" */
    sp_comm *comm;
    sp_heartbeat *beat;        /* this rank's record, never NULL while open */
    sp_heartbeats *beats;      /* heartbeat.bin, never NULL while open */
    double after_save_limit_s; /* 60 after open; time limit of one after_save command */
    struct sp_run_impl *impl;
} sp_run;

/* Collective: create the folder, lock it (SP_EIO names host and pid of the owner),
 * report who was lost in an earlier unfinished run, open heartbeat.bin. dir "": nothing
 * is written, the other functions do nothing. After a failure sp_run_close is to be
 * called all the same. */
sp_status sp_run_open(sp_run *run, const char *dir, sp_comm *comm);
/* Collective: move what a run writes to old-NNN/ (resume = "never");
 * foreign files stay. Before anything else of this run is written. */
sp_status sp_run_set_aside(sp_run *run);
/* Waits for after_save (at most its time limit each; 5 s in all if the last status was
 * "failed"), releases the lock. Does not write status.json. Local. */
void sp_run_close(sp_run *run);

/* The descriptor that holds the folder's lock, on rank 0; -1. */
int sp_run_lock(const sp_run *run);
/* This rank, now, for heartbeat.bin and for the error block. Cheap: a few stores. */
void sp_run_beat(sp_run *run, sp_phase phase, int64_t epoch, int64_t step);

/* Where a task's status is: status.json of the training, which nothing else touches,
 * status-eval.json, status-predict.json. path holds PATH_MAX bytes; returns it. */
const char *sp_run_status_path(const char *dir, const char *task, char *path);
/* Rank 0 (or, for a failure, the rank that diagnosed it): replace the status of
 * run->task atomically. state "running", "done", "stopped", "failed"; message NULL: the
 * code's text, none for SP_OK. Any thread. */
sp_status sp_run_status(sp_run *run, const char *state, sp_status code, int64_t epoch,
                        int64_t step, const char *message);
/* The same for one who is not the run: `who` is the record of the rank it is about. */
sp_status sp_run_write_status(const char *dir, const char *task, int rank,
                              const sp_heartbeat *who, const char *state,
                              sp_status code, const char *message);
/* True for the first process that asks: it alone prints why the run fails. dir is an
 * open run's, "" none. Any thread. (A file .diagnosed, until the next start.) */
bool sp_run_claim_diagnosis(const char *dir);
/* True if status.json says state "done"; its step in *step (may be NULL). */
bool sp_run_is_done(const char *dir, int64_t *step);
/* True if metrics.jsonl says that the training has ended, which the status does not
 * after a later start that failed. */
bool sp_run_has_ended(const char *dir);

/* Rank 0: text file in the folder, replaced atomically. */
sp_status sp_run_write_text(sp_run *run, const char *name, const char *text);

/* Rank 0: one JSON object as a line (sp_json.h); *bytes (may be NULL): length of the
 * file. Where it cannot be written whole, nothing is. Polls after_save. */
sp_status sp_run_event(sp_run *run, const char *json_line, int64_t *bytes);
/* Rank 0: metrics.jsonl to disk; before a checkpoint that stores its length. */
sp_status sp_run_sync_metrics(sp_run *run);
/* Rank 0: of what stands behind `bytes` in metrics.jsonl leave the start, resume and end
 * events alone (continuing); a shorter file is a warning. */
sp_status sp_run_truncate_metrics(sp_run *run, int64_t bytes);

/* Rank 0: run after_save in a child with a time limit, beside the training; one at a
 * time, in order. Failure is a warning. command is kept until close; "" or NULL:
 * nothing. */
void sp_run_after_save(sp_run *run, const char *command, const char *path);

/* What the status of a task says. */
typedef struct sp_run_state {
    char state[16], phase[16], host[64];
    char message[SP_ERROR_MESSAGE];
    int exit_code, rank;
    int64_t pid, epoch, step;
} sp_run_state;

/* SP_EIO if there is none, SP_EDATA if it is damaged. */
sp_status sp_run_read_state(const char *dir, const char *task, sp_run_state *state);
/* The state that the start wrote which the n records are of: its writer is among them.
 * False: it wrote none yet. */
bool sp_run_find_state(const char *dir, const sp_heartbeat *records, int n,
                       sp_run_state *state, const char **task);
/* One warning if the run that was in the folder ended without a diagnosis of its own:
 * who was last heard, in which phase and step. */
void sp_run_report_lost(const char *dir);
/* `sptrain status DIR`: print state and who was last heard. SP_EIO if there is no run.
 */
sp_status sp_run_print_status(const char *dir, FILE *to);

#endif

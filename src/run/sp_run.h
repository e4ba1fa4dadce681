/* The run folder (README, "What comes out") and the processes that watch a run.
 *
 *     rank 0        sp_run --> lock           one run a folder     (sp_lock)
 *                              status.json    state, exit code     (sp_run_state)
 *                              metrics.jsonl  one event a line
 *                              deck.resolved, old-NNN/, .diagnosed
 *                   saver thread --> checkpoints/step-N.h5, best.h5   (sp_saver,
 *                                                                   sp_checkpoint)
 *     each rank     sp_run_beat --> its record in heartbeat.bin    (sp_heartbeat)
 *                   watchdog thread <-- TCP --> rank 0's watchdog  (sp_watchdog)
 *     each node     crash recorder  <-- a pipe from each rank      (sp_crash_recorder)
 *
 * The training thread calls sp_run_beat at each phase of a step, sp_run_event for each
 * line of metrics.jsonl, and sp_run_status when the state changes. Rank 0 owns all
 * files, except that each rank owns its record of heartbeat.bin. When a rank is lost,
 * the process that finds it calls sp_run_claim_diagnosis and, if it is the first,
 * prints the reason and writes status.json.
 *
 * Failures of the file system are SP_EIO with path and the system's text.
 */
#ifndef SP_RUN_H
#define SP_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "comm/sp_comm.h"
#include "run/sp_heartbeat.h"

typedef struct sp_run {
    char *dir; /* "": no folder (check, preflight) */
    /* Task of the status: "" training (after open), "eval", "predict", "label". */
    const char *task;
    sp_comm *comm;
    sp_heartbeat *beat;        /* this rank's record, never NULL while open */
    sp_heartbeats *beats;      /* heartbeat.bin, never NULL while open */
    double after_save_limit_s; /* time limit of one after_save command; 60 after open */
    /* Rank 0 of a training with run.tensorboard, from its first event on; else NULL.
     * The training sets it; close destroys it. */
    struct sp_events *events;
    struct sp_run_impl *impl;
} sp_run;

/* Collective: creates the folder, locks it (SP_EIO names host and pid of the owner),
 * reports the rank that was lost in an earlier unfinished run, opens heartbeat.bin.
 * With dir "" nothing is written, and the other functions do nothing. The caller calls
 * sp_run_close after a failure too. */
sp_status sp_run_open(sp_run *run, const char *dir, sp_comm *comm);
/* Collective: moves the files that a run writes to old-NNN/ (resume = "never"); other
 * files are kept. To be called before this run writes anything else. */
sp_status sp_run_set_aside(sp_run *run);
/* Waits for the after_save commands (each up to its time limit; all together up to one
 * limit if the last status was "stopped", 5 s if it was "failed") and releases the
 * lock. Does not write status.json. Local. */
void sp_run_close(sp_run *run);

/* The descriptor that holds the folder's lock on rank 0; -1 elsewhere. */
int sp_run_lock(const sp_run *run);
/* Records this rank's phase, epoch and step in heartbeat.bin and for the error block.
 * Called by the training thread. Cost: one small write to the file. */
void sp_run_beat(sp_run *run, sp_phase phase, int64_t epoch, int64_t step);
/* States how far a pass over samples (an evaluation or a prediction) is; 0 of 0: it has
 * ended. The next sp_run_beat records it. */
void sp_run_count(sp_run *run, int64_t done, int64_t total);

/* False on rank 0 if somebody deleted the folder or its lock: it may be another run's
 * by now, so that sp_run_event, sp_run_status and sp_run_sync_metrics fail with
 * SP_EIO. */
bool sp_run_is_ours(const sp_run *run);

/* Path of a task's status file: status.json of the training, which no other task
 * writes, status-eval.json, status-predict.json. path holds PATH_MAX bytes and is
 * returned. */
const char *sp_run_status_path(const char *dir, const char *task, char *path);
/* Replaces the status of run->task atomically. Called on rank 0 or, for a failure, on
 * the rank that diagnosed it; any thread. state is "running", "done", "stopped" or
 * "failed"; message NULL: the code's text, "" for SP_OK. */
sp_status sp_run_status(sp_run *run, const char *state, sp_status code, int64_t epoch,
                        int64_t step, const char *message);
/* The same for a process that has no sp_run (the crash recorder): `who` is the record
 * of the rank that the status is about, `rank` its number. */
sp_status sp_run_write_status(const char *dir, const char *task, int rank,
                              const sp_heartbeat *who, const char *state,
                              sp_status code, const char *message);
/* True for the first process that calls it: only that process prints why the run fails.
 * dir is the folder of an open run; "" means no folder and gives true. Any thread. (The
 * claim is the file .diagnosed, which the next start deletes.) */
bool sp_run_claim_diagnosis(const char *dir);
/* True if status.json says state "done". */
bool sp_run_is_done(const char *dir);
/* True if a line of metrics.jsonl, which need not be whole, is one of this event. */
bool sp_run_is_event(const char *line, const char *event);
/* True if metrics.jsonl says that the training has ended. status.json may not say so
 * any more after a later start that failed. */
bool sp_run_has_ended(const char *dir);

/* Rank 0: replaces a text file in the folder atomically. */
sp_status sp_run_write_text(sp_run *run, const char *name, const char *text);

/* Rank 0: appends one JSON object as a line (sp_json.h); *bytes (may be NULL) becomes
 * the length of the file. A line that cannot be written whole, as on a full disk, is
 * not written at all: it waits in memory (up to 64 MiB of lines; then SP_EIO) until the
 * next event or sp_run_deliver. The length is the one that the file then has.
 * Also starts the next waiting after_save command. */
sp_status sp_run_event(sp_run *run, const char *json_line, int64_t *bytes);
/* Rank 0: flushes metrics.jsonl and the events to disk, before a checkpoint that stores
 * the length of the first. */
sp_status sp_run_sync_metrics(sp_run *run);
/* Rank 0: writes the lines that sp_run_event could not write yet. SP_EIO: it still
 * cannot. */
sp_status sp_run_deliver(sp_run *run);
/* Rank 0, when a run continues: removes the lines after `bytes` in metrics.jsonl except
 * the start, resume and end events and the lines of `sptrain eval`. A file shorter than
 * that is a warning. */
sp_status sp_run_truncate_metrics(sp_run *run, int64_t bytes);

/* Rank 0: runs after_save in a child process with a time limit while the training
 * continues; one at a time, in order. Its failure is a warning. The arguments and the
 * results are recorded in after_save.log of the run folder. command is borrowed until
 * close; "" or NULL: nothing is run. */
void sp_run_after_save(sp_run *run, const char *command, const char *path);
/* The same for a command of the program's own, which is not recorded. */
void sp_run_command(sp_run *run, const char *command, const char *path);
/* Rank 0, at the end: gives after_save the files that were not given before: the
 * resolved deck, status.json, event files and pictures, and metrics.jsonl as it is now. */
void sp_run_give_files(sp_run *run, const char *command);

/* The contents of a task's status file. */
typedef struct sp_run_state {
    char state[16], phase[16], host[64];
    char message[SP_ERROR_MESSAGE];
    int exit_code, rank;
    int64_t pid, epoch, step;
} sp_run_state;

/* Reads a status file. SP_EIO if it is missing, SP_EDATA if it is damaged. */
sp_status sp_run_read_state(const char *dir, const char *task, sp_run_state *state);
/* Finds the status of the start that wrote these n heartbeat records: the status names
 * a rank, host and pid of the records; the latest if several do. False: that start has
 * not written a status yet. */
bool sp_run_find_state(const char *dir, const sp_heartbeat *records, int n,
                       sp_run_state *state, const char **task);
/* Prints one warning if the earlier run in the folder ended without a diagnosis of its
 * own: the rank last heard, its phase and step. */
void sp_run_report_lost(const char *dir);
/* `sptrain status DIR`: prints the states and the rank last heard. SP_EIO if there is
 * no run. */
sp_status sp_run_print_status(const char *dir, FILE *to);
/* `sptrain status DIR --watch`: shows the run's work, only from its folder, until no
 * run writes there any more or the user interrupts; then prints the status. On a
 * terminal it is a live line, else a line for each step that the run logs, and one
 * every ten seconds of an evaluation. SP_EIO if there is no run. */
sp_status sp_run_watch(const char *dir);

#endif

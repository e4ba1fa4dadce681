/* heartbeat.bin holds one record a rank, written in place, so that it shows each rank's
 * last action, however the rank ended.
 *
 * Records are written and read by system calls. A mapping of the file would be faster
 * by a microsecond, but would kill all ranks by SIGBUS if the file were truncated.
 * Three writers share a record and have bytes of their own in it: the rank's training
 * thread, its watchdog, and the process that finds the rank lost.
 *
 * Four parts report a rank's end; each has something that no other part has:
 *
 *     part            reports                           and no other part
 *     sp_liveness     this process works or waits       separates wait and hang
 *     heartbeat.bin   phase, epoch, step of each rank   is there after all have died
 *     sp_watchdog     a rank hangs, is stopped, or      crosses hosts, and ends the
 *                     its host is gone                  ranks that wait
 *     sp_crash_recorder
 *                     which rank of a node died first   survives the launcher, which
 *                                                       kills all within 12 ms
 *
 * Measured with MPICH's mpiexec and kill -9 of a random rank, 12 times each with 2, 4
 * and 8 ranks: with the crash recorder status.json named that rank in all 36 cases,
 * without it in 0 cases (its state was "running", and no rank was marked in
 * heartbeat.bin).
 */
#ifndef SP_HEARTBEAT_H
#define SP_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sp_error.h"

/* X(name, text): the phases that a rank can be in. */
#define SP_PHASE_LIST(X)                                                               \
    X(SP_PHASE_START, "start")                                                         \
    X(SP_PHASE_READ, "read")                                                           \
    X(SP_PHASE_PLAN, "plan")                                                           \
    X(SP_PHASE_FORWARD, "forward")                                                     \
    X(SP_PHASE_BACKWARD, "backward")                                                   \
    X(SP_PHASE_REDUCE, "reduce")                                                       \
    X(SP_PHASE_UPDATE, "update")                                                       \
    X(SP_PHASE_EVAL, "eval")                                                           \
    X(SP_PHASE_SAVE, "save")                                                           \
    X(SP_PHASE_LOAD, "load")                                                           \
    X(SP_PHASE_END, "end")

#define SP_PHASE_ENUM(name, text) name,
typedef enum sp_phase { SP_PHASE_LIST(SP_PHASE_ENUM) SP_PHASE_COUNT } sp_phase;
#undef SP_PHASE_ENUM

/* The text of a phase, such as "forward"; "unknown" for a number that is no phase. */
const char *sp_phase_name(sp_phase phase);

/* How a rank was lost, as found by another process. */
typedef enum sp_lost {
    SP_NOT_LOST,
    SP_LOST_DEAD,
    SP_LOST_SILENT,
    SP_LOST_HUNG,
    SP_LOST_COUNT
} sp_lost;

/* One rank's record, 128 bytes in the machine's byte order. Files of versions without
 * `done` and `total` have pid and epoch in 64 bits, so that they read as zero. */
typedef struct sp_heartbeat {
    char host[64];
    int32_t pid;
    int32_t done; /* samples of the pass at hand that are done, of all ranks */
    int64_t step;
    int32_t epoch;
    int32_t total;   /* samples of the pass, such as an evaluation; 0: no pass */
    double time;     /* seconds since 1970 */
    int64_t counter; /* advances with every write; 0: never written */
    /* An sp_phase; SP_PHASE_END: the rank closed the folder itself. */
    int32_t phase;
    int32_t lost; /* an sp_lost, written by the process that finds the rank lost */
    int64_t work, waits; /* signs of life, written by the watchdog (sp_liveness.h) */
} sp_heartbeat;

/* The open file of n records. With fd -1 there is no file: the functions below write
 * nothing and find nothing. Any thread may call them. */
typedef struct sp_heartbeats {
    int fd, n;
} sp_heartbeats;

/* Writes a new file of n zero records in place of any old one. Every byte is written,
 * so that a disk that fills up later still has room for the records. SP_EIO. */
sp_status sp_heartbeat_create(const char *path, int n);
/* Opens the file of n records, and replaces the one that *beats has open, if any.
 * SP_EIO, also for a file of another size. */
sp_status sp_heartbeat_open(sp_heartbeats *beats, const char *path, int n);
void sp_heartbeat_close(sp_heartbeats *beats);

/* Called by the training thread: writes the rank's own record except the fields that
 * other writers own (lost, work, waits). */
void sp_heartbeat_put(const sp_heartbeats *beats, int rank, const sp_heartbeat *record);
/* Called by the watchdog: writes the rank's signs of life. */
void sp_heartbeat_put_signs(const sp_heartbeats *beats, int rank, int64_t work,
                            int64_t waits);
/* Reads the present record of a rank. False if the record is missing or damaged. */
bool sp_heartbeat_get(const sp_heartbeats *beats, int rank, sp_heartbeat *record);
/* Marks a rank that another process has found lost. The first mark in the file remains:
 * ranks that end because of the first one are not marked. True if this call has marked
 * the rank. */
bool sp_heartbeat_mark_lost(const sp_heartbeats *beats, int rank, sp_lost lost);
/* The rank marked lost, or -1. */
int sp_heartbeat_lost(const sp_heartbeats *beats);

/* Copies the file into *records (malloc'd), *n of them. SP_EIO; SP_EDATA for a file of
 * another kind, or with a record that holds a value no rank writes. */
sp_status sp_heartbeat_read(const char *path, sp_heartbeat **records, int *n);
/* The rank marked lost in a copy of the file, or -1. */
int sp_heartbeat_find_lost(const sp_heartbeat *records, int n);
/* *first, *last: the ranks with the earliest and with the latest time among the records
 * that were written, the lower rank on a tie; -1 if no record was written. */
void sp_heartbeat_ends(const sp_heartbeat *records, int n, int *first, int *last);

/* Fills in time, phase, epoch and step of this process and advances the counter. */
void sp_heartbeat_beat(sp_heartbeat *record, sp_phase phase, int64_t epoch,
                       int64_t step);
/* States the progress of a pass over samples, 0 of 0 without a pass; the next write
 * stores it. Both are halved until they fit. */
void sp_heartbeat_count(sp_heartbeat *record, int64_t done, int64_t total);
/* The pass that ranks have counted: *total, and *done of the rank that has done least.
 * False without a pass. */
bool sp_heartbeat_pass(const sp_heartbeat *records, int n, int64_t *done,
                       int64_t *total);
/* State of the record's process if it ran on this host: "gone", or "stopped" (by a
 * signal: it does nothing until it is continued). "" for a process that runs, or that
 * cannot be seen from here. */
const char *sp_heartbeat_process(const sp_heartbeat *record);

#endif

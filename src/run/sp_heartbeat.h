/* heartbeat.bin: one record a rank, written in place, so that it tells what each rank
 * did last, however the rank ended.
 *
 * Records are written and read by system calls. A mapping of the file would be faster
 * by a microsecond, and would kill all ranks by SIGBUS where somebody cuts the file
 * off. Three writers share a record, each has bytes of its own: the rank's training
 * thread, its watchdog, and whoever finds the rank lost.
 *
 * How the parts that tell of a rank's end complete each other:
 *
 *     part            tells                             and no other part
 *     sp_pulse        this process works or waits       tells a wait from a hang
 *     heartbeat.bin   phase, epoch, step of each rank   is there after all have died
 *     sp_watchdog     a rank hangs, is stopped, or      crosses hosts, and ends the
 *                     its host is gone                  ranks that wait
 *     sp_witness      which rank of a node died first   survives the launcher, which
 *                                                       kills all within 12 ms
 *
 * Measured with MPICH's mpiexec, 12 times kill -9 of a random rank for each of 2, 4 and
 * 8 ranks: with the witness status.json named that rank 36 times of 36, without it
 * never (it said "running", and no rank was marked in heartbeat.bin).
 */
#ifndef SP_HEARTBEAT_H
#define SP_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sp_error.h"

/* X(name, text) of what a rank is doing. */
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

/* "forward"; "unknown" for what is no phase. */
const char *sp_phase_name(sp_phase phase);

/* How a rank was lost, as another process has found it. */
typedef enum sp_lost {
    SP_NOT_LOST,
    SP_LOST_DEAD,
    SP_LOST_SILENT,
    SP_LOST_HUNG,
    SP_LOST_COUNT
} sp_lost;

/* One rank's record, 128 bytes in the machine's byte order. */
typedef struct sp_heartbeat {
    char host[64];
    int64_t pid, step, epoch;
    double time;         /* seconds since 1970 */
    int64_t counter;     /* advances with every write; 0: never written */
    int32_t phase;       /* sp_phase; SP_PHASE_END: left by itself */
    int32_t lost;        /* sp_lost */
    int64_t work, waits; /* signs of life, written by the watchdog (sp_pulse.h) */
} sp_heartbeat;

/* The open file of n records. fd -1: there is none, and the functions below do nothing
 * and find nothing. They may be called by any thread. */
typedef struct sp_heartbeats {
    int fd, n;
} sp_heartbeats;

/* A new file of n zero records in place of any old one. Every byte is written, so that
 * a disk that is full later has room for what is written in place. SP_EIO. */
sp_status sp_heartbeat_create(const char *path, int n);
/* Opens the file of n records; in place of the one that *beats has open, if it has.
 * SP_EIO, where it is no file of n records too. */
sp_status sp_heartbeat_open(sp_heartbeats *beats, const char *path, int n);
void sp_heartbeat_close(sp_heartbeats *beats);

/* Training thread: the rank's own record; what others write of it stays. */
void sp_heartbeat_put(const sp_heartbeats *beats, int rank, const sp_heartbeat *record);
/* Watchdog: the rank's signs of life. */
void sp_heartbeat_put_signs(const sp_heartbeats *beats, int rank, int64_t work,
                            int64_t waits);
/* The record of a rank as it is now. False: there is none, or it is damaged. */
bool sp_heartbeat_get(const sp_heartbeats *beats, int rank, sp_heartbeat *record);
/* Another process has found this rank lost, the first in the file: those that fall with
 * it are not marked. True if it was. */
bool sp_heartbeat_mark_lost(const sp_heartbeats *beats, int rank, sp_lost lost);
/* The rank marked lost; -1: none. */
int sp_heartbeat_lost(const sp_heartbeats *beats);

/* A copy of the file, malloc'd; *n records. SP_EIO; SP_EDATA for what is no such file,
 * or has a record with a value that no rank writes. */
sp_status sp_heartbeat_read(const char *path, sp_heartbeat **records, int *n);
/* The rank marked lost in a copy; -1: none. */
int sp_heartbeat_find_lost(const sp_heartbeat *records, int n);
/* The first of the records with the earliest and with the latest time, among those
 * written; -1 where none was. */
void sp_heartbeat_ends(const sp_heartbeat *records, int n, int *first, int *last);

/* Fill in what this process does now. */
void sp_heartbeat_beat(sp_heartbeat *record, sp_phase phase, int64_t epoch,
                       int64_t step);
/* State of the record's process, where it ran on this host: "gone", "stopped" (by a
 * signal: it does nothing until it is continued); "" for one that runs or cannot be
 * seen from here. */
const char *sp_heartbeat_process(const sp_heartbeat *record);

#endif

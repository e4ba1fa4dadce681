/* heartbeat.bin: one record a rank, written in place through a mapping, so that it
 * tells what each rank did last, however the rank ended.
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

/* What a watching rank has found; its text is what the rank did. */
typedef enum sp_lost {
    SP_NOT_LOST,
    SP_LOST_DEAD,
    SP_LOST_SILENT,
    SP_LOST_HUNG
} sp_lost;

/* One rank's record, 128 bytes in the machine's byte order. */
typedef struct sp_heartbeat {
    char host[64];
    int64_t pid, step, epoch;
    double time;         /* seconds since 1970 */
    int32_t phase;       /* sp_phase; SP_PHASE_END: left by itself */
    int32_t lost;        /* sp_lost */
    int64_t counter;     /* advances with every write; 0: never written */
    int64_t work, waits; /* signs of life, copied by the watchdog (sp_pulse.h) */
} sp_heartbeat;

/* A new file of n zero records in place of any old one. Every byte is written, since a
 * store to a page for which a full disk has no room would kill the process. SP_EIO. */
sp_status sp_heartbeat_create(const char *path, int n);
/* The file of n records, shared with its other users. SP_EIO. */
sp_status sp_heartbeat_map(const char *path, int n, sp_heartbeat **records);
void sp_heartbeat_unmap(sp_heartbeat *records, int n);
/* A copy of the file, malloc'd; *n records. SP_EIO, SP_EDATA for what is no such file.
 */
sp_status sp_heartbeat_read(const char *path, sp_heartbeat **records, int *n);

/* What this process does now: a few stores. */
void sp_heartbeat_beat(sp_heartbeat *record, sp_phase phase, int64_t epoch,
                       int64_t step);

/* Another rank has found this one lost, the first in the file: those that fall with it
 * are not marked. True if it was. */
bool sp_heartbeat_mark_lost(sp_heartbeat *records, int n, int rank, sp_lost lost);
/* The rank marked lost; -1: none. */
int sp_heartbeat_lost(const sp_heartbeat *records, int n);

/* The first of the records with the earliest and with the latest time, among those
 * written; -1 where none was. */
void sp_heartbeat_ends(const sp_heartbeat *records, int n, int *first, int *last);
/* True if the record's process ran on this host and is no more. */
bool sp_heartbeat_is_gone(const sp_heartbeat *record);

#endif

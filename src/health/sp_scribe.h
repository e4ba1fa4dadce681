/* A thread that writes a rank's signs of life into heartbeat.bin for the watchdog,
 * which must not wait for a hanging file system. */
#ifndef SP_SCRIBE_H
#define SP_SCRIBE_H

#include <stdint.h>

#include "run/sp_heartbeat.h"

typedef struct sp_scribe sp_scribe;

/* Starts the thread; beats are borrowed until sp_scribe_stop. Local. SP_EMEM, and
 * *scribe is NULL. */
sp_status sp_scribe_start(sp_scribe **scribe, const sp_heartbeats *beats, int rank);
/* Leaves the counts for the thread, which writes the latest ones, and returns at once.
 * Any thread; NULL does nothing. */
void sp_scribe_write(sp_scribe *scribe, int64_t work, int64_t waits);
/* Ends the thread when it has written the rest, or abandons it after 5 s if the file
 * system does not answer. NULL is accepted. */
void sp_scribe_stop(sp_scribe *scribe);

#endif

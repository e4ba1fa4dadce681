/* A limit on the start of the ranks. Until the watchdog runs, a rank that is stopped or
 * whose host is lost would keep the others in MPI's start for ever.
 *
 * A thread waits while MPI starts. After a quarter of the limit, one rank of each host
 * reports that ranks are missing, and which process of this host is stopped; at the
 * limit it reports the same again and each rank ends with SP_EMPI, upon which the
 * launcher ends the rest. The environment variable SP_START_S is the limit in seconds
 * (300 by default); 0: no limit.
 */
#ifndef SP_START_H
#define SP_START_H

/* Starts the thread. Called once, before MPI starts. If the thread cannot be started,
 * there is no limit. Local. */
void sp_start_watch(void);
/* Ends the limit: all ranks have come as far as the watchdog needs, or this rank ends.
 * May be called again. Local. */
void sp_start_over(void);

#endif

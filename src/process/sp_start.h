/* A limit on the start of the ranks: until the watchdog watches, a rank that is stopped
 * or whose host is gone would keep the others in MPI's start for ever.
 *
 * A thread waits beside MPI. After a quarter of the limit one rank of each host says
 * that ranks are waited for, and which process of this host is stopped; at the limit it
 * says so again and each rank ends with SP_EMPI, upon which the launcher ends the rest.
 * The environment's SP_START_S is the limit in seconds (300); 0: none.
 */
#ifndef SP_START_H
#define SP_START_H

/* Once, before MPI starts. A thread that cannot be started is left out. */
void sp_start_watch(void);
/* All ranks have come as far as the watchdog needs, or this rank ends. May be called
 * again. */
void sp_start_over(void);

#endif

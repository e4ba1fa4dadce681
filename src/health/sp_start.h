/* A limit on the start of the ranks. Until the watchdog runs, a rank that is stopped or
 * has lost its host would keep the others in MPI's start for ever.
 *
 * A thread waits while MPI starts. After a quarter of the limit, one rank of each host
 * reports that ranks are missing, and which process of this host is stopped; at the
 * limit it reports the same again and each rank ends with SP_EMPI, so that the launcher
 * ends the rest. The environment variable SP_START_S is the limit in seconds (300 by
 * default); 0: no limit.
 *
 * In commands without a run folder the thread continues after the start, since most of
 * them have no watchdog: if this rank has waited for others for a twentieth of the
 * limit without any work in between, and a process of this host is stopped, one rank of
 * the host names it, once a wait. Nothing is ended, since whoever stopped it may
 * continue it.
 */
#ifndef SP_START_H
#define SP_START_H

/* The limit in seconds; 0: no limit. Local. */
double sp_start_limit_s(void);
/* Starts the thread. Called once, before MPI starts. program: the first word of its
 * messages, a string constant. If the thread cannot be started, there is no limit.
 * Local. */
void sp_start_watch(const char *program);
/* Ends the limit as sp_start_over does, in a command without a run folder. The thread
 * names stopped processes from here on until sp_start_over. A second call does nothing.
 * Local. */
void sp_start_together(int rank);
/* Ends the limit: all ranks have reached the watchdog's start, or this rank ends. May
 * be called again. Local. */
void sp_start_over(void);
/* Returns the rank that the launcher's environment gives to this process, before MPI
 * has started and without it; 0 if the environment states no rank. torchrun's RANK
 * counts too if its variables describe a world (comm/sp_launcher.h). Local. */
int sp_start_rank(void);

#endif

/* Requests to stop: TERM, INT, USR1, USR2, HUP of a terminal that is lost, XCPU of a
 * batch system before the limit. The handler sets a flag and nothing else;
 * the ranks agree on it at the end of a step, in eval and predict between two batches,
 * and in spvox between two stages of its work. A second signal, two seconds or more
 * after the first, ends the process at once. All functions are local. */
#ifndef SP_SIGNAL_H
#define SP_SIGNAL_H

#include <signal.h>

#include "base/sp_error.h"

/* The requests, as a list of an array. */
#define SP_SIGNAL_REQUESTS SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU

/* Called first in main. HUP ends the program again, or stays ignored as nohup has it,
 * whatever handler a library has set. A write beyond the limit on the size of files
 * (ulimit -f) then fails, as on a full disk, instead of ending the process; the system
 * keeps how children end, even if the parent process ignores SIGCHLD; and a closed
 * standard stream stays closed: no pipe or file of the program gets its number, since
 * the log would be written there. */
void sp_signal_begin(void);
/* Installs the handlers. Called once, before MPI starts. HUP stays ignored if it
 * was, as nohup has it. If MPI hangs in its start, a request to stop ends the process
 * after five seconds with SP_ELIMIT, since there is nothing to save yet. */
void sp_signal_install(void);
/* States that MPI has started: from now on a request is answered at the end of a step.
 * HUP gets its earlier handling back, since UCX replaces it in the start of MPI. */
void sp_signal_started(void);
/* Delays abort() by a second from now on. A library often aborts because a peer is
 * dying, and the delay lets the watchdog see first the rank that died first. */
void sp_signal_delay_abort(void);
/* Makes the process end with this status after `seconds`, for a program that has its
 * results on disk and might hang in its last calls (the end of MPI). */
void sp_signal_leave_after(unsigned seconds, int status);
/* Seconds until the batch system ends this job (SLURM_JOB_END_TIME, which newer
 * versions of Slurm set); INFINITY if the variable is not set. */
double sp_signal_job_left_s(void);
/* Number of the signal received, 0: no signal. */
int sp_signal_received(void);
/* SP_ELIMIT, with a message that names the signal, once this process was asked to stop.
 * For commands that have nothing to save; their ranks agree on it. */
sp_status sp_signal_check(void);

#endif

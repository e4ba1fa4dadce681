/* Requests to stop: TERM, INT, USR1, USR2. The handler sets a flag and nothing else;
 * ranks agree on it at the end of a step. A second signal two seconds or more after the
 * first ends the process at once. */
#ifndef SP_SIGNAL_H
#define SP_SIGNAL_H

/* First thing in main: a write beyond the limit on the size of files (ulimit -f) fails,
 * as on a full disk, rather than end the process. */
void sp_signal_ignore_size_limit(void);
/* Once, before MPI starts. Should MPI hang in its start, a request ends the process
 * after five seconds with SP_ELIMIT: there is nothing to save yet. */
void sp_signal_install(void);
/* MPI has started: from now on requests are heeded at the end of a step. */
void sp_signal_started(void);
/* A library that aborts is often the echo of a peer that is dying: from now on it waits
 * a second, so that who died first is seen first. */
void sp_signal_delay_abort(void);
/* All is said and on disk: should what follows (the end of MPI) hang, the process
 * leaves with this status after so many seconds. */
void sp_signal_leave_after(unsigned seconds, int status);
/* Seconds until the batch system ends this job (SLURM_JOB_END_TIME, which Slurm sets
 * in its newer versions); INFINITY where it does not say. */
double sp_signal_job_left_s(void);
/* Number of the signal received, 0: none. */
int sp_signal_received(void);

#endif

/* Faults on demand, for the tests that show which failures a run survives
 * (tests/faults/test_run_kill.sh, tests/faults/test_run_watchdog.sh).
 *
 * The environment variable SP_TEST_FAULT=ACTION@RANK:POINT:STEP does ACTION when RANK
 * passes POINT for the first time in or after STEP. Without the variable a point costs
 * one comparison.
 *
 *   ACTION  kill (SIGKILL, as a kernel short of memory does), stop (SIGSTOP), term,
 *           hup, xcpu (SIGTERM, SIGHUP, SIGXCPU, requests to end), segv, abort,
 *           leave (_exit(0)), quit (_exit(3)), exit (exit(0)), hang (the thread sleeps
 *           for ever), pause (it sleeps a tenth of a second), stall (it sleeps six
 *           seconds). Two actions happen at every passing: slow sleeps a tenth of a second, busy computes a hundredth.
 *   POINT   the name of a phase (run/sp_heartbeat.h), or a name given here: pread, plan
 *           (the loader's threads), file (a read of a file), saving, verified, renamed,
 *           linked (the thread that saves), peak (spbench's timings of
 *           ceilings; STEP is their number), voxelize and write (spvox; STEP is the
 *           number of the sample or the point), cut, written and made (label; STEP is the
 *           number of the scan, from 0: its blocks are cut, its output is written, and
 *           what that was made of is noted), together (all ranks have started, in a
 *           command without a run folder; step 0).
 *
 * When the fault happens, standard error has a line "fault: ACTION at SECONDS" (since
 * 1970); slow and busy print nothing.
 */
#ifndef SP_FAULT_H
#define SP_FAULT_H

#include <stdint.h>

/* Reads the environment. Called by programs when the rank is known; if it is called
 * again, the fault may happen again. */
void sp_fault_open(int rank);
/* Does the fault if it is due here; NULL unless one was asked for. step -1: the last one
 * that was given. Called by the two functions below. */
extern void (*sp_fault_hook)(const char *point, int64_t step);

/* Passes a point in a known step. Any thread. */
static inline void sp_fault_at(const char *point, int64_t step)
{
    if (sp_fault_hook)
        sp_fault_hook(point, step);
}

/* Passes a point in a thread that does not know the step: the step is the last one that
 * sp_fault_at was given. */
static inline void sp_fault_at_last_step(const char *point)
{
    sp_fault_at(point, -1);
}

#endif

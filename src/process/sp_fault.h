/* Faults on demand, for the tests of what a run survives (tests/run/test_run_kill.sh,
 * tests/run/test_run_watchdog.sh).
 *
 * The environment's SP_TEST_FAULT=ACTION@RANK:POINT:STEP does ACTION at the first
 * passing of POINT by RANK in or after STEP: kill (SIGKILL, as a kernel short of memory
 * does), stop (SIGSTOP), term (SIGTERM, a request to end), segv, abort, leave
 * (_exit(0)), quit (_exit(3)), exit (exit(0)), hang (the thread sleeps for ever), pause
 * (it sleeps a tenth of a second); slow does so at every passing, busy computes for a
 * hundredth of a second there. POINT is the name of a phase (sp_heartbeat.h) or one that
 * is given here: pread, plan (the loader's threads), saving, verified, renamed, linked
 * (the saver's), peak (spbench's timings of ceilings, whose number is STEP). When it
 * happens stderr has a line "fault: ACTION at SECONDS", since 1970. Without the variable
 * a point costs one comparison.
 */
#ifndef SP_FAULT_H
#define SP_FAULT_H

#include <stdint.h>

/* Once, when the rank is known. */
void sp_fault_open(int rank);
/* Any thread. */
void sp_fault_at(const char *point, int64_t step);
/* In a thread that does not know the step: the last one that sp_fault_at was given. */
void sp_fault_beside(const char *point);

#endif

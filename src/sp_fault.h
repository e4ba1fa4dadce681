/* Faults on demand, for the tests of what a run survives (tests/test_run_kill_np.sh).
 *
 * The environment's SP_TEST_FAULT=ACTION@RANK:POINT:STEP does ACTION at the first
 * passing of POINT by RANK in or after STEP: kill (SIGKILL), stop (SIGSTOP), segv,
 * leave (_exit(0)), exit (exit(0)), hang (the thread sleeps for ever). POINT is the
 * name of a phase (sp_heartbeat.h) or one that sp_fault_at is given: saving, verified,
 * renamed, linked. Without the variable a point costs one comparison.
 */
#ifndef SP_FAULT_H
#define SP_FAULT_H

#include <stdint.h>

/* Once, when the rank is known. */
void sp_fault_open(int rank);
/* Any thread. */
void sp_fault_at(const char *point, int64_t step);

#endif

/* The times of a training step.
 *
 *     sp_times_begin                                      the step begins
 *     sp_times_part  READ, FORWARD, ... (sp_step.h)       a part begins, the last one ends
 *     sp_times_end   --> step_s, forward_s, ... of this rank, in the report
 *     sp_times_reduce --> the slowest rank's, for steps that are logged
 *
 * A part's time is wall-clock time. A phase (sp_heartbeat.h) is one part or more, and
 * its time is only this rank's own work, measured by a clock that stops while the rank
 * waits for others (sp_liveness.h). The watchdog uses it to name the rank that is slow.
 */
#ifndef SP_TIMES_H
#define SP_TIMES_H

#include "api/sp_step.h"
#include "run/sp_heartbeat.h"

struct sp_device;      /* api/sp_device.h */
struct sp_step_report; /* train/sp_trainer.h */

/* Zero before the first step. */
typedef struct sp_times {
    /* Seconds that the present step has spent in each part, and the part at hand; the
     * same of phases, without waits for other ranks. */
    double part_s[SP_STEP_PARTS], phase_s[SP_PHASE_COUNT];
    sp_step_part part;
    sp_phase phase;
    double begin_s; /* of the step */
    /* When the part began, and when the phase did on the clock that waits stop. */
    double part_begin_s, phase_begin_s;
} sp_times;

/* Local: a step begins, in no part as yet. */
void sp_times_begin(sp_times *times);
/* Local: the step comes to a part. Returns its phase; SP_PHASE_START: the part belongs
 * to the phase before it. */
sp_phase sp_times_part(sp_times *times, sp_step_part part);
/* Local: the step has ended; phase_s stays until the next. Sets step_s and plan_s in
 * the report, and forward_s, backward_s and update_s, which are NAN on a device: it
 * works on while the host has long left the part that started the work. */
void sp_times_end(sp_times *times, const struct sp_learner *learner,
                  struct sp_step_report *report);
/* Collective: sets memory_bytes (sp_step_report) and replaces all times in the report
 * by the greatest of the ranks; NAN if no rank knows one. Allocates nothing.
 * SP_EMPI; errors of the device. */
sp_status sp_times_reduce(struct sp_device *device, struct sp_step_report *report);

#endif

/* The times of a training step.
 *
 *     sp_times_begin                                      the step begins
 *     sp_times_part  READ, FORWARD, ... (sp_step.h)       a part begins, the last one ends
 *     sp_times_end   --> step_s, forward_s, ... of this rank, in the report
 *     sp_times_reduce --> those of the slowest rank, for steps that are logged
 *
 * A part's time is that by the clock. A phase (sp_heartbeat.h) is one part or more, and
 * its time is this rank's own work alone: a clock that stands still while the rank
 * waits for others (sp_pulse.h) tells it. By it the watchdog names the rank that is
 * slow.
 */
#ifndef SP_TIMES_H
#define SP_TIMES_H

#include "run/sp_heartbeat.h"
#include "session/sp_step.h"

struct sp_resources;   /* session/sp_resources.h */
struct sp_step_report; /* train/sp_trainer.h */

typedef struct sp_times sp_times;

/* Collective: the resources, those of a training, are borrowed. sp_times_destroy
 * follows in any case; *times is NULL where there is no memory (SP_EMEM). */
sp_status sp_times_create(sp_times **times, struct sp_resources *resources);
/* NULL is accepted. */
void sp_times_destroy(sp_times *times);

/* Local: a step begins, in no part as yet. */
void sp_times_begin(sp_times *times);
/* Local: the step comes to a part. Returns its phase; SP_PHASE_START: the part belongs
 * to the phase before it. */
sp_phase sp_times_part(sp_times *times, sp_step_part part);
/* Local: the step has ended. Sets step_s and plan_s in the report, and forward_s,
 * backward_s and update_s, which are NAN on a device: it works on while the host has
 * long left the part that started the work. */
void sp_times_end(sp_times *times, struct sp_step_report *report);
/* Seconds of this rank's own work in each phase of the step that has ended. */
const double *sp_times_phases(const sp_times *times);
/* Collective: sets memory_bytes (sp_step_report) and replaces all times in the report
 * by the greatest of the ranks; NAN where no rank knows one. Allocates nothing.
 * SP_EMPI; errors of the device. */
sp_status sp_times_reduce(sp_times *times, struct sp_step_report *report);

#endif

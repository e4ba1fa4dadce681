/* The line of metrics.jsonl or evaluations.jsonl that rank 0 writes: shared by the
 * files of sp_output. Training thread only. */
#ifndef SP_OUTPUT_INTERNAL_H
#define SP_OUTPUT_INTERNAL_H

#include "base/sp_json.h"
#include "run/sp_events.h"
#include "train/sp_output.h"

/* Writer of all lines. It is reused, so that a step's line allocates nothing. */
extern sp_json sp_output_json;

/* Begins the line of an event. */
void sp_output_begin(const char *event);
/* Adds the member "time" to it: time_s, in seconds since 1970, as a date in UTC. */
void sp_output_time(double time_s);
/* Ends the record of the events at hand; a file system that fails is a warning. */
sp_status sp_output_events_end(sp_run *run);
/* Writes a number that TensorBoard shows too, in the group. Both files have it from
 * here, so they agree. */
void sp_output_number(sp_events *events, const char *group, const char *key,
                      double value);

#endif

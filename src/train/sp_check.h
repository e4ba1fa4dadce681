/* What `sptrain check` consists of. */
#ifndef SP_CHECK_H
#define SP_CHECK_H

#include "data/sp_sampler.h"
#include "train/sp_session.h"

/* Logs into how many micro-batches run.memory_mb, or a device that this process sees,
 * cuts the dearest step, and the memory that the steps of the deck take, evaluation
 * included; plans the largest samples on the host. Collective, agreed; reads some samples. val
 * NULL: no evaluation. SP_EDATA, SP_EIO, SP_EMEM. */
sp_status sp_check_memory(sp_session *session, sp_sampler *train, sp_sampler *val);

#endif

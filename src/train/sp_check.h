/* What `sptrain check` consists of. */
#ifndef SP_CHECK_H
#define SP_CHECK_H

#include "data/sp_sampler.h"
#include "train/sp_session.h"

/* Log the memory that the dearest step takes: the largest samples together, the first
 * of them planned on the host; and into how many micro-batches run.memory_mb, or a
 * device that this process sees, cuts it. Collective, agreed; reads some samples. val
 * NULL: no evaluation. SP_EDATA, SP_EIO, SP_EMEM. */
sp_status sp_check_memory(sp_session *session, sp_sampler *train, sp_sampler *val);

#endif

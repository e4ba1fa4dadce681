/* What `sptrain check` consists of. */
#ifndef SP_CHECK_H
#define SP_CHECK_H

#include "sp_sampler.h"
#include "sp_session.h"

/* Log the memory that the dearest step takes: the largest samples together, the first
 * of them planned on the host. Local, the same on every rank; reads one sample of each
 * set. SP_EDATA, SP_EIO, SP_EMEM. */
sp_status sp_check_memory(sp_session *session, const sp_sampler *sampler);

#endif

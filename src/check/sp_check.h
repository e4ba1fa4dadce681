/* The memory part of `sptrain check`. */
#ifndef SP_CHECK_H
#define SP_CHECK_H

#include "data/sp_sampler.h"
#include "session/sp_resources.h"

/* Logs the number of micro-batches into which run.memory_mb, or the memory of a device
 * that this process sees, cuts the most expensive step, and the memory that the steps
 * of the deck need, evaluation included. The largest samples are planned on the host.
 * Collective, agreed; reads some samples. val NULL: no evaluation. SP_EDATA, SP_EIO,
 * SP_EMEM. */
sp_status sp_check_memory(sp_resources *resources, sp_sampler *train, sp_sampler *val);

#endif

/* The weights are the same bits on all ranks, since all add the same sums to the same
 * values. A rank whose memory, processor or network said otherwise would spoil the run
 * without a sign; here it is found and named.
 */
#ifndef SP_REPLICA_H
#define SP_REPLICA_H

#include <stdint.h>

#include "comm/sp_comm.h"

/* Collective: compare n floats over all ranks; `what` and step are for the message.
 * SP_ENUMERIC names the ranks that differ from most; agreed. Cost: one hash (about 20
 * GB/s) and one all-reduce of 8 bytes a rank. */
sp_status sp_replica_check(sp_comm *comm, const float *data, int64_t n,
                           const char *what, int64_t step);

#endif

/* Comparison of the weights between ranks. They are bit for bit the same on all ranks,
 * since every rank adds the same sums to the same values. A rank with faulty memory,
 * processor or network would otherwise spoil the run silently; this check finds and
 * names it. */
#ifndef SP_REPLICA_H
#define SP_REPLICA_H

#include <stdint.h>

#include "comm/sp_comm.h"

/* Collective, agreed: compares n floats (host memory) over all ranks; step is for the
 * message. SP_ENUMERIC names the ranks that differ from the majority. Cost:
 * one hash (measured: about 20 GB/s) and one all-reduce of 8 bytes a rank. */
sp_status sp_replica_check(sp_comm *comm, const float *data, int64_t n, int64_t step);

#endif

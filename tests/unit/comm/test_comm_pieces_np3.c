/* sp_comm with messages cut into pieces of 1000 bytes, all of them by MPI. */
#define PIECE_BYTES ((size_t)1000)
#include "comm/sp_comm_sums.c"
#include "comm/sp_comm_gather.c"

#include "unit/comm/test_comm_ranks.c"

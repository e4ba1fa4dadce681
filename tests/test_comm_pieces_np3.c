/* sp_comm with messages cut into pieces of 1000 bytes. */
#define PIECE_BYTES ((size_t)1000)
#include "../src/sp_comm.c"

#define START_RANKS() OK(sp_comm_open(&comm, &argc, &argv))
#include "test_comm_ranks.h"

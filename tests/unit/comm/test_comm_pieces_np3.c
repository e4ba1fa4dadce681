/* sp_comm with messages cut into pieces of 1000 bytes, all of them by MPI. */
#define PIECE_BYTES ((size_t)1000)
#include "comm/sp_comm.c"
#include "comm/sp_comm_gather.c"

#define START_RANKS()                                                                  \
    do {                                                                               \
        setenv("SP_NODE_MEMORY", "0", 1);                                              \
        OK(sp_comm_open(&comm, &argc, &argv));                                         \
    } while (0)
#include "unit/comm/test_comm_ranks.h"

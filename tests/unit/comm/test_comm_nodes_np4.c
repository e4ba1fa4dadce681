/* sp_comm with 4 ranks on nodes of 3 and 1. */
#define START_RANKS()                                                                  \
    do {                                                                               \
        setenv("SP_RANKS_PER_NODE", "3", 1);                                           \
        OK(sp_comm_open(&comm, &argc, &argv));                                         \
        if (comm.n_nodes != 2 || comm.local_size != (comm.rank < 3 ? 3 : 1))           \
            return 1;                                                                  \
    } while (0)
#include "unit/comm/test_comm_ranks.h"

/* sp_net on 4 ranks of two nodes. */
#define START_RANKS()                                                                  \
    do {                                                                               \
        setenv("SP_RANKS_PER_NODE", "2", 1);                                           \
        OK(sp_comm_open(&comm, &argc, &argv));                                         \
    } while (0)
#include "unit/net/test_net_ranks.h"

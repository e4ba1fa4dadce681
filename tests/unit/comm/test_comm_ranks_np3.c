/* sp_comm on 3 ranks of one node. */
#define START_RANKS() OK(sp_comm_open(&comm, &argc, &argv))
#include "unit/comm/test_comm_ranks.h"

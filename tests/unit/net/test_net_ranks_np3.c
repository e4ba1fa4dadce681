/* sp_net on 3 ranks of one node. */
#define START_RANKS() OK(sp_comm_open(&comm, &argc, &argv))
#include "unit/net/test_net_ranks.h"

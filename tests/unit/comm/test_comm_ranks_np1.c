/* sp_comm on 1 rank. */
#define START_RANKS() OK(sp_comm_open(&comm, &argc, &argv))
#include "unit/comm/test_comm_ranks.h"

/* sp_comm without MPI, as tests of later modules use it. */
#define START_RANKS() ((void)argc, (void)argv, sp_comm_open_self(&comm))
#include "unit/comm/test_comm_ranks.h"

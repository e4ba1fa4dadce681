/* sp_merger on one rank without MPI. */
#define START_RANKS() sp_comm_open_self(&comm)
#include "unit/merge/test_merger.h"

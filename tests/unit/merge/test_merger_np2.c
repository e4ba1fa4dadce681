/* sp_merger on 2 ranks. */
#define START_RANKS() OK(sp_comm_open(&comm, &argc, &argv))
#include "unit/merge/test_merger.h"

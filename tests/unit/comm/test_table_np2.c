#include "unit/comm/test_table.h"

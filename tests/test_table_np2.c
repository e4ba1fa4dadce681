#include "test_table.h"

#include "sp_exact.h"

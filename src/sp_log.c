#include "sp_log.h"

#include "sp_metrics.h"

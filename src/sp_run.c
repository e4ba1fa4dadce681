#include "sp_run.h"

#include "sp_optim.h"

#include "sp_checkpoint.h"

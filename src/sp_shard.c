#include "sp_shard.h"

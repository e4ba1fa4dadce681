#include "sp_sampler.h"

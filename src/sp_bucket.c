#include "sp_bucket.h"

#include "sp_tensor.h"

#include "sp_h5.h"

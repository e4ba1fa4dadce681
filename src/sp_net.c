#include "sp_net.h"

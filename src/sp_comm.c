#include "sp_comm.h"

#include "sp_voxel.h"

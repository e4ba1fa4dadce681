#include "sp_loader.h"

#include "sp_backend.h"

#include "sp_train.h"

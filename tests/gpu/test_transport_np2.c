#include "gpu/test_transport.h"

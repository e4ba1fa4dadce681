#include "gpu/test_peer_memory.h"

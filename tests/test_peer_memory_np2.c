#include "test_peer_memory.h"

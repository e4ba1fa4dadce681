#include "test_peer.h"

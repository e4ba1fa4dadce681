#include "test_transport.h"

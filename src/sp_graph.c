#include "sp_graph.h"

#include "sp_deck.h"

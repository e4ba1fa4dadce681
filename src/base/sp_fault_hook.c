/* The one variable of sp_fault.h that library code sees: the faults themselves are in
 * programs only. */
#include "base/sp_fault.h"

void (*sp_fault_hook)(const char *point, int64_t step);

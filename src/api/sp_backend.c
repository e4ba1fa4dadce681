/* The list of backends: finds a table of operations by name.
 *
 *     sp_backend_find("cpu")  --> sp_cpu_ops       src/cpu: vectors and threads
 *     sp_backend_find("cuda") --> sp_cuda_table()  cuda/, or no_cuda.c: NULL
 */
#include "compute/sp_backend.h"

#include <string.h>

#include "cpu/cpu.h"

const sp_backend_ops *sp_backend_find(const char *name)
{
    return strcmp(name, "cpu") == 0    ? &sp_cpu_ops
           : strcmp(name, "cuda") == 0 ? sp_cuda_table()
                                       : NULL;
}

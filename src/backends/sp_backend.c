/* The list of backends: finds a table of operations by name.
 *
 *     sp_backend_find("cpu")  --> sp_cpu_ops       src/cpu: vectors and threads
 *     sp_backend_find("cuda") --> sp_cuda_table()  cuda/, or no_cuda.c: NULL
 *     sp_backend_reference()  --> sp_ref_ops       ref_*.c of this room: plain loops
 *
 * The reference backend defines what each operation computes, without threads, blocking
 * or packed weights, and tests hold the other two to it. It stands in a room of its own
 * behind src/cpu because its table shares the plan and the arenas of the CPU backend.
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

const sp_backend_ops *sp_backend_reference(void)
{
    return &sp_ref_ops;
}

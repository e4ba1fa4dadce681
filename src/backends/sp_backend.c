/* The list of backends: finds a table of operations by name, and describes the CUDA
 * devices of this process.
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

#include "compute/sp_cuda_link.h"
#include "cpu/cpu.h"

const sp_backend_ops *sp_backend_find(const char *name)
{
    return strcmp(name, "cpu") == 0    ? &sp_cpu_ops
           : strcmp(name, "cuda") == 0 ? sp_cuda_table()
                                       : NULL;
}

int sp_backend_visible_devices(void)
{
    return sp_cuda_device_count();
}

void sp_backend_why_none(char *text, size_t size)
{
    sp_cuda_why_none(text, size);
}

sp_status sp_backend_device(int i, sp_device *device)
{
    memset(device, 0, sizeof *device);
    return sp_cuda_device(i, device);
}

int sp_backend_cuda_version(void)
{
    return sp_cuda_toolkit();
}

const sp_backend_ops *sp_backend_reference(void)
{
    return &sp_ref_ops;
}

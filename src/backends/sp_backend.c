/* The list of backends: finds a table of operations by name, and describes the CUDA
 * devices of this process. The only file of src/ that knows whether the build has CUDA.
 *
 *     sp_backend_find("cpu")  --> sp_cpu_ops    src/cpu: vectors and threads
 *     sp_backend_find("cuda") --> sp_cuda_ops   cuda/: NULL in a build without CUDA
 *     sp_backend_reference()  --> sp_ref_ops    ref_*.c of this room: plain loops
 *
 * The reference backend defines what each operation computes, without threads, blocking
 * or packed weights, and tests hold the other two to it. It stands in a room of its own
 * behind src/cpu because its table shares the plan and the arenas of the CPU backend.
 */
#include "compute/sp_backend.h"

#include <stdio.h>
#include <string.h>

#include "config.h"
#include "cpu/cpu.h"

#if SP_WITH_CUDA
extern const sp_backend_ops sp_cuda_ops; /* cuda/device/cuda_ops.h */
int sp_cuda_device_count(void);
void sp_cuda_why_none(char *text, size_t size);
int sp_cuda_toolkit(void);
sp_status sp_cuda_device(int i, sp_device *device);
#endif

const sp_backend_ops *sp_backend_find(const char *name)
{
    if (strcmp(name, "cpu") == 0)
        return &sp_cpu_ops;
#if SP_WITH_CUDA
    if (strcmp(name, "cuda") == 0)
        return &sp_cuda_ops;
#endif
    return NULL;
}

int sp_backend_visible_devices(void)
{
#if SP_WITH_CUDA
    return sp_cuda_device_count();
#else
    return 0;
#endif
}

void sp_backend_why_none(char *text, size_t size)
{
#if SP_WITH_CUDA
    sp_cuda_why_none(text, size);
#else
    snprintf(text, size, "this program computes on the CPU only");
#endif
}

sp_status sp_backend_device(int i, sp_device *device)
{
    memset(device, 0, sizeof *device);
#if SP_WITH_CUDA
    return sp_cuda_device(i, device);
#else
    return SP_FAIL(SP_EDEVICE, "CUDA device %d: this program computes on the CPU only",
                   i);
#endif
}

int sp_backend_cuda_version(void)
{
#if SP_WITH_CUDA
    return sp_cuda_toolkit();
#else
    return 0;
#endif
}

const sp_backend_ops *sp_backend_reference(void)
{
    return &sp_ref_ops;
}

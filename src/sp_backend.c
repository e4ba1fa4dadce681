#include "sp_backend.h"

#include <string.h>

#include "config.h"
#include "cpu/cpu.h"

#if SP_WITH_CUDA
extern const sp_backend_ops sp_cuda_ops; /* cuda/cuda_ops.h */
int sp_cuda_device_count(void);
int sp_cuda_toolkit(void);
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

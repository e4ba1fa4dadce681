/* Loading of kernels when a device is opened: sp_cuda_load.h has the reason. */
#include "base/sp_liveness.h"
#include "cuda/device/sp_cuda.h"

static const sp_listed_kernel *first_kernel; /* NULL before any constructor runs */

sp_listed_kernel::sp_listed_kernel(const void *kernel)
    : code(kernel), next(first_kernel)
{
    first_kernel = this;
}

/* Once for each device, since a process has one context there. The driver may have to
 * compile the kernels of a file, which takes up to some ten seconds, at the first one
 * of them. */
cudaError_t sp_kernels_load(void)
{
    static int loaded_on = -1;
    cudaFuncAttributes unused;
    int device;
    cudaError_t error = cudaGetDevice(&device);

    if (error != cudaSuccess || device == loaded_on)
        return error;
    for (const sp_listed_kernel *k = first_kernel; k; k = k->next) {
        error = cudaFuncGetAttributes(&unused, k->code);
        if (error != cudaSuccess)
            return error;
        sp_liveness_count();
    }
    error = sp_sort_load();
    if (error == cudaSuccess)
        loaded_on = device;
    return error;
}

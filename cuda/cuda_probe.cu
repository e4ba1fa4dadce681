/* What CUDA devices this process has. Every failure means "none": a missing driver
 * leaves the count untouched. */
#include <cuda_runtime.h>

extern "C" int sp_cuda_device_count(void)
{
    int n = 0;

    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

extern "C" int sp_cuda_toolkit(void)
{
    return CUDART_VERSION;
}

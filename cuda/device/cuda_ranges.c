/* Named ranges for NVIDIA's profilers: Nsight Systems shows steps, layers, plans and
 * sums above the kernels. NVTX is only a header; without a profiler a range costs a
 * test of a pointer. A build without the header has no ranges. */
#include "cuda/device/cuda_ops.h"

#if SP_WITH_NVTX
#include <nvtx3/nvToolsExt.h>

void sp_cuda_range_begin(const char *name)
{
    nvtxRangePushA(name);
}

void sp_cuda_range_end(void)
{
    nvtxRangePop();
}
#else
void sp_cuda_range_begin(const char *name)
{
    (void)name;
}

void sp_cuda_range_end(void) {}
#endif

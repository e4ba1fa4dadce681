/* The one header through which .cu files see CUDA: nvcc gets the toolkit's, any other
 * compiler the emulator of the tests (tests/hostcuda), on which every kernel runs in
 * `make check`. What the two need of a kernel file: launches by SP_LAUNCH, shared
 * arrays by SP_SHARED, masks written out, no early return before a later __syncthreads,
 * streams of one's own.
 */
#ifndef SP_CUDA_H
#define SP_CUDA_H

#ifdef __CUDACC__

#include <cuda_runtime.h>

/* Templated kernels in parentheses: SP_LAUNCH((sum_kernel<32>), grid, block, ...). */
#define SP_LAUNCH(kernel, grid, block, stream, ...)                                    \
    (kernel)<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__)
#define SP_SHARED(T, name, dims) __shared__ __align__(16) T name dims

/* Addresses apart from memory (cuda_vmm.cu). Sizes are multiples of SP_VMM_GRANULE. */
cudaError_t sp_vmm_reserve(void **base, size_t bytes);
cudaError_t sp_vmm_back(void *at, size_t bytes, int device);
/* backed: from base on. The device must be idle. */
cudaError_t sp_vmm_release(void *base, size_t bytes, size_t backed);

#else

#include "hostcuda.h"

#endif

enum { SP_VMM_GRANULE = 2 << 20 };

#endif

/* On a real device the tests of the kernels find the emulator's functions here: there
 * is no order to choose and nothing is checked. Waits, and what is queued, are counted
 * by the linker's wraps. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fixtures/wrapped.h"
#include "gpu/kernel_tests.h"

void hc_set_order(uint64_t seed, bool is_lazy)
{
    (void)seed;
    (void)is_lazy;
}

bool hc_is_checked(void)
{
    return false;
}

/* ---- waits ---- */

static unsigned n_waits;

unsigned hc_waits(void)
{
    return n_waits;
}

WRAPPED_BEHIND(n_waits++, int, cudaStreamSynchronize, (stream), void *stream)
WRAPPED_BEHIND(n_waits++, int, cudaEventSynchronize, (event), void *event)
WRAPPED_BEHIND(n_waits++, int, cudaDeviceSynchronize, (), void)

/* ---- operations: kernels, copies and fills, those of the sort too ---- */

static unsigned n_operations;

unsigned hc_operations(void)
{
    return n_operations;
}

/* dim3 */
typedef struct extent {
    unsigned x, y, z;
} extent;

/* NOLINTBEGIN: names given by the linker. nvcc writes one or the other launch, as its
 * version has it. */

WRAPPED_BEHIND(n_operations++, int, cudaLaunchKernelExC, (config, kernel, values),
               const void *config, const void *kernel, void **values)
WRAPPED_BEHIND(n_operations++, int, cudaLaunchKernel,
               (kernel, grid, block, values, shared_bytes, stream), const void *kernel,
               extent grid, extent block, void **values, size_t shared_bytes,
               void *stream)

#pragma weak __real___cudaLaunchKernel
WRAPPED_BEHIND(n_operations++, int, __cudaLaunchKernel,
               (kernel, grid, block, values, shared_bytes, stream), const void *kernel,
               extent grid, extent block, void **values, size_t shared_bytes,
               void *stream)
WRAPPED_BEHIND(n_operations++, int, cudaMemcpyAsync, (to, from, bytes, kind, stream),
               void *to, const void *from, size_t bytes, int kind, void *stream)
WRAPPED_BEHIND(n_operations++, int, cudaMemsetAsync, (data, byte, bytes, stream),
               void *data, int byte, size_t bytes, void *stream)
/* NOLINTEND */

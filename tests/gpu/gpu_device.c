/* On a real device the tests of the kernels find the emulator's functions here: there
 * is no order to choose and nothing is checked. Waits, and what is queued, are counted
 * by the linker's wraps. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fixtures/wrapped.h"

void hc_set_order(uint64_t seed, bool is_lazy);
bool hc_is_checked(void);
unsigned hc_waits(void);
unsigned hc_operations(void);

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

WRAPPED(int, cudaStreamSynchronize, void *stream)
{
    n_waits++;
    return __real_cudaStreamSynchronize(stream);
}

WRAPPED(int, cudaEventSynchronize, void *event)
{
    n_waits++;
    return __real_cudaEventSynchronize(event);
}

WRAPPED(int, cudaDeviceSynchronize, void)
{
    n_waits++;
    return __real_cudaDeviceSynchronize();
}

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

WRAPPED(int, cudaLaunchKernelExC, const void *config, const void *kernel, void **values)
{
    n_operations++;
    return __real_cudaLaunchKernelExC(config, kernel, values);
}

WRAPPED(int, cudaLaunchKernel, const void *kernel, extent grid, extent block,
        void **values, size_t shared_bytes, void *stream)
{
    n_operations++;
    return __real_cudaLaunchKernel(kernel, grid, block, values, shared_bytes, stream);
}

#pragma weak __real___cudaLaunchKernel
WRAPPED(int, __cudaLaunchKernel, const void *kernel, extent grid, extent block,
        void **values, size_t shared_bytes, void *stream)
{
    n_operations++;
    return __real___cudaLaunchKernel(kernel, grid, block, values, shared_bytes, stream);
}

WRAPPED(int, cudaMemcpyAsync, void *to, const void *from, size_t bytes, int kind,
        void *stream)
{
    n_operations++;
    return __real_cudaMemcpyAsync(to, from, bytes, kind, stream);
}

WRAPPED(int, cudaMemsetAsync, void *data, int byte, size_t bytes, void *stream)
{
    n_operations++;
    return __real_cudaMemsetAsync(data, byte, bytes, stream);
}
/* NOLINTEND */

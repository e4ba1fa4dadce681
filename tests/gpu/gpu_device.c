/* On a real device the tests of the kernels find the emulator's functions here: there
 * is no order to choose and nothing is checked. Waits, and what is queued, are counted
 * by the linker's wraps. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

int __real_cudaStreamSynchronize(void *stream);
int __wrap_cudaStreamSynchronize(void *stream);
int __real_cudaEventSynchronize(void *event);
int __wrap_cudaEventSynchronize(void *event);
int __real_cudaDeviceSynchronize(void);
int __wrap_cudaDeviceSynchronize(void);

int __wrap_cudaStreamSynchronize(void *stream)
{
    n_waits++;
    return __real_cudaStreamSynchronize(stream);
}

int __wrap_cudaEventSynchronize(void *event)
{
    n_waits++;
    return __real_cudaEventSynchronize(event);
}

int __wrap_cudaDeviceSynchronize(void)
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
int __real_cudaLaunchKernelExC(const void *config, const void *kernel, void **values);
int __wrap_cudaLaunchKernelExC(const void *config, const void *kernel, void **values);
int __real_cudaLaunchKernel(const void *kernel, extent grid, extent block,
                            void **values, size_t shared_bytes, void *stream);
int __wrap_cudaLaunchKernel(const void *kernel, extent grid, extent block,
                            void **values, size_t shared_bytes, void *stream);
int __real___cudaLaunchKernel(const void *kernel, extent grid, extent block,
                              void **values, size_t shared_bytes, void *stream)
    __attribute__((weak));
int __wrap___cudaLaunchKernel(const void *kernel, extent grid, extent block,
                              void **values, size_t shared_bytes, void *stream);
int __real_cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind,
                           void *stream);
int __wrap_cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind,
                           void *stream);
int __real_cudaMemsetAsync(void *data, int byte, size_t bytes, void *stream);
int __wrap_cudaMemsetAsync(void *data, int byte, size_t bytes, void *stream);

int __wrap_cudaLaunchKernelExC(const void *config, const void *kernel, void **values)
{
    n_operations++;
    return __real_cudaLaunchKernelExC(config, kernel, values);
}

int __wrap_cudaLaunchKernel(const void *kernel, extent grid, extent block,
                            void **values, size_t shared_bytes, void *stream)
{
    n_operations++;
    return __real_cudaLaunchKernel(kernel, grid, block, values, shared_bytes, stream);
}

int __wrap___cudaLaunchKernel(const void *kernel, extent grid, extent block,
                              void **values, size_t shared_bytes, void *stream)
{
    n_operations++;
    return __real___cudaLaunchKernel(kernel, grid, block, values, shared_bytes, stream);
}

int __wrap_cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind,
                           void *stream)
{
    n_operations++;
    return __real_cudaMemcpyAsync(to, from, bytes, kind, stream);
}

int __wrap_cudaMemsetAsync(void *data, int byte, size_t bytes, void *stream)
{
    n_operations++;
    return __real_cudaMemsetAsync(data, byte, bytes, stream);
}
/* NOLINTEND */

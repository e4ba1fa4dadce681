/* On a real device the tests of the kernels find the emulator's functions here: there
 * is no order to choose and nothing is checked. Waits are counted by the linker's
 * wraps. */
#include <stdbool.h>
#include <stdint.h>

void hc_set_order(uint64_t seed, bool is_lazy);
bool hc_is_checked(void);
unsigned hc_waits(void);

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

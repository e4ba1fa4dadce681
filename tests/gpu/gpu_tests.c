/* gpu_tests [NAME [ARGUMENTS]]: the tests of the CUDA kernels on a real device; without
 * a name the names, but for large, which takes minutes. Here is what the emulator has
 * elsewhere: there is no order to choose and nothing is checked; waits are counted by
 * the linker's wraps. Without a device: 77. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/device/cuda_ops.h"

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

/* ---- the tests: what was main in each of their files ---- */

int gpu_conv(void);
int gpu_wgmma(void);
int gpu_wgrad(void);
int gpu_plan(void);
int gpu_rows(void);
int gpu_loss(void);
int gpu_net(void);
int gpu_large(int argc, char **argv);

static const struct {
    const char *name;
    int (*run)(void);
} tests[] = {{"conv", gpu_conv}, {"wgmma", gpu_wgmma}, {"wgrad", gpu_wgrad},
             {"plan", gpu_plan}, {"rows", gpu_rows},   {"loss", gpu_loss},
             {"net", gpu_net}};

int main(int argc, char **argv)
{
    const size_t n = sizeof tests / sizeof *tests;

    if (sp_cuda_device_count() == 0) {
        char why[256];

        sp_cuda_why_none(why, sizeof why);
        fprintf(stderr, "SKIPPED: no usable CUDA device: %s\n", why);
        return 77;
    }
    if (argc > 1 && strcmp(argv[1], "large") == 0)
        return gpu_large(argc - 1, argv + 1);
    for (size_t i = 0; i < n; i++) {
        if (argc < 2)
            puts(tests[i].name);
        else if (strcmp(argv[1], tests[i].name) == 0)
            return tests[i].run();
    }
    if (argc > 1)
        fprintf(stderr, "no test %s\n", argv[1]);
    return argc > 1 ? 2 : 0;
}

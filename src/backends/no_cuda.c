/* The CUDA backend of a build without CUDA. */
#include <stdio.h>

#include "compute/sp_cuda_link.h"

#define ONLY_CPU "this program computes on the CPU only"

const sp_backend_ops *sp_cuda_table(void)
{
    return NULL;
}

int sp_cuda_device_count(void)
{
    return 0;
}

void sp_cuda_why_none(char *text, size_t size)
{
    snprintf(text, size, ONLY_CPU);
}

int sp_cuda_toolkit(void)
{
    return 0;
}

sp_status sp_cuda_device(int i, sp_device *device)
{
    (void)device;
    return SP_FAIL(SP_EDEVICE, "CUDA device %d: " ONLY_CPU, i);
}

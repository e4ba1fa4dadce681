/* The CUDA backend of a build without CUDA. */
#include <stdio.h>

#include "compute/sp_backend.h"

#define ONLY_CPU "this program computes on the CPU only"

const sp_backend_ops *sp_cuda_table(void)
{
    return NULL;
}

int sp_backend_visible_devices(void)
{
    return 0;
}

void sp_backend_why_none(char *text, size_t size)
{
    snprintf(text, size, ONLY_CPU);
}

int sp_backend_cuda_version(void)
{
    return 0;
}

sp_status sp_backend_device(int i, sp_device_info *device)
{
    (void)device;
    return SP_FAIL(SP_EDEVICE, "CUDA device %d: " ONLY_CPU, i);
}

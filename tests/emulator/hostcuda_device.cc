/* The devices of the emulator: HC_DEVICES of them (8), named after this machine. Each
 * process has their memory for itself. */
#include "emulator/hostcuda_internal.h"

#include <unistd.h>

static thread_local int current;

/* The only device that this process sees; -1: it sees all. */
static int visible()
{
    return (int)hc_number("HC_VISIBLE", -1);
}

static int n_devices()
{
    return visible() >= 0 ? 1 : (int)hc_number("HC_DEVICES", 8);
}

static int capability()
{
    return (int)hc_number("HC_CAPABILITY", 90);
}

size_t hc_most_shared()
{
    switch (capability()) {
    case 80:
    case 87:
        return 163 << 10;
    case 86:
    case 89:
    case 120:
        return 99 << 10;
    }
    return 227 << 10;
}

/* As in the runtime, a missing driver counts as an insufficient one. */
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = (int)hc_number("HC_DRIVER", 13000);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    int driver;

    cudaDriverGetVersion(&driver);
    if (driver < 13000)
        return hc_remember(cudaErrorInsufficientDriver);
    *n = n_devices();
    return hc_remember(*n ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

/* The device has one multiprocessor (HC_SMS), so that kernels that fill a device are
 * small. */
static int attribute(cudaDeviceAttr what)
{
    switch (what) {
    case cudaDevAttrMultiProcessorCount:
        return (int)hc_number("HC_SMS", 1);
    case cudaDevAttrWarpSize:
        return 32;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return (int)hc_most_shared() + (1 << 10);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return (int)hc_most_shared();
    case cudaDevAttrPageableMemoryAccess:
        return hc_reads_pageable();
    case cudaDevAttrComputeCapabilityMajor:
        return capability() / 10;
    case cudaDevAttrComputeCapabilityMinor:
        return capability() % 10;
    }
    return 1024; /* CUB chooses tile sizes by more fields (tests/emulator/ptx) */
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr what, int device)
{
    if (device < 0 || device >= n_devices())
        return hc_remember(cudaErrorInvalidValue);
    *value = attribute(what);
    return cudaSuccess;
}

/* Kernels on the emulator wait where those for sm_90 do; newer devices run what the
 * driver makes of their PTX. */
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *kernel)
{
    hc_loaded(kernel);
    *a = {0, 0, 0, 1024, 32, 90, capability() >= 100 ? capability() : 90};
    return hc_remember(hc_number("HC_IMAGE", 1) ? cudaSuccess
                                                : cudaErrorNoKernelImageForDevice);
}

cudaError_t hc_blocks_of_sm(int *blocks, int threads, size_t bytes)
{
    const int most = (int)hc_number("HC_BLOCKS", INT32_MAX);
    const int of_threads = 2048 / threads;
    const int of_shared = (int)((hc_most_shared() + 1024) / (bytes + 1024));

    *blocks = min(most, min(of_threads, of_shared));
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= n_devices())
        return hc_remember(cudaErrorInvalidDevice);
    current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    char host[sizeof p->uuid.bytes] = "";
    size_t free_bytes;

    if (device < 0 || device >= n_devices())
        return hc_remember(cudaErrorInvalidDevice);
    *p = cudaDeviceProp();
    strcpy(p->name, "emulated device");
    gethostname(host, sizeof host - 1);
    memcpy(p->uuid.bytes, host, sizeof host);
    p->uuid.bytes[sizeof host - 1] = (char)(visible() >= 0 ? visible() : device);
    return cudaMemGetInfo(&free_bytes, &p->totalGlobalMem);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device)
{
    if (device < 0 || device >= n_devices())
        return hc_remember(cudaErrorInvalidDevice);
    snprintf(id, (size_t)size, "0000:%02X:00.0", /* an address of no real device */
             0xE0 + (visible() >= 0 ? visible() : device));
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    static const struct {
        cudaError_t error;
        const char *text;
    } all[] = {
        {cudaSuccess, "no error"},
        {cudaErrorInvalidValue, "invalid argument"},
        {cudaErrorMemoryAllocation, "out of memory"},
        {cudaErrorInvalidConfiguration, "invalid configuration argument"},
        {cudaErrorInsufficientDriver,
         "CUDA driver version is insufficient for CUDA runtime version"},
        {cudaErrorInvalidDeviceFunction, "invalid device function"},
        {cudaErrorNoKernelImageForDevice,
         "no kernel image is available for execution on the device"},
        {cudaErrorNoDevice, "no CUDA-capable device is detected"},
        {cudaErrorInvalidDevice, "invalid device ordinal"},
        {cudaErrorPeerAccessUnsupported,
         "peer access is not supported between these two devices"},
        {cudaErrorInvalidResourceHandle, "invalid resource handle"},
        {cudaErrorNotReady, "device not ready"},
        {cudaErrorIllegalAddress, "an illegal memory access was encountered"},
    };

    for (const auto &known : all)
        if (known.error == error)
            return known.text;
    return "unknown error";
}

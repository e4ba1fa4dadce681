/* The device of this rank: selection, streams, copies. */
#include <assert.h>
#include <ctype.h>
#include <initializer_list>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_env.h"
#include "base/sp_liveness.h"
#include "cuda/device/cuda_util.cuh"

int sp_backend_visible_devices(void)
{
    int n = 0;

    if (cudaGetDeviceCount(&n) == cudaSuccess)
        return n;
    cudaGetLastError(); /* so that the next launch does not report it */
    return 0;
}

/* The runtime reports an insufficient driver also if there is no driver at all. */
void sp_backend_why_none(char *text, size_t size)
{
    const char *visible = sp_env("CUDA_VISIBLE_DEVICES");
    int n = 0, driver = 0;
    const cudaError_t error = cudaGetDeviceCount(&n);

    cudaGetLastError();
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        snprintf(text, size, "no driver (libcuda.so.1) is loaded");
    else if (error == cudaErrorInsufficientDriver)
        snprintf(text, size,
                 "the driver is too old: it serves CUDA up to %d.%d, this program was "
                 "built with %d.%d",
                 driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                 CUDART_VERSION % 1000 / 10);
    else
        snprintf(text, size, "%s%s%s", cudaGetErrorString(error),
                 visible ? "; CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "");
}

int sp_backend_cuda_version(void)
{
    return CUDART_VERSION;
}

/* Prints a UUID as nvidia-smi does. */
static void print_uuid(const unsigned char *u, char *to, size_t size)
{
    snprintf(to, size,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11],
             u[12], u[13], u[14], u[15]);
}

sp_status sp_backend_device(int i, sp_device_info *device)
{
    cudaDeviceProp p;
    int major, minor;

    memset(device, 0, sizeof *device); /* its bytes travel to other ranks */
    SP_CUDA(cudaGetDeviceProperties(&p, i));
    SP_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i));
    SP_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, i));
    snprintf(device->name, sizeof device->name, "%.63s", p.name);
    print_uuid((const unsigned char *)p.uuid.bytes, device->uuid, sizeof device->uuid);
    SP_CUDA(cudaDeviceGetPCIBusId(device->pci, sizeof device->pci, i));
    for (char *c = device->pci; *c; c++) /* lower case, as paths below /sys have it */
        *c = (char)tolower(*c);
    device->memory_bytes = (int64_t)p.totalGlobalMem;
    device->capability = 10 * major + minor;
    return SP_OK;
}

/* No kernel of this program is compiled for capabilities below 8.0, which brought
 * asynchronous copies to shared memory and bf16 products. */
static sp_status check_capability(const sp_backend *be)
{
    sp_device_info device;

    SP_TRY(sp_backend_device(be->device, &device));
    if (device.capability < 80)
        return SP_FAIL(SP_EDEVICE, "%s: compute capability %d.%d; 8.0 is the least",
                       device.name, device.capability / 10, device.capability % 10);
    return SP_OK;
}

static __global__ void device_any_kernel()
{
    sp_grid_wait();
}

/* The driver compiles kernels from PTX for a device that is newer than the build, when
 * it loads them; their code is then of another version than their PTX. It keeps what it
 * has compiled, so only the first start is slow. */
static sp_status tell_compilation(int device, double seconds)
{
    cudaFuncAttributes code = {};

    SP_CUDA(cudaFuncGetAttributes(&code, (const void *)device_any_kernel));
    if (code.binaryVersion / 10 > code.ptxVersion / 10)
        sp_log_info("device %d: the driver has compiled the kernels for capability "
                    "%d.%d (%.0f s); configure --with-cuda-arch=\"... %d\" saves that",
                    device, code.binaryVersion / 10, code.binaryVersion % 10, seconds,
                    code.binaryVersion);
    return SP_OK;
}

static sp_status create_scratch(sp_cuda *cuda)
{
    SP_TRY(sp_cuda_arena_create(&cuda->side_scratch, 0, "side scratch"));
    return sp_cuda_arena_create(&cuda->scratch, 0, "scratch");
}

static void destroy_scratch(sp_cuda *cuda)
{
    sp_cuda_arena_destroy(&cuda->scratch);
    sp_cuda_arena_destroy(&cuda->side_scratch);
}

sp_status sp_cuda_scratch_drop(sp_backend *be)
{
    assert(cuda_is_owner(be));
    SP_CUDA(cudaSetDevice(be->device));
    SP_TRY(sp_cuda_wait(be));
    destroy_scratch(cuda_of(be));
    return create_scratch(cuda_of(be));
}

/* Lower numbers have priority. Plans and the side stream use the time that the step
 * leaves idle. Priorities above the step's are left for the sums of the gradients. */
static sp_status device_start(sp_backend *be, sp_cuda *cuda)
{
    const double begin = sp_now_s();
    int least, greatest, reads_pageable;

    sp_liveness_count();
    SP_CUDA(cudaSetDevice(be->device));
    sp_liveness_count();
    SP_CUDA(sp_kernels_load());
    SP_TRY(tell_compilation(be->device, sp_now_s() - begin));
    SP_CUDA(cudaDeviceGetAttribute(&reads_pageable, cudaDevAttrPageableMemoryAccess,
                                   be->device));
    cuda->reads_pageable = reads_pageable;
    SP_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    SP_CUDA(cudaStreamCreateWithPriority(&cuda->compute, cudaStreamNonBlocking,
                                         least > greatest ? least - 1 : least));
    SP_CUDA(cudaStreamCreateWithPriority(&cuda->plan, cudaStreamNonBlocking, least));
    SP_CUDA(cudaStreamCreateWithPriority(&cuda->side, cudaStreamNonBlocking, least));
    for (cudaEvent_t *event : {&cuda->turn, &cuda->forked, &cuda->joined})
        SP_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    sp_early_allow(cuda->compute, be->device);
    sp_early_allow(cuda->side, be->device);
    SP_CUDA(cudaDeviceGetAttribute(&cuda->n_multiprocessors,
                                   cudaDevAttrMultiProcessorCount, be->device));
    SP_CUDA(cudaMalloc((void **)&cuda->counts, CUDA_COUNTS * sizeof *cuda->counts));
    SP_TRY(sp_cuda_fill(be, cuda->counts, 0, CUDA_COUNTS * sizeof *cuda->counts));
    SP_TRY(create_scratch(cuda));
    return sp_cuda_tiles_open(be);
}

sp_status sp_cuda_open(sp_backend *be, int device, int threads)
{
    const int n = sp_backend_visible_devices();
    sp_cuda *cuda;
    sp_status rc;

    be->device = device;
    be->threads = threads;
    be->impl = NULL;
    if (n == 0) {
        char why[256];

        sp_backend_why_none(why, sizeof why);
        return SP_FAIL(SP_EDEVICE, "no usable CUDA device: %s", why);
    }
    if (device < 0 || device >= n)
        return SP_FAIL(SP_EDEVICE, "CUDA device %d: this process sees %d", device, n);
    SP_TRY(check_capability(be));
    if (be->is_wgmma)
        SP_TRY(cuda_wgmma_open(be));
    cuda = (sp_cuda *)calloc(1, sizeof *cuda);
    if (!cuda)
        return SP_FAIL(SP_EMEM, "CUDA backend: out of memory");
    cuda->owner = pthread_self();
    be->impl = cuda;
    rc = device_start(be, cuda);
    if (rc != SP_OK)
        sp_cuda_close(be);
    return rc;
}

/* Errors of these calls are ignored: the operation that met the failure has reported
 * it. */
void sp_cuda_close(sp_backend *be)
{
    sp_cuda *cuda = cuda_of(be);

    if (!cuda)
        return;
    destroy_scratch(cuda);
    if (cuda->counts)
        cudaFree(cuda->counts);
    for (cudaEvent_t event :
         {cuda->clock[0], cuda->clock[1], cuda->turn, cuda->forked, cuda->joined})
        if (event)
            cudaEventDestroy(event);
    sp_early_forget(cuda->side);
    sp_early_forget(cuda->compute);
    for (cudaStream_t stream : {cuda->side, cuda->plan, cuda->compute})
        if (stream)
            cudaStreamDestroy(stream);
    free(cuda);
    be->impl = NULL;
}

/* ---- copies ---- */

enum { SMALL_BYTES = 256 };

struct small_data {
    unsigned char byte[SMALL_BYTES];
};

static __global__ void __launch_bounds__(SMALL_BYTES)
    store_kernel(unsigned char *to, small_data data, int n)
{
    sp_grid_wait();
    if ((int)threadIdx.x < n)
        to[threadIdx.x] = data.byte[threadIdx.x];
}

/* A few bytes travel as the argument of a kernel. The compute stream need not be empty
 * for it, whichever memory the device can read, and the next kernel may begin early. */
static sp_status upload_small(sp_backend *be, void *to, const void *from_host,
                              size_t bytes)
{
    small_data data;

    memcpy(data.byte, from_host, bytes);
    return CUDA_LAUNCH(store_kernel, dim3(1), dim3(SMALL_BYTES), cuda_of(be)->compute,
                       (unsigned char *)to, data, (int)bytes);
}

/* The driver copies pageable memory to a buffer of its own before cudaMemcpyAsync
 * returns. If the device can read pageable memory itself, it may read it later
 * (CUDA's "API synchronization behavior"), so the host waits there. */
sp_status sp_cuda_upload(sp_backend *be, void *to, const void *from_host, size_t bytes)
{
    const sp_cuda *cuda = cuda_of(be);
    cudaStream_t stream = cuda_is_owner(be) ? cuda->compute : cuda->plan;

    if (bytes == 0)
        return SP_OK;
    SP_CUDA(cudaSetDevice(be->device));
    if (cuda_is_owner(be) && bytes <= SMALL_BYTES)
        return upload_small(be, to, from_host, bytes);
    sp_early_break(stream);
    SP_CUDA(cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyHostToDevice, stream));
    if (!cuda->reads_pageable)
        return SP_OK;
    if (cuda_is_owner(be))
        return sp_cuda_wait(be);
    SP_CUDA(cudaStreamSynchronize(stream));
    return SP_OK;
}

sp_status sp_cuda_download(sp_backend *be, void *to_host, const void *from,
                           size_t bytes)
{
    assert(cuda_is_owner(be));
    if (bytes == 0)
        return SP_OK;
    if (cuda_of(be)->wait) /* the copy would wait without noticing that other ranks
                            * failed */
        SP_TRY(sp_cuda_wait(be));
    sp_early_break(cuda_of(be)->compute);
    SP_CUDA(cudaMemcpyAsync(to_host, from, bytes, cudaMemcpyDeviceToHost,
                            cuda_of(be)->compute));
    return sp_cuda_wait(be);
}

sp_status sp_cuda_fill(sp_backend *be, void *data, int byte, size_t bytes)
{
    assert(cuda_is_owner(be));
    if (bytes == 0)
        return SP_OK;
    sp_early_break(cuda_of(be)->compute);
    SP_CUDA(cudaMemsetAsync(data, byte, bytes, cuda_of(be)->compute));
    return SP_OK;
}

sp_status sp_cuda_wait(sp_backend *be)
{
    const sp_cuda *cuda = cuda_of(be);

    if (cuda->wait)
        return cuda->wait(cuda->wait_arg, cuda->compute);
    SP_CUDA(cudaStreamSynchronize(cuda->compute));
    return SP_OK;
}

/* Arenas of device memory: a range of addresses as large as the device's memory. Memory
 * is mapped to it as the arena's front advances. An arena keeps that memory, so a step
 * allocates nothing once the largest batch has been seen. */
#include <algorithm>
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sp_list.h"
#include "base/sp_log.h"
#include "base/sp_number.h"
#include "cuda/device/cuda_util.cuh"

namespace
{

struct device_arena {
    int device;
    sp_arena host;  /* host memory for the part that the host reads */
    size_t *backed; /* [n_backed] bytes of each piece of memory, in order */
    int n_backed;
    cudaEvent_t filled, used; /* recorded at the end of each use of the arena; waiting
                               * for an event that was never recorded returns at once */
};

size_t granules(size_t bytes)
{
    return sp_multiple(bytes, SP_VMM_GRANULE);
}

double memory_mib(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* The surplus of a growth is an eighth of the arena, so that growing batches do not
 * allocate in every step. It is 0 if it would not leave three quarters of the device
 * free, because other arenas need memory too. */
size_t surplus(size_t bytes)
{
    const size_t more = granules(bytes / 8);
    size_t free_bytes, total;

    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess)
        return 0;
    return free_bytes > total / 4 * 3 + more ? more : 0;
}

sp_status commit(sp_arena *arena, size_t bytes)
{
    device_arena *own = (device_arena *)arena->impl;
    const size_t need = granules(bytes) - arena->committed;
    const size_t room = arena->reserved - arena->committed;
    size_t more;
    cudaError_t error;

    SP_CUDA(cudaSetDevice(own->device));
    if (!sp_list_grow(&own->backed, own->n_backed, sizeof *own->backed))
        return SP_FAIL(SP_EMEM, "arena %s: out of memory", arena->name);
    more = std::min(need + surplus(bytes), room);
    error = sp_vmm_back(arena->base + arena->committed, more, own->device);
    if (error == cudaErrorMemoryAllocation && more > need) {
        more = need;
        error = sp_vmm_back(arena->base + arena->committed, more, own->device);
    }
    if (error != cudaSuccess)
        return SP_FAIL(error == cudaErrorMemoryAllocation ? SP_EMEM : SP_EDEVICE,
                       "arena %s: %.1f MiB more of device memory, %.1f in use: %s",
                       arena->name, memory_mib(more), memory_mib(arena->committed),
                       cudaGetErrorString(error));
    own->backed[own->n_backed++] = more;
    arena->committed += more;
    return SP_OK;
}

} // namespace

sp_status sp_cuda_arena_create(sp_arena *arena, size_t reserve, const char *name)
{
    device_arena *own = (device_arena *)calloc(1, sizeof *own);
    size_t free_bytes, total;
    void *base = NULL;

    memset(arena, 0, sizeof *arena);
    if (!own)
        return SP_FAIL(SP_EMEM, "arena %s: out of memory", name);
    arena->name = name;
    arena->commit = commit;
    arena->impl = own;
    SP_CUDA(cudaGetDevice(&own->device));
    SP_CUDA(cudaMemGetInfo(&free_bytes, &total));
    reserve = granules(reserve ? reserve : total);
    SP_TRY(sp_arena_create(&own->host, 0, name));
    SP_CUDA(cudaEventCreateWithFlags(&own->filled, cudaEventDisableTiming));
    SP_CUDA(cudaEventCreateWithFlags(&own->used, cudaEventDisableTiming));
    SP_CUDA(sp_vmm_reserve(&base, reserve));
    arena->base = (char *)base;
    arena->reserved = reserve;
    return SP_OK;
}

/* Gives the arena's memory back. The memory that the device keeps is lost until the
 * process ends, which is logged; a device that has failed has been reported. */
static void memory_release(const sp_arena *arena)
{
    const device_arena *own = (const device_arena *)arena->impl;
    cudaError_t error;

    if (cudaSetDevice(own->device) != cudaSuccess ||
        cudaDeviceSynchronize() != cudaSuccess)
        return;
    error = sp_vmm_release(arena->base, arena->reserved, own->backed, own->n_backed);
    if (error != cudaSuccess)
        sp_log_warn("arena %s: %.1f MiB of device memory are not given back: %s",
                    arena->name, memory_mib(arena->committed),
                    cudaGetErrorString(error));
}

void sp_cuda_arena_destroy(sp_arena *arena)
{
    device_arena *own = (device_arena *)arena->impl;

    if (arena->base)
        memory_release(arena);
    if (own) {
        sp_arena_destroy(&own->host);
        free(own->backed);
        if (own->filled)
            cudaEventDestroy(own->filled);
        if (own->used)
            cudaEventDestroy(own->used);
    }
    free(own);
    memset(arena, 0, sizeof *arena);
}

sp_arena *sp_cuda_arena_host(sp_arena *arena)
{
    return &((device_arena *)arena->impl)->host;
}

sp_status sp_cuda_arena_pass(sp_backend *be, sp_arena *arena, sp_pass pass)
{
    const device_arena *own = (const device_arena *)arena->impl;
    const sp_cuda *cuda = cuda_of(be);

    assert(cuda_is_owner(be) == (pass == SP_USE_BEGIN || pass == SP_USE_END));
    SP_CUDA(cudaSetDevice(be->device));
    switch (pass) {
    case SP_FILL_BEGIN:
        return cuda_wait_event(cuda->plan, own->used);
    case SP_FILL_END:
        SP_CUDA(cudaEventRecord(own->filled, cuda->plan));
        break;
    case SP_USE_BEGIN:
        return cuda_wait_event(cuda->compute, own->filled);
    case SP_USE_END:
        SP_CUDA(cudaEventRecord(own->used, cuda->compute));
        break;
    }
    return SP_OK;
}

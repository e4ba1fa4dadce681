/* Device addresses that are reserved apart from device memory, so that an arena grows
 * in place. The calls belong to the driver. They are looked up at run time, because the
 * program starts without a driver too. */
#include <cuda.h>

#include "cuda/device/sp_cuda.h"

namespace
{

#if CUDART_VERSION < 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **at, unsigned,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult *found)
{
    return cudaGetDriverEntryPoint(name, at, flags, found);
}
#endif

template <class F> cudaError_t vmm_find(const char *name, F *call)
{
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *at = nullptr;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &at, 12000, cudaEnableDefault, &found);

    if (error != cudaSuccess)
        return error;
    *call = (F)at;
    return found == cudaDriverEntryPointSuccess ? cudaSuccess : cudaErrorSymbolNotFound;
}

/* The driver's and the runtime's errors have the same numbers, so the runtime's texts
 * serve both. */
static_assert((int)CUDA_ERROR_OUT_OF_MEMORY == (int)cudaErrorMemoryAllocation &&
                  (int)CUDA_ERROR_NOT_SUPPORTED == (int)cudaErrorNotSupported &&
                  (int)CUDA_ERROR_ILLEGAL_ADDRESS == (int)cudaErrorIllegalAddress,
              "errors of driver and runtime");

cudaError_t status(CUresult result)
{
    return (cudaError_t)result;
}

} // namespace

cudaError_t sp_vmm_reserve(void **base, size_t bytes)
{
    decltype(&cuMemAddressReserve) reserve;
    CUdeviceptr at = 0;
    cudaError_t error = vmm_find("cuMemAddressReserve", &reserve);

    if (error == cudaSuccess)
        error = status(reserve(&at, bytes, 0, 0, 0));
    *base = (void *)at;
    return error;
}

static cudaError_t map(CUdeviceptr at, size_t bytes,
                       CUmemGenericAllocationHandle memory,
                       const CUmemLocation &location)
{
    const CUmemAccessDesc access = {location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    decltype(&cuMemMap) do_map;
    decltype(&cuMemSetAccess) allow;
    decltype(&cuMemUnmap) unmap;
    cudaError_t error = vmm_find("cuMemMap", &do_map);

    if (error == cudaSuccess)
        error = vmm_find("cuMemSetAccess", &allow);
    if (error == cudaSuccess)
        error = vmm_find("cuMemUnmap", &unmap);
    if (error == cudaSuccess)
        error = status(do_map(at, bytes, 0, memory, 0));
    if (error != cudaSuccess)
        return error;
    error = status(allow(at, bytes, &access, 1));
    if (error != cudaSuccess)
        unmap(at, bytes);
    return error;
}

cudaError_t sp_vmm_back(void *at, size_t bytes, int device)
{
    CUmemAllocationProp wanted = {};
    CUmemGenericAllocationHandle memory;
    decltype(&cuMemCreate) create;
    decltype(&cuMemRelease) release;
    cudaError_t error = vmm_find("cuMemCreate", &create);

    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = device;
    if (error == cudaSuccess)
        error = vmm_find("cuMemRelease", &release);
    if (error == cudaSuccess)
        error = status(create(&memory, bytes, &wanted, 0));
    if (error != cudaSuccess)
        return error;
    error = map((CUdeviceptr)at, bytes, memory, wanted.location);
    release(memory); /* the memory lives as long as it is mapped */
    return error;
}

/* The driver documents that cuMemUnmap unmaps exactly one cuMemMap's range. If a piece
 * cannot be unmapped, the function continues and returns the first error. */
cudaError_t sp_vmm_release(void *base, size_t bytes, const size_t *backed, int n)
{
    decltype(&cuMemUnmap) unmap;
    decltype(&cuMemAddressFree) forget;
    CUdeviceptr at = (CUdeviceptr)base;
    cudaError_t error = vmm_find("cuMemUnmap", &unmap);

    if (error == cudaSuccess)
        error = vmm_find("cuMemAddressFree", &forget);
    if (error != cudaSuccess)
        return error;
    for (int i = 0; i < n; at += backed[i++]) {
        const cudaError_t own = status(unmap(at, backed[i]));

        error = error == cudaSuccess ? own : error;
    }
    return error == cudaSuccess ? status(forget((CUdeviceptr)base, bytes)) : error;
}

/* The radix sort of CUB in one call. No other file uses CUB. */
#include <cub/device/device_radix_sort.cuh>

#include "cuda/device/sp_cuda.h"

cudaError_t sp_sort_pairs(void *room, size_t *bytes, const uint64_t *key,
                          uint64_t *key_out, const int32_t *value, int32_t *value_out,
                          int n, int bits, cudaStream_t stream)
{
    return cub::DeviceRadixSort::SortPairs(room, *bytes, key, key_out, value, value_out,
                                           n, 0, bits, stream);
}

/* Sorts a few pairs and many, since CUB has kernels of their own for few (one tile). */
static cudaError_t sort_any(int n, char *room, size_t bytes, cudaStream_t stream)
{
    uint64_t *const key = (uint64_t *)room;
    int32_t *const value = (int32_t *)(key + 2 * n);
    char *const scratch = room + 24 * (size_t)n;

    return sp_sort_pairs(scratch, &bytes, key, key + n, value, value + n, n, 64,
                         stream);
}

cudaError_t sp_sort_load(void)
{
    enum { FEW = 32, MANY = 1 << 15 };
    cudaStream_t stream = NULL;
    size_t bytes = 0;
    char *room = NULL;
    cudaError_t error =
        sp_sort_pairs(NULL, &bytes, NULL, NULL, NULL, NULL, MANY, 64, NULL);

    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaMalloc((void **)&room, 24 * MANY + bytes);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(room, 0, 24 * MANY, stream);
    for (int n : {FEW, MANY})
        if (error == cudaSuccess)
            error = sort_any(n, room, bytes, stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    cudaFree(room);
    if (stream)
        cudaStreamDestroy(stream);
    return error;
}

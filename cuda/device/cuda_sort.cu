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

/* Stands for cuda/device/cuda_sort.cu. */
#include "cuda/device/sp_cuda.h"
#include "emulator/hostcuda_internal.h"

#include <algorithm>
#include <vector>

cudaError_t sp_sort_pairs(void *room, size_t *bytes, const uint64_t *key,
                          uint64_t *key_out, const int32_t *value, int32_t *value_out,
                          int n, int bits, cudaStream_t stream)
{
    if (bits < 1 || bits > 64 || n < 0)
        return cudaErrorInvalidValue;
    if (!room) {
        *bytes = 12 * (size_t)n + 1024; /* as in the library */
        return cudaSuccess;
    }
    hc_submit_run(stream, [=, room_bytes = *bytes] {
        const uint64_t mask = ~(uint64_t)0 >> (64 - bits);
        std::vector<int> at((size_t)n);

        for (int i = 0; i < n; i++)
            at[(size_t)i] = i;
        std::stable_sort(at.begin(), at.end(), [=](int a, int b) {
            return (key[a] & mask) < (key[b] & mask);
        });
        memset(room, 0xff, room_bytes);
        for (int i = 0; i < n; i++) {
            key_out[i] = key[at[(size_t)i]];
            value_out[i] = value[at[(size_t)i]];
        }
    });
    hc_count_operations(sp_sort_operations(bits));
    return cudaSuccess;
}

/* The last kernels that are loaded. */
cudaError_t sp_sort_load(void)
{
    hc_all_loaded();
    return cudaSuccess;
}

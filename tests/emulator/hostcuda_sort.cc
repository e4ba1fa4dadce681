/* Stands for cuda/device/cuda_sort.cu. */
#include "cuda/device/sp_cuda.h"
#include "emulator/hostcuda_internal.h"

#include <algorithm>
#include <vector>

namespace
{

struct job {
    void *room;
    size_t bytes;
    const uint64_t *key;
    uint64_t *key_out;
    const int32_t *value;
    int32_t *value_out;
    int n, bits;
};

void start(void *arg)
{
    const job *j = static_cast<job *>(arg);
    const uint64_t mask = ~(uint64_t)0 >> (64 - j->bits);
    std::vector<int> at((size_t)j->n);

    for (int i = 0; i < j->n; i++)
        at[(size_t)i] = i;
    std::stable_sort(at.begin(), at.end(), [=](int a, int b) {
        return (j->key[a] & mask) < (j->key[b] & mask);
    });
    memset(j->room, 0xff, j->bytes);
    for (int i = 0; i < j->n; i++) {
        j->key_out[i] = j->key[at[(size_t)i]];
        j->value_out[i] = j->value[at[(size_t)i]];
    }
}

int is_done(void *)
{
    return 1;
}

void finish(void *arg)
{
    delete static_cast<job *>(arg);
}

} // namespace

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
    const hc_outside work = {
        start, is_done, finish,
        new job{room, *bytes, key, key_out, value, value_out, n, bits}};
    hc_submit_outside(stream, &work);
    hc_count_operations(sp_sort_operations(bits));
    return cudaSuccess;
}

/* Kernels with planted faults, by subject. hostcuda_bugs.cu runs one by its name; the
 * files beside it give it the kernels of their subjects.
 *
 *     hostcuda_bugs.cu        barriers, warps, memory, streams; main
 *     hostcuda_bugs_copy.cu   asynchronous copies to shared memory, ldmatrix
 *     hostcuda_bugs_wgmma.cu  products of a warpgroup; clusters of blocks
 *     hostcuda_bugs_bulk.cu   bulk copies, barriers in shared memory, launch bounds
 *     hostcuda_bugs_words.cu  the order of blocks and of launches
 *     hostcuda_bugs_early.cu  launches that begin before the kernel ahead has ended
 */
#ifndef HOSTCUDA_BUGS_H
#define HOSTCUDA_BUGS_H

#include "cuda/device/sp_cuda.h"

#include <cstring>

enum { N = 128, CHUNKS = N / 4 };

struct call {
    const int *in;
    int *out; /* [4 * N], begins as 0 */
};

/* A kernel that is found by its name. Each is made before main and stays. */
struct bug {
    static inline const bug *last;

    const char *name;
    void (*kernel)(call);
    unsigned cluster; /* blocks of a cluster */
    const bug *before;

    bug(const char *name_, void (*kernel_)(call), unsigned cluster_ = 1)
        : name(name_), kernel(kernel_), cluster(cluster_), before(last)
    {
        last = this;
    }
};

/* Defines a kernel that takes a call `a`. */
#define BUG(name)                                                                      \
    __global__ static void name(call a);                                               \
    static const bug bug_##name(#name, name);                                          \
    __global__ static void name(call a)

/* Begins a copy of `bytes` bytes by each of the threads 0 .. CHUNKS - 1, to tile + 4
 * t. */
__device__ static inline void begin_copy(int *tile, const int *in, int bytes)
{
    const int t = (int)threadIdx.x;

    if (t < CHUNKS)
        sp_copy_async(tile + 4 * t, in + 4 * t, bytes);
    sp_copy_commit();
}

/* Behind another kernel in a stream of early launches; `event` is for records that
 * stand between the two. */
void run_early_bug(const char *name, call a, cudaStream_t stream, cudaEvent_t event);

void run_order_bug(const char *name, call a, cudaStream_t first, cudaStream_t second,
                   cudaEvent_t event);

#endif

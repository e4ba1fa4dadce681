/* Kernels with planted faults, by subject. hostcuda_bugs.cu runs one by its name; the
 * files beside it give it the kernels of their subjects.
 *
 *     hostcuda_bugs.cu        barriers, warps, memory, streams; main
 *     hostcuda_bugs_copy.cu   asynchronous copies to shared memory, ldmatrix
 *     hostcuda_bugs_wgmma.cu  products of a warpgroup; clusters of blocks
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

struct bug {
    const char *name;
    void (*kernel)(call);
};

/* The kernel of this name in bugs [n]; NULL: there is none. */
template <size_t n> static inline auto find_bug(const bug (&bugs)[n], const char *name)
{
    for (const bug &b : bugs)
        if (!strcmp(b.name, name))
            return b.kernel;
    return (void (*)(call))NULL;
}

/* Begins a copy of `bytes` bytes by each of the threads 0 .. CHUNKS - 1, to tile + 4 t. */
__device__ static inline void begin_copy(int *tile, const int *in, int bytes)
{
    const int t = (int)threadIdx.x;

    if (t < CHUNKS)
        sp_copy_async(tile + 4 * t, in + 4 * t, bytes);
    sp_copy_commit();
}

/* Each runs or gives the kernel of this name in its file. */
void (*find_copy_bug(const char *name))(call);
void (*find_wgmma_bug(const char *name))(call);
/* In clusters of two blocks; false: there is none of this name. */
bool run_cluster_bug(const char *name, call a, cudaStream_t stream);
/* Behind another kernel in a stream of early launches; `event` is for records that stand
 * between the two. */
void run_early_bug(const char *name, call a, cudaStream_t stream, cudaEvent_t event);

#endif

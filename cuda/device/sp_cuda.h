/* The one header through which .cu files see CUDA: nvcc gets the toolkit's, any other
 * compiler the emulator of the tests (tests/emulator), on which every kernel runs in
 * `make check`. What the two need of a kernel file: launches by SP_LAUNCH, shared
 * arrays by SP_SHARED, masks written out, no early return before a later __syncthreads,
 * streams of one's own. What is written in PTX is here too, a wrapper each.
 *
 * Early launches. A kernel that follows another in the compute stream or in the one
 * aside is launched with programmatic stream serialization: on sm_90 its blocks may
 * begin when all blocks of the one before have ended, before that one's writes are
 * visible and without the pause between two kernels. Every kernel therefore begins with
 * sp_grid_wait(), which returns when the kernels before have completed and their writes
 * are visible (PTX ISA, griddepcontrol.wait); ahead of it there is arithmetic on
 * launch arguments and nothing else. Why that is enough:
 *
 *   - No kernel calls launch_dependents. So what precedes a wait overlaps with the end
 *     of one kernel, never with its work, and waiting blocks hold no place that the
 *     stream aside could use.
 *   - Every thread waits, so a kernel completes after the one before it: by induction
 *     its wait is for all earlier ones, and so is an event recorded behind it, a copy,
 *     or a kernel launched the plain way.
 *   - A launch behind anything but a kernel of ours (the wait for an event, a copy, a
 *     fill, NCCL) is a plain one: what is promised is said of the previous kernel alone
 *     (CUDA runtime, cudaLaunchAttributeProgrammaticStreamSerialization).
 *   - Code compiled for less than sm_90 has no wait, also where a newer device runs it
 *     (NVIDIA/cccl issue 9134): then no launch is early (cuda_early.cu).
 *   - No pointer is __restrict__: loads through such could be moved ahead of the wait.
 *
 * The emulator ends the program where a kernel touches device memory ahead of the wait
 * or leaves without it, and where an early launch follows anything else.
 */
#ifndef SP_CUDA_H
#define SP_CUDA_H

#ifdef __CUDACC__

#include <cuda_runtime.h>
#include <stdint.h>

/* Templated kernels in parentheses: SP_LAUNCH((sum_kernel<32>), grid, block, ...). */
#define SP_LAUNCH(kernel, grid, block, stream, ...)                                    \
    sp_launch((kernel), (grid), (block), 0, (stream), __VA_ARGS__)
#define SP_SHARED(T, name, dims) __shared__ __align__(16) T name dims
/* Shared memory whose size comes with the launch, at most what SP_ALLOW_SHARED said. */
#define SP_LAUNCH_SHARED(kernel, grid, block, bytes, stream, ...)                      \
    sp_launch((kernel), (grid), (block), (bytes), (stream), __VA_ARGS__)
#define SP_ALLOW_SHARED(kernel, bytes)                                                 \
    cudaFuncSetAttribute((kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, (bytes))
#define SP_SHARED_BYTES(name) extern __shared__ __align__(16) char name[]
#define SP_SHARED_BYTES_AT(align, name)                                                \
    extern __shared__ __align__(align)                                                 \
    char name[]

/* Ends the launch: what the kernel counts on is not so. */
__device__ __forceinline__ void sp_trap()
{
    __trap();
}

/* As the instructions that take 32 bits know it. */
__device__ __forceinline__ uint32_t sp_shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

bool sp_early_next(cudaStream_t stream); /* below */

template <class... P, class... A>
static inline void sp_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t bytes,
                             cudaStream_t stream, const A &...values)
{
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t config = {};

    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = sp_early_next(stream) ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, values...); /* a failure: cudaGetLastError */
}

/* The first statement of every kernel, by all threads. */
__device__ __forceinline__ void sp_grid_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- copies to shared memory beside the computation (sm_80) ----
 * Copies that were issued before a commit are a group; wait<N> returns when all but the
 * N latest groups of this thread have landed. */

/* 16 bytes to `to`, the first `bytes` of them from `from`, the others 0. Both aligned.
 * */
__device__ __forceinline__ void sp_copy_async(void *to, const void *from, int bytes)
{
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(sp_shared_address(to)),
        "l"(from), "r"(bytes)
        : "memory");
}

__device__ __forceinline__ void sp_copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> __device__ __forceinline__ void sp_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* ---- tensor cores, by all lanes of a warp ----
 * g = lane / 4, t = lane % 4. Fragments of D[16][8] += A[16][k] B[k][8], where element
 * pairs of bf16 share a register, the lower k below:
 *     c[0], c[1]   D[g][2t..];   c[2], c[3]   D[g + 8][2t..]
 *     bf16, k = 16:  a[0], a[1]  A[g][2t..], A[g + 8][2t..];  a[2], a[3]  8 columns on
 *                    b0, b1      B[2t..][g], B[2t + 8..][g]
 *     tf32, k = 8:   a[0], a[1]  A[g][t], A[g + 8][t];        a[2], a[3]  4 columns on
 *                    b0, b1      B[t][g], B[t + 4][g] */

/* Four 8 x 8 matrices of 16-bit elements; row r of matrix m is 16 bytes at the pointer
 * of lane 8 m + r. r[m]: elements [g][2t], [g][2t + 1]; trans: [2t][g], [2t + 1][g]. */
__device__ __forceinline__ void sp_ldmatrix(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(sp_shared_address(row))
                 : "memory");
}

__device__ __forceinline__ void sp_ldmatrix_trans(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(sp_shared_address(row))
                 : "memory");
}

__device__ __forceinline__ void sp_mma_bf16(float (&c)[4], const uint32_t (&a)[4],
                                            uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void sp_mma_tf32(float (&c)[4], const uint32_t (&a)[4],
                                            uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* ---- rounding, to nearest ---- */

/* The bits of a float as tf32, ties away from 0. */
__device__ __forceinline__ uint32_t sp_round_tf32(uint32_t bits)
{
    uint32_t r;

    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(__uint_as_float(bits)));
    return r;
}

/* Two bf16, ties to even. */
__device__ __forceinline__ uint32_t sp_pack_bf16(float low, float high)
{
    uint32_t r;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* ---- what other devices and the host see ----
 * Words of 8 bytes, aligned, in memory of any device or pinned of the host, are stored
 * and loaded whole; nothing is said of their order, the two of a pair included. */

__device__ __forceinline__ void sp_store_pair(uint64_t *to, uint64_t a, uint64_t b)
{
    asm volatile("st.relaxed.sys.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(a), "l"(b)
                 : "memory");
}

__device__ __forceinline__ void sp_load_pair(const uint64_t *from, uint64_t &a,
                                             uint64_t &b)
{
    asm volatile("ld.relaxed.sys.v2.b64 {%0, %1}, [%2];"
                 : "=l"(a), "=l"(b)
                 : "l"(from)
                 : "memory");
}

__device__ __forceinline__ void sp_store_word(uint64_t *to, uint64_t value)
{
    asm volatile("st.relaxed.sys.b64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

__device__ __forceinline__ uint64_t sp_load_word(const uint64_t *from)
{
    uint64_t value;

    asm volatile("ld.relaxed.sys.b64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

__device__ __forceinline__ uint64_t sp_clock_ns()
{
    uint64_t ns;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* Addresses apart from memory (cuda_vmm.cu). Sizes are multiples of SP_VMM_GRANULE. */
cudaError_t sp_vmm_reserve(void **base, size_t bytes);
cudaError_t sp_vmm_back(void *at, size_t bytes, int device);
/* backed: from base on. The device must be idle. */
cudaError_t sp_vmm_release(void *base, size_t bytes, size_t backed);

/* Stable sort of n pairs by bits 0 .. bits - 1 of their keys, bits at least 1
 * (cuda_sort.cu). All arrays [n], apart from each other. room NULL: only tells *bytes,
 * how much room this needs. */
cudaError_t sp_sort_pairs(void *room, size_t *bytes, const uint64_t *key,
                          uint64_t *key_out, const int32_t *value, int32_t *value_out,
                          int n, int bits, cudaStream_t stream);

#include "cuda/device/sp_cuda_wgmma.h"

#else

#include "emulator/hostcuda.h"

#endif

enum { SP_VMM_GRANULE = 2 << 20 };

/* ---- early launches (cuda_early.cu) ----
 * Of `stream`, which one thread uses, from here on, where the device and the code can;
 * the environment's SP_EARLY_LAUNCH=0 keeps from it. No launches go on meanwhile. */
void sp_early_allow(cudaStream_t stream, int device);
void sp_early_forget(cudaStream_t stream);
/* Something other than a kernel of ours has been put into the stream; not for the record
 * of an event, which is behind the kernels before it anyway. */
void sp_early_break(cudaStream_t stream);
/* For each launch: whether it may be early. */
bool sp_early_next(cudaStream_t stream);

#endif

/* The one header through which .cu files see CUDA. nvcc gets the toolkit's headers; any
 * other compiler gets the emulator of the tests (tests/emulator), on which `make check`
 * runs every kernel. Both need the same of a kernel file: launches by SP_LAUNCH, shared
 * arrays by SP_SHARED, explicit masks in warp operations, no early return before a
 * later __syncthreads, and streams that the program creates. Every PTX instruction that
 * the kernels use has its wrapper here.
 *
 * Early launches. A kernel that follows another one in the compute stream or in the
 * side stream is launched with programmatic stream serialization. On sm_90 its blocks
 * may then begin when all blocks of the preceding kernel have ended or have called
 * sp_grid_begin(true), but before that kernel's writes are visible. So every kernel
 * calls sp_grid_wait (or sp_grid_begin, which begins with it), which returns when the
 * preceding kernels have completed and their writes are visible (PTX ISA,
 * griddepcontrol.wait). Before the wait a kernel may compute with its launch arguments
 * and, after sp_reads_ahead, load memory that no kernel of this stream has written
 * since the host last put anything but a kernel into it. These are the kernel maps: a
 * convolution makes its tables of them while the preceding kernel ends. Why it is safe:
 *
 *   - Every thread waits, so a kernel completes after the preceding one. By induction
 *     its wait covers all earlier kernels, and so does an event that is recorded after
 *     it, a copy, or a kernel that is launched the plain way.
 *   - A kernel lets the next one begin only after its own wait. When a block runs,
 *     every kernel but the preceding one has therefore completed.
 *   - Nothing is written before the wait.
 *   - A launch after anything but a kernel of this program (the wait for an event, a
 *     copy, a fill, NCCL) is a plain one, because the guarantee covers only the
 *     previous kernel (cudaLaunchAttributeProgrammaticStreamSerialization).
 *   - Code that was compiled for less than sm_90 has no wait, even if a newer device
 *     runs it (NVIDIA/cccl issue 9134). No launch is early then (cuda_early.cu).
 *   - No pointer is __restrict__: the compiler could move loads through such a pointer
 *     before the wait.
 *
 * Blocks that wait occupy places on the device. A kernel therefore lets the next one
 * begin only while nothing else wants those places: no weight gradient in the side
 * stream, no sum over ranks (cuda_lets_next).
 *
 * The emulator ends the program if a kernel writes device memory before the wait, or
 * reads it there without sp_reads_ahead, if a kernel ends without the wait or lets the
 * next one begin before it, and if an early launch follows anything but a kernel. Its
 * race checker finds each byte that is read before the wait and that the preceding
 * kernel has written.
 */
#ifndef SP_CUDA_H
#define SP_CUDA_H

#ifdef __CUDACC__

#include <cuda_runtime.h>
#include <stdint.h>

#include "cuda/device/sp_cuda_load.h"

/* Templated kernels in parentheses: SP_LAUNCH((sum_kernel<32>), grid, block, ...). */
#define SP_LAUNCH(kernel, grid, block, stream, ...)                                    \
    (SP_LISTED(kernel),                                                                \
     sp_launch((kernel), (grid), (block), 0, 1, (stream), __VA_ARGS__))
#define SP_SHARED(T, name, dims) __shared__ __align__(16) T name dims
/* Dynamic shared memory: its size comes with the launch and is at most
 * SP_ALLOW_SHARED's. */
#define SP_LAUNCH_SHARED(kernel, grid, block, bytes, stream, ...)                      \
    (SP_LISTED(kernel),                                                                \
     sp_launch((kernel), (grid), (block), (bytes), 1, (stream), __VA_ARGS__))
/* The same in clusters of that many blocks along x, which divide the grid
 * (sp_cuda_cluster.h). */
#define SP_LAUNCH_CLUSTER(kernel, grid, block, bytes, cluster, stream, ...)            \
    (SP_LISTED(kernel),                                                                \
     sp_launch((kernel), (grid), (block), (bytes), (cluster), (stream), __VA_ARGS__))
#define SP_ALLOW_SHARED(kernel, bytes)                                                 \
    cudaFuncSetAttribute((kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, (bytes))
/* All of an SM's memory that can be shared memory is that while the kernel runs.
 * Between kernels with unlike wishes an SM may have to be drained. */
#define SP_PREFER_SHARED(kernel)                                                       \
    cudaFuncSetAttribute((kernel), cudaFuncAttributePreferredSharedMemoryCarveout,     \
                         cudaSharedmemCarveoutMaxShared)
/* The number of the kernel's blocks that an SM holds at a time. */
template <class K>
static inline cudaError_t sp_blocks_of_sm(int *blocks, K kernel, int threads,
                                          size_t bytes)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads,
                                                         bytes);
}
#define SP_SHARED_BYTES(name) extern __shared__ __align__(16) char name[]
#define SP_SHARED_BYTES_AT(align, name)                                                \
    extern __shared__ __align__(align)                                                 \
    char name[]

/* Ends the launch, because an assumption of the kernel does not hold. */
__device__ __forceinline__ void sp_trap()
{
    __trap();
}

/* The 32-bit address in shared memory that PTX instructions take. */
__device__ __forceinline__ uint32_t sp_shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* The same, computed here: the compiler would otherwise compute an address in a static
 * array again at each use. */
__device__ __forceinline__ uint32_t sp_shared_base(const void *p)
{
    uint32_t at;

    asm volatile("mov.b32 %0, %1;" : "=r"(at) : "r"(sp_shared_address(p)));
    return at;
}

/* Returns `value`, opaque to the optimizer, so that expressions computed from it are
 * not hoisted out of a loop, where they would occupy registers. */
__device__ __forceinline__ int sp_opaque(int value)
{
    asm volatile("" : "+r"(value));
    return value;
}

bool sp_early_next(cudaStream_t stream); /* below */

template <class... P, class... A>
static inline void sp_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t bytes,
                             unsigned cluster, cudaStream_t stream, const A &...values)
{
    cudaLaunchAttribute attribute[2] = {};
    cudaLaunchConfig_t config = {};
    unsigned n = 0;

    if (sp_early_next(stream)) {
        attribute[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute[n++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attribute[n].id = cudaLaunchAttributeClusterDimension;
        attribute[n++].val.clusterDim = {cluster, 1, 1};
    }
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = attribute;
    config.numAttrs = n;
    cudaLaunchKernelEx(&config, kernel, values...); /* cudaGetLastError has a failure */
}

/* Called once by all threads of every kernel, before any access to memory that another
 * kernel of the stream touches. */
__device__ __forceinline__ void sp_grid_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The same. With lets_next (the same for all blocks) the next kernel in the stream may
 * then begin, if it was launched early: its blocks get the places that the last blocks
 * of this kernel leave. */
__device__ __forceinline__ void sp_grid_begin(bool lets_next)
{
    sp_grid_wait();
#if __CUDA_ARCH__ >= 900
    if (lets_next)
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Says that device memory is loaded between this place and the kernel's wait. Nothing
 * on a device; the emulator allows them. */
__device__ __forceinline__ void sp_reads_ahead() {}

/* ---- asynchronous copies to shared memory (sm_80) ----
 * A commit closes a group of the copies that this thread has issued since the last one.
 * wait<N> returns when all but the N latest groups of this thread have landed. */

/* Writes 16 bytes to `to`: the first `bytes` of them come from `from`, the others are
 * 0. Both addresses are aligned to 16. */
__device__ __forceinline__ void sp_copy_async(void *to, const void *from, int bytes)
{
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(sp_shared_address(to)),
        "l"(from), "r"(bytes)
        : "memory");
}

/* Writes 16 bytes to the shared address `to`: those at `from` or, where value < least,
 * zeros; then nothing is read, whatever `from` is. The comparison is here because the
 * compiler makes longer code of it if the value is a sign. */
__device__ __forceinline__ void sp_copy_chunk(uint32_t to, const void *from, int value,
                                              int least)
{
    asm volatile("{\n\t.reg .pred is_none;\n\t.reg .b32 bytes;\n\t"
                 "setp.lt.s32 is_none, %2, %3;\n\t"
                 "selp.b32 bytes, 0, 16, is_none;\n\t"
                 "cp.async.cg.shared.global [%0], [%1], 16, bytes;\n\t}" ::"r"(to),
                 "l"(from), "r"(value), "r"(least)
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

/* ---- tensor cores: called by all lanes of a warp ----
 * The fragments of D[16][8] += A[16][k] B[k][8] lie in registers as follows, with g =
 * lane / 4 and t = lane % 4. Two bf16 share a register, the one of lower k in the lower
 * half.
 *     c[0], c[1]   D[g][2t..];   c[2], c[3]   D[g + 8][2t..]
 *     bf16, k = 16:  a[0], a[1]  A[g][2t..], A[g + 8][2t..];  a[2], a[3]  8 columns on
 *                    b0, b1      B[2t..][g], B[2t + 8..][g]
 *     tf32, k = 8:   a[0], a[1]  A[g][t], A[g + 8][t];        a[2], a[3]  4 columns on
 *                    b0, b1      B[t][g], B[t + 4][g] */

/* Loads four 8 x 8 matrices of 16-bit elements. Row r of matrix m is the 16 bytes at
 * the shared address of lane 8 m + r. r[m] receives elements [g][2t] and [g][2t + 1];
 * with trans, [2t][g] and [2t + 1][g]. Barriers order the loads with the writes of
 * other threads: a volatile statement stays on its side of them. There is no "memory"
 * clobber, so that the compiler keeps other values in registers across the loads. */
__device__ __forceinline__ void sp_ldmatrix(uint32_t (&r)[4], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row));
}

__device__ __forceinline__ void sp_ldmatrix_trans(uint32_t (&r)[4], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row));
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

/* ---- rounding to nearest ---- */

/* Rounds the bits of a float to tf32, ties away from 0. */
__device__ __forceinline__ uint32_t sp_round_tf32(uint32_t bits)
{
    uint32_t r;

    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(__uint_as_float(bits)));
    return r;
}

/* Rounds two floats to bf16, ties to even, and packs them into one register. */
__device__ __forceinline__ uint32_t sp_pack_bf16(float low, float high)
{
    uint32_t r;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* ---- memory that other devices and the host see ----
 * Aligned words of 8 bytes in the memory of any device, or in pinned memory of the
 * host, are stored and loaded whole. Nothing is guaranteed about the order of accesses,
 * not even of the two words of a pair. */

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

/* Device addresses that are reserved apart from memory (cuda_vmm.cu): reserve takes a
 * range of addresses, back maps device memory to a part of it. Sizes are multiples of
 * SP_VMM_GRANULE. */
cudaError_t sp_vmm_reserve(void **base, size_t bytes);
cudaError_t sp_vmm_back(void *at, size_t bytes, int device);
/* Frees the range and its memory, which n calls of sp_vmm_back have mapped one after
 * another, backed[i] bytes each. The device must be idle. */
cudaError_t sp_vmm_release(void *base, size_t bytes, const size_t *backed, int n);

/* Stable sort of n pairs by bits 0 .. bits - 1 of their keys, bits at least 1
 * (cuda_sort.cu). All arrays are [n] and do not overlap. With room NULL it only writes
 * to *bytes how much scratch memory it needs. */
cudaError_t sp_sort_pairs(void *room, size_t *bytes, const uint64_t *key,
                          uint64_t *key_out, const int32_t *value, int32_t *value_out,
                          int n, int bits, cudaStream_t stream);
/* Loads its kernels on the current device, by sorting. */
cudaError_t sp_sort_load(void);

#include "cuda/device/sp_cuda_cluster.h"
#include "cuda/device/sp_cuda_wgmma.h"

#else

#include "emulator/hostcuda.h"

#endif

enum { SP_VMM_GRANULE = 2 << 20 };

/* The kernels and fills that sp_sort_pairs queues at most: two fills, a histogram and
 * its sums, and a fill and a kernel for each 8 bits (counted in CUB 3.0's
 * InvokeOnesweep; few pairs take one kernel). */
static inline int sp_sort_operations(int bits)
{
    return 4 + 2 * ((bits + 7) / 8);
}

/* The least room that a sort of n pairs is given. It is what the library takes: a copy of
 * keys and values, up to a byte for each pair, and the counts of its digits. So an
 * estimate, which has no device to ask, is the memory that is taken. */
static inline size_t sp_sort_room(int64_t n)
{
    return 13 * (size_t)n + (16 << 10);
}

/* ---- early launches (cuda_early.cu) ----
 * Allows early launches in `stream`, which one thread uses, if the device and the
 * code have them and the environment does not say SP_EARLY_LAUNCH=0. No thread launches
 * meanwhile. */
void sp_early_allow(cudaStream_t stream, int device);
void sp_early_forget(cudaStream_t stream);
/* To be called when anything other than a kernel of this program has been put into the
 * stream. The record of an event needs no call: it follows the preceding kernels in any
 * case. */
void sp_early_break(cudaStream_t stream);
/* Called once for each launch: whether it may be early. */
bool sp_early_next(cudaStream_t stream);

#endif

/* CUDA C++ on the host, for the tests: what cuda/device/sp_cuda.h includes where the
 * compiler is not nvcc. Every CUDA thread of a block is a fiber with a stack of its
 * own; blocks run one after another, or by chance two in turns. Legal but unlikely
 * orders are made likely, so that code which relies on luck fails:
 *
 *   HC_SEED=n             threads, blocks and streams run in an order drawn from n (1)
 *   HC_ORDER=up|down      threads and blocks by rising or falling index instead
 *   HC_LAZY=1             operations of streams run when somebody waits, not before
 *   HC_SKIP=name          kernels with this in their name do nothing: a broken device
 *   HC_CRASH=name         the launch of one of these ends the process by a signal
 *   HC_HANG=name          the launch of one of these does not return
 *   HC_WRONG=1            values that arrive from other devices have a wrong bit
 *   HC_FAULT=name:n       the n-th launch of one of these fails while it runs, as by an
 *                         illegal address: the device does nothing from then on, and
 *                         every call says so
 *   HC_COUNT=1            at the end of the program: how often each kernel was launched,
 *                         how many launches were early, how many let the next begin
 *   HC_DELAY=1            threads that talk to other processes dawdle now and then
 *   HC_MEMORY=n           each device has n MiB of memory (256)
 *   HC_CAPABILITY=n       devices are of capability n / 10 (90), with the shared memory
 *                         that goes with it
 *   HC_IMAGE=0            the program was built for other devices
 *   HC_BLOCKS=n           an SM holds n blocks of a kernel at most
 *   HC_USED=n             others use n MiB of them (0)
 *   HC_VISIBLE=n          the process sees device n alone, as its device 0
 *   HC_DRIVER=n           a driver of CUDA n, 1000 major + 10 minor, older than the
 *                         program; 0: none
 *   HC_PAGEABLE=1         copies read pageable memory in their turn, as devices may that
 *                         read it themselves
 *   HC_KEYS=0             device memory is closed by its pages, as on processors without
 *                         protection keys
 *   HC_SMS=n              devices have n multiprocessors (1): tiles are chosen by that
 *   HC_TENSOR=a100|h100   tensor cores cut off what they add, as those of these devices
 *                         (hostcuda_sums.cc), and not only round each instruction's sum
 *   HC_WATCHDOG=s         a launch that takes s seconds of processor time ends the
 *                         program and names its kernel (60)
 *
 * Shared and device memory start as NaN. Device memory cannot be touched by the host
 * outside of kernels and copies: the program ends there as it would on a device. Mixed
 * barriers, deadlocks, warp operations that do not match, shuffles from absent lanes,
 * copies that nobody waits for and launches that a device would refuse are found too,
 * also those by a thread that has set another device than the stream's.
 * Kernels that are launched early and touch device memory ahead of their wait, or leave
 * without it, are found, and early launches that follow something else than a kernel. A
 * kernel whose threads wait for another process is put aside and looked at again.
 * A program that has loaded kernels may launch no other kernel, which would be loaded
 * at its launch. Blocks of a cluster run together; barriers in shared memory that are
 * used wrongly and blocks that leave while others still reach them are found. Linked
 * with hostcuda_race.cc, kernels that clang compiled with -fsanitize=thread are checked
 * for data races, also of blocks and of launches that nothing orders, for accesses out
 * of bounds, and for reads ahead of the wait of what the kernel before them has
 * written. A finding ends the program with status 66.
 *
 * Not here: what only a device has (speed, occupancy, its memory order, its rounding of
 * fast intrinsics), grids that wait for each other, textures.
 */
#ifndef HOSTCUDA_H
#define HOSTCUDA_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memory>
#include <tuple>

/* ---- the language ---- */

/* Kernels load a value under a condition of the call and use it under the same; GCC
 * does not see that they are the same. initcheck on a device looks for the real
 * fault. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
/* The most threads of a block. GCC puts that many instructions that do nothing, over
 * 32, at the kernel's beginning, where a launch counts them (hc_submit). */
#if defined __GNUC__ && !defined __clang__ && defined __x86_64__
#define __launch_bounds__(threads, ...)                                                \
    __attribute__((patchable_function_entry(((threads) + 31) / 32)))
#else
#define __launch_bounds__(...)
#endif
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict

struct __align__(8) float2
{
    float x, y;
};
struct __align__(16) float4
{
    float x, y, z, w;
};
struct __align__(8) uint2
{
    uint32_t x, y;
};
struct __align__(16) uint4
{
    uint32_t x, y, z, w;
};
struct __align__(16) int4
{
    int x, y, z, w;
};
struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

#define make_float2(...) (float2{__VA_ARGS__})
#define make_float4(...) (float4{__VA_ARGS__})
#define make_uint2(...)  (uint2{__VA_ARGS__})
#define make_uint4(...)  (uint4{__VA_ARGS__})
#define make_int4(...)   (int4{__VA_ARGS__})

/* The position of a thread, for the thread itself. */
struct hc_view {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
    int lane;
    unsigned barriers, warp_syncs; /* passed so far: the race checker's clock */
};
extern __thread hc_view *hc_self; /* NULL on the host */
#define threadIdx (hc_self->thread)
#define blockIdx  (hc_self->block)
#define blockDim  (hc_self->block_dim)
#define gridDim   (hc_self->grid_dim)

/* The position of a barrier or warp operation in the source. */
#define HC_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

/* One array for each block and declaration. */
void *hc_shared(const void *declaration, size_t size, size_t align);
#define SP_SHARED(T, name, dims)                                                       \
    typedef T name##_type dims;                                                        \
    static const char name##_key = 0;                                                  \
    name##_type &name = *static_cast<name##_type *>(hc_shared(                         \
        &name##_key, sizeof(name##_type), alignof(T) < 16 ? 16 : alignof(T)))

/* Dynamic shared memory, whose size comes with the launch. */
char *hc_launch_shared(size_t align);
#define SP_SHARED_BYTES(name)           char *const name = hc_launch_shared(128)
#define SP_SHARED_BYTES_AT(align, name) char *const name = hc_launch_shared(align)

/* ---- barriers and warp operations ---- */

enum hc_op {
    HC_SYNC,
    HC_SHUFFLE,
    HC_BALLOT,
    HC_ANY,
    HC_MMA_BF16,
    HC_MMA_TF32,
    HC_LDMATRIX,
    HC_LDMATRIX_TRANS,
    HC_WGMMA,
    HC_WGMMA_FENCE,
    HC_WGMMA_COMMIT,
    HC_WGMMA_WAIT
};
void __syncthreads(HC_SITE);
enum { HC_MOST_BLOCKS = 8 }; /* that run together: a cluster, or two of a grid */
int hc_block_of_run();       /* which of these the thread belongs to */
/* Every lane of mask calls it with the same op and mask. */
uint64_t hc_collective(hc_op op, uint32_t mask, uint64_t value, int lane,
                       const char *file, int line);
/* Waits for the work before the kernel in its stream. The first block's threads of a
 * kernel launched early find no device memory until all of them have called it, or
 * memory that cannot be written where one of them has called sp_reads_ahead. */
void sp_grid_wait();
void sp_reads_ahead();
void hc_grid_let(); /* the next kernel may begin */
void __threadfence();
void hc_maybe_yield(); /* a place where another thread may run */

static inline void sp_grid_begin(bool lets_next)
{
    sp_grid_wait();
    if (lets_next)
        hc_grid_let();
}

static inline void __syncwarp(unsigned mask = ~0u, HC_SITE)
{
    hc_collective(HC_SYNC, mask, 0, 0, file, line);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate, HC_SITE)
{
    return (unsigned)hc_collective(HC_BALLOT, mask, predicate != 0, 0, file, line);
}

static inline int __any_sync(unsigned mask, int predicate, HC_SITE)
{
    return (int)hc_collective(HC_ANY, mask, predicate != 0, 0, file, line);
}

template <class T>
static inline T hc_shuffle(unsigned mask, T value, int from, const char *file, int line)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;

    memcpy(&bits, &value, sizeof value);
    bits = hc_collective(HC_SHUFFLE, mask, bits, from, file, line);
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T>
static inline T __shfl_sync(unsigned mask, T value, int from, HC_SITE)
{
    return hc_shuffle(mask, value, from & 31, file, line);
}

template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, HC_SITE)
{
    return hc_shuffle(mask, value, (hc_self->lane ^ bits) & 31, file, line);
}

template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, int by, HC_SITE)
{
    const int from = hc_self->lane - by;

    return hc_shuffle(mask, value, from >= 0 ? from : hc_self->lane, file, line);
}

/* ---- copies to shared memory, tensor cores: meanings in sp_cuda.h ----
 * A copy lands when it is issued or when it is waited for, as chance has it; until then
 * its place holds NaN. */

void sp_copy_async(void *to, const void *from, int bytes, HC_SITE);
void sp_copy_commit();
void hc_copy_wait(int n);
/* Operands stay with the caller until all lanes have come. */
void hc_tensor(hc_op op, void *to, const void *operand, uint64_t value,
               const char *file, int line);

template <int N> static inline void sp_copy_wait()
{
    hc_copy_wait(N);
}

/* An address in shared memory by the number that sp_shared_address gave. */
char *hc_shared_at(uint32_t offset);

static inline void sp_copy_chunk(uint32_t to, const void *from, int value, int least,
                                 HC_SITE)
{
    sp_copy_async(hc_shared_at(to), from, value < least ? 0 : 16, file, line);
}

static inline void sp_ldmatrix(uint32_t (&r)[4], uint32_t row, HC_SITE)
{
    hc_tensor(HC_LDMATRIX, r, hc_shared_at(row), 0, file, line);
}

static inline void sp_ldmatrix_trans(uint32_t (&r)[4], uint32_t row, HC_SITE)
{
    hc_tensor(HC_LDMATRIX_TRANS, r, hc_shared_at(row), 0, file, line);
}

static inline void sp_mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                               uint32_t b1, HC_SITE)
{
    hc_tensor(HC_MMA_BF16, c, a, (uint64_t)b1 << 32 | b0, file, line);
}

static inline void sp_mma_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                               uint32_t b1, HC_SITE)
{
    hc_tensor(HC_MMA_TF32, c, a, (uint64_t)b1 << 32 | b0, file, line);
}

#include "emulator/hostcuda_cluster.h"
#include "emulator/hostcuda_wgmma.h"

/* ---- what other devices see: meanings in sp_cuda.h ---- */

void hc_poll(); /* a thread looks for what another process writes */
uint64_t hc_wrong_bits(); /* of the first word of a pair that arrives (HC_WRONG) */
void sp_store_pair(uint64_t *to, uint64_t a, uint64_t b);
void sp_load_pair(const uint64_t *from, uint64_t &a, uint64_t &b);
uint64_t sp_load_word(const uint64_t *from);
void sp_store_word(uint64_t *to, uint64_t value);
uint64_t sp_clock_ns();

static inline long long __double_as_longlong(double v)
{
    long long bits;

    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline double __longlong_as_double(long long bits)
{
    double v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

/* ---- arithmetic ---- */

static inline int min(int a, int b)
{
    return b < a ? b : a;
}

static inline int max(int a, int b)
{
    return a < b ? b : a;
}

static inline int64_t min(int64_t a, int64_t b)
{
    return b < a ? b : a;
}

static inline int __popc(unsigned v)
{
    return __builtin_popcount(v);
}

static inline int __ffs(int v)
{
    return __builtin_ffs(v);
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

static inline uint32_t __float_as_uint(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline float __uint_as_float(uint32_t bits)
{
    float v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Infinity and NaN stay what they are. */
static inline uint32_t sp_round_tf32(uint32_t bits)
{
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
}

static inline uint32_t hc_bf16(float v)
{
    const uint32_t bits = __float_as_uint(v);

    return v != v ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static inline uint32_t sp_pack_bf16(float low, float high)
{
    return hc_bf16(high) << 16 | hc_bf16(low);
}

/* Relaxed, as on the device. */
template <class T> static inline T atomicAdd(T *at, T value)
{
    hc_maybe_yield();
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

/* ---- the runtime ---- */

#include "emulator/hostcuda_api.h"

/* Sets how much shared memory launches of a kernel may ask for. */
cudaError_t hc_allow_shared(const void *kernel, int bytes);
#define SP_ALLOW_SHARED(kernel, bytes) hc_allow_shared((const void *)(kernel), (bytes))
#define SP_PREFER_SHARED(kernel)       ((void)(kernel), cudaSuccess)
/* The blocks of an SM, by their threads and the shared memory of the launch alone. */
cudaError_t hc_blocks_of_sm(int *blocks, int threads, size_t bytes);
template <class K>
static inline cudaError_t sp_blocks_of_sm(int *blocks, K, int threads, size_t bytes)
{
    return hc_blocks_of_sm(blocks, threads, bytes);
}

/* Stand for cuda/device/cuda_vmm.cu: addresses apart from memory. */
cudaError_t sp_vmm_reserve(void **base, size_t bytes);
cudaError_t sp_vmm_back(void *at, size_t bytes, int device);
cudaError_t sp_vmm_release(void *base, size_t bytes, const size_t *backed, int n);

/* Stands for cuda/device/cuda_sort.cu (hostcuda_sort.cc); meaning in
 * cuda/device/sp_cuda.h. */
cudaError_t sp_sort_pairs(void *room, size_t *bytes, const uint64_t *key,
                          uint64_t *key_out, const int32_t *value, int32_t *value_out,
                          int n, int bits, cudaStream_t stream);
cudaError_t sp_sort_load(void);

/* A launch: `invoke` runs one thread of it. */
struct hc_launch {
    const char *kernel;
    const void *code; /* the kernel */
    dim3 grid, block;
    size_t shared_bytes;
    void (*invoke)(const void *call);
    std::shared_ptr<const void> call; /* host memory that kernels may read */
    size_t call_bytes;
    bool is_early;    /* by sp_early_next */
    unsigned cluster; /* blocks of a cluster, along x */
    /* Numbers of the launches of this process: its own, from 1, and that of the kernel
     * before it in its stream if it is early; 0: none. */
    uint32_t number, before;
    bool is_translated; /* of nvcc's PTX: `code` is not the kernel itself */
};
void hc_submit(const hc_launch &launch, cudaStream_t stream);

bool sp_early_next(cudaStream_t stream); /* cuda/device/sp_cuda.h */

#include "cuda/device/sp_cuda_load.h"

/* The kernel with the arguments as they were at its launch. */
template <class... P> struct hc_call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;

    static void invoke(const void *call)
    {
        const hc_call *c = static_cast<const hc_call *>(call);

        std::apply(c->kernel, c->arguments);
    }
};

template <class... P, class... A>
static inline void hc_launch_kernel(const char *name, void (*kernel)(P...), dim3 grid,
                                    dim3 block, size_t shared_bytes, unsigned cluster,
                                    cudaStream_t stream, A... values)
{
    typedef hc_call<P...> call;

    hc_submit({name, (const void *)kernel, grid, block, shared_bytes, call::invoke,
               std::make_shared<const call>(call{kernel, {(P)values...}}), sizeof(call),
               sp_early_next(stream), cluster, 0, 0, false},
              stream);
}

#define SP_LAUNCH(kernel, grid, block, stream, ...)                                    \
    (SP_LISTED(kernel),                                                                \
     hc_launch_kernel(#kernel, kernel, (grid), (block), 0, 1, (stream), __VA_ARGS__))
#define SP_LAUNCH_SHARED(kernel, grid, block, bytes, stream, ...)                      \
    (SP_LISTED(kernel), hc_launch_kernel(#kernel, kernel, (grid), (block), (bytes), 1, \
                                         (stream), __VA_ARGS__))
#define SP_LAUNCH_CLUSTER(kernel, grid, block, bytes, cluster, stream, ...)            \
    (SP_LISTED(kernel), hc_launch_kernel(#kernel, kernel, (grid), (block), (bytes),    \
                                         (cluster), (stream), __VA_ARGS__))

/* Work of a stream that something outside of the emulator does in its own time, as the
 * tests' libnccl does: start and finish may touch device memory, is_done may not and is
 * asked again and again. The functions run on whichever thread waits. */
struct hc_outside {
    void (*start)(void *arg);
    int (*is_done)(void *arg);
    void (*finish)(void *arg); /* frees arg */
    void *arg;
};
extern "C" void hc_submit_outside(cudaStream_t stream, const struct hc_outside *work);

/* ---- for tests ---- */

/* Sets another order from here on, as HC_SEED would; lazy as HC_LAZY. */
extern "C" void hc_set_order(uint64_t seed, bool is_lazy);
/* Returns how often the calling thread has waited for the device. */
extern "C" unsigned hc_waits();
/* Returns how many kernels it has launched. */
extern "C" unsigned hc_launches();
/* Returns how many kernels, copies and fills it has queued, those of a sort too. */
extern "C" unsigned hc_operations();
/* Returns how many of them early. */
extern "C" unsigned hc_early_launches();
/* Returns how many kernels of the process have let the next one begin. */
extern "C" unsigned hc_kernels_that_let();
/* Returns the products of warpgroups so far, each warp's by itself. */
extern "C" unsigned long hc_wgmma_count();
extern "C" unsigned long hc_copied_bytes(); /* by asynchronous and bulk copies */
/* Returns the calls so far that allocated memory, of the device or pinned. */
extern "C" long hc_memory_calls();
/* Returns whether the race checker is linked: everything takes ten times as long. */
extern "C" bool hc_is_checked();

#endif

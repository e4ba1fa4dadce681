/* Shared by the kernel files: errors, the backend's state, the launch of a function for
 * each element, samples. Rows and sums over them are in cuda_rows.cuh. */
#ifndef CUDA_UTIL_CUH
#define CUDA_UTIL_CUH

#include <pthread.h>
#include <string.h>

#include "base/sp_log.h"
#include "cuda/device/cuda_ops.h"
#include "cuda/device/sp_cuda.h"

/* Says what to do about an error; "" if nothing is known. */
static inline const char *cuda_advice(cudaError_t error)
{
    return error == cudaErrorNoKernelImageForDevice ||
                   error == cudaErrorInvalidDeviceFunction
               ? "; this build has no kernels for the device's compute capability: "
                 "configure --with-cuda-arch"
               : "";
}

/* Makes a failed call of the runtime the error record; the call's text is in the trace.
 * The runtime remembers the error too, and is made to forget it: the caller may go on
 * without what failed, and the next launch would be blamed (cuda_launched). */
static inline sp_status cuda_failed(cudaError_t error, const char *file, int line,
                                    const char *call)
{
    cudaGetLastError();
    return sp_error_set(error == cudaErrorMemoryAllocation ? SP_EMEM : SP_EDEVICE, file,
                        line, call, "CUDA: %s%s", cudaGetErrorString(error),
                        cuda_advice(error));
}

/* Calls the CUDA runtime; returns from the calling function if the call fails. */
#define SP_CUDA(call)                                                                  \
    do {                                                                               \
        cudaError_t sp_cuda_ = (call);                                                 \
        if (sp_cuda_ != cudaSuccess)                                                   \
            return cuda_failed(sp_cuda_, __FILE__, __LINE__, #call);                   \
    } while (0)

enum { CUDA_TILE_WIDTHS = 8, CUDA_TILE_HEIGHTS = 3 };

/* Samples that one launch handles at most. */
enum { CUDA_GROUP = 128 };

/* The counters of sp_cuda.counts: one for each sample of a loss, one for a sum of
 * squares. */
enum {
    CUDA_COUNT_SAMPLES = 0,
    CUDA_COUNT_SQUARES = CUDA_COUNT_SAMPLES + CUDA_GROUP,
    CUDA_COUNTS
};

/* Checks that the device and this build have wgmma (cuda_conv_wgmma.cu). If they
 * have not, is_wgmma is cleared, or SP_EDEVICE if it is not optional. */
sp_status cuda_wgmma_open(sp_backend *be);

/* The state of the backend; be->impl points to it. */
typedef struct sp_cuda {
    pthread_t owner;                  /* the compute thread */
    cudaStream_t compute, plan, side; /* side: for concurrent weight gradients */
    cudaEvent_t turn;     /* records the end of one stream, for the other to wait for */
    cudaEvent_t clock[2]; /* recorded by clock_begin, clock_end; NULL: not yet */
    cudaEvent_t forked; /* the compute stream's position when the side stream starts */
    cudaEvent_t joined; /* the end of the side stream's work */
    sp_arena scratch;   /* device; content lives until the next operation */
    sp_arena side_scratch; /* the scratch of the side stream */
    /* Choice of tiles (cuda_tiles.cu): tile[0] for results of fewer rows than a tile of
     * CUDA_TILE_ROWS for each multiprocessor, tile[1] for those below four, tile[2] for
     * others. Entry i serves results of up to 32 (i + 1) channels, the last entry wider
     * ones. The value CUDA_TILES means the formula. */
    uint8_t tile[CUDA_TILE_HEIGHTS][CUDA_TILE_WIDTHS + 1];
    int block_bytes;     /* shared memory that a block may have */
    bool reads_pageable; /* the device can read pageable host memory */
    int n_multiprocessors;
    /* [CUDA_COUNTS] device memory: counters that kernels of the compute stream leave at
     * 0 (cuda_is_last). */
    unsigned *counts;
    /* Waits for the compute stream in a run of several ranks, and looks for failures of
     * other ranks meanwhile. NULL: a plain wait. */
    sp_status (*wait)(void *wait_arg, cudaStream_t compute);
    void *wait_arg;
    /* Work that needs places on the device which blocks of an early launch would occupy
     * (cuda_lets_next). is_forked: a weight gradient in the side stream has not been
     * joined. has_peer_sums: small sums over ranks run as kernels of the compute
     * stream. n_sums: sums over ranks that were posted and have not ended. */
    bool is_forked, has_peer_sums;
    int n_sums;
} sp_cuda;

static inline sp_cuda *cuda_of(sp_backend *be)
{
    return (sp_cuda *)be->impl;
}

/* True if a kernel that is launched now may let the next one begin (sp_grid_begin). */
static inline bool cuda_lets_next(sp_backend *be)
{
    const sp_cuda *cuda = cuda_of(be);

    return !cuda->is_forked && !cuda->has_peer_sums && cuda->n_sums == 0;
}

static inline bool cuda_is_owner(sp_backend *be)
{
    return pthread_equal(cuda_of(be)->owner, pthread_self());
}

/* Makes all later work of the stream wait for the event. */
static inline sp_status cuda_wait_event(cudaStream_t stream, cudaEvent_t event)
{
    sp_early_break(stream);
    SP_CUDA(cudaStreamWaitEvent(stream, event, 0));
    return SP_OK;
}

/* Called after each launch: it returns a refused launch's error. A kernel that fails
 * while it runs is reported by the next call of any kind, so the message says that the
 * error was seen at this launch. The kernel's name may be in parentheses and have
 * template arguments, which the message leaves out. */
static inline sp_status cuda_launched(const char *kernel)
{
    const cudaError_t error = cudaGetLastError();
    const char *name = kernel + (*kernel == '(');

    if (error != cudaSuccess)
        return SP_FAIL(SP_EDEVICE, "launch of %.*s: %s%s", (int)strcspn(name, "<"),
                       name, cudaGetErrorString(error), cuda_advice(error));
    return SP_OK;
}

/* SP_LAUNCH with the status of the launch. */
#define CUDA_LAUNCH(kernel, ...)                                                       \
    (SP_LAUNCH(kernel, __VA_ARGS__), cuda_launched(#kernel))

/* Prepares a kernel of the GEMMs for its launches on this device, the first time:
 * `ready_on` is the kernel's own, -1 at first. Its blocks have `threads` threads and
 * `shared` bytes of shared memory of the launch; `blocks` of them are to be on an SM of
 * 228 KiB at a time. Fewer only cost time, so it is logged once. */
template <class K>
static sp_status cuda_gemm_ready(const sp_backend *be, int *ready_on, K kernel,
                                 const char *name, int columns, int threads, int shared,
                                 int blocks)
{
    static bool is_said;
    int of_sm = 0, found = 0;

    if (*ready_on == be->device)
        return SP_OK;
    SP_CUDA(SP_ALLOW_SHARED(kernel, shared));
    SP_CUDA(SP_PREFER_SHARED(kernel));
    SP_CUDA(sp_blocks_of_sm(&found, kernel, threads, (size_t)shared));
    SP_CUDA(cudaDeviceGetAttribute(&of_sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor,
                                   be->device));
    *ready_on = be->device;
    if (found < blocks && of_sm >= 228 << 10 && !is_said) {
        is_said = true;
        sp_log_warn("%s of %d columns: %d blocks of %d threads and %d bytes fit a "
                    "multiprocessor, %d are expected: the device is slower than it "
                    "could be",
                    name, columns, found, threads, shared, blocks);
    }
    return SP_OK;
}

/* True if every chunk of 16 bytes of the rows lies at a multiple of 16 bytes. */
static inline bool cuda_is_aligned(sp_tensor t)
{
    return (uintptr_t)t.data % 16 == 0 &&
           (size_t)t.ld * sp_elem_bytes(t.elem) % 16 == 0;
}

__device__ static inline float *cuda_row(sp_tensor t, int64_t i)
{
    return t.data + i * t.ld;
}

/* ---- the last block ----
 * It adds the parts that all have written (sums of losses, of squares), in the same order
 * whichever block it is. */

__device__ static inline bool cuda_is_first_thread()
{
    return threadIdx.x == 0 && threadIdx.y == 0;
}

/* True if this block is the last of n that count here; *count, which is 0 before the
 * first and after the last, is zeroed again. The n blocks' earlier writes are then
 * visible to all threads of this block. Called by all threads of a block. */
__device__ static inline bool cuda_is_last(unsigned *count, unsigned n)
{
    SP_SHARED(unsigned, arrived, [1]);

    __syncthreads();
    if (cuda_is_first_thread()) {
        __threadfence();
        arrived[0] = atomicAdd(count, 1u) + 1;
        if (arrived[0] == n)
            *count = 0;
        __threadfence();
    }
    __syncthreads();
    return arrived[0] == n;
}

/* ---- each element ----
 * Calls f(i, j) for every row i and channel j. Neighbouring threads have neighbouring
 * channels, so that rows are read and written in whole lines. */

enum { CUDA_EACH_THREADS = 256, CUDA_EACH_ROWS = 4 };
/* An SM holds at least this many blocks of a pass over rows: registers suffice. */
enum { CUDA_EACH_BLOCKS = 2 };

template <class F>
__global__ void __launch_bounds__(CUDA_EACH_THREADS) each_kernel(F f, int64_t n, int c)
{
    const int j = (int)(blockIdx.y * blockDim.x + threadIdx.x);
    int64_t i = (int64_t)blockIdx.x * blockDim.y * CUDA_EACH_ROWS + threadIdx.y;

    sp_grid_wait();
    if (j >= c)
        return;
    for (int r = 0; r < CUDA_EACH_ROWS; r++, i += blockDim.y)
        if (i < n)
            f(i, j);
}

static inline unsigned cuda_lanes(int c)
{
    unsigned lanes = 1;

    while (lanes < 32 && lanes < (unsigned)c)
        lanes *= 2;
    return lanes;
}

/* The number of blocks, in each of `across` columns of a grid, that fit the device at a
 * time. */
static inline int64_t cuda_each_fit(sp_backend *be, unsigned across)
{
    const int64_t fit =
        (int64_t)CUDA_EACH_BLOCKS * cuda_of(be)->n_multiprocessors / across;

    return fit < 1 ? 1 : fit;
}

template <class F> sp_status cuda_each(sp_backend *be, F f, int64_t n, int c)
{
    const dim3 block(cuda_lanes(c), CUDA_EACH_THREADS / cuda_lanes(c));
    const int64_t rows = (int64_t)block.y * CUDA_EACH_ROWS;
    const dim3 grid((unsigned)((n + rows - 1) / rows),
                    ((unsigned)c + block.x - 1) / block.x);

    if (n == 0 || c == 0)
        return SP_OK;
    return CUDA_LAUNCH((each_kernel<F>), grid, block, cuda_of(be)->compute, f, n, c);
}

/* ---- samples ----
 * The first rows of the samples are arguments of the launch, CUDA_GROUP samples at a
 * time. */

typedef struct cuda_samples {
    int first, n;                /* samples first .. first + n - 1 */
    int32_t row[CUDA_GROUP + 1]; /* [n + 1] first row of each, and the end */
} cuda_samples;

static inline cuda_samples cuda_group(const int32_t *sample_row, int first, int end)
{
    cuda_samples s = {first, end - first < CUDA_GROUP ? end - first : CUDA_GROUP, {0}};

    for (int b = 0; b <= s.n; b++)
        s.row[b] = sample_row[first + b];
    return s;
}

static inline int32_t cuda_longest(const cuda_samples *s)
{
    int32_t longest = 0;

    for (int b = 0; b < s->n; b++)
        if (s->row[b + 1] - s->row[b] > longest)
            longest = s->row[b + 1] - s->row[b];
    return longest;
}

/* Writes sums [s->n][2][c] from part [s->n][n_chunks][2][c], added in a fixed order
 * (cuda_sums.cu). */
sp_status cuda_add_chunks(sp_backend *be, const cuda_samples *s, int c, int chunk,
                          int n_chunks, const double *part, double *sums);

#endif

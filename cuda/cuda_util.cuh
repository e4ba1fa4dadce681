/* What the kernel files share: errors, the backend's state, and the two shapes of work
 * that most operations have, "each element" and "sums over the rows of each sample".
 */
#ifndef CUDA_UTIL_CUH
#define CUDA_UTIL_CUH

#include <pthread.h>

#include "cuda_ops.h"
#include "sp_cuda.h"

/* A call of the runtime; its failure becomes the error record. */
#define SP_CUDA(call)                                                                  \
    do {                                                                               \
        cudaError_t sp_cuda_ = (call);                                                 \
        if (sp_cuda_ != cudaSuccess)                                                   \
            return SP_FAIL(sp_cuda_ == cudaErrorMemoryAllocation ? SP_EMEM             \
                                                                 : SP_EDEVICE,         \
                           "%s: %s", #call, cudaGetErrorString(sp_cuda_));             \
    } while (0)

/* What be->impl points to. */
typedef struct sp_cuda {
    pthread_t owner; /* the compute thread */
    cudaStream_t compute, plan;
    cudaEvent_t computed; /* the compute stream's end when another thread came */
    sp_arena scratch;     /* device; content lives until the next operation */
} sp_cuda;

static inline sp_cuda *cuda_of(sp_backend *be)
{
    return (sp_cuda *)be->impl;
}

/* After each launch: a refused launch shows here, a failed kernel at the next wait. */
static inline sp_status cuda_launched(const char *kernel)
{
    const cudaError_t error = cudaGetLastError();

    if (error != cudaSuccess)
        return SP_FAIL(SP_EDEVICE, "%s: %s", kernel, cudaGetErrorString(error));
    return SP_OK;
}

__device__ static inline float *cuda_row(sp_tensor t, int64_t i)
{
    return t.data + i * t.ld;
}

/* ---- each element ----
 * f(i, j) for every row i and channel j. Threads stand side by side along the channels,
 * so that rows are read and written whole. */

enum { CUDA_EACH_THREADS = 256, CUDA_EACH_ROWS = 4 };

template <class F>
__global__ void __launch_bounds__(CUDA_EACH_THREADS) each_kernel(F f, int64_t n, int c)
{
    const int j = (int)(blockIdx.y * blockDim.x + threadIdx.x);
    int64_t i = (int64_t)blockIdx.x * blockDim.y * CUDA_EACH_ROWS + threadIdx.y;

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

template <class F> sp_status cuda_each(sp_backend *be, F f, int64_t n, int c)
{
    const dim3 block(cuda_lanes(c), CUDA_EACH_THREADS / cuda_lanes(c));
    const int64_t rows = (int64_t)block.y * CUDA_EACH_ROWS;
    const dim3 grid((unsigned)((n + rows - 1) / rows),
                    ((unsigned)c + block.x - 1) / block.x);

    if (n == 0 || c == 0)
        return SP_OK;
    SP_LAUNCH((each_kernel<F>), grid, block, cuda_of(be)->compute, f, n, c);
    return cuda_launched("each_kernel");
}

/* ---- samples ----
 * Their rows travel with the launch, some samples at a time. */

enum { CUDA_GROUP = 128 };

typedef struct cuda_samples {
    int first, n;                /* samples first .. first + n - 1 */
    int32_t row[CUDA_GROUP + 1]; /* [n + 1] */
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

/* ---- sums over the rows of each sample ----
 * f(i, j, sum) adds two numbers of row i, channel j, to sum[0] and sum[1]. A sample is
 * cut into chunks of CUDA_CHUNK rows from its own first row on, thread y of a chunk
 * sums rows y, y + 8, ..., and both threads and chunks are added in order: the value
 * depends on the sample alone. */

enum { CUDA_CHUNK = 1024, CUDA_SUM_ROWS = 8 };

template <class F>
__global__ void __launch_bounds__(32 * CUDA_SUM_ROWS)
    chunk_sums_kernel(F f, cuda_samples s, int c, double *part)
{
    SP_SHARED(double, lane_sum, [2][CUDA_SUM_ROWS][33]);
    const int b = (int)blockIdx.z, x = (int)threadIdx.x, y = (int)threadIdx.y;
    const int j = (int)blockIdx.y * 32 + x;
    const int64_t begin = s.row[b] + (int64_t)blockIdx.x * CUDA_CHUNK;
    const int64_t end = min(begin + CUDA_CHUNK, (int64_t)s.row[b + 1]);
    double sum[2] = {0, 0};

    if (begin >= end) /* the whole block */
        return;
    for (int64_t i = begin + y; j < c && i < end; i += CUDA_SUM_ROWS)
        f(i, j, sum);
    lane_sum[0][y][x] = sum[0];
    lane_sum[1][y][x] = sum[1];
    __syncthreads();
    if (y >= 2 || j >= c)
        return;
    sum[0] = 0;
    for (int r = 0; r < CUDA_SUM_ROWS; r++)
        sum[0] += lane_sum[y][r][x];
    part[(((size_t)b * gridDim.x + blockIdx.x) * 2 + (size_t)y) * (size_t)c + j] =
        sum[0];
}

/* sums [s->n][2][c] of part [s->n][n_chunks][2][c], in the order of the chunks
 * (cuda_sums.cu). */
sp_status cuda_add_chunks(sp_backend *be, const cuda_samples *s, int c, int chunk,
                          int n_chunks, const double *part, double *sums);

/* sums [n_samples][2][c], device; sample b's rows begin at sample_row[b]. Leaves what
 * was taken from the scratch before. */
template <class F>
sp_status cuda_sample_sums(sp_backend *be, F f, const int32_t *sample_row,
                           int n_samples, int c, double *sums)
{
    sp_arena *scratch = &cuda_of(be)->scratch;
    const size_t mark = scratch->used;

    for (int first = 0; c && first < n_samples; first += CUDA_GROUP) {
        const cuda_samples s = cuda_group(sample_row, first, n_samples);
        const int n_chunks = (cuda_longest(&s) + CUDA_CHUNK - 1) / CUDA_CHUNK;
        double *part;

        SP_TRY(SP_TAKE(scratch, (size_t)s.n * n_chunks * 2 * c, &part));
        if (n_chunks) {
            SP_LAUNCH((chunk_sums_kernel<F>),
                      dim3((unsigned)n_chunks, ((unsigned)c + 31) / 32, (unsigned)s.n),
                      dim3(32, CUDA_SUM_ROWS), cuda_of(be)->compute, f, s, c, part);
            SP_TRY(cuda_launched("chunk_sums_kernel"));
        }
        SP_TRY(cuda_add_chunks(be, &s, c, CUDA_CHUNK, n_chunks, part, sums));
        sp_arena_rewind(scratch, mark);
    }
    return SP_OK;
}

#endif

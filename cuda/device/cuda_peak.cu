/* The peak rates of a device, which spbench measures and divides by: products in
 * registers, a stream through memory, launches, gathers of rows. The clock of the
 * backend, two events of the compute stream, is here too.
 *
 *     products   8 warps a block, 2 blocks a multiprocessor; bf16 and tf32 by the mma
 *                that the convolutions use (not wgmma, which is faster on sm_90), fp32
 *                by multiply-adds
 *     stream     y = x; each thread moves 16 bytes an access
 *     gather     16 bytes a lane, row_bytes / 16 lanes a row, 8 rows in flight in each,
 *                from a table that fits the L2 of an A100 (40 MB) or of newer devices
 */
#include "cuda/device/cuda_util.cuh"

namespace
{

enum {
    THREADS = 256,
    BLOCKS_PER_SM = 2,
    CHAINS = 8, /* independent sums of a thread or warp, to hide the latency */
    LOADS = 8,
    FULL = 2048, /* threads that a multiprocessor holds */
    TABLE_BYTES = 24 << 20
};

/* Operands that the compiler cannot fold, with varying bits: power, and with it the
 * clock, depends on the bits. */
__device__ uint32_t operand(int i)
{
    return 0x3f803f80u |
           ((threadIdx.x * 2654435761u + (unsigned)i * 40503u) & 0x3f003fu);
}

/* One round issues one mma of each chain: 16 x 8 x 16 (bf16) or 16 x 8 x 8 (tf32)
 * products. */
template <bool IS_BF16>
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    mma_peak_kernel(int rounds, float *out)
{
    sp_grid_wait();
    float c[CHAINS][4];
    uint32_t a[4];
    float sum = 0;

    for (int i = 0; i < 4; i++)
        a[i] = operand(i);
#pragma unroll
    for (int i = 0; i < CHAINS; i++)
        c[i][0] = c[i][1] = c[i][2] = c[i][3] = 0;
    for (int r = 0; r < rounds; r++) {
#pragma unroll
        for (int i = 0; i < CHAINS; i++)
            if (IS_BF16)
                sp_mma_bf16(c[i], a, a[i % 4], a[(i + 1) % 4]);
            else
                sp_mma_tf32(c[i], a, a[i % 4], a[(i + 1) % 4]);
    }
#pragma unroll
    for (int i = 0; i < CHAINS; i++)
        sum += c[i][0] + c[i][1] + c[i][2] + c[i][3];
    out[blockIdx.x * THREADS + threadIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    fma_peak_kernel(int rounds, float *out)
{
    sp_grid_wait();
    const float a = 0.999f + 1e-6f * (float)threadIdx.x, b = 1e-3f;
    float c[2 * CHAINS];
    float sum = 0;

#pragma unroll
    for (int i = 0; i < 2 * CHAINS; i++)
        c[i] = (float)i;
    for (int r = 0; r < rounds; r++) {
#pragma unroll
        for (int i = 0; i < 2 * CHAINS; i++)
            c[i] = fmaf(c[i], a, b);
    }
#pragma unroll
    for (int i = 0; i < 2 * CHAINS; i++)
        sum += c[i];
    out[blockIdx.x * THREADS + threadIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS)
    stream_peak_kernel(const float4 *x, float4 *y, int64_t n)
{
    sp_grid_wait();
    const int64_t step = (int64_t)gridDim.x * THREADS;
    const int64_t first = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    for (int64_t i = first; i < n; i += step)
        y[i] = x[i];
}

__global__ void nothing_kernel(int)
{
    sp_grid_wait();
}

/* Rows are drawn by a hash, so that the rows are the only memory read. */
__global__ void __launch_bounds__(THREADS)
    gather_peak_kernel(const uint4 *x, unsigned n_rows, int lanes, int rounds,
                       uint32_t *out)
{
    sp_grid_wait();
    const unsigned at = blockIdx.x * THREADS + threadIdx.x;
    const unsigned lane = at % (unsigned)lanes;
    unsigned draw = at / (unsigned)lanes * 2654435761u;
    uint32_t sum = 0;

    for (int r = 0; r < rounds; r++) {
        uint4 v[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            draw = draw * 1664525u + 1013904223u;
            v[i] = x[(size_t)__umulhi(draw, n_rows) * (unsigned)lanes + lane];
        }
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            sum += v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
    }
    out[at] = sum;
}

int rounds_of(double amount, double one)
{
    return amount < one ? 1 : amount / one > 1e8 ? 100000000 : (int)(amount / one);
}

sp_status cuda_peak_products(sp_backend *be, const sp_peak_args *a, double *work)
{
    /* per warp and round: 2 CHAINS multiply-adds in each of 32 threads, or CHAINS mma
     */
    const double flops = be->precision == SP_FP32   ? 32.0 * 2 * CHAINS * 2
                         : be->precision == SP_TF32 ? CHAINS * 2048.0
                                                    : CHAINS * 4096.0;
    const cudaStream_t stream = cuda_of(be)->compute;
    const int blocks = cuda_of(be)->n_multiprocessors * (int)BLOCKS_PER_SM;
    const double one = blocks * (THREADS / 32) * flops;
    const int rounds = rounds_of(a->amount, one);

    *work = one * rounds;
    if (be->precision == SP_FP32)
        SP_LAUNCH(fma_peak_kernel, blocks, THREADS, stream, rounds, a->y);
    else if (be->precision == SP_TF32)
        SP_LAUNCH((mma_peak_kernel<false>), blocks, THREADS, stream, rounds, a->y);
    else
        SP_LAUNCH((mma_peak_kernel<true>), blocks, THREADS, stream, rounds, a->y);
    return cuda_launched("peak of products");
}

sp_status stream_all(sp_backend *be, const sp_peak_args *a, double *work)
{
    const int64_t n = a->n / 4;
    const int64_t blocks = (n + 4 * THREADS - 1) / (4 * THREADS);

    *work = 32.0 * (double)n;
    return CUDA_LAUNCH(stream_peak_kernel, blocks ? (unsigned)blocks : 1u, THREADS,
                       cuda_of(be)->compute, (const float4 *)a->x, (float4 *)a->y, n);
}

sp_status launches(sp_backend *be, const sp_peak_args *a, double *work)
{
    const int n = rounds_of(a->amount, 1);

    for (int i = 0; i < n; i++)
        SP_LAUNCH(nothing_kernel, 1, 32, cuda_of(be)->compute, i);
    *work = n;
    return cuda_launched("nothing_kernel");
}

sp_status peak_gather(sp_backend *be, const sp_peak_args *a, double *work)
{
    const int64_t most = TABLE_BYTES, bytes = 4 * a->n < most ? 4 * a->n : most;
    const int blocks = cuda_of(be)->n_multiprocessors * ((int)FULL / (int)THREADS);
    const double one = 16.0 * LOADS * blocks * THREADS;
    const int rounds = rounds_of(a->amount, one);

    *work = one * rounds;
    return CUDA_LAUNCH(gather_peak_kernel, blocks, THREADS, cuda_of(be)->compute,
                       (const uint4 *)a->x, (unsigned)(bytes / a->row_bytes),
                       a->row_bytes / 16, rounds, (uint32_t *)a->y);
}

} // namespace

sp_status sp_cuda_peak(sp_backend *be, const sp_peak_args *args, double *work)
{
    switch (args->what) {
    case SP_PEAK_PRODUCTS:
        return cuda_peak_products(be, args, work);
    case SP_PEAK_STREAM:
        return stream_all(be, args, work);
    case SP_PEAK_LAUNCH:
        return launches(be, args, work);
    case SP_PEAK_GATHER:
        return peak_gather(be, args, work);
    default: /* SP_PEAK_STREAM already reads as much as it writes */
        *work = 0;
    }
    return SP_OK;
}

/* ---- clock, memory ---- */

sp_status sp_cuda_clock_begin(sp_backend *be)
{
    sp_cuda *cuda = cuda_of(be);

    for (int i = 0; i < 2; i++)
        if (!cuda->clock[i])
            SP_CUDA(cudaEventCreateWithFlags(&cuda->clock[i], cudaEventDefault));
    SP_CUDA(cudaEventRecord(cuda->clock[0], cuda->compute));
    return SP_OK;
}

sp_status sp_cuda_clock_end(sp_backend *be, double *seconds)
{
    const sp_cuda *cuda = cuda_of(be);
    float ms = 0;

    SP_CUDA(cudaEventRecord(cuda->clock[1], cuda->compute));
    SP_TRY(sp_cuda_wait(be)); /* sp_cuda_wait notices ranks that died */
    SP_CUDA(cudaEventElapsedTime(&ms, cuda->clock[0], cuda->clock[1]));
    *seconds = 1e-3 * ms;
    return SP_OK;
}

sp_status sp_cuda_memory_used(sp_backend *be, int64_t *bytes)
{
    size_t free_bytes, total;

    SP_CUDA(cudaSetDevice(be->device));
    SP_CUDA(cudaMemGetInfo(&free_bytes, &total));
    *bytes = (int64_t)(total - free_bytes);
    return SP_OK;
}

/* Update rules in double, as on the CPU. They are bound by memory: 20 bytes a parameter
 * for SGD, 28 for AdamW (counted). The sum of squares is formed of blocks of a fixed
 * number of elements, so that its value does not depend on the device. */
#include <assert.h>
#include <math.h>

#include "cuda/device/cuda_jobs.cuh"

namespace
{

enum { THREADS = 256, PER_BLOCK = 4096 };

__device__ double decay_of(const sp_optim_args &a, int64_t i)
{
    return a.spared && a.spared[i / SP_SPARED_RUN] ? 0 : a.weight_decay;
}

struct sgd {
    sp_optim_args a;
    double share; /* of the gradient in the momentum */

    __device__ void operator()(int64_t i) const
    {
        const double g = a.g[i] * a.g_scale + decay_of(a, i) * a.w[i];
        double step = g;

        if (a.momentum != 0) {
            a.m[i] = (float)(a.momentum * a.m[i] + share * g);
            step = a.nesterov ? g + a.momentum * a.m[i] : a.m[i];
        }
        a.w[i] = (float)(a.w[i] - a.lr * step);
    }
};

struct adamw {
    sp_optim_args a;
    double fix1, fix2; /* 1 - beta^(t + 1) */

    __device__ void operator()(int64_t i) const
    {
        const double g = a.g[i] * a.g_scale;
        double w = a.w[i] * (1 - a.lr * decay_of(a, i));

        a.m[i] = (float)(a.beta1 * a.m[i] + (1 - a.beta1) * g);
        a.v[i] = (float)(a.beta2 * a.v[i] + (1 - a.beta2) * g * g);
        w -= a.lr * (a.m[i] / fix1) / (sqrt(a.v[i] / fix2) + a.eps);
        a.w[i] = (float)w;
    }
};

template <class F>
__global__ void __launch_bounds__(THREADS) update_kernel(F f, int64_t n)
{
    sp_grid_wait();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < n)
        f(i);
}

template <class F> sp_status cuda_optim_update(sp_backend *be, F f, int64_t n)
{
    if (n == 0)
        return SP_OK;
    return CUDA_LAUNCH((update_kernel<F>),
                       dim3((unsigned)((n + THREADS - 1) / THREADS)), dim3(THREADS),
                       cuda_of(be)->compute, f, n);
}

/* The sum of the threads' numbers, by the same tree in every block; valid in thread 0.
 */
__device__ double block_sum(double mine)
{
    SP_SHARED(double, sum, [THREADS]);

    sum[threadIdx.x] = mine;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sum[threadIdx.x] += sum[threadIdx.x + half];
    }
    return threadIdx.x == 0 ? sum[0] : 0;
}

/* The last block adds the parts of all. */
__global__ void __launch_bounds__(THREADS)
    squares_kernel(const float *g, int64_t n, double *part, unsigned *count,
                   double *out)
{
    sp_grid_wait();
    const int64_t begin = (int64_t)blockIdx.x * PER_BLOCK;
    const int64_t end = min(begin + PER_BLOCK, n);
    double sum = 0;

    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        sum += (double)g[i] * g[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
    if (!cuda_is_last(count, gridDim.x))
        return;
    sum = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += THREADS)
        sum += part[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *out = sum;
}

} // namespace

sp_status sp_cuda_sgd(sp_backend *be, const sp_optim_args *args)
{
    assert(sp_update_is_sound(args));
    return cuda_optim_update(be, sgd{*args, args->t > 0 ? 1 - args->dampening : 1},
                             args->n);
}

sp_status sp_cuda_adamw(sp_backend *be, const sp_optim_args *args)
{
    const double t = (double)(args->t + 1);

    assert(sp_update_is_sound(args) && args->m && args->v);
    return cuda_optim_update(
        be, adamw{*args, 1 - pow(args->beta1, t), 1 - pow(args->beta2, t)}, args->n);
}

sp_status sp_cuda_sum_squares(sp_backend *be, const float *g, int64_t n, double *sum)
{
    sp_cuda *cuda = cuda_of(be);
    const int64_t n_blocks = n ? (n + PER_BLOCK - 1) / PER_BLOCK : 1;
    double *part;

    assert(n >= 0 && (g || n == 0) && sum);
    sp_arena_reset(&cuda->scratch);
    SP_TRY(SP_TAKE(&cuda->scratch, n_blocks, &part));
    return CUDA_LAUNCH(squares_kernel, dim3((unsigned)n_blocks), dim3(THREADS),
                       cuda->compute, g, n, part, cuda->counts + CUDA_COUNT_SQUARES,
                       sum);
}

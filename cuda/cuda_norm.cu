/* Batch norm: sums in double over the rows of each sample, and two passes over
 * elements. All are bound by memory: 4 bytes a value read, and 4 written where a tensor
 * is. */
#include "cuda_util.cuh"
#include "sp_norm.h"

namespace
{

struct values_and_squares {
    sp_tensor x;

    __device__ void operator()(int64_t i, int j, double *sum) const
    {
        const double v = cuda_row(x, i)[j];

        sum[0] += v;
        sum[1] += v * v;
    }
};

struct apply {
    sp_norm_args a;

    __device__ void operator()(int64_t i, int j) const
    {
        float v = cuda_row(a.x, i)[j] * a.scale[j] + a.shift[j];

        if (a.res.data)
            v += cuda_row(a.res, i)[j];
        cuda_row(a.y, i)[j] = v > 0 ? v : a.slope * v;
    }
};

/* dy becomes g on the way. */
struct grad_sums {
    sp_tensor x, y, dy;
    float slope;
    const float *mean, *inv_std;

    __device__ void operator()(int64_t i, int j, double *sum) const
    {
        float g = cuda_row(dy, i)[j];

        if (slope != 1 && !(cuda_row(y, i)[j] > 0)) {
            g *= slope;
            cuda_row(dy, i)[j] = g;
        }
        sum[0] += g;
        sum[1] += g * (((double)cuda_row(x, i)[j] - mean[j]) * inv_std[j]);
    }
};

struct grad_apply {
    sp_tensor x, dy, dx;
    const float *a, *b, *c;
    bool is_added;

    __device__ void operator()(int64_t i, int j) const
    {
        const float v = a[j] * cuda_row(dy, i)[j] + b[j] * cuda_row(x, i)[j] + c[j];
        float *to = cuda_row(dx, i) + j;

        *to = is_added ? *to + v : v;
    }
};

__global__ void __launch_bounds__(128) finish_kernel(sp_norm_finish_args a)
{
    const int j = (int)(blockIdx.x * 128 + threadIdx.x);

    if (j < a.c)
        sp_norm_finish_channel(&a, j);
}

__global__ void __launch_bounds__(128) grad_finish_kernel(sp_norm_grad_finish_args a)
{
    const int j = (int)(blockIdx.x * 128 + threadIdx.x);

    if (j < a.c)
        sp_norm_grad_finish_channel(&a, j);
}

__global__ void __launch_bounds__(128)
    add_samples_kernel(const double *sums, int n_samples, int m, double n_rows,
                       double *out, bool is_added)
{
    const int j = (int)(blockIdx.x * 128 + threadIdx.x);
    double sum = 0;

    if (j > m)
        return;
    for (int b = 0; j < m && b < n_samples; b++)
        sum += sums[(size_t)b * m + j];
    if (j == m)
        sum = n_rows;
    out[j] = is_added ? out[j] + sum : sum;
}

unsigned blocks_of(int n)
{
    return ((unsigned)n + 127) / 128;
}

} // namespace

sp_status sp_cuda_norm_sums(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                            int n_samples, double *sums)
{
    sp_arena_reset(&cuda_of(be)->scratch);
    return cuda_sample_sums(be, values_and_squares{x}, sample_row, n_samples, x.c,
                            sums);
}

sp_status sp_cuda_norm_apply(sp_backend *be, const sp_norm_args *args)
{
    return cuda_each(be, apply{*args}, args->x.n, args->x.c);
}

sp_status sp_cuda_norm_grad_sums(sp_backend *be, const sp_norm_grad_args *a)
{
    const grad_sums f = {a->x, a->y, a->dy, a->slope, a->mean, a->inv_std};

    sp_arena_reset(&cuda_of(be)->scratch);
    return cuda_sample_sums(be, f, a->sample_row, a->n_samples, a->x.c, a->sums);
}

sp_status sp_cuda_norm_grad_apply(sp_backend *be, const sp_norm_grad_args *a)
{
    const grad_apply f = {a->x, a->dy, a->dx, a->a, a->b, a->c, a->is_added};

    return cuda_each(be, f, a->x.n, a->x.c);
}

sp_status sp_cuda_norm_finish(sp_backend *be, const sp_norm_finish_args *args)
{
    if (args->c == 0)
        return SP_OK;
    SP_LAUNCH(finish_kernel, dim3(blocks_of(args->c)), dim3(128), cuda_of(be)->compute,
              *args);
    return cuda_launched("finish_kernel");
}

sp_status sp_cuda_norm_grad_finish(sp_backend *be, const sp_norm_grad_finish_args *args)
{
    if (args->c == 0)
        return SP_OK;
    SP_LAUNCH(grad_finish_kernel, dim3(blocks_of(args->c)), dim3(128),
              cuda_of(be)->compute, *args);
    return cuda_launched("grad_finish_kernel");
}

sp_status sp_cuda_add_samples(sp_backend *be, const double *sums, int n_samples, int m,
                              double n_rows, double *out, bool is_added)
{
    SP_LAUNCH(add_samples_kernel, dim3(blocks_of(m + 1)), dim3(128),
              cuda_of(be)->compute, sums, n_samples, m, n_rows, out, is_added);
    return cuda_launched("add_samples_kernel");
}

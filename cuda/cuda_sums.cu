/* The second half of sums over the rows of each sample. */
#include "cuda_util.cuh"

__global__ static void __launch_bounds__(128)
    add_chunks_kernel(cuda_samples s, int c, int chunk, int n_chunks,
                      const double *part, double *sums)
{
    const int at = (int)(blockIdx.x * blockDim.x + threadIdx.x), b = (int)blockIdx.y;
    const int n = (s.row[b + 1] - s.row[b] + chunk - 1) / chunk;
    double sum = 0;

    if (at >= 2 * c)
        return;
    for (int i = 0; i < n; i++)
        sum += part[((size_t)b * n_chunks + i) * 2 * c + at];
    sums[(size_t)(s.first + b) * 2 * c + at] = sum;
}

sp_status cuda_add_chunks(sp_backend *be, const cuda_samples *s, int c, int chunk,
                          int n_chunks, const double *part, double *sums)
{
    SP_LAUNCH(add_chunks_kernel, dim3((2 * (unsigned)c + 127) / 128, (unsigned)s->n),
              dim3(128), cuda_of(be)->compute, *s, c, chunk, n_chunks, part, sums);
    return cuda_launched("add_chunks_kernel");
}

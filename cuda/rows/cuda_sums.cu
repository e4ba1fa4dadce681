/* The second half of sums over the rows of each sample (cuda_rows.cuh): the sum over
 * the chunks of each sample, as a tree; and sums over samples. */
#include <assert.h>

#include "cuda/device/cuda_rows.cuh"

__global__ static void __launch_bounds__(CUDA_PART_COLUMNS *CUDA_PART_LANES)
    add_chunks_kernel(cuda_samples s, int c, int chunk, int n_chunks,
                      const double *part, double *sums)
{
    sp_grid_wait();
    SP_SHARED(double, all, [CUDA_PART_LANES][CUDA_PART_COLUMNS]);
    const int b = (int)blockIdx.y;
    const int at = (int)(blockIdx.x * CUDA_PART_COLUMNS + threadIdx.x);
    const int n = (s.row[b + 1] - s.row[b] + chunk - 1) / chunk;
    const size_t size = 2 * (size_t)c;

    cuda_add_parts<1>(part + (size_t)b * n_chunks * size, n, size, at < 2 * c ? at : -1,
                      cuda_part_thread(), cuda_part_threads(), all);
    if (threadIdx.y == 0 && at < 2 * c)
        sums[(size_t)(s.first + b) * size + at] = all[0][threadIdx.x];
}

sp_status cuda_add_chunks(sp_backend *be, const cuda_samples *s, int c, int chunk,
                          int n_chunks, const double *part, double *sums)
{
    return CUDA_LAUNCH(
        add_chunks_kernel,
        dim3((2 * (unsigned)c + CUDA_PART_COLUMNS - 1) / CUDA_PART_COLUMNS,
             (unsigned)s->n),
        cuda_part_block(n_chunks), cuda_of(be)->compute, *s, c, chunk, n_chunks, part,
        sums);
}

__global__ static void __launch_bounds__(CUDA_PART_COLUMNS *CUDA_PART_LANES)
    add_samples_kernel(const double *sums, int n_samples, int m, double n_rows,
                       double *out, bool is_added)
{
    sp_grid_wait();
    SP_SHARED(double, all, [CUDA_PART_LANES][CUDA_PART_COLUMNS]);
    const int at = (int)(blockIdx.x * CUDA_PART_COLUMNS + threadIdx.x);
    double sum;

    cuda_add_parts<1>(sums, n_samples, (size_t)m, at < m ? at : -1, cuda_part_thread(),
                      cuda_part_threads(), all);
    if (threadIdx.y || at > m)
        return;
    sum = at < m ? all[0][threadIdx.x] : n_rows;
    out[at] = is_added ? out[at] + sum : sum;
}

sp_status sp_cuda_add_samples(sp_backend *be, const double *sums, int n_samples, int m,
                              double n_rows, double *out, bool is_added)
{
    assert(n_samples >= 0 && m >= 0 && out);
    return CUDA_LAUNCH(add_samples_kernel, dim3((unsigned)m / CUDA_PART_COLUMNS + 1),
                       cuda_part_block(n_samples), cuda_of(be)->compute, sums,
                       n_samples, m, n_rows, out, is_added);
}

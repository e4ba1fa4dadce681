/* The second half of sums over the rows of each sample: over the chunks of each, as a
 * tree. 32 threads share the chunks of a column, so that hundreds of them do not wait
 * for one another's loads. */
#include "cuda_util.cuh"

enum { LANES = 32 };

__global__ static void __launch_bounds__(LANES *LANES)
    add_chunks_kernel(cuda_samples s, int c, int chunk, int n_chunks,
                      const double *part, double *sums)
{
    SP_SHARED(double, all, [LANES][LANES + 1]);
    const int x = (int)threadIdx.x, y = (int)threadIdx.y, b = (int)blockIdx.y;
    const int at = (int)blockIdx.x * LANES + x;
    const int n = (s.row[b + 1] - s.row[b] + chunk - 1) / chunk;
    double sum = 0;

    for (int i = y; at < 2 * c && i < n; i += LANES)
        sum += part[((size_t)b * n_chunks + i) * 2 * c + at];
    all[y][x] = sum;
    for (int half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (y < half)
            all[y][x] += all[y + half][x];
    }
    if (y == 0 && at < 2 * c)
        sums[(size_t)(s.first + b) * 2 * c + at] = all[0][x];
}

sp_status cuda_add_chunks(sp_backend *be, const cuda_samples *s, int c, int chunk,
                          int n_chunks, const double *part, double *sums)
{
    SP_LAUNCH(
        add_chunks_kernel, dim3((2 * (unsigned)c + LANES - 1) / LANES, (unsigned)s->n),
        dim3(LANES, LANES), cuda_of(be)->compute, *s, c, chunk, n_chunks, part, sums);
    return cuda_launched("add_chunks_kernel");
}

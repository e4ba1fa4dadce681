/* Pooling. It is rare in these networks, so the kernels are plain: one thread for each
 * output and channel. Gradients run one launch for each offset: within an offset no
 * input row has two outputs, so no two threads add to the same element. An input's
 * gradient is thus summed by rising offset. */
#include <assert.h>

#include "cuda/device/cuda_rows.cuh"
#include "cuda/plan/cuda_map.h"

namespace
{

struct pool_rows {
    cuda_map map;
    bool is_max;
    sp_tensor x, y;
    int32_t *argmax;

    __device__ void operator()(int64_t o, int j) const
    {
        const int32_t begin = map.first[o], end = map.first[o + 1];
        float value = 0;
        int32_t at = -1;

        for (int32_t p = begin; p < end; p++) {
            const float v = cuda_get(x, map.nbr[p], j);
            if (!is_max)
                value += v;
            else if (at < 0 || v > value) { /* the first of equal values wins */
                value = v;
                at = map.nbr[p];
            }
        }
        if (is_max)
            argmax[o * y.c + j] = at;
        else if (end > begin)
            value /= (float)(end - begin);
        cuda_put(y, o, j, value);
    }
};

struct pool_grad_rows {
    cuda_map map;
    sp_tensor dx, dy;
    const int32_t *argmax; /* NULL: mean */
    int k;

    __device__ const uint32_t *word(int w, int64_t o) const
    {
        return map.mask + (size_t)w * (size_t)map.n_out + o;
    }

    __device__ void operator()(int64_t o, int j) const
    {
        const int w = k / 32;
        const uint32_t mine = *word(w, o), bit = 1u << k % 32;
        int32_t at = map.first[o] + __popc(mine & (bit - 1));
        const float g = cuda_get(dy, o, j);

        if (!(mine & bit))
            return;
        for (int below = 0; below < w; below++)
            at += __popc(*word(below, o));
        const int32_t i = map.nbr[at];
        if (!argmax)
            cuda_add(dx, i, j, g / (float)(map.first[o + 1] - map.first[o]));
        else if (argmax[o * dy.c + j] == i)
            cuda_add(dx, i, j, g);
    }
};

/* ---- global pools: one row a sample ---- */

/* Finds the first row of the largest value. Thread y of 32 scans rows y, y + 32, ...;
 * among the threads the larger value wins, and of equal values the lower row. */
__global__ void __launch_bounds__(32 * 32)
    sample_argmax_kernel(sp_tensor x, cuda_samples s, int32_t *argmax)
{
    sp_grid_wait();
    SP_SHARED(float, value, [32][33]);
    SP_SHARED(int32_t, row, [32][33]);
    const int b = (int)blockIdx.y, tx = (int)threadIdx.x, y = (int)threadIdx.y;
    const int j = (int)blockIdx.x * 32 + tx;
    float best = 0;
    int32_t at = -1;

    for (int32_t i = s.row[b] + y; j < x.c && i < s.row[b + 1]; i += 32) {
        const float v = cuda_get(x, i, j);
        if (at < 0 || v > best) {
            best = v;
            at = i;
        }
    }
    value[y][tx] = best;
    row[y][tx] = at;
    __syncthreads();
    if (y || j >= x.c)
        return;
    for (int r = 1; r < 32; r++) {
        const float v = value[r][tx];
        const int32_t i = row[r][tx];
        if (i >= 0 && (v > best || (v == best && i < at))) {
            best = v;
            at = i;
        }
    }
    argmax[(size_t)(s.first + b) * x.c + j] = at;
}

struct take_rows {
    sp_tensor x, y;
    const int32_t *argmax;

    __device__ void operator()(int64_t b, int j) const
    {
        const int32_t at = argmax[b * y.c + j];

        cuda_put(y, b, j, at < 0 ? 0 : cuda_get(x, at, j));
    }
};

/* Writes row b of y from the sum over sample b. */
struct use_sums {
    const double *sums; /* [n_samples][2][c] */
    cuda_samples s;
    sp_tensor y;
    bool is_mean; /* true: the mean is written; false: the sum is added */

    __device__ void operator()(int64_t b, int j) const
    {
        const double sum = sums[(size_t)(s.first + b) * 2 * y.c + j];
        const int32_t n = s.row[b + 1] - s.row[b];

        if (is_mean)
            cuda_put(y, s.first + b, j, n ? (float)(sum / n) : 0);
        else
            cuda_add(y, s.first + b, j, (float)sum);
    }
};

struct spread_max {
    sp_tensor dy, dx;
    const int32_t *argmax;

    __device__ void operator()(int64_t b, int j) const
    {
        const int32_t at = argmax[b * dy.c + j];

        if (at >= 0)
            cuda_add(dx, at, j, cuda_get(dy, b, j));
    }
};

/* Spreads the row of one sample to all of its voxels: divided by their number and added
 * (gradient of the mean), or written as it is (broadcast). */
struct spread {
    sp_tensor from, to; /* `from` has one row */
    bool is_mean;

    __device__ void operator()(int64_t i, int j) const
    {
        const float v = cuda_get(from, 0, j);

        if (is_mean)
            cuda_add(to, i, j, v / (float)to.n);
        else
            cuda_put(to, i, j, v);
    }
};

sp_status spread_rows(sp_backend *be, sp_tensor from, sp_tensor to,
                      const int32_t *sample_row, int n_samples, bool is_mean)
{
    for (int b = 0; b < n_samples; b++) {
        const sp_tensor rows =
            sp_tensor_rows(to, sample_row[b], sample_row[b + 1] - sample_row[b]);

        SP_TRY(cuda_each(be, spread{sp_tensor_rows(from, b, 1), rows, is_mean}, rows.n,
                         rows.c));
    }
    return SP_OK;
}

sp_status pool_sum_rows(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                        int n_samples, sp_tensor y, bool is_mean)
{
    double *sums;

    sp_arena_reset(&cuda_of(be)->scratch);
    SP_TRY(SP_ALLOC(&cuda_of(be)->scratch, (size_t)n_samples * 2 * x.c, &sums));
    SP_TRY(cuda_sample_sums(be, x, sample_row, n_samples, sums));
    for (int first = 0; first < n_samples; first += CUDA_GROUP) {
        const cuda_samples s = cuda_group(sample_row, first, n_samples);
        SP_TRY(cuda_each(be, use_sums{sums, s, y, is_mean}, s.n, x.c));
    }
    return SP_OK;
}

} // namespace

sp_status sp_cuda_pool(sp_backend *be, const sp_pool_args *a)
{
    const cuda_map *map = (const cuda_map *)a->map->device;

    assert(sp_pool_is_sound(a));
    return cuda_each(be, pool_rows{*map, a->is_max, a->x, a->y, a->argmax}, a->y.n,
                     a->y.c);
}

sp_status sp_cuda_pool_grad(sp_backend *be, const sp_pool_args *a)
{
    const cuda_map *map = (const cuda_map *)a->map->device;

    assert(sp_pool_grad_is_sound(a));
    for (int k = 0; k < map->K; k++)
        SP_TRY(cuda_each(
            be, pool_grad_rows{*map, a->dx, a->dy, a->is_max ? a->argmax : NULL, k},
            a->dy.n, a->dy.c));
    return SP_OK;
}

sp_status sp_cuda_global_pool(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                              int n_samples, int32_t *argmax, sp_tensor y)
{
    assert(sp_samples_cover(sample_row, n_samples, x.n) && y.n == n_samples);
    if (!argmax)
        return pool_sum_rows(be, x, sample_row, n_samples, y, true);
    for (int first = 0; x.c && first < n_samples; first += CUDA_GROUP) {
        const cuda_samples s = cuda_group(sample_row, first, n_samples);

        SP_TRY(CUDA_LAUNCH(sample_argmax_kernel,
                           dim3(((unsigned)x.c + 31) / 32, (unsigned)s.n), dim3(32, 32),
                           cuda_of(be)->compute, x, s, argmax));
    }
    return cuda_each(be, take_rows{x, y, argmax}, n_samples, x.c);
}

sp_status sp_cuda_global_pool_grad(sp_backend *be, sp_tensor dy,
                                   const int32_t *sample_row, int n_samples,
                                   const int32_t *argmax, sp_tensor dx)
{
    assert(sp_samples_cover(sample_row, n_samples, dx.n) && dy.n == n_samples);
    if (argmax)
        return cuda_each(be, spread_max{dy, dx, argmax}, n_samples, dy.c);
    return spread_rows(be, dy, dx, sample_row, n_samples, true);
}

sp_status sp_cuda_broadcast(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                            int n_samples, sp_tensor y)
{
    assert(sp_samples_cover(sample_row, n_samples, y.n) && x.n == n_samples);
    return spread_rows(be, x, y, sample_row, n_samples, false);
}

sp_status sp_cuda_broadcast_grad(sp_backend *be, sp_tensor dy,
                                 const int32_t *sample_row, int n_samples, sp_tensor dx)
{
    assert(sp_samples_cover(sample_row, n_samples, dy.n) && dx.n == n_samples);
    return pool_sum_rows(be, dy, sample_row, n_samples, dx, false);
}

/* Pooling. Rare in these networks, so plain: a thread for each output and channel finds
 * its pairs by binary search; gradients go offset by offset, one launch each, because
 * within an offset no input row has two outputs, so nothing is added twice at a time.
 * (An input's gradient is thus summed by rising offset.)
 */
#include "cuda_rows.cuh"

namespace
{

struct device_map {
    const int32_t *start, *in, *out, *tile_row;
    int K, n_tiles;
};

device_map map_of(const sp_map *m)
{
    return device_map{m->start, m->in, m->out, m->tile_row, m->K, m->n_tiles};
}

/* Input row of output row o, in tile t, at offset k; -1: none. */
__device__ int32_t partner(const device_map &m, int t, int k, int32_t o)
{
    int32_t low = m.start[(size_t)t * m.K + k], high = m.start[(size_t)t * m.K + k + 1];
    const int32_t end = high;

    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (m.out[middle] < o)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && m.out[low] == o ? m.in[low] : -1;
}

enum { ROWS = 8 };

struct pool_call {
    device_map map;
    bool is_max;
    sp_tensor x, y;
    int32_t *argmax;
};

__global__ void __launch_bounds__(32 * ROWS) pool_kernel(pool_call a)
{
    const int per_tile = SP_TILE / ROWS, t = (int)blockIdx.x / per_tile;
    const int j = (int)(blockIdx.y * 32 + threadIdx.x);
    const int32_t o =
        a.map.tile_row[t] + (int)blockIdx.x % per_tile * ROWS + (int)threadIdx.y;
    float value = 0;
    int32_t at = -1;
    int count = 0;

    if (o >= a.map.tile_row[t + 1] || j >= a.y.c)
        return;
    for (int k = 0; k < a.map.K; k++) {
        const int32_t i = partner(a.map, t, k, o);
        if (i < 0)
            continue;
        const float v = cuda_get(a.x, i, j);
        count++;
        if (!a.is_max)
            value += v;
        else if (at < 0 || v > value) { /* the first of equal values wins */
            value = v;
            at = i;
        }
    }
    if (a.is_max)
        a.argmax[(size_t)o * a.y.c + j] = at;
    cuda_put(a.y, o, j, a.is_max || !count ? value : value / (float)count);
}

/* Pairs of each output row. */
__global__ void __launch_bounds__(128) count_kernel(device_map m, int32_t *count)
{
    const int t = (int)blockIdx.x / 4;
    const int32_t o = m.tile_row[t] + (int)blockIdx.x % 4 * 128 + (int)threadIdx.x;
    int32_t n = 0;

    if (o >= m.tile_row[t + 1])
        return;
    for (int k = 0; k < m.K; k++)
        n += partner(m, t, k, o) >= 0;
    count[o] = n;
}

struct pool_grad_call {
    device_map map;
    sp_tensor dx, dy;
    const int32_t *argmax; /* of a max pool */
    const int32_t *count;  /* of a mean pool */
    int k;
};

__global__ void __launch_bounds__(32 * ROWS) pool_grad_kernel(pool_grad_call a)
{
    const size_t list = (size_t)blockIdx.x * a.map.K + a.k;
    const int j = (int)(blockIdx.y * 32 + threadIdx.x);

    if (j >= a.dy.c)
        return;
    for (int32_t p = a.map.start[list] + (int)threadIdx.y; p < a.map.start[list + 1];
         p += ROWS) {
        const int32_t i = a.map.in[p], o = a.map.out[p];
        const float g = cuda_get(a.dy, o, j);

        if (a.count)
            cuda_add(a.dx, i, j, g / (float)a.count[o]);
        else if (a.argmax[(size_t)o * a.dy.c + j] == i)
            cuda_add(a.dx, i, j, g);
    }
}

unsigned columns_of(int c)
{
    return ((unsigned)c + 31) / 32;
}

/* ---- one row a sample ---- */

/* First row of the largest value. Thread y of 32 looks at rows y, y + 32, ...; then the
 * larger value wins, of equal ones the lower row. */
__global__ void __launch_bounds__(32 * 32)
    sample_argmax_kernel(sp_tensor x, cuda_samples s, int32_t *argmax)
{
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

struct values {
    sp_tensor x;

    __device__ void operator()(int64_t i, int j, double *sum) const
    {
        sum[0] += cuda_get(x, i, j);
    }
};

/* Row b of y from the sum over sample b. */
struct use_sums {
    const double *sums; /* [n_samples][2][c] */
    cuda_samples s;
    sp_tensor y;
    bool is_mean; /* written; else added */

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

/* One sample: its row to all of its voxels, divided by their number and added (gradient
 * of the mean), or as it is (broadcast). */
struct spread {
    sp_tensor from, to; /* from: one row */
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

sp_status sum_rows(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                   int n_samples, sp_tensor y, bool is_mean)
{
    double *sums;

    sp_arena_reset(&cuda_of(be)->scratch);
    SP_TRY(SP_TAKE(&cuda_of(be)->scratch, (size_t)n_samples * 2 * x.c, &sums));
    SP_TRY(cuda_sample_sums(be, values{x}, sample_row, n_samples, x.c, sums));
    for (int first = 0; first < n_samples; first += CUDA_GROUP) {
        const cuda_samples s = cuda_group(sample_row, first, n_samples);
        SP_TRY(cuda_each(be, use_sums{sums, s, y, is_mean}, s.n, x.c));
    }
    return SP_OK;
}

} // namespace

sp_status sp_cuda_pool(sp_backend *be, const sp_pool_args *a)
{
    const pool_call call = {map_of(a->map), a->is_max, a->x, a->y, a->argmax};

    if (a->y.n == 0 || a->y.c == 0)
        return SP_OK;
    SP_LAUNCH(pool_kernel,
              dim3((unsigned)a->map->n_tiles * (SP_TILE / ROWS), columns_of(a->y.c)),
              dim3(32, ROWS), cuda_of(be)->compute, call);
    return cuda_launched("pool_kernel");
}

sp_status sp_cuda_pool_grad(sp_backend *be, const sp_pool_args *a)
{
    pool_grad_call call = {map_of(a->map), a->dx, a->dy, a->argmax, NULL, 0};
    const unsigned n_tiles = (unsigned)a->map->n_tiles;
    int32_t *count;

    if (a->dy.n == 0 || a->dy.c == 0)
        return SP_OK;
    if (!a->is_max) {
        sp_arena_reset(&cuda_of(be)->scratch);
        SP_TRY(SP_TAKE(&cuda_of(be)->scratch, a->dy.n, &count));
        call.count = count;
        SP_LAUNCH(count_kernel, dim3(n_tiles * (SP_TILE / 128)), dim3(128),
                  cuda_of(be)->compute, call.map, count);
        SP_TRY(cuda_launched("count_kernel"));
    }
    for (call.k = 0; call.k < a->map->K; call.k++) {
        SP_LAUNCH(pool_grad_kernel, dim3(n_tiles, columns_of(a->dy.c)), dim3(32, ROWS),
                  cuda_of(be)->compute, call);
        SP_TRY(cuda_launched("pool_grad_kernel"));
    }
    return SP_OK;
}

sp_status sp_cuda_global_pool(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                              int n_samples, int32_t *argmax, sp_tensor y)
{
    if (!argmax)
        return sum_rows(be, x, sample_row, n_samples, y, true);
    for (int first = 0; x.c && first < n_samples; first += CUDA_GROUP) {
        const cuda_samples s = cuda_group(sample_row, first, n_samples);

        SP_LAUNCH(sample_argmax_kernel, dim3(columns_of(x.c), (unsigned)s.n),
                  dim3(32, 32), cuda_of(be)->compute, x, s, argmax);
        SP_TRY(cuda_launched("sample_argmax_kernel"));
    }
    return cuda_each(be, take_rows{x, y, argmax}, n_samples, x.c);
}

sp_status sp_cuda_global_pool_grad(sp_backend *be, sp_tensor dy,
                                   const int32_t *sample_row, int n_samples,
                                   const int32_t *argmax, sp_tensor dx)
{
    if (argmax)
        return cuda_each(be, spread_max{dy, dx, argmax}, n_samples, dy.c);
    return spread_rows(be, dy, dx, sample_row, n_samples, true);
}

sp_status sp_cuda_broadcast(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                            int n_samples, sp_tensor y)
{
    return spread_rows(be, x, y, sample_row, n_samples, false);
}

sp_status sp_cuda_broadcast_grad(sp_backend *be, sp_tensor dy,
                                 const int32_t *sample_row, int n_samples, sp_tensor dx)
{
    return sum_rows(be, dy, sample_row, n_samples, dx, false);
}

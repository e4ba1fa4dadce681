/* Batch norm: sums in double over the rows of each sample, coefficients from the sums,
 * and two passes over elements. A convolution forms the sums of its own result
 * (cuda_conv.cu). The passes are bound by memory. In tensors [n, c], norm_sums reads
 * one (x); norm_apply reads one or two and writes one, also if the residual is a norm.
 * Backward, norm_grad_sums reads x and dy and writes dy (only with an activation; after
 * an addition it reads y too), and norm_grad_apply reads two and writes one. If the
 * following convolution can, its epilogue does the work of norm_grad_sums
 * (cuda_conv_out.cuh).
 *
 * The following convolution could also apply scale, shift and activation to its
 * operands, so that y is never written. It does not, because a pass handles an element
 * once and a convolution as often as it gathers it. Counted for MinkUNet34 in bf16 on
 * two scans of 94,444 voxels: 26 of 62 norms are read only by convolutions; their y are
 * 381 MB of the step's 3.0 GB; forward and weight gradient gather each element 3 to 9
 * times, those of 256 channels again for each 128 columns, and tiles handle 1.5 to 1.7
 * times the rows that they gather. Expected: not writing and reading these y saves 0.24
 * ms of 11 ms (at 4.3 TB/s and 2.5 us a launch), while 35 instructions for 8 elements
 * in shared memory cost 0.65 ms of all that 132 SMs can issue. A step of 128 columns
 * would move 64 KB instead of 48 in shared memory, 512 clocks, while the tensor cores
 * at 60 % of their rate need 427; on the fragments, after ldmatrix, two warps would do
 * the same work twice.
 */
#include <assert.h>

#include "compute/sp_norm.h"
#include "cuda/device/cuda_rows.cuh"

namespace
{

struct values_and_squares : cuda_plain {
    sp_tensor x;

    template <class T, int N> struct item {
        cuda_pack<T, N> x;
    };

    template <class T, int N>
    __device__ void load(int64_t i, int j, item<T, N> *v) const
    {
        cuda_load_pack(x, i, j, &v->x);
    }

    template <class T, int N>
    __device__ void add(const channels<N> &, const item<T, N> &item, int64_t, int,
                        double *a, double *b) const
    {
        float v[N];

        cuda_unpack(item.x, v);
        for (int k = 0; k < N; k++) {
            const double d = v[k];
            a[k] += d;
            b[k] += d * d;
        }
    }
};

/* ---- coefficients ----
 * Computed by a small kernel ahead of a pass, which begins early (sp_cuda.h), or alone.
 * A block adds the parts of CHANNELS channels and finishes these. */
enum { CHANNELS = CUDA_PART_COLUMNS / 2 };

struct channel_sums {
    int j; /* channel that this thread finishes, or -1 */
    sp_norm_sums sums;
};

/* Adds the parts of the block's channels. The columns are the first sums of these
 * channels, then their second sums. */
__device__ channel_sums norm_add_channels(const sp_sums &s, int c)
{
    SP_SHARED(double, all, [CUDA_PART_LANES][CUDA_PART_COLUMNS]);
    const int x = (int)threadIdx.x, j = (int)blockIdx.x * CHANNELS + x % CHANNELS;
    channel_sums r = {-1, {0, 0, 0}};

    cuda_add_parts<1>(s.part, s.n_parts, 2 * (size_t)c,
                      j < c ? x / CHANNELS * c + j : -1, cuda_part_thread(),
                      cuda_part_threads(), all);
    if (threadIdx.y == 0 && x < CHANNELS && j < c) {
        r.j = j;
        r.sums.first = all[0][x];
        r.sums.second = all[0][x + CHANNELS];
        r.sums.rows = sp_norm_rows(&s, c);
    }
    return r;
}

__device__ void finish_channels(const sp_norm_finish_args &a)
{
    const channel_sums r = norm_add_channels(a.sums, a.c);

    if (r.j >= 0)
        sp_norm_finish_channel(&a, r.j, r.sums);
}

__device__ void finish_channels(const sp_norm_grad_finish_args &a)
{
    const channel_sums r = norm_add_channels(a.all, a.c);
    sp_norm_sums own = r.sums;

    if (r.j < 0)
        return;
    if (a.own.part && a.own.part != a.all.part) { /* own has one part */
        own.first = a.own.part[r.j];
        own.second = a.own.part[a.c + r.j];
    }
    sp_norm_grad_finish_channel(&a, r.j, r.sums, own);
}

template <class A>
__global__ void __launch_bounds__(CUDA_PART_COLUMNS *CUDA_PART_LANES)
    finish_kernel(A a, bool lets_next)
{
    sp_grid_begin(lets_next);
    finish_channels(a);
}

template <class A> sp_status norm_finish(sp_backend *be, const A &a, int n_parts)
{
    const unsigned blocks = ((unsigned)a.c + CHANNELS - 1) / CHANNELS;

    if (a.c == 0)
        return SP_OK;
    return CUDA_LAUNCH((finish_kernel<A>), dim3(blocks), cuda_part_block(n_parts),
                       cuda_of(be)->compute, a, cuda_lets_next(be));
}

/* ---- passes over elements ---- */

struct apply {
    sp_tensor x, y, res;
    const float *scale, *shift;
    const float *res_scale, *res_shift; /* NULL: the residual is added as it is */
    float slope;

    template <int N> struct channels {
        float scale[N], shift[N], res_scale[N], res_shift[N];
    };
    template <class T, int N> struct item {
        cuda_pack<T, N> x, res;
    };

    template <int N> __device__ channels<N> at(int j) const
    {
        channels<N> here;

        cuda_channels(scale, j, here.scale);
        cuda_channels(shift, j, here.shift);
        if (res_scale) {
            cuda_channels(res_scale, j, here.res_scale);
            cuda_channels(res_shift, j, here.res_shift);
        }
        return here;
    }

    template <class T, int N>
    __device__ void load(int64_t i, int j, item<T, N> *v) const
    {
        cuda_load_pack(x, i, j, &v->x);
        if (res.data)
            cuda_load_pack(res, i, j, &v->res);
    }

    template <class T, int N>
    __device__ void finish(const channels<N> &here, const item<T, N> &item, int64_t i,
                           int j) const
    {
        float v[N], r[N] = {};

        cuda_unpack(item.x, v);
        if (res.data)
            cuda_unpack(item.res, r);
        for (int k = 0; k < N; k++) {
            v[k] = cuda_affine(v[k], here.scale[k], here.shift[k]);
            if (res_scale)
                r[k] = cuda_rounded<T>(
                    cuda_affine(r[k], here.res_scale[k], here.res_shift[k]));
            if (res.data)
                v[k] += r[k];
            v[k] = v[k] > 0 ? v[k] : slope * v[k];
        }
        cuda_store<T>(y, i, j, v);
    }
};

/* Sums of pass 1 of the backward; replaces dy by g as it reads it. */
struct grad_sums {
    sp_tensor x, y, dy;
    float slope;
    const float *mean, *inv_std;
    const float *scale, *shift; /* NULL: y is read */

    template <int N> struct channels {
        float mean[N], inv_std[N], scale[N], shift[N];
    };
    template <class T, int N> struct item {
        cuda_pack<T, N> x, y, dy;
    };

    template <int N> __device__ channels<N> at(int j) const
    {
        channels<N> here;

        cuda_channels(mean, j, here.mean);
        cuda_channels(inv_std, j, here.inv_std);
        if (scale) {
            cuda_channels(scale, j, here.scale);
            cuda_channels(shift, j, here.shift);
        }
        return here;
    }

    template <class T, int N>
    __device__ void load(int64_t i, int j, item<T, N> *v) const
    {
        cuda_load_pack(x, i, j, &v->x);
        cuda_load_pack(dy, i, j, &v->dy);
        if (slope != 1 && !scale)
            cuda_load_pack(y, i, j, &v->y);
    }

    template <class T, int N>
    __device__ void add(const channels<N> &here, const item<T, N> &item, int64_t i,
                        int j, double *a, double *b) const
    {
        float v[N], g[N], y[N];

        cuda_unpack(item.dy, g);
        cuda_unpack(item.x, v);
        if (slope != 1) {
            if (scale)
                for (int k = 0; k < N; k++)
                    y[k] = cuda_affine(v[k], here.scale[k], here.shift[k]);
            else
                cuda_unpack(item.y, y);
            for (int k = 0; k < N; k++)
                g[k] = y[k] > 0 ? g[k] : slope * g[k];
            cuda_store<T>(dy, i, j, g);
        }
        for (int k = 0; k < N; k++) {
            a[k] += g[k];
            b[k] += g[k] * (((double)v[k] - here.mean[k]) * here.inv_std[k]);
        }
    }
};

struct grad_apply {
    sp_tensor x, dy, dx;
    const float *a, *b, *c;
    bool is_added;

    template <int N> struct channels {
        float a[N], b[N], c[N];
    };
    template <class T, int N> struct item {
        cuda_pack<T, N> x, dy, dx;
    };

    template <int N> __device__ channels<N> at(int j) const
    {
        channels<N> here;

        cuda_channels(a, j, here.a);
        cuda_channels(b, j, here.b);
        cuda_channels(c, j, here.c);
        return here;
    }

    template <class T, int N>
    __device__ void load(int64_t i, int j, item<T, N> *v) const
    {
        cuda_load_pack(dy, i, j, &v->dy);
        cuda_load_pack(x, i, j, &v->x);
        if (is_added)
            cuda_load_pack(dx, i, j, &v->dx);
    }

    template <class T, int N>
    __device__ void finish(const channels<N> &here, const item<T, N> &item, int64_t i,
                           int j) const
    {
        float g[N], v[N];

        cuda_unpack(item.dy, g);
        cuda_unpack(item.x, v);
        for (int k = 0; k < N; k++)
            v[k] = here.a[k] * g[k] + here.b[k] * v[k] + here.c[k];
        cuda_store_sum(dx, i, j, v, item.dx, is_added);
    }
};

bool has_one_part(const sp_norm_grad_finish_args &a)
{
    return !a.own.part || a.own.part == a.all.part || a.own.n_parts == 1;
}

} // namespace

sp_status sp_cuda_norm_sums(sp_backend *be, sp_tensor x, const int32_t *sample_row,
                            int n_samples, double *sums)
{
    assert(sp_tensor_is_sound(x) && sums);
    assert(sp_samples_cover(sample_row, n_samples, x.n));
    sp_arena_reset(&cuda_of(be)->scratch);
    return cuda_row_sums(be, values_and_squares{{}, x}, sample_row, n_samples, sums, x);
}

sp_status sp_cuda_norm_apply(sp_backend *be, const sp_norm_args *a)
{
    const apply f = {a->x,     a->y,         a->res,       a->scale,
                     a->shift, a->res_scale, a->res_shift, a->slope};

    assert(sp_norm_is_sound(a));
    if (a->finish)
        SP_TRY(sp_cuda_norm_finish(be, a->finish));
    return cuda_each_row(be, f, a->x, a->y, a->res);
}

sp_status sp_cuda_norm_grad_sums(sp_backend *be, const sp_norm_grad_args *a)
{
    const grad_sums f = {a->x,    a->y,       a->dy,    a->slope,
                         a->mean, a->inv_std, a->scale, a->shift};

    assert(sp_norm_grad_sums_are_sound(a));
    sp_arena_reset(&cuda_of(be)->scratch);
    return cuda_row_sums(be, f, a->sample_row, a->n_samples, a->sums, a->x, a->y,
                         a->dy);
}

sp_status sp_cuda_norm_grad_apply(sp_backend *be, const sp_norm_grad_args *a)
{
    const grad_apply f = {a->x, a->dy, a->dx, a->a, a->b, a->c, a->is_added};

    assert(sp_norm_grad_is_sound(a));
    if (a->finish)
        SP_TRY(sp_cuda_norm_grad_finish(be, a->finish));
    return cuda_each_row(be, f, a->x, a->dy, a->dx);
}

sp_status sp_cuda_norm_finish(sp_backend *be, const sp_norm_finish_args *args)
{
    assert(sp_norm_finish_is_sound(args));
    return norm_finish(be, *args, args->sums.n_parts);
}

sp_status sp_cuda_norm_grad_finish(sp_backend *be, const sp_norm_grad_finish_args *args)
{
    assert(sp_norm_grad_finish_is_sound(args));
    assert(has_one_part(*args));
    return norm_finish(be, *args, args->all.n_parts);
}

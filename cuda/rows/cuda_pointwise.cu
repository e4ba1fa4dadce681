/* Elementwise operations. All of them are bound by memory. */
#include <assert.h>

#include "base/sp_rng.h"
#include "cuda/device/cuda_rows.cuh"

namespace
{

/* One tensor is read and one written. */
struct one_to_one : cuda_plain {
    sp_tensor x, y;

    template <class T, int N> struct item {
        cuda_pack<T, N> x;
    };

    template <class T, int N>
    __device__ void load(int64_t i, int j, item<T, N> *v) const
    {
        cuda_load_pack(x, i, j, &v->x);
    }
};

struct relu : one_to_one {
    float slope;

    template <class T, int N>
    __device__ void finish(const channels<N> &, const item<T, N> &item, int64_t i,
                           int j) const
    {
        float v[N];

        cuda_unpack(item.x, v);
        for (int k = 0; k < N; k++)
            v[k] = v[k] > 0 ? v[k] : slope * v[k];
        cuda_store<T>(y, i, j, v);
    }
};

struct relu_grad : cuda_plain {
    sp_tensor y, dy, dx;
    float slope;
    bool is_added;

    template <class T, int N> struct item {
        cuda_pack<T, N> y, dy, dx;
    };

    template <class T, int N>
    __device__ void load(int64_t i, int j, item<T, N> *v) const
    {
        cuda_load_pack(dy, i, j, &v->dy);
        cuda_load_pack(y, i, j, &v->y);
        if (is_added)
            cuda_load_pack(dx, i, j, &v->dx);
    }

    template <class T, int N>
    __device__ void finish(const channels<N> &, const item<T, N> &item, int64_t i,
                           int j) const
    {
        float g[N], v[N];

        cuda_unpack(item.dy, g);
        cuda_unpack(item.y, v);
        for (int k = 0; k < N; k++)
            g[k] = v[k] > 0 ? g[k] : slope * g[k];
        cuda_store_sum(dx, i, j, g, item.dx, is_added);
    }
};

struct copy : cuda_plain {
    sp_tensor x, y;
    bool is_added;

    template <class T, int N> struct item {
        cuda_pack<T, N> x, y;
    };

    template <class T, int N>
    __device__ void load(int64_t i, int j, item<T, N> *v) const
    {
        cuda_load_pack(x, i, j, &v->x);
        if (is_added)
            cuda_load_pack(y, i, j, &v->y);
    }

    template <class T, int N>
    __device__ void finish(const channels<N> &, const item<T, N> &item, int64_t i,
                           int j) const
    {
        float v[N];

        cuda_unpack(item.x, v);
        cuda_store_sum(y, i, j, v, item.y, is_added);
    }
};

/* Copies between the element types. */
struct convert {
    sp_tensor x, y;
    bool is_added;

    __device__ void operator()(int64_t i, int j) const
    {
        cuda_put(y, i, j, cuda_get(x, i, j) + (is_added ? cuda_get(y, i, j) : 0));
    }
};

/* Dropout of one sample. Its rows are counted from its first row, so that the mask does
 * not depend on the sample's place in the batch. */
struct dropout : one_to_one {
    sp_rng rng;
    float p, scale;
    int layer;

    template <class T, int N>
    __device__ void finish(const channels<N> &, const item<T, N> &item, int64_t i,
                           int j) const
    {
        float v[N];

        cuda_unpack(item.x, v);
        for (int k = 0; k < N; k++) {
            const uint64_t block = sp_dropout_block(layer, i, j + k);
            const uint32_t word = sp_rng_at(&rng, block << 2 | (uint64_t)((j + k) & 3));
            v[k] = sp_rng_to_unit(word) >= p ? v[k] * scale : 0;
        }
        cuda_store<T>(y, i, j, v);
    }
};

} // namespace

sp_status sp_cuda_relu(sp_backend *be, sp_tensor x, float slope, sp_tensor y)
{
    assert(sp_tensors_match(x, y));
    return cuda_each_row(be, relu{{{}, x, y}, slope}, x, y);
}

sp_status sp_cuda_relu_grad(sp_backend *be, sp_tensor y, float slope, sp_tensor dy,
                            sp_tensor dx, bool is_added)
{
    assert(sp_tensors_match(y, dy) && sp_tensors_match(dy, dx));
    return cuda_each_row(be, relu_grad{{}, y, dy, dx, slope, is_added}, y, dy, dx);
}

sp_status sp_cuda_copy(sp_backend *be, sp_tensor x, sp_tensor y, bool is_added)
{
    assert(sp_tensors_match(x, y));
    if (x.elem != y.elem)
        return cuda_each(be, convert{x, y, is_added}, x.n, x.c);
    return cuda_each_row(be, copy{{}, x, y, is_added}, x, y);
}

sp_status sp_cuda_dropout(sp_backend *be, const sp_dropout_args *a)
{
    const float scale = a->p < 1 ? 1 / (1 - a->p) : 0;

    assert(a->p >= 0 && a->p <= 1 && sp_tensors_match(a->x, a->y));
    assert(sp_samples_cover(a->sample_row, a->n_samples, a->x.n));
    for (int b = 0; b < a->n_samples; b++) {
        const int32_t first = a->sample_row[b], n = a->sample_row[b + 1] - first;
        const sp_tensor from = sp_tensor_rows(a->x, first, n);
        const sp_tensor to = sp_tensor_rows(a->y, first, n);
        const sp_rng rng =
            sp_rng_open(a->seed, SP_RNG_DROPOUT, a->epoch, (uint64_t)a->sample_id[b]);
        const dropout f = {{{}, from, to}, rng, a->p, scale, a->layer};

        SP_TRY(cuda_each_row(be, f, from, to));
    }
    return SP_OK;
}

/* Elementwise operations, bound by memory. */
#include "cuda_util.cuh"
#include "sp_rng.h"

namespace
{

struct relu {
    sp_tensor x, y;
    float slope;

    __device__ void operator()(int64_t i, int j) const
    {
        const float v = cuda_row(x, i)[j];

        cuda_row(y, i)[j] = v > 0 ? v : slope * v;
    }
};

struct relu_grad {
    sp_tensor y, dy, dx;
    float slope;
    bool is_added;

    __device__ void operator()(int64_t i, int j) const
    {
        float g = cuda_row(dy, i)[j], *to = cuda_row(dx, i) + j;

        g = cuda_row(y, i)[j] > 0 ? g : slope * g;
        *to = is_added ? *to + g : g;
    }
};

struct copy {
    sp_tensor x, y;
    bool is_added;

    __device__ void operator()(int64_t i, int j) const
    {
        const float v = cuda_row(x, i)[j];
        float *to = cuda_row(y, i) + j;

        *to = is_added ? *to + v : v;
    }
};

/* Rows of one sample, counted from its first. */
struct dropout {
    sp_tensor x, y;
    sp_rng rng;
    float p, scale;
    int layer;

    __device__ void operator()(int64_t i, int j) const
    {
        const uint64_t block = sp_dropout_block(layer, i, j);
        const float u = sp_rng_to_unit(sp_rng_at(&rng, block << 2 | (uint64_t)(j & 3)));

        cuda_row(y, i)[j] = u >= p ? cuda_row(x, i)[j] * scale : 0;
    }
};

} // namespace

sp_status sp_cuda_relu(sp_backend *be, sp_tensor x, float slope, sp_tensor y)
{
    return cuda_each(be, relu{x, y, slope}, x.n, x.c);
}

sp_status sp_cuda_relu_grad(sp_backend *be, sp_tensor y, float slope, sp_tensor dy,
                            sp_tensor dx, bool is_added)
{
    return cuda_each(be, relu_grad{y, dy, dx, slope, is_added}, y.n, y.c);
}

sp_status sp_cuda_copy(sp_backend *be, sp_tensor x, sp_tensor y, bool is_added)
{
    return cuda_each(be, copy{x, y, is_added}, x.n, x.c);
}

static sp_tensor rows_of(sp_tensor t, int32_t begin, int32_t end)
{
    return sp_tensor{t.data + (int64_t)begin * t.ld, end - begin, t.c, t.ld, t.elem};
}

sp_status sp_cuda_dropout(sp_backend *be, sp_tensor x, float p, uint64_t seed,
                          uint64_t epoch, int layer, const int64_t *sample_id,
                          const int32_t *sample_row, int n_samples, sp_tensor y)
{
    const float scale = p < 1 ? 1 / (1 - p) : 0;

    for (int b = 0; b < n_samples; b++) {
        const sp_tensor from = rows_of(x, sample_row[b], sample_row[b + 1]);
        const dropout f = {
            from,
            rows_of(y, sample_row[b], sample_row[b + 1]),
            sp_rng_open(seed, SP_RNG_DROPOUT, epoch, (uint64_t)sample_id[b]),
            p,
            scale,
            layer};

        SP_TRY(cuda_each(be, f, from.n, from.c));
    }
    return SP_OK;
}

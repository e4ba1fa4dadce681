/* Softmax cross-entropy with its gradient, in double, one thread a voxel. The logits of
 * a voxel are few and adjacent, so the L1 serves the uncoalesced reads of the threads.
 * Losses are summed over chunks of 128 voxels of a sample and then over the sample's
 * chunks, in a fixed order. Confusion counts are integers, whose sum depends on no
 * order. */
#include <assert.h>

#include "cuda/device/cuda_util.cuh"

namespace
{

enum { CHUNK = 128 };

struct loss_call {
    sp_tensor logits, dlogits;
    const int32_t *label;
    const float *class_weight;
    float smoothing;
    double *part; /* [samples][chunks][2] */
    unsigned long long *confusion;
    int32_t *prediction;
};

__device__ int argmax(const float *z, int n)
{
    int at = 0;

    for (int j = 1; j < n; j++)
        if (z[j] > z[at])
            at = j;
    return at;
}

__device__ bool is_finite(const float *z, int n)
{
    float nought = 0; /* z - z is 0 for finite z alone */

    for (int j = 0; j < n; j++)
        nought += z[j] - z[j];
    return nought == 0;
}

/* l = - sum_j target[j] log p[j]; its gradient is p - target. Returns l. */
__device__ double row_loss(const loss_call &a, int64_t i, int label, int best,
                           float weight)
{
    const float *z = cuda_row(a.logits, i);
    const int C = a.logits.c;
    const double top = z[best];
    double sum = 0, loss = 0;

    for (int j = 0; j < C; j++)
        sum += exp(z[j] - top);
    sum = log(sum);
    for (int j = 0; j < C; j++) {
        const double target =
            (j == label) * (1.0 - a.smoothing) + (double)a.smoothing / C;
        const double log_p = z[j] - top - sum;
        loss -= target == 0 ? 0 : target * log_p;
        if (a.dlogits.data)
            cuda_row(a.dlogits, i)[j] = (float)(weight * (exp(log_p) - target));
    }
    return loss;
}

/* Handles voxel i: sum[0] = w l, sum[1] = w. */
__device__ void voxel(const loss_call &a, int64_t i, double *sum)
{
    const int C = a.logits.c, label = a.label ? a.label[i] : SP_IGNORE;
    const int best = argmax(cuda_row(a.logits, i), C);
    const bool is_good = is_finite(cuda_row(a.logits, i), C);

    if (a.prediction)
        a.prediction[i] = is_good ? best : SP_IGNORE;
    if (label == SP_IGNORE) {
        for (int j = 0; a.dlogits.data && j < C; j++)
            cuda_row(a.dlogits, i)[j] = 0;
        return;
    }
    const float weight = a.class_weight ? a.class_weight[label] : 1;
    sum[0] = weight * row_loss(a, i, label, best, weight);
    sum[1] = weight;
    if (a.confusion && is_good)
        atomicAdd(&a.confusion[(size_t)label * C + best], 1ull);
}

__global__ void __launch_bounds__(CHUNK, 8) loss_kernel(loss_call a, cuda_samples s)
{
    sp_grid_wait();
    SP_SHARED(double, all, [2][CHUNK]);
    const int b = (int)blockIdx.y, t = (int)threadIdx.x;
    const int64_t begin = s.row[b] + (int64_t)blockIdx.x * CHUNK;
    double sum[2] = {0, 0};

    if (begin >= s.row[b + 1]) /* true of the whole block */
        return;
    if (begin + t < s.row[b + 1])
        voxel(a, begin + t, sum);
    all[0][t] = sum[0];
    all[1][t] = sum[1];
    for (int half = CHUNK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) {
            all[0][t] += all[0][t + half];
            all[1][t] += all[1][t + half];
        }
    }
    if (t == 0) {
        double *part = a.part + ((size_t)b * gridDim.x + blockIdx.x) * 2;
        part[0] = all[0][0];
        part[1] = all[1][0];
    }
}

sp_status run_group(sp_backend *be, loss_call a, const cuda_samples &s, double *sums)
{
    const int n_chunks = (cuda_longest(&s) + CHUNK - 1) / CHUNK;

    sp_arena_reset(&cuda_of(be)->scratch);
    SP_TRY(SP_TAKE(&cuda_of(be)->scratch, (size_t)s.n * n_chunks * 2, &a.part));
    if (n_chunks) {
        SP_LAUNCH(loss_kernel, dim3((unsigned)n_chunks, (unsigned)s.n), dim3(CHUNK),
                  cuda_of(be)->compute, a, s);
        SP_TRY(cuda_launched("loss_kernel"));
    }
    return cuda_add_chunks(be, &s, 1, CHUNK, n_chunks, a.part, sums);
}

} // namespace

sp_status sp_cuda_loss(sp_backend *be, const sp_loss_args *args)
{
    const loss_call a = {args->logits,
                         args->dlogits,
                         args->label,
                         args->class_weight,
                         args->smoothing,
                         NULL,
                         (unsigned long long *)args->confusion,
                         args->prediction};

    assert(sp_loss_is_sound(args));
    for (int first = 0; first < args->n_samples; first += CUDA_GROUP)
        SP_TRY(run_group(be, a, cuda_group(args->sample_row, first, args->n_samples),
                         args->sums));
    return SP_OK;
}

/* Softmax cross-entropy with its gradient, in double, one thread a voxel. The logits of
 * a voxel are few and adjacent, so the L1 serves the uncoalesced reads of the threads.
 * Losses are summed over chunks of 128 voxels of a sample and then over the sample's
 * chunks, in a fixed order. Confusion counts are integers, so their sum does not depend
 * on the order. */
#include <assert.h>

#include "cuda/device/cuda_rows.cuh"

namespace
{

enum { CHUNK = 128 };

struct loss_call {
    sp_loss_args args;
    double *part;    /* [samples][chunks][2] */
    unsigned *count; /* [samples] chunks summed */
};

__device__ int loss_argmax(const float *z, int n)
{
    int at = 0;

    for (int j = 1; j < n; j++)
        if (z[j] > z[at])
            at = j;
    return at;
}

__device__ bool is_finite(const float *z, int n)
{
    float nought = 0; /* z - z is 0 only for finite z */

    for (int j = 0; j < n; j++)
        nought += z[j] - z[j];
    return nought == 0;
}

/* l = - sum_j target[j] log p[j]; its gradient is p - target. Returns l. */
__device__ double row_loss(const sp_loss_args &a, int64_t i, int label, int best,
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
            (j == label) * (1.0 - a.rule.smoothing) + (double)a.rule.smoothing / C;
        const double log_p = z[j] - top - sum;
        loss -= target == 0 ? 0 : target * log_p;
        if (a.dlogits.data)
            cuda_row(a.dlogits, i)[j] = (float)(weight * (exp(log_p) - target));
    }
    return loss;
}

/* Handles voxel i: sum[0] = w l, sum[1] = w. */
__device__ void voxel(const sp_loss_args &a, int64_t i, double *sum)
{
    const int C = a.logits.c, label = a.label ? a.label[i] : SP_IGNORE;
    const int best = loss_argmax(cuda_row(a.logits, i), C);
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
        atomicAdd((unsigned long long *)&a.confusion[(size_t)label * C + best], 1ull);
}

/* Adds a chunk's numbers over its threads, and writes its part. */
__device__ void sum_chunk(const double *mine, double (*all)[CHUNK], double *part)
{
    const int t = (int)threadIdx.x;

    all[0][t] = mine[0];
    all[1][t] = mine[1];
    for (int half = CHUNK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) {
            all[0][t] += all[0][t + half];
            all[1][t] += all[1][t + half];
        }
    }
    if (t == 0) {
        part[0] = all[0][0];
        part[1] = all[1][0];
    }
}

/* The block that is the last of its sample adds the sample's parts. */
__global__ void __launch_bounds__(CHUNK, 8) loss_kernel(loss_call l, cuda_samples s)
{
    sp_grid_wait();
    SP_SHARED(double, all, [2][CHUNK]);
    SP_SHARED(double, lanes, [CUDA_PART_LANES][CUDA_PART_COLUMNS]);
    const int b = (int)blockIdx.y, t = (int)threadIdx.x;
    const int64_t begin = s.row[b] + (int64_t)blockIdx.x * CHUNK;
    const int n = (s.row[b + 1] - s.row[b] + CHUNK - 1) / CHUNK;
    double *part = l.part + (size_t)b * gridDim.x * 2;
    double *sums = l.args.sums + (size_t)(s.first + b) * 2;
    double sum[2] = {0, 0};

    if ((int)blockIdx.x >= n) { /* true of the whole block */
        if (blockIdx.x == 0 && t < 2)
            sums[t] = 0; /* a sample without rows */
        return;
    }
    if (begin + t < s.row[b + 1])
        voxel(l.args, begin + t, sum);
    sum_chunk(sum, all, part + (size_t)blockIdx.x * 2);
    if (!cuda_is_last(&l.count[b], (unsigned)n))
        return;
    cuda_add_parts<CUDA_PART_LANES * CUDA_PART_COLUMNS / CHUNK>(
        part, n, 2, t % CUDA_PART_COLUMNS < 2 ? t % CUDA_PART_COLUMNS : -1, t, CHUNK,
        lanes);
    if (t < 2)
        sums[t] = lanes[0][t];
}

sp_status run_group(sp_backend *be, loss_call l, const cuda_samples &s)
{
    const int n_chunks = (cuda_longest(&s) + CHUNK - 1) / CHUNK;

    sp_arena_reset(&cuda_of(be)->scratch);
    SP_TRY(SP_ALLOC(&cuda_of(be)->scratch, (size_t)s.n * n_chunks * 2, &l.part));
    return CUDA_LAUNCH(loss_kernel,
                       dim3(n_chunks ? (unsigned)n_chunks : 1, (unsigned)s.n),
                       dim3(CHUNK), cuda_of(be)->compute, l, s);
}

/* Cross entropy. */
sp_status cuda_loss_of_rows(sp_backend *be, const sp_loss_args *args)
{
    const loss_call l = {*args, NULL, cuda_of(be)->counts + CUDA_COUNT_SAMPLES};

    for (int first = 0; first < args->n_samples; first += CUDA_GROUP)
        SP_TRY(run_group(be, l, cuda_group(args->sample_row, first, args->n_samples)));
    return SP_OK;
}

} // namespace

sp_status sp_cuda_loss(sp_backend *be, const sp_loss_args *args)
{
    sp_loss_args plain = *args;

    assert(sp_loss_is_sound(args));
    if (!args->rule.is_sum || !args->label)
        return cuda_loss_of_rows(be, args);
    plain.dlogits.data = NULL;
    SP_TRY(cuda_loss_of_rows(be, &plain));
    return sp_cuda_loss_sum(be, args);
}

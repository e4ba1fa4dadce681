/* A loss that is a sum of terms (compute/sp_loss.h), added to cross entropy. A group of
 * rows, which is a sample or for a joint Lovasz-softmax the whole call, is cut into
 * chunks of CHUNK rows, one block each. Numbers of chunks are added in a fixed order.
 *
 *     softmax           of each row; labels of each class are counted
 *     dice_sums, dice   if the loss has dice: its sums, and derivatives by p
 *     for each class    keys: errors of all rows above the number of their group
 *                       one stable sort by the library
 *                       places: labels of each chunk; steps: the derivatives
 *     gradient          of each row, from the derivatives, in the room of dlogits
 *
 * One class is sorted at a time, since keys and rows of all classes would take more
 * memory than the activations of a thin network: 24 bytes a row and the library's room.
 */
#include <algorithm>
#include <assert.h>

#include "compute/sp_loss.h"
#include "cuda/device/cuda_util.cuh"

namespace
{

enum { THREADS = 256, EACH = 4, CHUNK = THREADS * EACH };

/* Rows in groups. */
struct groups {
    int n, n_chunks;    /* chunks of the longest group */
    const int32_t *row; /* [n + 1] device */
};

struct sum_loss {
    sp_loss_args a;
    groups by_sample, by_group;
    sp_loss_soft *soft; /* [rows] */
    int32_t *count;     /* [samples][C] rows that count */
    sp_loss_class *cls; /* [groups][C] */
    double *dice;       /* [samples][C][2] num, den; then a factor in value */
    double *part;       /* [most groups][chunks][2] */
    double *value;      /* [samples] the loss of the terms of groups */
    double *of_group;   /* [groups] Lovasz-softmax of a group */
    uint64_t *key[2];   /* [rows] each */
    int32_t *from[2];   /* [rows] each */
    int32_t *labels;    /* [groups][chunks] labels of the class in each chunk */
    void *room;
    size_t room_bytes;
};

__device__ int64_t chunk_row(const groups &g)
{
    return g.row[blockIdx.x] + (int64_t)blockIdx.y * CHUNK + threadIdx.x;
}

/* The end of this block's chunk. */
__device__ int64_t chunk_end(const groups &g)
{
    return min((int64_t)g.row[blockIdx.x + 1],
               g.row[blockIdx.x] + ((int64_t)blockIdx.y + 1) * CHUNK);
}

/* Adds a number of each thread over the block; thread 0 has the sum. */
__device__ double add_threads(double mine, double *all)
{
    const int t = (int)threadIdx.x;
    double sum;

    all[t] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half)
            all[t] += all[t + half];
    }
    __syncthreads();
    sum = all[0];
    __syncthreads();
    return sum;
}

/* ---- before the classes ---- */

__global__ void __launch_bounds__(THREADS) softmax_kernel(sum_loss l)
{
    sp_grid_wait();
    const int C = l.a.logits.c;
    const int64_t end = chunk_end(l.by_sample);

    for (int64_t i = chunk_row(l.by_sample); i < end; i += THREADS) {
        l.soft[i] = sp_loss_softmax(cuda_row(l.a.logits, i), C);
        if (sp_loss_counts(&l.a, i))
            atomicAdd(&l.count[(size_t)blockIdx.x * C + l.a.label[i]], 1);
    }
}

/* Sets the labels and factors of the classes of a group, by one thread. */
__global__ void __launch_bounds__(32) classes_kernel(sum_loss l)
{
    sp_grid_wait();
    const int g = (int)blockIdx.x, C = l.a.logits.c;
    const int end = l.a.rule.is_joint ? l.a.n_samples : g + 1;
    double weights = 0;
    int n_present = 0;

    if (threadIdx.x)
        return;
    for (int b = g; b < end; b++) {
        weights += l.a.sums[2 * b + 1];
        l.value[b] = 0;
    }
    for (int c = 0; c < C; c++) {
        sp_loss_class *cls = &l.cls[(size_t)g * C + c];

        *cls = {0, 0};
        for (int b = g; b < end; b++)
            cls->n_labels += l.count[(size_t)b * C + c];
        n_present += cls->n_labels > 0;
    }
    for (int c = 0; c < C; c++)
        if (l.cls[(size_t)g * C + c].n_labels)
            l.cls[(size_t)g * C + c].factor =
                weights * l.a.rule.weight[SP_LOVASZ] / n_present;
    l.of_group[g] = 0;
}

/* ---- dice ---- */

/* Sums of class c over the chunks: 2 p of its rows, and p^2. */
__global__ void __launch_bounds__(THREADS) dice_sums_kernel(sum_loss l, int c)
{
    sp_grid_wait();
    SP_SHARED(double, all, [THREADS]);
    const int64_t end = chunk_end(l.by_sample);
    double *part =
        l.part + ((size_t)blockIdx.x * l.by_sample.n_chunks + blockIdx.y) * 2;
    double num = 0, den = 0;

    SP_KEEP_LOOP
    for (int64_t i = chunk_row(l.by_sample); i < end; i += THREADS)
        if (sp_loss_counts(&l.a, i)) {
            const double p = sp_loss_p(l.soft[i], cuda_row(l.a.logits, i)[c]);

            num += l.a.label[i] == c ? 2 * p : 0;
            den += p * p;
        }
    num = add_threads(num, all);
    den = add_threads(den, all);
    if (threadIdx.x == 0) {
        part[0] = num;
        part[1] = den;
    }
}

/* Adds the chunks of a sample, and the loss of the class to the sample's. */
__global__ void __launch_bounds__(THREADS) dice_add_kernel(sum_loss l, int c)
{
    sp_grid_wait();
    SP_SHARED(double, all, [THREADS]);
    const int b = (int)blockIdx.x, C = l.a.logits.c;
    const double *part = l.part + (size_t)b * l.by_sample.n_chunks * 2;
    double *dice = l.dice + ((size_t)b * C + c) * 2;
    double num = 0, den = 0;

    for (int k = (int)threadIdx.x; k < l.by_sample.n_chunks; k += THREADS) {
        num += part[2 * k];
        den += part[2 * k + 1];
    }
    num = 1 + add_threads(num, all);
    den = 1 + l.count[(size_t)b * C + c] + add_threads(den, all);
    if (threadIdx.x)
        return;
    dice[0] = num;
    dice[1] = den;
    l.value[b] += l.a.sums[2 * b + 1] * l.a.rule.weight[SP_DICE] / C * (1 - num / den);
}

/* Writes the derivatives of dice; zeros without dice and for rows that do not count. */
__global__ void __launch_bounds__(THREADS) dice_kernel(sum_loss l)
{
    sp_grid_wait();
    const int C = l.a.logits.c, b = (int)blockIdx.x;
    const double factor = l.a.sums[2 * b + 1] * l.a.rule.weight[SP_DICE] / C;
    const int64_t end = chunk_end(l.by_sample);

    for (int64_t i = chunk_row(l.by_sample); i < end; i += THREADS)
        for (int c = 0; c < C; c++) {
            const double *dice = l.dice + ((size_t)b * C + c) * 2;
            double step = 0;

            if (l.dice && sp_loss_counts(&l.a, i))
                step = factor * sp_loss_dice_step(
                                    dice[0], dice[1],
                                    sp_loss_p(l.soft[i], cuda_row(l.a.logits, i)[c]),
                                    l.a.label[i] == c);
            cuda_row(l.a.dlogits, i)[c] = (float)step;
        }
}

/* ---- Lovasz-softmax ---- */

__global__ void __launch_bounds__(THREADS) keys_kernel(sum_loss l, int c)
{
    sp_grid_wait();
    const int64_t end = chunk_end(l.by_group);

    for (int64_t i = chunk_row(l.by_group); i < end; i += THREADS) {
        uint64_t key = SP_LOSS_ABSENT;

        if (sp_loss_counts(&l.a, i)) {
            const double p = sp_loss_p(l.soft[i], cuda_row(l.a.logits, i)[c]);

            key = sp_loss_key(l.a.label[i] == c ? 1 - p : p);
        }
        l.key[0][i] = (uint64_t)blockIdx.x << SP_LOSS_KEY_BITS | key;
        l.from[0][i] = (int32_t)i;
    }
}

/* True if the row at a sorted place has the label c; *is_there: it counts at all. */
__device__ bool has_label(const sum_loss &l, int64_t at, int c, bool *is_there)
{
    *is_there = !(l.key[1][at] & SP_LOSS_ABSENT);
    return *is_there && l.a.label[l.from[1][at]] == c;
}

/* Counts the labels of class c in each chunk of the sorted rows. */
__global__ void __launch_bounds__(THREADS) places_kernel(sum_loss l, int c)
{
    sp_grid_wait();
    SP_SHARED(double, all, [THREADS]);
    const int64_t end = chunk_end(l.by_group);
    int n = 0;
    bool is_there;

    for (int64_t at = chunk_row(l.by_group); at < end; at += THREADS)
        n += has_label(l, at, c, &is_there);
    const double sum = add_threads(n, all);
    if (threadIdx.x == 0)
        l.labels[(size_t)blockIdx.x * l.by_group.n_chunks + blockIdx.y] = (int32_t)sum;
}

/* The number of labels before this block's chunk. */
__device__ int64_t labels_before(const sum_loss &l, double *all)
{
    const int32_t *labels = l.labels + (size_t)blockIdx.x * l.by_group.n_chunks;
    double sum = 0;

    for (int k = (int)threadIdx.x; k < (int)blockIdx.y; k += THREADS)
        sum += labels[k];
    return (int64_t)add_threads(sum, all); /* whole numbers: exact in any order */
}

/* Exclusive sum of a number of each thread. */
__device__ int sum_before(int mine, int *all)
{
    const int t = (int)threadIdx.x;

    all[t] = mine;
    for (int by = 1; by < THREADS; by *= 2) {
        __syncthreads();
        const int other = t >= by ? all[t - by] : 0;
        __syncthreads();
        all[t] += other;
    }
    __syncthreads();
    return all[t] - mine;
}

/* Adds the derivatives of class c, and writes the value of each chunk. A thread has
 * EACH sorted places that follow one another. */
__global__ void __launch_bounds__(THREADS) steps_kernel(sum_loss l, int c)
{
    sp_grid_wait();
    SP_SHARED(double, all, [THREADS]);
    SP_SHARED(int, counts, [THREADS]);
    const int g = (int)blockIdx.x;
    const sp_loss_class cls = l.cls[(size_t)g * l.a.logits.c + c];
    const int64_t begin =
        l.by_group.row[g] + (int64_t)blockIdx.y * CHUNK + threadIdx.x * EACH;
    const int64_t end = min(begin + EACH, chunk_end(l.by_group));
    int64_t before = labels_before(l, all);
    double value = 0;
    int n = 0;
    bool is_there;

    for (int64_t at = begin; at < end; at++)
        n += has_label(l, at, c, &is_there);
    before += sum_before(n, counts);
    for (int64_t at = begin; cls.n_labels && at < end; at++) {
        const bool is_label = has_label(l, at, c, &is_there);

        if (!is_there)
            break;
        const double step = sp_loss_jaccard_step(
            cls.n_labels, at - l.by_group.row[g] + 1, before, is_label);
        before += is_label;
        value += step * sp_loss_error(l.key[1][at]);
        if (l.a.dlogits.data)
            cuda_row(l.a.dlogits, l.from[1][at])[c] +=
                (float)(is_label ? -cls.factor * step : cls.factor * step);
    }
    value = add_threads(value, all);
    if (threadIdx.x == 0)
        l.part[(size_t)g * l.by_group.n_chunks + blockIdx.y] = value;
}

/* Adds the chunks of a group to its value. */
__global__ void __launch_bounds__(THREADS) steps_add_kernel(sum_loss l, int c)
{
    sp_grid_wait();
    SP_SHARED(double, all, [THREADS]);
    const int g = (int)blockIdx.x;
    double value = 0;

    for (int k = (int)threadIdx.x; k < l.by_group.n_chunks; k += THREADS)
        value += l.part[(size_t)g * l.by_group.n_chunks + k];
    value = add_threads(value, all);
    if (threadIdx.x == 0)
        l.of_group[g] += l.cls[(size_t)g * l.a.logits.c + c].factor * value;
}

/* ---- all ---- */

/* The gradient of each row of a chunk, and the sum of its focal losses. */
__global__ void __launch_bounds__(THREADS) gradient_kernel(sum_loss l)
{
    sp_grid_wait();
    SP_SHARED(double, all, [THREADS]);
    const int C = l.a.logits.c;
    const int64_t end = chunk_end(l.by_sample);
    double focal = 0;

    SP_KEEP_LOOP
    for (int64_t i = chunk_row(l.by_sample); i < end; i += THREADS) {
        const float *z = cuda_row(l.a.logits, i);
        double slope = 0;

        if (!sp_loss_counts(&l.a, i))
            continue; /* dice_kernel wrote zeros */
        const int y = l.a.label[i];
        const double w = l.a.class_weight ? l.a.class_weight[y] : 1;
        if (l.a.rule.weight[SP_FOCAL] > 0)
            focal +=
                w * sp_loss_focal(l.soft[i], z, C, y, l.a.rule.focal_gamma, &slope);
        if (l.a.dlogits.data)
            sp_loss_row_grad(&l.a.rule, l.soft[i], z, C, y, w, slope,
                             cuda_row(l.a.dlogits, i));
    }
    focal = add_threads(focal, all);
    if (threadIdx.x == 0)
        l.part[(size_t)blockIdx.x * l.by_sample.n_chunks + blockIdx.y] = focal;
}

/* Writes the loss of a sample: its share of a joint group is its weight's share. */
__global__ void __launch_bounds__(THREADS) values_kernel(sum_loss l)
{
    sp_grid_wait();
    SP_SHARED(double, all, [THREADS]);
    const int b = (int)blockIdx.x;
    double focal = 0, weights = 0, lovasz;

    for (int k = (int)threadIdx.x; k < l.by_sample.n_chunks; k += THREADS)
        focal += l.part[(size_t)b * l.by_sample.n_chunks + k];
    focal = add_threads(focal, all);
    if (threadIdx.x)
        return;
    lovasz = l.of_group[l.a.rule.is_joint ? 0 : b];
    for (int s = 0; l.a.rule.is_joint && s < l.a.n_samples; s++)
        weights += l.a.sums[2 * s + 1];
    if (l.a.rule.is_joint)
        lovasz = weights > 0 ? lovasz * (l.a.sums[2 * b + 1] / weights) : 0;
    l.a.sums[2 * b] = l.a.rule.weight[SP_CROSS_ENTROPY] * l.a.sums[2 * b] + l.value[b] +
                      lovasz + l.a.rule.weight[SP_FOCAL] * focal;
}

/* ---- memory ---- */

/* Groups without their rows. */
groups groups_of(const int32_t *row, int n)
{
    int32_t longest = 1;

    for (int i = 0; i < n; i++)
        longest = std::max(longest, row[i + 1] - row[i]);
    return {n, (longest + CHUNK - 1) / CHUNK, NULL};
}

/* Allocates all memory of a loss whose arguments, groups and room_bytes are set. */
sp_status alloc_memory(sp_arena *scratch, sum_loss *l)
{
    const size_t n = (size_t)l->a.logits.n, n_samples = (size_t)l->a.n_samples;
    const size_t cells = n_samples * l->a.logits.c;
    const size_t chunks = (size_t)l->by_group.n * l->by_group.n_chunks;

    SP_TRY(SP_ALLOC(scratch, n_samples + 1, &l->by_sample.row));
    SP_TRY(SP_ALLOC(scratch, (size_t)l->by_group.n + 1, &l->by_group.row));
    SP_TRY(SP_ALLOC(scratch, n, &l->soft));
    SP_TRY(SP_ALLOC(scratch, cells, &l->count));
    SP_TRY(SP_ALLOC(scratch, cells, &l->cls));
    if (l->a.rule.weight[SP_DICE] > 0)
        SP_TRY(SP_ALLOC(scratch, 2 * cells, &l->dice));
    SP_TRY(
        SP_ALLOC(scratch, 2 * (n_samples * l->by_sample.n_chunks + chunks), &l->part));
    SP_TRY(SP_ALLOC(scratch, n_samples, &l->value));
    SP_TRY(SP_ALLOC(scratch, l->by_group.n, &l->of_group));
    if (l->a.rule.weight[SP_LOVASZ] == 0)
        return SP_OK;
    for (int i = 0; i < 2; i++) {
        SP_TRY(SP_ALLOC(scratch, n, &l->key[i]));
        SP_TRY(SP_ALLOC(scratch, n, &l->from[i]));
    }
    SP_TRY(SP_ALLOC(scratch, chunks, &l->labels));
    return sp_arena_alloc(scratch, l->room_bytes, &l->room);
}

sp_status upload_groups(sp_backend *be, const groups &g, const int32_t *row)
{
    return be->ops->upload(be, (void *)g.row, row, ((size_t)g.n + 1) * sizeof *row);
}

/* row: the rows of the groups. */
sp_status open_loss(sp_backend *be, sum_loss *l, const int32_t *row, int bits)
{
    const sp_loss_args *a = &l->a;
    const int n = (int)a->logits.n;

    if (a->rule.weight[SP_LOVASZ] > 0)
        SP_CUDA(sp_sort_pairs(NULL, &l->room_bytes, NULL, NULL, NULL, NULL, n, bits,
                              cuda_of(be)->compute));
    l->room_bytes = std::max(l->room_bytes, sp_sort_room(n));
    SP_TRY(alloc_memory(&cuda_of(be)->scratch, l));
    SP_TRY(upload_groups(be, l->by_sample, a->sample_row));
    SP_TRY(upload_groups(be, l->by_group, row));
    return be->ops->fill(be, l->count, 0,
                         (size_t)a->n_samples * a->logits.c * sizeof *l->count);
}

dim3 grid_of(const groups &g)
{
    return dim3((unsigned)g.n, (unsigned)g.n_chunks);
}

sp_status run_dice(const sum_loss &l, cudaStream_t stream)
{
    for (int c = 0; l.dice && c < l.a.logits.c; c++) {
        SP_TRY(CUDA_LAUNCH(dice_sums_kernel, grid_of(l.by_sample), dim3(THREADS),
                           stream, l, c));
        SP_TRY(CUDA_LAUNCH(dice_add_kernel, dim3((unsigned)l.by_sample.n),
                           dim3(THREADS), stream, l, c));
    }
    if (!l.a.dlogits.data)
        return SP_OK;
    return CUDA_LAUNCH(dice_kernel, grid_of(l.by_sample), dim3(THREADS), stream, l);
}

sp_status run_class(const sum_loss &l, cudaStream_t stream, int c, int bits)
{
    size_t bytes = l.room_bytes;

    SP_TRY(CUDA_LAUNCH(keys_kernel, grid_of(l.by_group), dim3(THREADS), stream, l, c));
    SP_CUDA(sp_sort_pairs(l.room, &bytes, l.key[0], l.key[1], l.from[0], l.from[1],
                          (int)l.a.logits.n, bits, stream));
    sp_early_break(stream);
    SP_TRY(
        CUDA_LAUNCH(places_kernel, grid_of(l.by_group), dim3(THREADS), stream, l, c));
    SP_TRY(CUDA_LAUNCH(steps_kernel, grid_of(l.by_group), dim3(THREADS), stream, l, c));
    return CUDA_LAUNCH(steps_add_kernel, dim3((unsigned)l.by_group.n), dim3(THREADS),
                       stream, l, c);
}

} // namespace

int64_t sp_cuda_loss_bytes(const sp_backend *, const sp_loss_rule *rule, int64_t n,
                           int c, int n_samples)
{
    sp_arena counter = sp_arena_counter();
    sum_loss l = {};

    if (!rule->is_sum)
        return 0;
    l.a.rule = *rule;
    l.a.logits.n = n;
    l.a.logits.c = c;
    l.a.n_samples = n_samples;
    l.by_sample = l.by_group = {n_samples, (int)(n / CHUNK) + 1, NULL};
    l.room_bytes = sp_sort_room(n);
    if (alloc_memory(&counter, &l) != SP_OK)
        assert(!"a counter has memory for all");
    return (int64_t)counter.high;
}

sp_status sp_cuda_loss_sum(sp_backend *be, const sp_loss_args *args)
{
    const cudaStream_t stream = cuda_of(be)->compute;
    const int32_t joint[2] = {0, (int32_t)args->logits.n};
    const bool is_joint = args->rule.is_joint;
    sum_loss l = {};
    int bits = SP_LOSS_KEY_BITS;

    if (args->n_samples == 0 || args->logits.n == 0)
        return SP_OK;
    l.a = *args;
    sp_arena_reset(&cuda_of(be)->scratch);
    l.by_sample = groups_of(args->sample_row, args->n_samples);
    l.by_group = is_joint ? groups_of(joint, 1) : l.by_sample;
    while (l.by_group.n >> (bits - SP_LOSS_KEY_BITS))
        bits++;
    SP_TRY(open_loss(be, &l, is_joint ? joint : args->sample_row, bits));
    SP_TRY(CUDA_LAUNCH(softmax_kernel, grid_of(l.by_sample), dim3(THREADS), stream, l));
    SP_TRY(
        CUDA_LAUNCH(classes_kernel, dim3((unsigned)l.by_group.n), dim3(32), stream, l));
    SP_TRY(run_dice(l, stream));
    for (int c = 0; args->rule.weight[SP_LOVASZ] > 0 && c < args->logits.c; c++)
        SP_TRY(run_class(l, stream, c, bits));
    SP_TRY(
        CUDA_LAUNCH(gradient_kernel, grid_of(l.by_sample), dim3(THREADS), stream, l));
    return CUDA_LAUNCH(values_kernel, dim3((unsigned)l.by_sample.n), dim3(THREADS),
                       stream, l);
}

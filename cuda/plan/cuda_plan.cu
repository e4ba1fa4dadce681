/* Plans on the device: input, keys, coordinate pyramid. cuda_plan.cuh draws the whole.
 *
 *     host      ranges and bases of the samples; coordinates and tables are uploaded
 *     device    sort words (sample, Morton key) --> order, keys of level 0
 *               per level: heads of equal key >> 3, scanned --> parents, next level
 *     host      reads the order, and the sample rows of each level as they become known
 *
 * Bytes, counted for n rows of level 0: about 12 n uploaded and 4 n downloaded, 60 n
 * moved by the sort (8 bits a pass), 30 for each row of each level by the pyramid.
 */
#include <assert.h>
#include <string.h>

#include "cpu/cpu.h"
#include "cuda/plan/cuda_plan.cuh"

/* ---- calls in the plan stream ---- */

sp_status plan_upload(cuda_plan_builder *b, void *to, const void *from_host,
                      size_t bytes)
{
    if (bytes == 0)
        return SP_OK;
    SP_CUDA(cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyHostToDevice, b->stream));
    b->plan->n_operations++;
    return SP_OK;
}

sp_status plan_download(cuda_plan_builder *b, void *to_host, const void *from,
                        size_t bytes)
{
    if (bytes == 0)
        return SP_OK;
    SP_CUDA(cudaMemcpyAsync(to_host, from, bytes, cudaMemcpyDeviceToHost, b->stream));
    SP_CUDA(cudaStreamSynchronize(b->stream));
    b->plan->n_operations++;
    b->plan->n_waits++;
    return SP_OK;
}

sp_status plan_sort(cuda_plan_builder *b, const uint64_t *key, const int32_t *from,
                    int32_t *to, int32_t n, int bits)
{
    const size_t mark = b->arena->used;
    uint64_t *sorted;
    size_t bytes = 0;
    void *room;

    if (n == 0)
        return SP_OK;
    bits = bits ? bits : 1;
    SP_TRY(SP_TAKE(b->arena, n, &sorted));
    SP_CUDA(sp_sort_pairs(NULL, &bytes, key, sorted, from, to, n, bits, b->stream));
    SP_TRY(sp_arena_take(b->arena, bytes, &room));
    SP_CUDA(sp_sort_pairs(room, &bytes, key, sorted, from, to, n, bits, b->stream));
    b->plan->n_operations += sp_sort_operations(bits);
    sp_arena_rewind(b->arena, mark);
    return SP_OK;
}

__global__ static void __launch_bounds__(PLAN_THREADS)
    scan_sums_kernel(int32_t *sums, int n, int32_t *total)
{
    sp_grid_wait();
    int64_t before = 0;

    for (int at = 0; at < n; at += PLAN_THREADS) {
        const int i = at + (int)threadIdx.x;
        int32_t all;
        const int32_t sum = plan_block_sum(i < n ? sums[i] : 0, &all);
        if (i < n)
            sums[i] = (int32_t)min(before + sum, (int64_t)INT32_MAX);
        before += all;
    }
    if (threadIdx.x == 0)
        *total = (int32_t)min(before, (int64_t)INT32_MAX);
}

sp_status plan_scan_sums(cuda_plan_builder *b, int32_t *sums, int n, int32_t *total)
{
    SP_LAUNCH(scan_sums_kernel, 1, PLAN_THREADS, b->stream, sums, n, total);
    return plan_launched(b, "scan_sums_kernel");
}

namespace
{

/* ---- level 0 ---- */

/* The input of the batch on the device, kept until it is sorted. */
struct input {
    const int32_t *coords;     /* [n][3] */
    const int32_t *sample_row; /* [n_samples + 1] */
    const int32_t *base;       /* [n_samples][3] */
    int n_samples, key_bits;

    __device__ uint64_t key(int64_t row, int b) const
    {
        const int32_t *c = coords + 3 * row, *o = base + 3 * (int64_t)b;

        return plan_spread((uint32_t)(c[0] - o[0])) |
               plan_spread((uint32_t)(c[1] - o[1])) << 1 |
               plan_spread((uint32_t)(c[2] - o[2])) << 2;
    }
};

/* Makes the words to sort: the key, with the sample above it where both fit 64 bits. */
struct make_words {
    input in;
    bool has_sample;
    uint64_t *word;
    int32_t *row;

    __device__ void operator()(int64_t i) const
    {
        const int b = plan_sample(in.sample_row, in.n_samples, i);
        const uint64_t key = in.key(i, b);

        word[i] = has_sample ? (uint64_t)b << in.key_bits | key : key;
        row[i] = (int32_t)i;
    }
};

struct make_samples {
    input in;
    const int32_t *row;
    uint64_t *word;

    __device__ void operator()(int64_t i) const
    {
        word[i] = (uint64_t)plan_sample(in.sample_row, in.n_samples, row[i]);
    }
};

struct take_keys {
    input in;
    const int32_t *order;
    uint64_t *key;

    __device__ void operator()(int64_t i) const
    {
        key[i] = in.key(order[i], plan_sample(in.sample_row, in.n_samples, i));
    }
};

struct duplicates {
    const uint64_t *key;
    const int32_t *sample_row;
    int n_samples;

    __device__ int32_t count(int64_t i) const
    {
        return i > 0 && key[i] == key[i - 1] &&
               sample_row[plan_sample(sample_row, n_samples, i)] != i;
    }
    __device__ void put(int64_t, int32_t) const {}
};

/* Writes order[n] for coordinates in any sequence. Where sample and key do not fit one
 * word, a second sort is by sample; sorting is stable. */
sp_status sort_rows(cuda_plan_builder *b, const input &in, int32_t n, int32_t *order)
{
    const int sample_bits = b->n_samples ? plan_bits((uint64_t)b->n_samples - 1) : 0;
    const bool is_narrow = in.key_bits + sample_bits <= 64;
    uint64_t *word;
    int32_t *row;

    SP_TRY(SP_TAKE(b->arena, n, &word));
    SP_TRY(SP_TAKE(b->arena, n, &row));
    SP_TRY(plan_each(b, make_words{in, is_narrow, word, row}, n));
    SP_TRY(
        plan_sort(b, word, row, order, n, in.key_bits + (is_narrow ? sample_bits : 0)));
    if (is_narrow)
        return SP_OK;
    SP_TRY(plan_each(b, make_samples{in, order, word}, n));
    SP_TRY(plan_sort(b, word, order, row, n, sample_bits));
    SP_CUDA(cudaMemcpyAsync(order, row, (size_t)n * sizeof *row,
                            cudaMemcpyDeviceToDevice, b->stream));
    b->plan->n_operations++;
    return SP_OK;
}

/* Reports which coordinate occurs twice, in the words of the host's builder. */
sp_status refuse_duplicate(cuda_plan_builder *b, const int32_t *coords,
                           const int32_t *order)
{
    const cuda_plan_level *l = &b->level[0];
    uint64_t *key;

    SP_TRY(SP_TAKE(b->host, l->n, &key));
    SP_TRY(plan_download(b, key, l->key, (size_t)l->n * sizeof *key));
    for (int s = 0; s < b->n_samples; s++) {
        const int32_t begin = l->sample_row_host[s];
        for (int32_t i = begin + 1; i < l->sample_row_host[s + 1]; i++) {
            const int32_t *at = coords + 3 * (size_t)order[i];
            if (key[i] == key[i - 1])
                return SP_FAIL(SP_EDATA,
                               "sample %d of the batch: coordinate (%d, %d, %d) stands "
                               "twice, in rows %d and %d",
                               s, at[0], at[1], at[2], order[i - 1] - begin,
                               order[i] - begin);
        }
    }
    assert(!"a duplicate was counted");
    return SP_OK;
}

/* Writes the base of each sample, the multiple of the coarsest stride at or below its
 * least coordinate along each axis, and the bits of the widest range to *bits. SP_EDATA
 * where a coordinate is out of range. */
sp_status find_bases(const cuda_plan_builder *b, const int32_t *coords,
                     const int32_t *sample_row, int32_t *base, int *bits)
{
    uint32_t range = 0;

    *bits = 0;
    for (int s = 0; s < b->n_samples; s++) {
        const int32_t row = sample_row[s], n = sample_row[s + 1] - row;
        int32_t lo[3] = {0, 0, 0}, hi[3] = {0, 0, 0};
        if (n)
            SP_TRY(sp_cpu_plan_range(coords + 3 * (size_t)row, n, s, lo, hi));
        for (int d = 0; d < 3; d++) {
            base[3 * s + d] = lo[d] & -(1 << (b->spec->n_levels - 1));
            range |= (uint32_t)(hi[d] - base[3 * s + d]);
        }
    }
    *bits = plan_bits(range);
    return SP_OK;
}

/* Uploads coordinates, sample rows and bases. */
sp_status upload_input(cuda_plan_builder *b, const int32_t *coords, input *in)
{
    cuda_plan_level *l = &b->level[0];
    const size_t n_table = 3 * (size_t)b->n_samples;
    int32_t *base_host, *base, *to;
    int bits = 0;

    SP_TRY(SP_TAKE(b->host, n_table, &base_host));
    SP_TRY(find_bases(b, coords, l->sample_row_host, base_host, &bits));
    SP_TRY(SP_TAKE(b->arena, n_table, &base));
    SP_TRY(SP_TAKE(b->arena, 3 * (size_t)l->n, &to));
    SP_TRY(plan_upload(b, base, base_host, n_table * sizeof *base));
    SP_TRY(plan_upload(b, to, coords, 3 * (size_t)l->n * sizeof *to));
    SP_TRY(plan_upload(b, l->sample_row, l->sample_row_host,
                       ((size_t)b->n_samples + 1) * sizeof *to));
    *in = {to, l->sample_row, base, b->n_samples, 3 * bits};
    return SP_OK;
}

sp_status build_level_0(cuda_plan_builder *b, const int32_t *coords)
{
    cuda_plan_level *l = &b->level[0];
    int32_t *order, *order_host, *total, n_twice = 0;
    size_t mark;
    input in = {};

    SP_TRY(SP_TAKE(b->arena, l->n, &l->key));
    SP_TRY(SP_TAKE(b->arena, b->n_samples + 1, &l->sample_row));
    SP_TRY(SP_TAKE(b->host, l->n, &order_host));
    mark = b->arena->used;
    SP_TRY(SP_TAKE(b->arena, l->n, &order));
    SP_TRY(SP_TAKE(b->arena, 1, &total));
    SP_TRY(upload_input(b, coords, &in));
    SP_TRY(sort_rows(b, in, l->n, order));
    SP_TRY(plan_each(b, take_keys{in, order, l->key}, l->n));
    SP_TRY(plan_scan(b, duplicates{l->key, l->sample_row, b->n_samples}, l->n, total));
    SP_TRY(plan_download(b, order_host, order, (size_t)l->n * sizeof *order));
    SP_TRY(plan_download(b, &n_twice, total, sizeof n_twice));
    sp_arena_rewind(b->arena, mark);
    b->plan->order = order_host;
    return n_twice ? refuse_duplicate(b, coords, order_host) : SP_OK;
}

/* ---- coarser levels ---- */

/* Finds parents: a row begins a new parent where its key >> 3 differs from that of the
 * row before, or where it is the first of its sample. */
struct find_parents {
    const uint64_t *key;
    const int32_t *sample_row;
    int n_samples;
    int32_t *parent;

    __device__ int32_t count(int64_t i) const
    {
        return i == 0 || key[i] >> 3 != key[i - 1] >> 3 ||
               sample_row[plan_sample(sample_row, n_samples, i)] == i;
    }
    __device__ void put(int64_t i, int32_t before) const
    {
        parent[i] = before + count(i) - 1;
    }
};

/* The scan has written the number of coarse rows to the last entry of `coarse`. Samples
 * that begin behind the last voxel begin there. */
struct find_sample_rows {
    const int32_t *sample_row, *parent;
    int32_t n;
    int n_samples;
    int32_t *coarse; /* [n_samples + 1] */

    __device__ void operator()(int64_t b) const
    {
        const int32_t row = sample_row[b];

        coarse[b] = row < n ? parent[row] : coarse[n_samples];
    }
};

/* The thread of a parent's first child writes the parent's key and children. */
struct make_coarse {
    const uint64_t *key;
    const int32_t *parent;
    int32_t n;
    uint64_t *coarse;
    cuda_plan_child *child;

    __device__ void operator()(int64_t i) const
    {
        const int32_t p = parent[i];
        uint32_t mask = 0;

        if (i > 0 && parent[i - 1] == p)
            return;
        for (int64_t j = i; j < n && parent[j] == p; j++)
            mask |= 1u << (key[j] & 7);
        coarse[p] = key[i] >> 3;
        child[p] = cuda_plan_child{(int32_t)i, mask};
    }
};

sp_status build_coarser(cuda_plan_builder *b, int l)
{
    cuda_plan_level *fine = &b->level[l - 1], *coarse = &b->level[l];
    const size_t n_rows = (size_t)b->n_samples + 1;

    SP_TRY(SP_TAKE(b->arena, fine->n, &fine->parent));
    SP_TRY(SP_TAKE(b->arena, n_rows, &coarse->sample_row));
    SP_TRY(SP_TAKE(b->host, n_rows, &coarse->sample_row_host));
    SP_TRY(plan_scan(
        b, find_parents{fine->key, fine->sample_row, b->n_samples, fine->parent},
        fine->n, coarse->sample_row + b->n_samples));
    SP_TRY(plan_each(b,
                     find_sample_rows{fine->sample_row, fine->parent, fine->n,
                                      b->n_samples, coarse->sample_row},
                     b->n_samples));
    SP_TRY(plan_download(b, coarse->sample_row_host, coarse->sample_row,
                         n_rows * sizeof *coarse->sample_row));
    coarse->n = coarse->sample_row_host[b->n_samples];
    SP_TRY(SP_TAKE(b->arena, coarse->n, &coarse->key));
    SP_TRY(SP_TAKE(b->arena, coarse->n, &coarse->child));
    return plan_each(
        b, make_coarse{fine->key, fine->parent, fine->n, coarse->key, coarse->child},
        fine->n);
}

/* Counts the chunks of each sample. Blocks work on chunks, so that none has rows of two
 * samples. */
sp_status take_chunks(cuda_plan_builder *b, cuda_plan_level *l)
{
    const size_t n_rows = (size_t)b->n_samples + 1;

    SP_TRY(SP_TAKE(b->host, n_rows, &l->chunk_host));
    SP_TRY(SP_TAKE(b->arena, n_rows, &l->chunk));
    l->chunk_host[0] = 0;
    for (int s = 0; s < b->n_samples; s++) {
        const int32_t n = l->sample_row_host[s + 1] - l->sample_row_host[s];
        l->chunk_host[s + 1] = l->chunk_host[s] + (n + PLAN_CHUNK - 1) / PLAN_CHUNK;
    }
    return plan_upload(b, l->chunk, l->chunk_host, n_rows * sizeof *l->chunk);
}

sp_status build_levels(cuda_plan_builder *b, const int32_t *coords,
                       const int32_t *sample_row)
{
    const size_t n_rows = (size_t)b->n_samples + 1;
    cuda_plan_level *first = &b->level[0];

    SP_TRY(SP_TAKE(b->host, n_rows, &first->sample_row_host));
    first->sample_row_host[0] = 0;
    if (b->n_samples)
        memcpy(first->sample_row_host, sample_row, n_rows * sizeof *sample_row);
    first->n = first->sample_row_host[b->n_samples];
    SP_TRY(build_level_0(b, coords));
    for (int l = 1; l < b->spec->n_levels; l++)
        SP_TRY(build_coarser(b, l));
    for (int l = 0; l < b->spec->n_levels; l++)
        SP_TRY(take_chunks(b, &b->level[l]));
    return SP_OK;
}

void publish_levels(const cuda_plan_builder *b)
{
    sp_plan *p = b->plan;

    p->n_samples = b->n_samples;
    p->n_levels = b->spec->n_levels;
    p->n_maps = b->spec->n_maps;
    for (int l = 0; l < p->n_levels; l++) {
        const cuda_plan_level *from = &b->level[l];
        p->level[l] = {from->n, from->key, from->parent, from->sample_row_host};
    }
}

/* A plan that the compute thread builds is ordered with that thread's other calls. */
sp_status begin(sp_backend *be)
{
    sp_cuda *cuda = cuda_of(be);

    SP_CUDA(cudaSetDevice(be->device));
    if (!cuda_is_owner(be))
        return SP_OK;
    SP_CUDA(cudaEventRecord(cuda->turn, cuda->compute));
    return cuda_wait_event(cuda->plan, cuda->turn);
}

sp_status end(sp_backend *be)
{
    sp_cuda *cuda = cuda_of(be);

    if (!cuda_is_owner(be))
        return SP_OK;
    SP_CUDA(cudaEventRecord(cuda->turn, cuda->plan));
    return cuda_wait_event(cuda->compute, cuda->turn);
}

} // namespace

sp_status sp_cuda_plan_build(sp_backend *be, const sp_plan_spec *spec,
                             const int32_t *coords, const int32_t *sample_row,
                             int n_samples, sp_arena *arena, sp_plan *plan)
{
    cuda_plan_builder b = {};

    b.be = be;
    b.stream = cuda_of(be)->plan;
    b.spec = spec;
    b.arena = arena;
    b.host = sp_cuda_arena_host(arena);
    b.plan = plan;
    b.n_samples = n_samples;
    memset(plan, 0, sizeof *plan);
    sp_arena_reset(b.host);
    SP_TRY(begin(be));
    SP_TRY(build_levels(&b, coords, sample_row));
    publish_levels(&b);
    SP_TRY(plan_build_maps(&b));
    return end(be);
}

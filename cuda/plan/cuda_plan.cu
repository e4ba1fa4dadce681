/* Plans on the device: input, keys and their order, the whole. cuda_plan.cuh draws it.
 *
 *     host      ranges and bases of the samples; coordinates and tables are uploaded
 *     device    sort words (sample, Morton key) --> order, keys of level 0
 *     host      reads the order and the sample rows of all levels
 *
 * Bytes, counted for n rows of level 0: about 12 n uploaded and 4 n downloaded, 60 n
 * moved by the sort (8 bits a pass).
 */
#include <algorithm>
#include <assert.h>
#include <string.h>

#include "base/sp_number.h"
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
    if (bytes == 0 || b->counts)
        return SP_OK;
    SP_CUDA(cudaMemcpyAsync(to_host, from, bytes, cudaMemcpyDeviceToHost, b->stream));
    SP_CUDA(cudaStreamSynchronize(b->stream));
    b->plan->n_operations++;
    b->plan->n_waits++;
    return SP_OK;
}

sp_status plan_sort(cuda_plan_builder *b, const uint64_t *key, const int32_t *from,
                    int32_t *to, int64_t n, int bits)
{
    const size_t mark = b->arena->used;
    uint64_t *sorted;
    size_t bytes = 0;
    void *room;

    if (n == 0)
        return SP_OK;
    bits = bits ? bits : 1;
    SP_TRY(SP_ALLOC(b->arena, n, &sorted));
    if (!b->counts)
        SP_CUDA(sp_sort_pairs(NULL, &bytes, key, sorted, from, to, (int)n, bits,
                              b->stream));
    bytes = std::max(bytes, sp_sort_room(n));
    SP_TRY(sp_arena_alloc(b->arena, bytes, &room));
    if (!b->counts)
        SP_CUDA(sp_sort_pairs(room, &bytes, key, sorted, from, to, (int)n, bits,
                              b->stream));
    b->plan->n_operations += sp_sort_operations(bits);
    sp_arena_rewind(b->arena, mark);
    return SP_OK;
}

/* One block for each segment. */
__global__ static void __launch_bounds__(PLAN_THREADS)
    scan_segments_kernel(int32_t *sums, plan_segments s)
{
    sp_grid_wait();
    const int64_t first = s.first[blockIdx.x], n = s.first[blockIdx.x + 1] - first;
    int64_t before = 0;

    for (int64_t at = 0; at < n; at += PLAN_THREADS) {
        const int64_t i = at + threadIdx.x;
        int32_t all;
        const int32_t sum = plan_block_sum(i < n ? sums[first + i] : 0, &all);
        if (i < n)
            sums[first + i] = (int32_t)min(before + sum, (int64_t)INT32_MAX);
        before += all;
    }
    if (threadIdx.x == 0)
        *s.total[blockIdx.x] = (int32_t)min(before, (int64_t)INT32_MAX);
}

sp_status plan_scan_segments(cuda_plan_builder *b, int32_t *sums,
                             const plan_segments &s)
{
    return PLAN_LAUNCH(b, scan_segments_kernel, (unsigned)s.n, PLAN_THREADS, sums, s);
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
        return sp_morton_key(coords + 3 * row, base + 3 * (int64_t)b);
    }
};

/* Makes the words to sort: the key, with the sample above it if both fit 64 bits. */
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

/* The memory of the device that only the sort of level 0 needs. */
struct sort_memory {
    int32_t *found; /* [n_levels][n_samples + 1], and the order [n] after it */
    int32_t *order;
    int32_t *table; /* [4 n_samples + 1] */
    int32_t *coords;
    uint64_t *word; /* [n] */
    int32_t *row;   /* [n] */
};

sp_status alloc_sort(cuda_plan_builder *b, sort_memory *m)
{
    const size_t n_samples = (size_t)b->n_samples, n = (size_t)b->levels.n[0];
    const size_t n_found = (size_t)b->spec->n_levels * (n_samples + 1);

    SP_TRY(SP_ALLOC(b->arena, n_found + n, &m->found));
    m->order = m->found + n_found;
    SP_TRY(SP_ALLOC(b->arena, 4 * n_samples + 1, &m->table));
    SP_TRY(SP_ALLOC(b->arena, 3 * n, &m->coords));
    SP_TRY(SP_ALLOC(b->arena, n, &m->word));
    return SP_ALLOC(b->arena, n, &m->row);
}

/* Writes the order of coordinates in any sequence. If sample and key do not fit one
 * word, a second sort is by sample; sorting is stable. */
sp_status cuda_plan_sort_rows(cuda_plan_builder *b, const input &in,
                              const sort_memory &m)
{
    const int32_t n = b->levels.n[0];
    const int sample_bits = b->n_samples ? plan_bits((uint64_t)b->n_samples - 1) : 0;
    const bool is_narrow = in.key_bits + sample_bits <= 64;

    SP_TRY(plan_each(b, make_words{in, is_narrow, m.word, m.row}, n));
    SP_TRY(plan_sort(b, m.word, m.row, m.order, n,
                     in.key_bits + (is_narrow ? sample_bits : 0)));
    if (is_narrow)
        return SP_OK;
    SP_TRY(plan_each(b, make_samples{in, m.order, m.word}, n));
    SP_TRY(plan_sort(b, m.word, m.order, m.row, n, sample_bits));
    SP_CUDA(cudaMemcpyAsync(m.order, m.row, (size_t)n * sizeof *m.row,
                            cudaMemcpyDeviceToDevice, b->stream));
    b->plan->n_operations++;
    return SP_OK;
}

/* Reports which coordinate occurs twice, in the words of the host's builder.
 *   row [n_samples + 1] first row of each sample */
sp_status refuse_duplicate(cuda_plan_builder *b, const int32_t *coords,
                           const int32_t *row, const int32_t *order)
{
    const size_t n = (size_t)b->levels.n[0];
    uint64_t *key;

    SP_TRY(SP_ALLOC(b->host, n, &key));
    SP_TRY(plan_download(b, key, b->levels.key[0], n * sizeof *key));
    for (int s = 0; s < b->n_samples; s++)
        SP_TRY(sp_cpu_plan_check(coords, row[s], row[s + 1] - row[s], s, key + row[s],
                                 order + row[s]));
    assert(!"a duplicate was counted");
    return SP_OK;
}

/* Writes the base of each sample, the multiple of the coarsest stride at or below its
 * least coordinate along each axis, and the bits of the widest range to *bits. SP_EDATA
 * if a coordinate is out of range. */
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

/* Uploads coordinates, and sample rows and bases by one copy.
 *   table [4 n_samples + 1] host: the sample rows; the bases are written after them */
sp_status upload_input(cuda_plan_builder *b, const int32_t *coords, int32_t *table,
                       const sort_memory &m, input *in)
{
    const size_t n_rows = (size_t)b->n_samples + 1;
    const size_t n_table = n_rows + 3 * (size_t)b->n_samples;
    const size_t n = (size_t)b->levels.n[0];
    int bits = 0;

    SP_TRY(find_bases(b, coords, table, table + n_rows, &bits));
    SP_TRY(plan_upload(b, m.table, table, n_table * sizeof *table));
    SP_TRY(plan_upload(b, m.coords, coords, 3 * n * sizeof *coords));
    *in = {m.coords, m.table, m.table + n_rows, b->n_samples, 3 * bits};
    return SP_OK;
}

/* Sorts the rows and counts the voxels of all levels.
 *   table       as in upload_input
 *   found, found_host as in plan_count_levels; the order is made after `found` */
sp_status sort_and_count(cuda_plan_builder *b, const int32_t *coords, int32_t *table,
                         int32_t *sums, int32_t *found_host)
{
    const size_t mark = b->arena->used;
    sort_memory m;
    input in = {};

    SP_TRY(alloc_sort(b, &m));
    SP_TRY(upload_input(b, coords, table, m, &in));
    SP_TRY(cuda_plan_sort_rows(b, in, m));
    SP_TRY(plan_each(b, take_keys{in, m.order, b->levels.key[0]}, b->levels.n[0]));
    SP_TRY(plan_count_levels(b, in.sample_row, sums, m.found, found_host));
    sp_arena_rewind(b->arena, mark);
    return SP_OK;
}

sp_status build_levels(cuda_plan_builder *b, const int32_t *coords,
                       const int32_t *sample_row)
{
    const int n_samples = b->n_samples, n_levels = b->spec->n_levels;
    const size_t n_rows = (size_t)n_samples + 1;
    const int32_t n = n_samples ? sample_row[n_samples] : 0;
    int32_t *table, *found, *sums;

    b->levels.n_levels = n_levels;
    b->levels.n_samples = n_samples;
    b->levels.n[0] = n;
    SP_TRY(SP_ALLOC(b->arena, n, &b->levels.key[0]));
    if (sp_plan_first_dilated(b->spec) < n_levels)
        return plan_upload_host_levels(b, coords, sample_row);
    SP_TRY(SP_ALLOC(b->host, n_rows + 3 * (size_t)n_samples, &table));
    SP_TRY(SP_ALLOC(b->host, (size_t)n_levels * n_rows + (size_t)n, &found));
    SP_TRY(SP_ALLOC(b->arena, plan_level_sums(n_levels, n), &sums));
    table[0] = 0;
    if (n_samples)
        memcpy(table, sample_row, n_rows * sizeof *table);
    SP_TRY(sort_and_count(b, coords, table, sums, found));
    b->plan->order = found + (size_t)n_levels * n_rows;
    if (found[n_samples] != n)
        return refuse_duplicate(b, coords, table, b->plan->order);
    for (int l = 1; l < n_levels; l++)
        b->levels.n[l] = plan_of_level(found, n_samples, l)[n_samples];
    b->sample_row_host = found;
    return plan_fill_levels(b, sums);
}

void cuda_plan_publish_levels(const cuda_plan_builder *b)
{
    sp_plan *p = b->plan;

    p->n_samples = b->n_samples;
    p->n_levels = b->spec->n_levels;
    p->n_maps = b->spec->n_maps;
    for (int l = 0; l < p->n_levels; l++)
        p->level[l] = {b->levels.n[l], b->levels.key[l], b->levels.parent[l],
                       plan_of_level(b->sample_row_host, b->n_samples, l)};
}

/* Allocates what build_levels does. */
sp_status count_levels(cuda_plan_builder *b)
{
    const int n_levels = b->spec->n_levels;
    const int32_t n = b->levels.n[0];
    int32_t *sums;
    sort_memory m;
    size_t mark;

    SP_TRY(SP_ALLOC(b->arena, n, &b->levels.key[0]));
    if (sp_plan_first_dilated(b->spec) == n_levels) {
        SP_TRY(SP_ALLOC(b->arena, plan_level_sums(n_levels, n), &sums));
        mark = b->arena->used;
        SP_TRY(alloc_sort(b, &m));
        SP_TRY(plan_sort(b, m.word, m.row, m.order, n, 0));
        sp_arena_rewind(b->arena, mark);
    }
    return plan_alloc_levels(b);
}

/* A plan that the compute thread builds is ordered with that thread's other calls. */
sp_status plan_begin(sp_backend *be)
{
    sp_cuda *cuda = cuda_of(be);

    SP_CUDA(cudaSetDevice(be->device));
    if (!cuda_is_owner(be))
        return SP_OK;
    SP_CUDA(cudaEventRecord(cuda->turn, cuda->compute));
    return cuda_wait_event(cuda->plan, cuda->turn);
}

sp_status plan_end(sp_backend *be)
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

    b.stream = cuda_of(be)->plan;
    b.spec = spec;
    b.arena = arena;
    b.host = sp_cuda_arena_host(arena);
    b.plan = plan;
    b.n_samples = n_samples;
    memset(plan, 0, sizeof *plan);
    sp_arena_reset(b.host);
    SP_TRY(plan_begin(be));
    SP_TRY(build_levels(&b, coords, sample_row));
    cuda_plan_publish_levels(&b);
    SP_TRY(plan_build_maps(&b));
    return plan_end(be);
}

/* The scratch lies in the plan's own arena, above its content. */
sp_plan_bytes sp_cuda_plan_bytes(const sp_plan_spec *spec, const sp_plan_counts *counts)
{
    sp_arena arena = sp_arena_counter(), host = sp_arena_counter();
    sp_plan plan = {};
    cuda_plan_builder b = {};
    sp_status rc;

    b.spec = spec;
    b.arena = &arena;
    b.host = &host;
    b.plan = &plan;
    b.counts = counts;
    b.n_samples = b.levels.n_samples = counts->n_samples;
    b.levels.n_levels = spec->n_levels;
    for (int l = 0; l < spec->n_levels; l++)
        b.levels.n[l] = (int32_t)sp_least(counts->voxels[l], INT32_MAX);
    rc = count_levels(&b);
    if (rc == SP_OK)
        rc = plan_build_maps(&b);
    assert(rc == SP_OK && "a counter has memory for all");
    return {(int64_t)arena.high, 0};
}

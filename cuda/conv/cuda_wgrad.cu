/* Weight gradient: for each offset k a GEMM with the pairs as inner dimension,
 *
 *     dW[k] = [dW[k] +] sum over pairs (i, o) of x[i]^T dy[o]      [c_in, c_out], fp32
 *
 * on tensor cores in bf16 and tf32, by fused multiply-adds in fp32. The pairs of each
 * sample and offset are cut into items of fixed length. A block owns one item and T x T
 * of the matrix and writes its sum to the item's slot; a second kernel adds the slots
 * of an offset to dW in order. The sum is therefore in the order of the samples' pairs,
 * whatever order the blocks run in. Wide layers in bf16 have a kernel by wgmma on sm_90
 * (cuda_wgrad_wgmma.cu); the slots and their sum are the same.
 *
 * A block advances through its item by PAIRS pairs. A ring of STAGES stages is filled
 * by asynchronous copies of both rows of each pair. The row numbers are read one stage
 * before.
 *
 * Bytes through the L2, counted: m (c_in ceil(c_out / T) + c_out ceil(c_in / T))
 * elements and 8 m of pairs; slots 8 c_in c_out an item (written and read). Flops: 2 m
 * c_in c_out, with up to PAIRS - 1 idle pairs an item. At 128 x 128 in bf16 that is 64
 * flops a byte of the L2.
 *
 * It is known at launch whether rows are aligned and consist of whole chunks. If so,
 * each thread copies chunks of one row of x and one of dy and computes two addresses a
 * stage. `make check-code` counts the instructions of the loop, registers, shared
 * memory and blocks of an SM (tests/results/code-sm_90.txt).
 */
#include <algorithm>
#include <assert.h>
#include <utility>

#include "cuda/conv/cuda_wgrad.cuh"
#include "cuda/conv/cuda_wgrad_block.cuh"

namespace
{

enum { SLOT_BYTES = 64 << 20, SUMS = 4 /* sums of a thread that adds slots */ };

template <sp_precision P, int T_, int WM_, int WN_, int BLOCKS_> struct wgrad_tile {
    enum {
        T = T_,
        WM = WM_,
        WN = WN_,
        BLOCKS = BLOCKS_, /* blocks of an SM */
        THREADS = WM * WN * 32,
        MT = T / WM / 16,
        NT = T / WN / 8
    };
    typedef wgrad_product<P, T, MT, NT> product;
    typedef cuda_operand<P> operand;
    enum {
        T_X = T,
        T_DY = T,
        PAIRS = product::PAIRS,
        AT_ONCE = PAIRS,
        CHUNKS = T / operand::CHUNK, /* chunks of a row */
        LANES = THREADS / PAIRS,     /* threads of a row */
        X = CHUNKS / LANES,          /* chunks of a thread */
        DY = X,
        DY_AT = PAIRS * product::ROW_BYTES,
        STAGES = 4,
        STAGE_BYTES = 2 * DY_AT,
        SHARED = STAGES * STAGE_BYTES
    };
    static_assert(MT * WM * 16 == T && NT * WN * 8 == T && NT % 2 == 0, "warp tile");
    static_assert((int)SHARED <= (int)CUDA_LEAST_BYTES, "shared memory of a tile");
    static_assert(X * LANES == CHUNKS && LANES * PAIRS == THREADS, "chunks");

    /* The number of chunk e of thread `lane` of a row. If four threads copy half a row
     * of 128 bytes at a time, odd rows begin with the other half, so that eight threads
     * write to all banks. */
    __device__ static int chunk(int row, int lane, int e)
    {
        const bool is_exchanged = X == 2 && LANES == 4 && product::ROW_BYTES == 128;

        return lane + LANES * (is_exchanged ? e ^ (row & 1) : e);
    }

    __device__ static int at(int row, int q) { return product::at(row, q); }
};

template <class W, bool IS_WHOLE> struct mma_wgrad_block : wgrad_block<W, IS_WHOLE> {
    typedef wgrad_block<W, IS_WHOLE> base;
    using base::a;
    using base::i0;
    using base::o0;

    __device__ mma_wgrad_block(const wgrad_call &call, const wgrad_items &items,
                               char *shared)
        : base(call, items, shared)
    {
    }

    __device__ void walk(float (&sum)[W::MT][W::NT][4])
    {
        const int steps = base::n_steps();
        const int warp = (int)threadIdx.x / 32;
        const typename W::product::fragments fragments =
            W::product::find(base::stages, warp % W::WM * W::MT * 16, W::DY_AT,
                             warp / W::WM * W::NT * 8);

        base::template load_first<W::STAGES - 1>();
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
            sp_copy_wait<W::STAGES - 2>();
            __syncthreads(); /* this step has landed, the one before has been read */
            base::load_next(step + W::STAGES - 1);
            W::product::multiply(fragments, base::stage_at(step), sum);
        }
    }

    __device__ void write(const float (&sum)[W::MT][W::NT][4]) const
    {
        const int warp = (int)threadIdx.x / 32;
        float *slot = base::slot();

#pragma unroll
        for (int m = 0; m < W::MT; m++)
#pragma unroll
            for (int j = 0; j < W::NT; j++)
#pragma unroll
                for (int v = 0; v < 4; v++) {
                    const int i =
                        i0 + (warp % W::WM * W::MT + m) * 16 + W::product::row(v);
                    const int o =
                        o0 + warp / W::WM * W::NT * 8 + W::product::column(j, v);
                    if (i < a.x.c && o < a.dy.c)
                        slot[(size_t)i * a.dy.c + o] = sum[m][j][v];
                }
    }
};

/* SHARED is in the kernel's name for tests/tools/cuda_code.py. */
template <class W, bool IS_WHOLE, int SHARED>
__global__ void __launch_bounds__(W::THREADS, W::BLOCKS)
    wgrad_kernel(wgrad_call a, wgrad_items items)
{
    SP_SHARED_BYTES(stages);
    mma_wgrad_block<W, IS_WHOLE> b(a, items, stages);
    float sum[W::MT][W::NT][4] = {};

    b.walk(sum);
    b.write(sum);
}

/* dw[k] = [dw[k] +] the slots of offset k, in order; blockIdx.y is k. An offset without
 * slots has zeros. */
__global__ void __launch_bounds__(256)
    add_slots_kernel(wgrad_call a, wgrad_items items, float *dw)
{
    sp_grid_wait();
    const int64_t n = (int64_t)a.x.c * a.dy.c;
    const int64_t i = (int64_t)blockIdx.x * 256 * SUMS + threadIdx.x;
    const int k = (int)blockIdx.y;
    float sum[SUMS] = {};

    for (int e = (k - items.k0 + a.K) % a.K; e < items.n; e += a.K)
        for (int s = items.first[e]; s < items.first[e + 1]; s++)
#pragma unroll
            for (int j = 0; j < SUMS; j++)
                sum[j] += i + 256 * j < n ? a.part[s * n + i + 256 * j] : 0;
    for (int j = 0; j < SUMS; j++)
        if (i + 256 * j < n)
            dw[k * n + i + 256 * j] =
                (items.is_added ? dw[k * n + i + 256 * j] : 0) + sum[j];
}

/* ---- launch ---- */

bool has_whole_chunks(sp_tensor t)
{
    return (size_t)t.c * sp_elem_bytes(t.elem) % CUDA_CHUNK_BYTES == 0;
}

bool wgrad_is_wgmma(const sp_backend *be, int c_in, int c_out)
{
    return cuda_wgrad_choose(be->is_wgmma && be->precision == SP_BF16, c_in, c_out)
        .is_wgmma;
}

template <class W, bool IS_WHOLE>
sp_status wgrad_launch(sp_backend *be, const wgrad_call &a, const wgrad_items &items)
{
    static int ready_on = -1; /* the device that it is prepared for */
    const int tiles = cuda_wgrad_tiles(a.x.c, a.dy.c, {W::T, W::T, false});

    SP_TRY(cuda_gemm_ready(be, &ready_on, wgrad_kernel<W, IS_WHOLE, W::SHARED>,
                           "wgrad_kernel", W::T, W::THREADS, W::SHARED, W::BLOCKS));
    SP_LAUNCH_SHARED((wgrad_kernel<W, IS_WHOLE, W::SHARED>),
                     dim3((unsigned)tiles, (unsigned)items.first[items.n]),
                     dim3(W::THREADS), W::SHARED, cuda_of(be)->compute, a, items);
    return cuda_launched("wgrad_kernel");
}

/* The two narrow tiles serve fp32, and all calls with rows not of whole chunks. */
template <sp_precision P, bool IS_WHOLE>
sp_status wgrad_launch_narrow(sp_backend *be, const wgrad_call &a,
                              const wgrad_items &items)
{
    enum { IS_EXACT = P == SP_FP32, WN = IS_EXACT ? 1 : 2 };

    if (cuda_wgrad_square(a.x.c, a.dy.c, false).in == 32)
        return wgrad_launch<wgrad_tile<P, 32, 2, WN, IS_EXACT ? 8 : 4>, IS_WHOLE>(
            be, a, items);
    return wgrad_launch<wgrad_tile<P, 64, 2, WN, IS_EXACT ? 4 : 3>, IS_WHOLE>(be, a,
                                                                              items);
}

template <sp_precision P>
sp_status wgrad_launch_tensor(sp_backend *be, const wgrad_call &a,
                              const wgrad_items &items)
{
    if (!a.is_whole)
        return wgrad_launch_narrow<P, false>(be, a, items);
    if (wgrad_is_wgmma(be, a.x.c, a.dy.c))
        return cuda_wgrad_wgmma(be, a, items);
    switch (cuda_wgrad_square(a.x.c, a.dy.c, true).in) {
    case 32:
    case 64:
        return wgrad_launch_narrow<P, true>(be, a, items);
    case 96:
        return wgrad_launch<wgrad_tile<P, 96, 2, 2, 2>, true>(be, a, items);
    default:
        return wgrad_launch<wgrad_tile<P, 128, 2, 4, 2>, true>(be, a, items);
    }
}

/* Launches the listed items and empties the list. The first round writes dW even if
 * there are no items. */
sp_status wgrad_flush(sp_backend *be, const wgrad_call &a, wgrad_items *items,
                      float *dw)
{
    const int64_t n = (int64_t)a.x.c * a.dy.c;

    if (items->first[items->n] > 0) {
        if (be->precision == SP_BF16)
            SP_TRY(wgrad_launch_tensor<SP_BF16>(be, a, *items));
        else if (be->precision == SP_TF32)
            SP_TRY(wgrad_launch_tensor<SP_TF32>(be, a, *items));
        else if (a.is_whole)
            SP_TRY((wgrad_launch_narrow<SP_FP32, true>(be, a, *items)));
        else
            SP_TRY((wgrad_launch_narrow<SP_FP32, false>(be, a, *items)));
    }
    if (items->first[items->n] > 0 || !items->is_added)
        SP_TRY(CUDA_LAUNCH(
            add_slots_kernel,
            dim3((unsigned)((n + 256 * SUMS - 1) / (256 * SUMS)), (unsigned)a.K),
            dim3(256), cuda_of(be)->compute, a, *items, dw));
    items->n = 0;
    items->is_added = true;
    return SP_OK;
}

/* Lists the pairs of offset k of one sample, in as many rounds as needed. */
sp_status wgrad_add_entry(sp_backend *be, const wgrad_call &a, int k, int32_t begin,
                          int32_t end, int max_items, wgrad_items *items, float *dw)
{
    do {
        int need = (end - begin + a.item - 1) / a.item, room;

        if (items->n == WGRAD_MOST_ENTRIES || items->first[items->n] == max_items)
            SP_TRY(wgrad_flush(be, a, items, dw));
        if (items->n == 0)
            items->k0 = k;
        room = max_items - items->first[items->n];
        need = need < room ? need : room;
        items->begin[items->n] = begin;
        begin = begin + (int64_t)need * a.item < end ? begin + need * a.item : end;
        items->n++;
        items->first[items->n] = items->first[items->n - 1] + need;
        items->begin[items->n] = begin;
    } while (begin < end);
    return SP_OK;
}

/* The first pairs of samples sample0 .., K entries a sample, and an end. */
const int32_t *pair_starts(const sp_conv_wgrad_args *args)
{
    const cuda_map *m = args->map ? (const cuda_map *)args->map->device : NULL;

    return m ? m->pair_start + (size_t)args->sample0 * m->K
             : args->sample_row + args->sample0;
}

/* The number of pairs of an item. */
int wgrad_item_of(const sp_backend *be, int K, int c_in, int c_out)
{
    return cuda_wgrad_item(c_in, c_out, K, wgrad_is_wgmma(be, c_in, c_out));
}

/* The number of slots for n_entries lists that have `pairs` pairs together. */
size_t slots_of(int c_in, int c_out, int64_t pairs, int n_entries, int item)
{
    const size_t slot = (size_t)c_in * (size_t)c_out;
    const size_t most =
        std::min(SLOT_BYTES / (slot * sizeof(float)) + 1, (size_t)WGRAD_MOST_ITEMS);
    const size_t all = (size_t)(pairs / item) + (size_t)n_entries;

    return most < all ? most : all;
}

/* Makes the rows of x and dy operands. Those that wgmma is for are aligned: the pitch of
 * a row must not change which kernel multiplies, since bits may differ. */
sp_status wgrad_make_operands(sp_backend *be, wgrad_call *a)
{
    const bool is_wgmma = wgrad_is_wgmma(be, a->x.c, a->dy.c);

    SP_TRY(cuda_as_operand(be, &a->x));
    SP_TRY(cuda_as_operand(be, &a->dy));
    if (is_wgmma && !cuda_is_aligned(a->x))
        SP_TRY(cuda_copy_operand(be, &a->x));
    if (is_wgmma && !cuda_is_aligned(a->dy))
        SP_TRY(cuda_copy_operand(be, &a->dy));
    a->is_aligned_x = cuda_is_aligned(a->x);
    a->is_aligned_dy = cuda_is_aligned(a->dy);
    a->is_whole = a->is_aligned_x && a->is_aligned_dy && has_whole_chunks(a->x) &&
                  has_whole_chunks(a->dy);
    return SP_OK;
}

sp_status sum_weights(sp_backend *be, const sp_conv_wgrad_args *args)
{
    const cuda_map *m = args->map ? (const cuda_map *)args->map->device : NULL;
    const size_t slot = (size_t)args->x.c * args->dy.c;
    const int32_t *start = pair_starts(args);
    const int K = m ? m->K : 1, n_entries = (args->sample1 - args->sample0) * K;
    const int item = wgrad_item_of(be, K, args->x.c, args->dy.c);
    const size_t max_items =
        slots_of(args->x.c, args->dy.c, start[n_entries] - start[0], n_entries, item);
    wgrad_call a = {};
    wgrad_items items = {};

    items.is_added = args->is_added;
    a.x = args->x;
    a.dy = args->dy;
    a.K = K;
    a.item = item;
    if (m) {
        a.in = m->pair_in;
        a.out = m->pair_out;
    }
    sp_arena_reset(&cuda_of(be)->scratch);
    SP_TRY(wgrad_make_operands(be, &a));
    SP_TRY(SP_ALLOC(&cuda_of(be)->scratch, max_items * slot, &a.part));
    for (int e = 0; e < n_entries; e++)
        SP_TRY(wgrad_add_entry(be, a, e % a.K, start[e], start[e + 1], (int)max_items,
                               &items, args->dw));
    return wgrad_flush(be, a, &items, args->dw);
}

/* ---- bias ---- */

struct add_samples {
    const double *sums; /* [n_samples][2][c] */
    int n_samples, c;
    float *dbias;
    bool is_added;

    __device__ void operator()(int64_t, int j) const
    {
        double sum = 0;

        for (int b = 0; b < n_samples; b++)
            sum += sums[(size_t)b * 2 * c + j];
        dbias[j] = (is_added ? dbias[j] : 0) + (float)sum;
    }
};

sp_status sum_bias(sp_backend *be, const sp_conv_wgrad_args *a)
{
    const int n = a->sample1 - a->sample0, c = a->dy.c;
    double *sums;

    sp_arena_reset(&cuda_of(be)->scratch);
    SP_TRY(SP_ALLOC(&cuda_of(be)->scratch, (size_t)n * 2 * c, &sums));
    SP_TRY(cuda_sample_sums(be, a->dy, a->sample_row + a->sample0, n, sums));
    return cuda_each(be, add_samples{sums, n, c, a->dbias, a->is_added}, 1, c);
}

sp_status sum_all(sp_backend *be, const sp_conv_wgrad_args *args)
{
    if (args->x.c && args->dy.c)
        SP_TRY(sum_weights(be, args));
    return args->dbias ? sum_bias(be, args) : SP_OK;
}

/* Exchanges compute stream and side stream, with their scratch: later calls are queued
 * in the other one. A second call exchanges them back. */
void change_streams(sp_cuda *cuda)
{
    std::swap(cuda->compute, cuda->side);
    std::swap(cuda->scratch, cuda->side_scratch);
}

} // namespace

sp_status sp_cuda_conv_grad_weight(sp_backend *be, const sp_conv_wgrad_args *args)
{
    sp_cuda *cuda = cuda_of(be);
    sp_status rc;

    assert(sp_conv_wgrad_is_sound(args));
    if (!args->is_concurrent || be->is_in_line)
        return sum_all(be, args);
    SP_CUDA(cudaEventRecord(cuda->forked, cuda->compute));
    SP_TRY(cuda_wait_event(cuda->side, cuda->forked));
    change_streams(cuda);
    rc = sum_all(be, args);
    change_streams(cuda);
    SP_TRY(rc);
    SP_CUDA(cudaEventRecord(cuda->joined, cuda->side));
    cuda->is_forked = true;
    return SP_OK;
}

sp_status sp_cuda_join(sp_backend *be)
{
    cuda_of(be)->is_forked = false;
    return cuda_wait_event(cuda_of(be)->compute, cuda_of(be)->joined);
}

/* Returns the bytes of the slots. Copies of fp32 operands for bf16 tensor cores are
 * small and not counted. */
sp_conv_bytes sp_cuda_conv_bytes(const sp_backend *be, int K, int c_in, int c_out,
                                 int n_samples, int64_t, int64_t pairs)
{
    const size_t slots =
        slots_of(c_in, c_out, pairs, n_samples * K, wgrad_item_of(be, K, c_in, c_out));

    return {(int64_t)(slots * (size_t)c_in * (size_t)c_out * sizeof(float)), 0};
}

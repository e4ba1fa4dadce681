/* Convolution forward and input gradient: one output-stationary implicit GEMM, on
 * tensor cores in bf16 and tf32, by fused multiply-adds in fp32.
 *
 *     y[o] = [y[o] +] [bias +] sum over k of x[i] W[k]     pairs (i, o) of offset k
 *
 * A block owns BM rows and BN channels of y; for each word of the masks it lists the
 * offsets of its rows (cuda_conv_table.cuh). The inner dimension is the channels of
 * these offsets, counted in units (cuda_mma.cuh): ceil(c / UNIT) for each offset. Up to
 * 4 channels of fp32 or 8 of bf16, offsets 2 i and 2 i + 1 share a unit. Two units are
 * a step. A ring of STAGES stages, one for each step, is filled by asynchronous copies:
 * A [BM][2 units], rows of x gathered by the table, absent rows 0; B [BN][2 units], the
 * packed weights (cuda_conv_pack.cu). A warp skips a unit for those groups of 16 rows
 * that lack its offsets.
 *
 * The input gradient is the same product on the map with in and out exchanged and with
 * weights packed for it. The epilogue (cuda_conv_out.cuh) also forms the sums that
 * batch norm needs of the result.
 *
 * The mask of a row determines the units of its sum and their order, and absent rows
 * add exact zeros, so the value depends on the row's own inputs and the weights alone.
 *
 * Bytes from memory, counted: x, y, packed weights, 12 n + 4 m of the map; through the
 * L2: m c_x ceil(c_y / BN) elements, and K c_x BN of weights a tile. Flops: 2 m c_x
 * c_y, times the waste of tiles, counted as 1.3 to 1.5 at 16 rows (cuda_map.h).
 *
 * Tiles have 128 rows. Registers, shared memory and blocks are counted in the machine
 * code (sm_90, nvcc 13.0; no spills). Shared memory is the ring or, where larger, the
 * results of the epilogue, and 16.9 KB of tables. The last column is the expected rate
 * at which an SM reads shared memory at 60 % of the tensor cores' rate; the hardware
 * delivers at most 128 bytes a clock. This favours large tiles of a warp, while 8 warps
 * hide more latency, so the choice is measured on the device at run time
 * (cuda_tiles.cu).
 *
 *                columns   warps   registers   shared   blocks of an SM   bytes a clock
 *   bf16, tf32        32   4 x 1         144    57 KB   3 (both)                    154
 *                     64   4 x 1         152    65 KB   3 (both)                    115
 *                          4 x 2         123    65 KB   2 (registers)               154
 *                     96   2 x 2         207    73 KB   2 (registers)                90
 *                    128   2 x 2         219    81 KB   2 (both)                     77
 *                          4 x 2         128    89 KB   2 (both)                    115
 *   fp32              32   4 x 1         143    57 KB   3 (shared)
 *                     64   4 x 1         218    65 KB   2 (registers)
 */
#include <assert.h>

#include "cuda/conv/cuda_conv_table.cuh"
#include "cuda/conv/cuda_conv_wgmma.cuh"

namespace
{

enum { STAGES = 4 };

/* A tile of BM x BN, computed by WM x WN warps. */
template <int BN_, int WM_, int WN_, int BLOCKS_> struct conv_tile {
    enum {
        BM = CUDA_TILE_ROWS,
        BN = BN_,
        WM = WM_,
        WN = WN_,
        BLOCKS = BLOCKS_, /* blocks of an SM */
        WARPS = WM * WN,
        THREADS = WARPS * 32,
        MT = BM / WM / 16,
        NT = BN / WN / 8,
        STAGE_BYTES = (BM + BN) * CUDA_STAGE_ROW,
        PITCH = NT * 8 + 8,           /* row of a warp's results in the epilogue */
        COLUMNS = (NT * 8 + 31) / 32, /* columns that a lane sums */
        RESULT_BYTES = 2 * WARPS * 16 * PITCH * (int)sizeof(float),
        SHARED =
            STAGES * STAGE_BYTES > RESULT_BYTES ? STAGES *STAGE_BYTES : RESULT_BYTES
    };
    static_assert(MT * WM * 16 == BM && NT * WN * 8 == BN && NT % 2 == 0, "warp tile");
    static_assert(BM % 32 == 0 && BN % (THREADS / 4) == 0, "chunks of a thread");
};

template <sp_precision P, class T> struct conv_block : conv_rows<T> {
    typedef conv_rows<T> rows;
    typedef cuda_operand<P> operand;
    typedef cuda_product<P, T::MT, T::NT> product;
    using rows::a;
    using rows::column0;
    using rows::entry_of;
    using rows::t;
    using rows::tid;
    using rows::warp;

    char *stages;

    __device__ conv_block(const conv_call &call, conv_table<T::BM> &table, char *shared)
        : rows(call, table), stages(shared)
    {
    }

    /* Begins the copies of a step. This thread copies chunk q of its rows. */
    __device__ void load(int word, int step, unsigned n_units)
    {
        char *to = stages + step % STAGES * T::STAGE_BYTES;
        const int q = tid % 4, half = q & 1;
        const unsigned unit = 2 * (unsigned)step + (unsigned)q / 2;
        const bool is_there = unit < n_units;
        const int entry = is_there ? entry_of(unit) : 0;
        const unsigned within = is_there ? unit - (unsigned)entry * a.units : 0;
        const int k = is_there ? t.offset[entry] : 0;

        if (a.is_shared)
            load_a(to, t.in[2 * k + half], q, is_there ? 0 : -1);
        else
            load_a(to, t.in[k], q,
                   is_there ? (int)within * CUDA_UNIT_BYTES + half * CUDA_CHUNK_BYTES
                            : -1);
        load_b(to + T::BM * CUDA_STAGE_ROW, q,
               a.is_shared ? (size_t)(word * (CONV_WORD / 2) + k)
                           : (size_t)(word * CONV_WORD + k) * a.units + within,
               is_there);
    }

    /* at: first byte of the chunk in its row; -1: the chunk is zeros. */
    __device__ void load_a(char *to, const int32_t *in, int q, int at) const
    {
        const int bytes = at < 0 ? 0 : cuda_chunk_bytes(at, a.from.c * operand::BYTES);
        const size_t pitch = (size_t)a.from.ld * operand::BYTES;
        const char *x = (const char *)a.from.data;

#pragma unroll
        for (int e = 0; e < T::BM * 4 / T::THREADS; e++) {
            const int r = tid / 4 + e * (T::THREADS / 4);
            const int32_t i = bytes ? in[r] : -1;
            cuda_copy_chunk(to + cuda_stage_at(r, q),
                            i < 0 ? x : x + (size_t)i * pitch + at, i < 0 ? 0 : bytes,
                            a.is_from_aligned);
        }
    }

    __device__ void load_b(char *to, int q, size_t unit, bool is_there) const
    {
        const char *w =
            a.w + unit * (size_t)a.y.c * CUDA_UNIT_BYTES + (q & 1) * CUDA_CHUNK_BYTES;

#pragma unroll
        for (int e = 0; e < T::BN * 4 / T::THREADS; e++) {
            const int r = tid / 4 + e * (T::THREADS / 4), n = column0 + r;
            const bool is_read = is_there && n < a.y.c;
            sp_copy_async(to + cuda_stage_at(r, q),
                          is_read ? w + (size_t)n * CUDA_UNIT_BYTES : a.w,
                          is_read ? (int)CUDA_CHUNK_BYTES : 0);
        }
    }

    __device__ void multiply(int step, unsigned n_units, float (&sum)[T::MT][T::NT][4])
    {
        const char *from = stages + step % STAGES * T::STAGE_BYTES;
        const int wm = warp % T::WM, wn = warp / T::WM;

#pragma unroll
        for (int u = 0; u < 2; u++) {
            const unsigned unit = 2 * (unsigned)step + (unsigned)u;
            const unsigned groups =
                unit < n_units
                    ? t.groups[entry_of(unit)] >> (wm * T::MT) & ((1u << T::MT) - 1)
                    : 0;
            if (groups)
                product::multiply(from, wm * T::MT * 16, from + T::BM * CUDA_STAGE_ROW,
                                  wn * T::NT * 8, u, groups, sum);
        }
    }

    /* Multiplies all offsets of one word of the masks. Ends with a barrier. */
    __device__ void walk(int word, float (&sum)[T::MT][T::NT][4])
    {
        const unsigned n_units = (unsigned)t.n * a.units;
        const int steps = (int)(n_units + 1) / 2;

        for (int s = 0; s < STAGES - 1; s++) {
            if (s < steps)
                load(word, s, n_units);
            sp_copy_commit();
        }
        for (int step = 0; step < steps; step++) {
            sp_copy_wait<STAGES - 2>();
            __syncthreads(); /* this step has landed, the one before has been read */
            if (step + STAGES - 1 < steps)
                load(word, step + STAGES - 1, n_units);
            sp_copy_commit();
            multiply(step, n_units, sum);
        }
        __syncthreads(); /* the remaining groups of copies are empty */
    }
};

template <sp_precision P, class T>
__global__ void __launch_bounds__(T::THREADS, T::BLOCKS) conv_kernel(conv_call a)
{
    sp_grid_wait();
    SP_SHARED_BYTES(stages);
    SP_SHARED(conv_table<T::BM>, table, [1]);
    conv_block<P, T> b(a, table[0], stages);
    float sum[T::MT][T::NT][4] = {};

    b.take_rows();
    for (int word = 0; word < a.n_words; word++) {
        b.fill_table(word);
        b.list_offsets(word);
        b.walk(word, sum);
    }
    typedef conv_out<typename conv_block<P, T>::product, T> out;
    static_assert(out::PIECES * sizeof(typename out::piece_sums) <= sizeof table[0].in,
                  "room for sums");
    out(a, table[0].out, blockIdx.x / b.across(), b.column0, stages)
        /* the table is not read any more */
        .write(sum, (typename out::piece_sums *)table[0].in);
}

/* ---- launch ---- */

template <sp_precision P, class T> sp_status launch(sp_backend *be, const conv_call &a)
{
    static int ready_on = -1; /* the device on which SP_ALLOW_SHARED was called */
    const unsigned blocks = (unsigned)((a.y.n + T::BM - 1) / T::BM) *
                            (unsigned)((a.y.c + T::BN - 1) / T::BN);

    if (ready_on != be->device) {
        SP_CUDA(SP_ALLOW_SHARED((conv_kernel<P, T>), T::SHARED));
        ready_on = be->device;
    }
    SP_LAUNCH_SHARED((conv_kernel<P, T>), dim3(blocks), dim3(T::THREADS), T::SHARED,
                     cuda_of(be)->compute, a);
    return cuda_launched("conv_kernel");
}

template <sp_precision P> sp_status launch_tensor(sp_backend *be, const conv_call &a)
{
    switch (cuda_tile_of(be, a.y.n, a.y.c)) {
    case CUDA_TILE_32:
        return launch<P, conv_tile<32, 4, 1, 3>>(be, a);
    case CUDA_TILE_64:
        return launch<P, conv_tile<64, 4, 1, 3>>(be, a);
    case CUDA_TILE_64_8:
        return launch<P, conv_tile<64, 4, 2, 2>>(be, a);
    case CUDA_TILE_96:
        return launch<P, conv_tile<96, 2, 2, 2>>(be, a);
    case CUDA_TILE_128_8:
        return launch<P, conv_tile<128, 4, 2, 2>>(be, a);
    default:
        return launch<P, conv_tile<128, 2, 2, 2>>(be, a);
    }
}

/* fp32 is bound by multiply-adds, so the formula chooses the fewest columns. */
sp_status launch_exact(sp_backend *be, const conv_call &a)
{
    static const int columns[] = {32, 64};

    if (cuda_fewest_columns(a.y.c, columns, 2) == 0)
        return launch<SP_FP32, conv_tile<32, 4, 1, 2>>(be, a);
    return launch<SP_FP32, conv_tile<64, 4, 1, 2>>(be, a);
}

conv_call call_of(const sp_conv_args *args)
{
    conv_call a = {};

    a.y = args->y;
    a.bias = args->bias;
    a.is_added = args->is_added;
    a.is_aligned = cuda_is_aligned(a.y);
    return a;
}

void set_norm(const sp_norm_grad_args *norm, conv_result *a)
{
    const ptrdiff_t at = (const char *)norm->dy.data - (const char *)a->y.data;

    assert(norm->x.elem == a->y.elem && norm->y.elem == a->y.elem);
    a->x = norm->x;
    if (!norm->scale && norm->slope != 1)
        a->act = norm->y;
    a->column = (int)(at / (ptrdiff_t)sp_elem_bytes(a->y.elem));
    assert(a->column >= 0 && a->column + a->x.c <= a->y.c && norm->dy.ld == a->y.ld);
    a->is_aligned = a->is_aligned && cuda_is_aligned(a->x) &&
                    (!a->act.data || cuda_is_aligned(a->act)) &&
                    (size_t)a->column * sp_elem_bytes(a->y.elem) % 16 == 0;
    a->part = norm->sums;
    a->mean = norm->mean;
    a->inv_std = norm->inv_std;
    a->scale = norm->scale;
    a->shift = norm->shift;
    a->slope = norm->slope;
}

void set_residual(const sp_norm_grad_args *norm, conv_result *a)
{
    assert(norm->x.elem == a->y.elem && norm->x.c == a->x.c && norm->slope == 1);
    a->is_aligned = a->is_aligned && cuda_is_aligned(norm->x);
    a->residual = {norm->x, norm->mean, norm->inv_std, norm->sums};
}

/* Completes the call, whose result is described, and launches it. */
sp_status run(sp_backend *be, const sp_conv_args *args, conv_call a)
{
    const cuda_map *m = args->map ? (const cuda_map *)args->map->device : NULL;
    const cuda_units units = cuda_conv_units(be->precision, m ? m->K : 1, args->x.c);

    assert(m ? m->n_in == args->x.n && m->n_out == args->y.n : args->x.n == args->y.n);
    assert(args->w_packed && args->x.c > 0);
    if (args->y.n == 0 || args->y.c == 0)
        return SP_OK;
    sp_arena_reset(&cuda_of(be)->scratch);
    a.from = args->x;
    SP_TRY(cuda_as_operand(be, &a.from));
    if (m) {
        a.mask = m->mask;
        a.first = m->first;
        a.nbr = m->nbr;
        a.order = m->order;
    }
    a.K = m ? m->K : 1;
    a.n_words = (a.K + CONV_WORD - 1) / CONV_WORD;
    a.w = (const char *)args->w_packed;
    a.is_from_aligned = cuda_is_aligned(a.from);
    a.is_shared = units.is_shared;
    a.units = units.per_offset;
    a.reciprocal = a.units > 1 ? (unsigned)((1ull << 32) / a.units + 1) : 0;
    switch (be->precision) {
    case SP_BF16:
        return be->is_wgmma && cuda_wgmma_suits(a) ? cuda_conv_wgmma(be, a)
                                                   : launch_tensor<SP_BF16>(be, a);
    case SP_TF32:
        return launch_tensor<SP_TF32>(be, a);
    default:
        return launch_exact(be, a);
    }
}

} // namespace

sp_status sp_cuda_conv_forward(sp_backend *be, const sp_conv_args *args)
{
    return run(be, args, call_of(args));
}

/* The same product: the weights are packed for it. */
sp_status sp_cuda_conv_grad_input(sp_backend *be, const sp_conv_args *args)
{
    return run(be, args, call_of(args));
}

/* A tile of the convolution is a part. */
sp_parts sp_cuda_fused_parts(int64_t n_rows, int)
{
    return {(int)((n_rows + CUDA_TILE_ROWS - 1) / CUDA_TILE_ROWS), CUDA_TILE_ROWS};
}

sp_status sp_cuda_conv_forward_norm_sums(sp_backend *be, const sp_conv_args *conv,
                                         const int32_t *, int, double *sums)
{
    conv_call a = call_of(conv);

    a.part = sums;
    return run(be, conv, a);
}

/* The plain operations, the second over the rows of the first. */
sp_status sp_cuda_conv_forward_norm_apply(sp_backend *be, const sp_conv_args *conv,
                                          const sp_norm_args *norm)
{
    assert(norm->x.data == conv->y.data && norm->y.data == conv->y.data);
    SP_TRY(sp_cuda_conv_forward(be, conv));
    return sp_cuda_norm_apply(be, norm);
}

sp_status sp_cuda_conv_grad_input_norm_sums(sp_backend *be, const sp_conv_args *conv,
                                            const sp_norm_grad_args *norm,
                                            const sp_norm_grad_args *residual)
{
    conv_call a = call_of(conv);

    set_norm(norm, &a);
    if (residual)
        set_residual(residual, &a);
    return run(be, conv, a);
}

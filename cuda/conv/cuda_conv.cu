/* Convolution forward and input gradient: one output-stationary implicit GEMM, on
 * tensor cores in bf16 and tf32, by fused multiply-adds in fp32.
 *
 *     y[o] = [y[o] +] [bias +] sum over k of x[i] W[k]     pairs (i, o) of offset k
 *
 * A block owns BM rows and BN channels of y; for each word of the masks it lists the
 * offsets of its rows (cuda_conv_table.cuh). The inner dimension is the channels of
 * these offsets, counted in units (cuda_mma.cuh): ceil(c / UNIT) for each offset. Up to
 * 4 channels of fp32 or 8 of bf16, offsets 2 i and 2 i + 1 share a unit. Two units are
 * a k-tile. A ring of STAGES stages, one for each k-tile, is filled by asynchronous
 * copies (cuda_conv_load.cuh): A [BM][2 units], rows of x gathered by the table, absent
 * rows 0; B [BN][2 units], the packed weights (cuda_conv_pack.cu). A warp skips a unit
 * for those groups of 16 rows that lack its offsets.
 *
 * The input gradient is the same product on the map with in and out exchanged and with
 * weights packed for it. The epilogue (cuda_conv_out.cuh) also forms the sums that
 * batch norm needs of the result.
 *
 * The mask of a row determines the units of its sum and their order, and absent rows
 * add exact zeros, so the value depends only on the row's own inputs and the weights.
 *
 * Bytes from memory, counted: x, y, packed weights, 12 n + 4 m of the map; through the
 * L2: m c_x ceil(c_y / BN) elements, and K c_x BN of weights a tile. Flops: 2 m c_x
 * c_y, times the waste of tiles, counted as 1.3 to 1.5 at 16 rows (cuda_map.h).
 *
 * Tiles have 128 rows, or 256 with the same tiles of a warp, twice the warps and one
 * block of an SM instead of two. Tall tiles halve the bytes of weights, but their
 * blocks are long: they serve results of many rows (cuda_is_tall). The sums of a row,
 * and those of batch norm over each 128 rows, are the same bits.
 *
 * The main loop is bound by the instructions that a warp issues beside its products, so
 * that everything known at launch is a template argument, addresses of shared memory
 * stay in registers, and the groups of a warp are a value that the compiler knows to be
 * the same for all its lanes. `make check-code` counts instructions, registers, shared
 * memory and blocks of an SM in the machine code and compares them with limits;
 * tests/results/code-sm_90.txt is its table.
 *
 * Expected bytes of shared memory that an SM reads in a clock at 60 % of the tensor
 * cores' rate (the hardware delivers at most 128): with 4 warps 154, 115, 90 and 77 for
 * 32, 64, 96 and 128 columns, with 8 warps 154 and 115 for 64 and 128. This favours
 * large tiles of a warp, while 8 warps hide more latency, so the choice is measured on
 * the device at run time (cuda_tiles.cu).
 */
#include <assert.h>
#include <type_traits>

#include "cuda/conv/cuda_conv_load.cuh"
#include "cuda/conv/cuda_conv_wgmma.cuh"

namespace
{

enum { STAGES = 4, ROWS = CUDA_TILE_ROWS };

/* A tile of BM x BN, computed by WM x WN warps. */
template <int BM_, int BN_, int WM_, int WN_, int BLOCKS_> struct conv_tile {
    enum {
        BM = BM_,
        BN = BN_,
        WM = WM_,
        WN = WN_,
        BLOCKS = BLOCKS_, /* blocks of an SM */
        CLUSTER = 1,
        WARPS = WM * WN,
        THREADS = WARPS * 32,
        MT = BM / WM / 16,
        NT = BN / WN / 8,
        GROUPS = MT == 1 ? 1 : 2,                   /* of 16 rows in a piece of a sum */
        CHUNKS = CUDA_STAGE_ROW / CUDA_CHUNK_BYTES, /* of a row of a stage */
        AT_ONCE = THREADS / CHUNKS,                 /* rows copied at a time */
        IS_BULK = 0,
        PARTS = 1, /* of a k-tile */
        STAGE_BYTES = (BM + BN) * CUDA_STAGE_ROW,
        PITCH = NT * 8 + 8,           /* row of a warp's results in the epilogue */
        COLUMNS = (NT * 8 + 31) / 32, /* columns that a lane sums */
        RESULT_BYTES = 2 * WARPS * 16 * PITCH * (int)sizeof(float),
        SHARED =
            STAGES * STAGE_BYTES > RESULT_BYTES ? STAGES *STAGE_BYTES : RESULT_BYTES
    };
    static_assert(MT * WM * 16 == BM && NT * WN * 8 == BN && NT % 2 == 0, "warp tile");
    static_assert(BM % AT_ONCE == 0, "chunks of a thread");

    __device__ static int place(int r, int q) { return cuda_stage_at(r, q); }
    /* The tile's group of 16 rows that is group i of a warp. */
    __device__ static int group(int warp, int i) { return warp % WM * MT + i; }
};

/* The part of a block that multiplies. `load` fills the stages (cuda_conv_load.cuh). */
template <sp_precision P, class T, bool IS_WHOLE> struct conv_block : conv_rows<T> {
    typedef conv_rows<T> rows;
    typedef cuda_product<P, T::MT, T::NT> product;
    typedef cuda_operand<P> operand;
    typedef std::conditional_t<IS_WHOLE, conv_load_whole<T, operand::BYTES>,
                               conv_load_any<T, operand::BYTES>>
        load;
    using rows::a;
    using rows::column0;
    using rows::t;
    using rows::warp;

    char *stages;

    __device__ conv_block(const conv_call &call, conv_table<T::BM> &table, char *shared)
        : rows(call, table), stages(shared)
    {
    }

    __device__ int stage_at(int tile) const { return tile % STAGES * T::STAGE_BYTES; }

    /* The groups of 16 rows of this warp that have the offset of a unit; the set is
     * empty for up to two units after the last one. */
    __device__ unsigned groups_of(unsigned unit) const
    {
        const unsigned all = t.groups[conv_entry_of(a, unit)];

        return all >> (warp % T::WM * T::MT) & ((1u << T::MT) - 1);
    }

    /* Multiplies all offsets of one word of the masks. Ends with a barrier. */
    __device__ void walk(int word, float (&sum)[T::MT][T::NT][4])
    {
        load copies(a, t, column0, word, stages);
        const typename product::fragments fragments =
            product::find(stages, warp % T::WM * T::MT * 16, T::BM * CUDA_STAGE_ROW,
                          warp / T::WM * T::NT * 8);
        const int n_tiles = __shfl_sync(~0u, copies.n_tiles(), 0);

#pragma unroll 1
        for (int tile = 0; tile < STAGES - 1; tile++) {
            if (tile < n_tiles)
                copies.next_tile(stage_at(tile));
            sp_copy_commit();
        }
#pragma unroll 1
        for (int tile = 0; tile < n_tiles; tile++) {
            const unsigned unit = 2 * (unsigned)tile;
            const unsigned first = groups_of(unit);
            /* both units of a whole k-tile belong to one offset */
            const unsigned second = IS_WHOLE ? first : groups_of(unit + 1);

            sp_copy_wait<STAGES - 2>();
            __syncthreads(); /* this k-tile has landed, the one before has been read */
            if (tile + STAGES - 1 < n_tiles)
                copies.next_tile(stage_at(tile + STAGES - 1));
            sp_copy_commit();
            if (first)
                product::multiply(fragments, stage_at(tile), 0, first, sum);
            if (second)
                product::multiply(fragments, stage_at(tile), 1, second, sum);
        }
        __syncthreads(); /* the remaining groups of copies are empty */
    }
};

/* SHARED, the launch's shared memory, is an argument so that tests/tools/cuda_code.py
 * can read it from the kernel's name. */
template <sp_precision P, class T, bool IS_WHOLE, int SHARED>
__global__ void __launch_bounds__(T::THREADS, T::BLOCKS) conv_kernel(conv_call a)
{
    SP_SHARED_BYTES(stages);
    SP_SHARED(conv_table<T::BM>, table, [1]);
    conv_block<P, T, IS_WHOLE> b(a, table[0], stages);
    float sum[T::MT][T::NT][4] = {};

    conv_add_words(a, b, sum);
    typedef typename conv_block<P, T, IS_WHOLE>::product product;
    typedef std::conditional_t<P == SP_BF16, cuda_bf16, float> element;
    typedef conv_out<product, T, element> out;
    static_assert(out::PIECES * sizeof(typename out::piece_sums) <= sizeof table[0].in,
                  "room for sums");
    const auto put = [&](int group, float *value) {
#pragma unroll
        for (int i = 0; i < T::MT; i++)
            if (i == group)
#pragma unroll
                for (int j = 0; j < T::NT; j++)
                    product::put(value, T::PITCH, j, sum[i][j][0], sum[i][j][1],
                                 sum[i][j][2], sum[i][j][3]);
    };
    static_assert((int)T::SHARED + (int)sizeof table[0] <=
                      ((int)T::BM == (int)CUDA_TILE_ROWS ? (int)CUDA_LEAST_BYTES
                                                         : (int)CUDA_TALL_BYTES),
                  "shared memory of a tile");
    out(a, table[0].out, (int64_t)b.row_tile() * (T::BM / CUDA_TILE_ROWS), b.column0,
        stages)
        /* the table is not read any more */
        .write(put, (typename out::piece_sums *)table[0].in);
}

/* ---- launch ---- */

template <sp_precision P, class T, bool IS_WHOLE>
sp_status cuda_conv_launch(sp_backend *be, conv_call a)
{
    static int ready_on = -1; /* the device that it is prepared for */
    const unsigned blocks = (unsigned)((a.y.n + T::BM - 1) / T::BM) *
                            (unsigned)((a.y.c + T::BN - 1) / T::BN);

    a.lets_next = cuda_lets_next(be);
    SP_TRY(cuda_gemm_ready(be, &ready_on, conv_kernel<P, T, IS_WHOLE, T::SHARED>,
                           "conv_kernel", T::BN, T::THREADS, T::SHARED, T::BLOCKS));
    SP_LAUNCH_SHARED((conv_kernel<P, T, IS_WHOLE, T::SHARED>), dim3(blocks),
                     dim3(T::THREADS), T::SHARED, cuda_of(be)->compute, a);
    return cuda_launched("conv_kernel");
}

/* The two narrow tiles serve fp32, which is bound by multiply-adds, so that the formula
 * chooses the fewest columns, and all calls with rows that are not whole k-tiles (few
 * or odd numbers of channels). */
template <sp_precision P, bool IS_WHOLE>
sp_status conv_launch_narrow(sp_backend *be, const conv_call &a)
{
    static const int columns[] = {32, 64};

    if (cuda_fewest_columns(a.y.c, columns, 2) == 0)
        return cuda_conv_launch<P, conv_tile<ROWS, 32, 4, 1, 3>, IS_WHOLE>(be, a);
    return cuda_conv_launch<P, conv_tile<ROWS, 64, 4, 1, 3>, IS_WHOLE>(be, a);
}

template <sp_precision P>
sp_status conv_launch_tensor(sp_backend *be, const conv_call &a)
{
#define LAUNCH(index, name, rows, columns, wm, wn, blocks)                             \
    case index:                                                                        \
        return cuda_conv_launch<P, conv_tile<rows, columns, wm, wn, blocks>, true>(be, \
                                                                                   a);
    switch (cuda_tile_of(be, a.y.n, a.y.c, a.K)) {
        CUDA_TILE_LIST(LAUNCH)
    }
#undef LAUNCH
    return SP_FAIL_INTERNAL(SP_EDEVICE, "convolution: no such tile");
}

template <sp_precision P> sp_status launch_form(sp_backend *be, const conv_call &a)
{
    if (!cuda_is_whole(a, cuda_operand<P>::BYTES, CUDA_STAGE_ROW / CUDA_CHUNK_BYTES))
        return conv_launch_narrow<P, false>(be, a);
    if constexpr (P == SP_FP32)
        return conv_launch_narrow<P, true>(be, a);
    else
        return conv_launch_tensor<P>(be, a);
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

/* True if the constants of a norm can be read four at a time; NULL can. */
bool is_aligned(const sp_norm_grad_args *norm)
{
    return (((uintptr_t)norm->mean | (uintptr_t)norm->inv_std | (uintptr_t)norm->scale |
             (uintptr_t)norm->shift) &
            15) == 0;
}

void set_norm(const sp_norm_grad_args *norm, conv_result *a)
{
    const ptrdiff_t at = (const char *)norm->dy.data - (const char *)a->y.data;

    assert(norm->x.elem == a->y.elem && norm->y.elem == a->y.elem && !a->bias);
    a->x = norm->x;
    if (!norm->scale && norm->slope != 1)
        a->act = norm->y;
    a->column = (int)(at / (ptrdiff_t)sp_elem_bytes(a->y.elem));
    assert(a->column >= 0 && a->column + a->x.c <= a->y.c && norm->dy.ld == a->y.ld);
    a->is_aligned = a->is_aligned && cuda_is_aligned(a->x) && is_aligned(norm) &&
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
    a->is_aligned = a->is_aligned && cuda_is_aligned(norm->x) && is_aligned(norm);
    a->residual = {norm->x, norm->mean, norm->inv_std, norm->sums};
}

/* True if the epilogue can do all of a norm: it has whole chunks of 16 bytes only, and
 * adds a bias last. */
bool can_finish_norm(const sp_backend *be, const sp_conv_args *conv,
                     const sp_norm_args *norm)
{
    const sp_tensor y = conv->y;

    return !conv->bias && cuda_is_aligned(y) &&
           (y.elem == SP_ELEM_BF16) == (be->precision == SP_BF16) &&
           (size_t)y.c * sp_elem_bytes(y.elem) % CUDA_CHUNK_BYTES == 0 &&
           (((uintptr_t)norm->scale | (uintptr_t)norm->shift) & 15) == 0 &&
           (!norm->res.data || cuda_is_aligned(norm->res));
}

/* Completes the call (its result is already described) and launches it. */
sp_status conv_run(sp_backend *be, const sp_conv_args *args, conv_call a)
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
    assert(a.n_words > 0);
    a.w = (const char *)args->w_packed;
    a.is_from_aligned = cuda_is_aligned(a.from);
    a.is_shared = units.is_shared;
    a.units = units.per_offset;
    a.reciprocal = a.units > 1 ? (unsigned)((1ull << 32) / a.units + 1) : 0;
    switch (be->precision) {
    case SP_BF16:
        return be->is_wgmma && cuda_wgmma_gains(a.K, a.from.c, a.y.c)
                   ? cuda_conv_wgmma(be, a)
                   : launch_form<SP_BF16>(be, a);
    case SP_TF32:
        return launch_form<SP_TF32>(be, a);
    default:
        return launch_form<SP_FP32>(be, a);
    }
}

} // namespace

sp_status sp_cuda_conv_forward(sp_backend *be, const sp_conv_args *args)
{
    assert(sp_conv_is_sound(args));
    return conv_run(be, args, call_of(args));
}

/* The same product: the weights are packed for it. */
sp_status sp_cuda_conv_grad_input(sp_backend *be, const sp_conv_args *args)
{
    assert(sp_conv_is_sound(args));
    return conv_run(be, args, call_of(args));
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

    assert(sp_conv_is_sound(conv) && sums);
    a.part = sums;
    return conv_run(be, conv, a);
}

sp_status sp_cuda_conv_forward_norm_apply(sp_backend *be, const sp_conv_args *conv,
                                          const sp_norm_args *norm)
{
    conv_call a = call_of(conv);

    assert(sp_conv_is_sound(conv) && sp_norm_is_sound(norm));
    assert(norm->x.data == conv->y.data && norm->y.data == conv->y.data);
    assert(!norm->res.data || norm->res.elem == a.y.elem);
    assert(!norm->res_scale);
    if (!can_finish_norm(be, conv, norm)) {
        SP_TRY(sp_cuda_conv_forward(be, conv));
        return sp_cuda_norm_apply(be, norm);
    }
    if (norm->finish) /* of running statistics, not of sums over y */
        SP_TRY(sp_cuda_norm_finish(be, norm->finish));
    a.is_normed = true;
    a.res = norm->res;
    a.scale = norm->scale;
    a.shift = norm->shift;
    a.slope = norm->slope;
    return conv_run(be, conv, a);
}

sp_status sp_cuda_conv_grad_input_norm_sums(sp_backend *be, const sp_conv_args *conv,
                                            const sp_norm_grad_args *norm,
                                            const sp_norm_grad_args *residual)
{
    conv_call a = call_of(conv);

    assert(sp_conv_is_sound(conv) && norm->sums);
    set_norm(norm, &a);
    if (residual)
        set_residual(residual, &a);
    return conv_run(be, conv, a);
}

/* The convolution by products of warpgroups (wgmma, sm_90a). On devices that have them
 * it serves the layers in bf16 that cuda_wgmma_gains accepts; the others, and all
 * layers if run.wgmma = false, use cuda_conv.cu's mma.sync, the reference.
 *
 * A block owns 128 rows and BN channels of y; each of its two warpgroups owns half of
 * the rows. The inner dimension is cuda_conv.cu's, in the same order, four units (64
 * channels, 128 bytes) a step. A ring of STAGES stages, each with A [BM] and B [BN]
 * rows of 128 bytes in the layout of wgmma (sp_cuda_wgmma.h), is filled by asynchronous
 * copies of the threads, because the copy engine of sm_90 (TMA) has no gather of rows.
 * Offsets of 96 channels are deep steps of three parts, each with A and B rows of 64
 * bytes.
 * One step, while the products of the LAG steps before it may still be running:
 *
 *     wait for products   of step - 1 - LAG: its stage may be filled again
 *     wait for copies     of this step, and fence for the async proxy
 *     barrier             both are now true of all threads
 *     wait for weights    of this step, if bulk copies bring them
 *     multiply            except 64 rows that have no offset of the step
 *     copy                step + STAGES - 1 - LAG, into the stage that was waited for
 *
 * Weights. If an offset consists of whole k-tiles, they are packed in the order of a
 * stage (cuda_conv_pack.cu), and one thread brings them by bulk copies. Four blocks with
 * adjacent rows form a cluster then, if the kernel has many offsets: all walk through
 * the offsets that any of them has, each brings its share of every stage's weights into
 * the shared memory of all, and the weights pass through the L2 once for 512 rows. A
 * stage has two barriers in shared memory (sp_cuda_cluster.h):
 *
 *     full    its weights are there: the bytes of all shares have come
 *     free    all blocks have multiplied what it held before; the blocks that are to
 *             fill it wait for that. A single block uses the step's barrier
 *
 * A block passes its list of offsets to the others after a barrier of the cluster, when
 * all have begun. The lists are there after a second barrier, and a third at the end
 * keeps a block's shared memory until no other accesses it. Other calls copy the weights
 * as they copy rows (conv_load_any).
 *
 * The order of sums. Absent rows are zeros, and so are channels after the last one, so
 * a step is multiplied as a whole; an offset that 64 rows lack is not multiplied. Every
 * sum adds its channels in the order of cuda_conv.cu, whatever the tile, the cluster
 * and the other rows: no bit depends on them. The order within the 16 products of one
 * instruction may differ from mma.sync inside the tensor cores, and with it the last
 * bits.
 *
 * Two arrangements. 96 or 128 columns: 3 stages of 28 or 32 KB, or 2 deep ones of 42 or
 * 48, and two blocks of an SM: one works while the other waits; LAG 0. 256 columns,
 * which gather each row once for all of them: 4 stages of 48 KB and one block; LAG 1, so
 * that products do not stop at a barrier. cuda_wgmma_choose has the choice.
 *
 * All shared memory is dynamic. The table and the barriers follow the ring, because the
 * ring must begin at a multiple of 1024.
 *
 * Registers, shared memory and blocks of an SM are counted by `make check-code`
 * (tests/results/code-sm_90.txt), bytes and expected times by spbench roofline
 * (tests/results/README). Two blocks with 128 columns use all but some hundred bytes of
 * an SM's shared memory.
 *
 * Expected, not measured: at the full rate of 2048 multiply-adds a clock a block reads
 * 96 and writes 64 bytes of shared memory a clock with 128 columns, 80 and 48 with 256;
 * 128 bytes a clock are the limit.
 */
#include <assert.h>
#include <type_traits>

#include "cuda/conv/cuda_conv_load.cuh"
#include "cuda/conv/cuda_conv_wgmma.cuh"
#include "cuda/conv/cuda_wgmma_operand.cuh"

namespace
{

/* The barriers of a block; they follow its table in shared memory. */
template <int STAGES, int CLUSTER> struct wgmma_barriers {
    uint64_t full[STAGES], free[STAGES];
    uint32_t there[2][CLUSTER]; /* offsets of each block, by turns of the words */
};

template <int BM_, int BN_, int STAGES_, int LAG_, int BLOCKS_, int CLUSTER_,
          int PARTS_>
struct wgmma_tile {
    enum {
        BM = BM_,
        BN = BN_,
        STAGES = STAGES_,
        LAG = LAG_,
        BLOCKS = BLOCKS_, /* blocks of an SM */
        CLUSTER = CLUSTER_,
        PARTS = PARTS_,             /* of a step */
        ROW = PARTS > 1 ? 64 : 128, /* bytes of a row of a part */
        ATOM = 8 * ROW,
        STEP_UNITS = PARTS * ROW / CUDA_UNIT_BYTES,
        WARPS = 8,
        THREADS = WARPS * 32,
        MT = BM / 128,                   /* groups of 64 rows of a warpgroup */
        CHUNKS = ROW / CUDA_CHUNK_BYTES, /* of a row of a part */
        AT_ONCE = THREADS / CHUNKS,      /* rows copied at a time */
        IS_BULK = 1,                     /* whole k-tiles of B come by bulk copies */
        B_AT = PARTS * BM * ROW,         /* of a stage */
        STAGE_BYTES = B_AT + PARTS * BN * ROW,
        RING = STAGES * STAGE_BYTES,
        BARRIERS = RING + ((int)sizeof(conv_table<BM>) + 7) / 8 * 8,
        SHARED = BARRIERS + (int)sizeof(wgmma_barriers<STAGES, CLUSTER>)
    };
    static_assert(LAG < STAGES - 1, "a step is copied ahead");
    static_assert(BN % (8 * CLUSTER) == 0, "whole atoms of a block");

    /* The byte of chunk q of row r in a part, under the swizzle of ROW bytes. */
    __device__ static int place(int r, int q)
    {
        return r * ROW + (q ^ r * CHUNKS / 8 % CHUNKS) * CUDA_CHUNK_BYTES;
    }
};

/* The epilogue handles 64 or 32 columns at a time, so that the results fit into the
 * ring. T is the tile of the products. */
template <class T> struct out_tile {
    enum {
        BM = T::BM,
        BN = T::BN % 64 ? 32 : 64,
        WM = T::WARPS,
        WN = 1,
        WARPS = WM,
        THREADS = WARPS * 32,
        BLOCKS = T::BLOCKS,
        MT = T::MT,
        GROUPS = 1, /* a warp's groups are not adjacent */
        NT = BN / 8,
        PITCH = NT * 8 + 8,
        COLUMNS = NT * 8 / 32,
        RESULT_BYTES = 2 * WARPS * 16 * PITCH * (int)sizeof(float)
    };

    /* The tile's group of 16 rows that a warp has of its warpgroup's i-th 64 rows. */
    __device__ static int group(int warp, int i)
    {
        return (warp / 4 * MT + i) * 4 + warp % 4;
    }
};

/* The weights of whole k-tiles. Steps are counted from the block's first one. */
template <class T> struct wgmma_weights {
    typedef wgmma_barriers<T::STAGES, T::CLUSTER> barriers;
    enum { ROW = T::ROW, SHARE = T::BN / T::CLUSTER, ALL = (1 << T::CLUSTER) - 1 };

    const conv_call &a;
    const bool is_leader; /* the thread that copies */
    uint32_t first;       /* shared address of B in the first stage */
    uint32_t full, free;  /* of the first stage's barriers */

    __device__ wgmma_weights(const conv_call &call, char *shared)
        : a(call), is_leader(threadIdx.x == 0)
    {
        barriers *const b = (barriers *)(shared + T::BARRIERS);

        first = sp_shared_base(shared) + T::B_AT;
        full = sp_shared_base(b->full);
        free = sp_shared_base(b->free);
    }

    /* Makes the barriers. A barrier of the cluster, or of a single block, follows
     * before they are used. */
    __device__ void prepare() const
    {
        if (!is_leader)
            return;
        for (int i = 0; i < T::STAGES; i++) {
            sp_mbarrier_init(full + 8 * i, 1);
            sp_mbarrier_init(free + 8 * i, T::CLUSTER);
        }
        sp_mbarrier_fence();
    }

    __device__ static int stage(unsigned step) { return (int)(step % T::STAGES); }

    __device__ static unsigned parity(unsigned step) { return step / T::STAGES & 1; }

    /* Copies this block's share of the weights of a step, which begin with row w for
     * the block's first column, to all blocks of the cluster. */
    __device__ void copy(unsigned step, unsigned w, int column0) const
    {
        const int i = stage(step);

        if (!is_leader)
            return;
        if (T::CLUSTER > 1 && step >= T::STAGES)
            sp_mbarrier_wait(free + 8 * i, parity(step) ^ 1);
        const int columns = min(a.y.c - column0, (int)T::BN);
        const int from = T::CLUSTER == 1 ? 0 : SHARE * (int)sp_cluster_rank();
        const int own = min(columns - from, (int)SHARE);
        unsigned to = first + (unsigned)(i * T::STAGE_BYTES + from * ROW);

        w += (unsigned)from;
        sp_mbarrier_expect(full + 8 * i, (unsigned)(columns * T::PARTS * ROW));
#pragma unroll
        for (int p = 0; p < T::PARTS; p++, w += (unsigned)a.y.c, to += T::BN * ROW)
            if (own > 0)
                sp_copy_bulk(to, a.w + (size_t)w * ROW, (unsigned)(own * ROW),
                             full + 8 * i, ALL);
    }

    /* Returns when the weights of a step are there; called by all threads. */
    __device__ void wait(unsigned step) const
    {
        sp_mbarrier_wait(full + 8 * stage(step), parity(step));
    }

    /* Reports to the cluster that this block has multiplied a stage's content. */
    __device__ void release(int i) const
    {
        if (T::CLUSTER > 1 && threadIdx.x < T::CLUSTER)
            sp_mbarrier_arrive(free + 8 * i, threadIdx.x);
    }
};

template <class T, bool IS_WHOLE> struct wgmma_block : conv_rows<T> {
    typedef conv_rows<T> rows;
    typedef std::conditional_t<IS_WHOLE, conv_load_whole<T, 2>, conv_load_any<T, 2>>
        load;
    using rows::a;
    using rows::column0;
    using rows::lane;
    using rows::t;
    using rows::warp;

    char *stages;
    uint32_t within; /* the stages' address in this block's shared memory */
    const wgmma_weights<T> weights;
    unsigned begun; /* steps of the preceding words */

    __device__ wgmma_block(const conv_call &call, conv_table<T::BM> &table,
                           char *shared)
        : rows(call, table), stages(shared), weights(call, shared)
    {
        begun = 0;
        within = sp_shared_base(shared) & SHARED_MASK;
    }

    /* Lists the offsets of the cluster. */
    __device__ void list_cluster(int word)
    {
        wgmma_barriers<T::STAGES, T::CLUSTER> *const b =
            (wgmma_barriers<T::STAGES, T::CLUSTER> *)(stages + T::BARRIERS);
        uint32_t *const there = b->there[word & 1];

        rows::list_with([&](unsigned own) {
            if (word == 0)
                sp_cluster_wait(); /* the other blocks have begun */
            if (warp == 0 && lane < T::CLUSTER)
                sp_cluster_put(sp_shared_address(there + sp_cluster_rank()),
                               (unsigned)lane, own);
            sp_cluster_arrive();
            sp_cluster_wait();
            for (int i = 0; i < T::CLUSTER; i++)
                own |= there[i];
            return own;
        });
    }

    __device__ void list_offsets(int word)
    {
        if constexpr (T::CLUSTER > 1)
            list_cluster(word);
        else
            rows::list_offsets(word);
    }

    /* The stage of a step of the present word. */
    __device__ int stage_at(int step) const
    {
        return (int)((begun + (unsigned)step) % T::STAGES) * T::STAGE_BYTES;
    }

    /* Begins the copies of a step. */
    __device__ void copy(load &copies, int step) const
    {
        if constexpr (IS_WHOLE)
            weights.copy(begun + (unsigned)step, copies.next_tile(stage_at(step)),
                         column0);
        else
            copies.next_tile(stage_at(step));
    }

    /* The descriptor of an operand with rows that begin `first` bytes after the start
     * of the stages, at the start of an atom, moved on by `chunks`. The word with the
     * address never carries into the other one, so it is computed separately. */
    __device__ uint64_t operand(int first, int chunks) const
    {
        const uint32_t low =
            ((within + (uint32_t)first) >> 4 | 1u << 16) + (unsigned)chunks;

        return (uint64_t)(T::ATOM >> 4 | (T::ROW == 128 ? 1u : 2u) << 30) << 32 | low;
    }

    /* The groups of 16 rows of the warpgroup that have any offset of the step. */
    __device__ unsigned groups_of(int step) const
    {
        const unsigned first = T::STEP_UNITS * (unsigned)step;
        unsigned groups = 0;

        if (IS_WHOLE)
            groups = t.groups[conv_entry_of(a, first)];
        else
            for (unsigned u = first; u < first + T::STEP_UNITS; u++)
                groups |=
                    u < (unsigned)t.n * a.units ? t.groups[conv_entry_of(a, u)] : 0;
        return groups >> (warp / 4 * 4 * T::MT);
    }

    /* Multiplies the warpgroup's i-th 64 rows. */
    __device__ void multiply_rows(int from, int i, float (&sum)[T::BN / 2]) const
    {
        const int x = from + (warp / 4 * T::MT + i) * 64 * T::ROW;
        const int w = from + T::B_AT;

        sp_wgmma_fence();
#pragma unroll
        for (int q = 0; q < 2 * T::STEP_UNITS; q += 2) {
            const int part = q / T::CHUNKS * T::ROW, chunk = q % T::CHUNKS;

            sp_wgmma(sum, operand(x + T::BM * part, chunk),
                     operand(w + T::BN * part, chunk));
        }
    }

    __device__ void multiply(int step, float (&sum)[T::MT][T::BN / 2])
    {
        const unsigned groups = groups_of(step);

        /* Both branches commit. ptxas would close the group of a commit after the
         * branch by a product of its own, beside the group of the products above, and
         * the wait for all but LAG groups would wait for these products. */
        static_assert(T::MT == 1, "one group of products a step");
        if (__any_sync(~0u, (groups & 15) != 0)) {
            multiply_rows(stage_at(step), 0, sum[0]);
            sp_wgmma_commit();
        } else {
            sp_wgmma_commit();
        }
    }

    /* Waits for all but the latest PENDING groups of products. */
    template <int PENDING> __device__ void wait(float (&sum)[T::MT][T::BN / 2])
    {
#pragma unroll
        for (int i = 0; i < T::MT; i++)
            sp_wgmma_wait<PENDING>(sum[i]);
    }

    /* Multiplies all offsets of one word of the masks. Ends with a barrier. */
    __device__ void walk(int word, float (&sum)[T::MT][T::BN / 2])
    {
        enum { AHEAD = T::STAGES - 1 - T::LAG };
        load copies(a, t, column0, word, stages);
        const int steps = __shfl_sync(~0u, copies.n_tiles(), 0);

#pragma unroll 1
        for (int s = 0; s < AHEAD; s++) {
            if (s < steps)
                copy(copies, s);
            sp_copy_commit();
        }
        for (int step = 0; step < steps; step++) {
            wait<T::LAG>(sum);
            sp_copy_wait<AHEAD - 1>();
            sp_fence_async();
            __syncthreads(); /* copies of this step, products of the one waited for */
            if (IS_WHOLE && step > T::LAG) /* the stage of step - 1 - LAG */
                weights.release(weights.stage(begun + (unsigned)(step + AHEAD)));
            if (IS_WHOLE)
                weights.wait(begun + (unsigned)step);
            multiply(step, sum);
            if (step + AHEAD < steps)
                copy(copies, step + AHEAD);
            sp_copy_commit();
        }
        wait<0>(sum);
        __syncthreads(); /* the ring and the table may be overwritten */
        for (int s = max(steps - 1 - T::LAG, 0); IS_WHOLE && s < steps; s++)
            weights.release(weights.stage(begun + (unsigned)s));
        begun += (unsigned)steps;
    }
};

/* SHARED is in the kernel's name for tests/tools/cuda_code.py. */
template <class T, bool IS_WHOLE, int SHARED>
__global__ void __launch_bounds__(T::THREADS, T::BLOCKS) wgmma_kernel(conv_call a)
{
#if HAS_WGMMA
    SP_SHARED_BYTES_AT(1024, ring);
    conv_table<T::BM> &table = *(conv_table<T::BM> *)(ring + T::RING);
    wgmma_block<T, IS_WHOLE> b(a, table, ring);
    float sum[T::MT][T::BN / 2] = {};

    if (sp_shared_address(ring) % T::ATOM)
        sp_trap(); /* the swizzle depends on address bits */
    if (IS_WHOLE)
        b.weights.prepare();
    if (T::CLUSTER > 1)
        sp_cluster_arrive_relaxed(); /* sp_mbarrier_fence has released the barriers */
    conv_add_words(a, b, sum);
    if (T::CLUSTER > 1)
        sp_cluster_arrive(); /* this block reaches for no other any more */
    typedef out_tile<T> tile;
    typedef cuda_product<SP_BF16, 1, tile::NT> product;
    typedef conv_out<product, tile, cuda_bf16> out;
    static_assert((int)tile::RESULT_BYTES <= (int)T::RING, "results in the ring");
    static_assert(out::PIECES * sizeof(typename out::piece_sums) <= sizeof table.in,
                  "sums in the table");
#pragma unroll 1
    for (int h = 0; h < T::BN / tile::BN; h++) {
        const auto put = [&](int group, float *value) {
#pragma unroll
            for (int m = 0; m < T::MT; m++)
#pragma unroll
                for (int i = 0; i < T::BN / 8; i++)
                    if (m == group && i / tile::NT == h)
                        product::put(value, tile::PITCH, i % tile::NT, sum[m][4 * i],
                                     sum[m][4 * i + 1], sum[m][4 * i + 2],
                                     sum[m][4 * i + 3]);
        };
        if (h > 0)
            __syncthreads(); /* the sums of the preceding columns have been read */
        out(a, table.out, (int64_t)b.row_tile() * (T::BM / CUDA_TILE_ROWS),
            b.column0 + h * tile::BN, ring)
            .write(put, (typename out::piece_sums *)table.in);
    }
    if (T::CLUSTER > 1)
        sp_cluster_wait();
#else
    sp_grid_wait();
    (void)a;
    sp_trap();
#endif
}

template <class T, bool IS_WHOLE>
sp_status conv_wgmma_launch(sp_backend *be, conv_call a)
{
    static int ready_on = -1; /* the device that it is prepared for */
    const unsigned clusters =
        (unsigned)((a.y.n + T::CLUSTER * T::BM - 1) / (T::CLUSTER * T::BM)) *
        (unsigned)((a.y.c + T::BN - 1) / T::BN);

    a.lets_next = cuda_lets_next(be);
    SP_TRY(cuda_gemm_ready(be, &ready_on, wgmma_kernel<T, IS_WHOLE, T::SHARED>,
                           "wgmma_kernel", T::BN, T::THREADS, T::SHARED, T::BLOCKS));
    SP_LAUNCH_CLUSTER((wgmma_kernel<T, IS_WHOLE, T::SHARED>),
                      dim3(clusters * T::CLUSTER), dim3(T::THREADS), T::SHARED,
                      T::CLUSTER, cuda_of(be)->compute, a);
    return cuda_launched("wgmma_kernel");
}

enum { FOUR = CUDA_WGMMA_FOUR };
template <int BN, int CLUSTER>
using narrow = wgmma_tile<CUDA_TILE_ROWS, BN, 3, 0, 2, CLUSTER, 1>;
template <int BN> using deep = wgmma_tile<CUDA_TILE_ROWS, BN, 2, 0, 2, FOUR, 3>;
typedef wgmma_tile<CUDA_TILE_ROWS, 256, 4, 1, 1, 1, 1> wide;

/* Whole k-tiles. */
sp_status launch_tiled(sp_backend *be, const conv_call &a, cuda_wgmma_tile tile)
{
    if (tile.depth == CUDA_WGMMA_DEEP)
        return tile.columns < 128 ? conv_wgmma_launch<deep<96>, true>(be, a)
                                  : conv_wgmma_launch<deep<128>, true>(be, a);
    if (tile.columns == 256)
        return conv_wgmma_launch<wide, true>(be, a);
    if (tile.cluster == 1)
        return conv_wgmma_launch<narrow<128, 1>, true>(be, a);
    return tile.columns == 96 ? conv_wgmma_launch<narrow<96, FOUR>, true>(be, a)
                              : conv_wgmma_launch<narrow<128, FOUR>, true>(be, a);
}

} // namespace

/* True if the kernels are in the build: the rule that compiles this file for sm_90a
 * defines SP_WITH_WGMMA. */
#if !defined __CUDACC__ || defined SP_WITH_WGMMA
static const bool is_built = true;
#else
static const bool is_built = false;
#endif

sp_status cuda_wgmma_open(sp_backend *be)
{
    sp_device_info device;

    SP_TRY(sp_backend_device(be->device, &device));
    if (be->is_wgmma_optional) {
        be->is_wgmma = device.capability == 90 && is_built;
        return SP_OK;
    }
    if (device.capability != 90)
        return SP_FAIL(
            SP_EDEVICE,
            "run.wgmma = true: %s has compute capability %d.%d; wgmma needs 9.0",
            device.name, device.capability / 10, device.capability % 10);
    if (!is_built)
        return SP_FAIL(SP_EDEVICE,
                       "run.wgmma = true: this program was built without sm_90 "
                       "(configure --with-cuda-arch)");
    return SP_OK;
}

/* Weights that are packed by k-tiles need rows that are whole k-tiles: those that are
 * not aligned are copied first. */
sp_status cuda_conv_wgmma(sp_backend *be, const conv_call &call)
{
    cuda_wgmma_tile tile = cuda_wgmma_choose(call.K, call.from.c, call.y.c);
    conv_call a = call;

    if (be->wgmma_columns)
        tile.columns = be->wgmma_columns;
    if (tile.depth && !a.is_from_aligned) {
        SP_TRY(cuda_copy_operand(be, &a.from));
        a.is_from_aligned = cuda_is_aligned(a.from);
    }
    assert(!tile.depth || cuda_is_whole(a, 2, tile.depth / 8));
    if (tile.depth)
        return launch_tiled(be, a, tile);
    return tile.columns == 256 ? conv_wgmma_launch<wide, false>(be, a)
                               : conv_wgmma_launch<narrow<128, 1>, false>(be, a);
}

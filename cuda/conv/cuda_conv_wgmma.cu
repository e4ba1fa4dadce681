/* The convolution by products of warpgroups (wgmma, sm_90a), an alternative to the
 * mma.sync of cuda_conv.cu, which remains the reference. It is chosen by run.wgmma, in
 * bf16 only, for the layers that cuda_wgmma_suits accepts.
 *
 * A block owns 128 or 256 rows and BN channels of y; each of its two warpgroups owns
 * half of the rows, in groups of 64. The inner dimension is that of cuda_conv.cu, in
 * the same order, four units (64 channels, 128 bytes) a step. A ring of STAGES stages,
 * each with A [BM] and B [BN] rows of 128 bytes in the layout of wgmma
 * (sp_cuda_wgmma.h), is filled by asynchronous copies of the threads, because the copy
 * engine of sm_90 (TMA) has no gather of rows. The packed weights (cuda_conv_pack.cu)
 * change to that layout as they are copied. One step, while the products of the LAG
 * steps before it may still be running:
 *
 *     wait for products   of step - 1 - LAG: its stage may be filled again
 *     wait for copies     of this step, and fence for the async proxy
 *     barrier             both are now true of all threads
 *     multiply            except 64 rows that have no offset of the step
 *     copy                step + STAGES - 1 - LAG, into the stage that was waited for
 *
 * Absent rows are zeros, and so are channels behind the last one, so a step is
 * multiplied as a whole. Every sum adds its channels in the order of cuda_conv.cu; the
 * order within the 16 products of one instruction may differ inside the tensor cores,
 * and with it the last bits.
 *
 * Three arrangements. 128 x 128 (rows x columns): 3 stages of 32 KB and two blocks of
 * an SM, each of which works while the other waits; LAG 0. 128 x 256 and 256 x 128: 4
 * stages of 48 KB and one block; LAG 1, so that products do not stop at a barrier. Both
 * have the same number of blocks; the first gathers each row once for 256 columns, the
 * second reads the weights half as often, which is less where a kernel has many offsets
 * (cuda_conv_wgmma). All shared memory is
 * dynamic, the table behind the ring, because the ring must begin at a multiple of
 * 1024.
 *
 * Registers, shared memory and blocks of an SM are counted by `make check-code`
 * (tests/results/code-sm_90.txt). Two blocks with 128 columns take all but some hundred
 * bytes of an SM's shared memory.
 *
 * Expected, not measured: at the full rate of 2048 multiply-adds a clock a block reads
 * 96 and writes 64 bytes of shared memory a clock with 128 columns, 80 and 48 with 256,
 * where 128 bytes a clock are the limit. In the L2, the weights of each offset that a
 * tile has, 2 c_x BN bytes, outweigh the rows: 50,000 voxels of a surface (t = 8.7)
 * with 256 channels read 0.76 GB of weights, and 0.45 GB of rows with 128 columns or
 * 0.22 GB with 256. That is 219 and 178 us at 5.5 TB/s, against 145 us of products at
 * 80 % of 788 TFLOP/s.
 */
#include <type_traits>

#include "cuda/conv/cuda_conv_load.cuh"
#include "cuda/conv/cuda_conv_wgmma.cuh"

#if !defined __CUDACC__ || defined __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WGMMA 1
#else
#define HAS_WGMMA 0
#endif

namespace
{

enum { ROW = 128, ATOM = 8 * ROW };
enum { STEP_UNITS = ROW / CUDA_UNIT_BYTES, OUT = 64 };

template <int BM_, int BN_, int STAGES_, int LAG_, int BLOCKS_> struct wgmma_tile {
    enum {
        BM = BM_,
        BN = BN_,
        STAGES = STAGES_,
        LAG = LAG_,
        BLOCKS = BLOCKS_, /* blocks of an SM */
        WARPS = 8,
        THREADS = WARPS * 32,
        MT = BM / 128,                   /* groups of 64 rows of a warpgroup */
        CHUNKS = ROW / CUDA_CHUNK_BYTES, /* of a row of a stage */
        AT_ONCE = THREADS / CHUNKS,      /* rows whose chunks are copied at a time */
        STAGE_BYTES = (BM + BN) * ROW,
        RING = STAGES * STAGE_BYTES,
        SHARED = RING + (int)sizeof(conv_table<BM>)
    };
    static_assert(LAG < STAGES - 1, "a step is copied ahead");

    /* The byte of chunk q of row r in a stage, under the swizzle of 128 bytes. */
    __device__ static int place(int r, int q)
    {
        return r * ROW + (q ^ (r & 7)) * CUDA_CHUNK_BYTES;
    }
};

/* The epilogue handles OUT columns at a time, so that the results fit into the ring. T
 * is the tile of the products. */
template <class T> struct out_tile {
    enum {
        BM = T::BM,
        BN = OUT,
        WM = T::WARPS,
        WN = 1,
        WARPS = WM,
        THREADS = WARPS * 32,
        BLOCKS = T::BLOCKS,
        MT = T::MT,
        GROUPS = 1, /* those of a warp are not adjacent */
        NT = OUT / 8,
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

template <class T, bool IS_WHOLE> struct wgmma_block : conv_rows<T> {
    typedef conv_rows<T> rows;
    typedef std::conditional_t<IS_WHOLE, conv_load_whole<T, 2>, conv_load_any<T, 2>>
        load;
    using rows::a;
    using rows::column0;
    using rows::t;
    using rows::warp;

    char *stages;

    __device__ wgmma_block(const conv_call &call, conv_table<T::BM> &table,
                           char *shared)
        : rows(call, table), stages(shared)
    {
    }

    __device__ int stage_at(int step) const
    {
        return step % T::STAGES * T::STAGE_BYTES;
    }

    /* The descriptor of an operand whose rows begin at `first`, the start of an atom.
     */
    __device__ static uint64_t operand(const char *first)
    {
        return (uint64_t)(sp_shared_address(first) >> 4) | (uint64_t)1 << 16 |
               (uint64_t)(ATOM >> 4) << 32 | (uint64_t)1 << 62;
    }

    /* The groups of 16 rows of the warpgroup that have any offset of the step. */
    __device__ unsigned groups_of(int step) const
    {
        const unsigned first = STEP_UNITS * (unsigned)step;
        unsigned groups = 0;

        if (IS_WHOLE)
            groups = t.groups[conv_entry_of(a, first)];
        else
            for (unsigned u = first; u < first + STEP_UNITS; u++)
                groups |=
                    u < (unsigned)t.n * a.units ? t.groups[conv_entry_of(a, u)] : 0;
        return groups >> (warp / 4 * 4 * T::MT);
    }

    /* Multiplies the warpgroup's i-th 64 rows. */
    __device__ void multiply_rows(const char *from, int i,
                                  float (&sum)[T::BN / 2]) const
    {
        const uint64_t x = operand(from + (warp / 4 * T::MT + i) * 64 * ROW);
        const uint64_t w = operand(from + T::BM * ROW);

        sp_wgmma_fence();
#pragma unroll
        for (int u = 0; u < STEP_UNITS; u++)
            sp_wgmma(sum, x + (unsigned)u * (CUDA_UNIT_BYTES >> 4),
                     w + (unsigned)u * (CUDA_UNIT_BYTES >> 4));
    }

    __device__ void multiply(int step, float (&sum)[T::MT][T::BN / 2])
    {
        const unsigned groups = groups_of(step);

#pragma unroll
        for (int i = 0; i < T::MT; i++)
            if (__any_sync(~0u, (groups >> 4 * i & 15) != 0))
                multiply_rows(stages + stage_at(step), i, sum[i]);
        sp_wgmma_commit();
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
                copies.next_tile(stage_at(s));
            sp_copy_commit();
        }
        for (int step = 0; step < steps; step++) {
            wait<T::LAG>(sum);
            sp_copy_wait<AHEAD - 1>();
            sp_fence_async();
            __syncthreads(); /* copies of this step, products of the one waited for */
            multiply(step, sum);
            if (step + AHEAD < steps)
                copies.next_tile(stage_at(step + AHEAD));
            sp_copy_commit();
        }
        wait<0>(sum);
        __syncthreads(); /* the ring and the table may be overwritten */
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

    if (sp_shared_address(ring) % ATOM)
        sp_trap(); /* the swizzle depends on address bits */
    sp_reads_ahead(); /* the map, for the table */
    b.list_rows();
    int word = 0;
    do { /* there is a word, so that the compiler sees the wait on every way */
        b.fill_table(word);
        b.list_offsets(word);
        sp_grid_begin(a.lets_next); /* from the second word on it has been passed */
        b.walk(word, sum);
    } while (++word < a.n_words);
    typedef out_tile<T> tile;
    typedef cuda_product<SP_BF16, 1, tile::NT> product;
    typedef conv_out<product, tile, cuda_bf16> out;
    static_assert((int)tile::RESULT_BYTES <= (int)T::RING, "results in the ring");
    static_assert(out::PIECES * sizeof(typename out::piece_sums) <= sizeof table.in,
                  "sums in the table");
#pragma unroll 1
    for (int h = 0; h < T::BN / OUT; h++) {
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
        out(a, table.out, (int64_t)(blockIdx.x / b.across()) * (T::BM / CUDA_TILE_ROWS),
            b.column0 + h * OUT, ring)
            .write(put, (typename out::piece_sums *)table.in);
    }
#else
    sp_grid_wait();
    (void)a;
    sp_trap();
#endif
}

template <class T, bool IS_WHOLE> sp_status launch(sp_backend *be, conv_call a)
{
    static int ready_on = -1; /* the device for which it is prepared */
    const unsigned blocks = (unsigned)((a.y.n + T::BM - 1) / T::BM) *
                            (unsigned)((a.y.c + T::BN - 1) / T::BN);

    a.lets_next = cuda_lets_next(be);
    SP_TRY(cuda_gemm_ready(be, &ready_on, wgmma_kernel<T, IS_WHOLE, T::SHARED>,
                           "wgmma_kernel", T::BN, T::THREADS, T::SHARED, T::BLOCKS));
    SP_LAUNCH_SHARED((wgmma_kernel<T, IS_WHOLE, T::SHARED>), dim3(blocks),
                     dim3(T::THREADS), T::SHARED, cuda_of(be)->compute, a);
    return cuda_launched("wgmma_kernel");
}

enum { ROWS = CUDA_TILE_ROWS, CHUNKS = ROW / CUDA_CHUNK_BYTES };

template <class T> sp_status launch_form(sp_backend *be, const conv_call &a)
{
    return cuda_is_whole(a, 2, CHUNKS) ? launch<T, true>(be, a)
                                       : launch<T, false>(be, a);
}

} // namespace

/* Whether the kernels are in the build: the rule that compiles this file for sm_90a
 * defines SP_WITH_WGMMA. */
#if !defined __CUDACC__ || defined SP_WITH_WGMMA
static const bool is_built = true;
#else
static const bool is_built = false;
#endif

sp_status cuda_wgmma_open(const sp_backend *be)
{
    sp_device device;

    SP_TRY(sp_cuda_device(be->device, &device));
    if (device.capability != 90)
        return SP_FAIL(SP_EDEVICE,
                       "run.wgmma = true: %s has compute capability %d.%d; wgmma is of "
                       "9.0 alone",
                       device.name, device.capability / 10, device.capability % 10);
    if (!is_built)
        return SP_FAIL(SP_EDEVICE,
                       "run.wgmma = true: this program was built without sm_90 "
                       "(configure --with-cuda-arch)");
    return SP_OK;
}

bool cuda_wgmma_suits(const conv_call &a)
{
    return cuda_wgmma_gains(a.K, a.from.c, a.y.c, a.is_shared, 128);
}

sp_status cuda_conv_wgmma(sp_backend *be, const conv_call &a)
{
    const bool is_whole = cuda_is_whole(a, 2, CHUNKS);

    switch (cuda_wgmma_tile(cuda_sms_of(be), a.y.n, a.y.c, a.K, is_whole)) {
    case CUDA_WGMMA_TALL:
        return launch<wgmma_tile<CUDA_TALL_ROWS, 128, 4, 1, 1>, true>(be, a);
    case CUDA_WGMMA_256:
        return launch_form<wgmma_tile<ROWS, 256, 4, 1, 1>>(be, a);
    default:
        return launch_form<wgmma_tile<ROWS, 128, 3, 0, 2>>(be, a);
    }
}

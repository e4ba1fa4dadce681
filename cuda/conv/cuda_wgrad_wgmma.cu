/* The weight gradient by products of warpgroups (wgmma, sm_90a), in bf16, for channels
 * that gain from it (cuda_wgrad_choose). It is bound by what it gathers: a tile of 128 x
 * 256 channels gathers 384 for a pair, 85 flops a byte, the 128 x 128 of mma.sync 64.
 *
 * A block owns one item (cuda_wgrad_block.cuh) and 128 x 256 of its matrix. Each of its
 * two warpgroups owns 64 rows of it and all 256 columns. A stage has 64 pairs, four
 * instructions deep. Both operands lie in it as they are gathered, a row of channels
 * for each pair, in parts of 64 channels: the inner dimension runs down the rows, so
 * that both operands are transposed (sp_cuda_wgmma.h). One step, while the products of
 * the step before it may still be running:
 *
 *     wait for products   of step - 2: its stage may be filled again
 *     wait for copies     of this step, and fence for the async proxy
 *     barrier             both are now true of all threads
 *     multiply
 *     copy                step + 2, into the stage that was waited for
 *
 * If the wide side is to run along x, x and dy change places; the matrix is then
 * transposed, and it is transposed again when it is written to the slot.
 *
 * Every sum adds its pairs in the order of mma.sync, 16 at a time; the order of these
 * 16 may differ inside the tensor cores, and with it the last bits. Which of the two
 * kernels multiplies depends only on the device and the channels, so that no bit
 * depends on the batch or on ranks.
 *
 * Two blocks of a cluster with 256 x 256 channels would gather a third less from the L2.
 * They are not built: a thread's copy has no multicast, so the blocks would exchange a
 * third of each stage. An SM would receive the same bytes, only from another sender.
 */
#include <utility>

#include "cuda/conv/cuda_wgmma_operand.cuh"
#include "cuda/conv/cuda_wgrad_block.cuh"

namespace
{

enum { DEPTH = 16, GROUP = 128 /* threads of a warpgroup */ };

/* A tile of IN channels of x and OUT of dy. If its wide side is along x, x and dy have
 * changed places in the arguments: T_X, the narrow side, belongs to dy then. */
template <int IN, int OUT> struct wgmma_wgrad_tile {
    typedef cuda_operand<SP_BF16> operand;
    enum {
        IS_EXCHANGED = IN > OUT,
        T_X = CUDA_WGRAD_NARROW,
        T_DY = CUDA_WGRAD_WIDE,
        PAIRS = 64,
        STAGES = 4,
        LAG = 1, /* steps whose products may be running beside a step's copies */
        AHEAD = STAGES - 1 - LAG,
        THREADS = 2 * GROUP,
        BLOCKS = 1, /* of an SM */
        LANES = ROW / CUDA_CHUNK_BYTES,
        AT_ONCE = THREADS / LANES,
        X = T_X / operand::CHUNK / LANES,
        DY = T_DY / operand::CHUNK / LANES,
        PART = PAIRS * ROW, /* bytes of 64 channels */
        DY_AT = X * PART,
        STAGE_BYTES = (X + DY) * PART,
        SHARED = STAGES * STAGE_BYTES
    };
    static_assert(T_X == 64 * THREADS / GROUP, "a warpgroup has 64 rows");
    static_assert(T_X + T_DY == IN + OUT, "one of the two tiles");

    __device__ static int chunk(int, int lane, int e) { return lane + LANES * e; }

    __device__ static int at(int row, int q)
    {
        return q / LANES * PART + row * ROW +
               (q % LANES ^ row % LANES) * CUDA_CHUNK_BYTES;
    }
};

template <class T> struct wgmma_wgrad_block : wgrad_block<T, true> {
    typedef wgrad_block<T, true> base;
    using base::a;
    using base::i0;
    using base::o0;

    uint32_t within; /* the stages' address in this block's shared memory */
    int group;       /* of the thread's warpgroup: its number */

    __device__ wgmma_wgrad_block(const wgrad_call &call, const wgrad_items &items,
                                 char *shared)
        : base(call, items, shared)
    {
        within = base::ring & SHARED_MASK;
        group = __shfl_sync(~0u, (int)threadIdx.x / GROUP, 0);
    }

    /* The descriptor of an operand that begins `first` bytes after the start of the
     * stages: an atom has 64 channels of 8 pairs, the next 8 pairs follow it, and the
     * next 64 channels a part later. */
    __device__ uint64_t operand_at(int first) const
    {
        const uint32_t low = (within + (uint32_t)first) >> 4 | (T::PART >> 4) << 16;

        return (uint64_t)(ATOM >> 4 | 1u << 30) << 32 | low;
    }

    __device__ void multiply(int step, float (&sum)[T::T_DY / 2]) const
    {
        const int x = base::stage_at(step) + group * T::PART;
        const int dy = base::stage_at(step) + T::DY_AT;

        sp_wgmma_fence();
#pragma unroll
        for (int p = 0; p < T::PAIRS * ROW; p += DEPTH * ROW)
            sp_wgmma_transposed(sum, operand_at(x + p), operand_at(dy + p));
        sp_wgmma_commit();
    }

    __device__ void walk(float (&sum)[T::T_DY / 2])
    {
        const int steps = base::n_steps();

        base::template load_first<T::AHEAD>();
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
            sp_wgmma_wait<T::LAG>(sum);
            sp_copy_wait<T::AHEAD - 1>();
            sp_fence_async();
            __syncthreads(); /* copies of this step, products of the one waited for */
            multiply(step, sum);
            base::load_next(step + T::AHEAD);
        }
        sp_wgmma_wait<0>(sum);
    }

    /* Writes the sums to the item's slot, [x.c][dy.c] or, if x and dy have changed
     * places, [dy.c][x.c]. Channels come in chunks, so two adjacent ones are both
     * there. */
    __device__ void write(const float (&sum)[T::T_DY / 2]) const
    {
        const int lane = (int)threadIdx.x % 32;
        const size_t down = T::IS_EXCHANGED ? 1 : a.dy.c; /* to the next channel of x */
        const size_t across = T::IS_EXCHANGED ? a.x.c : 1; /* of dy */

#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int i = i0 + (int)threadIdx.x / 32 * 16 + lane / 4 + 8 * h;
            int o = o0 + lane % 4 * 2;
            float *to = base::slot() + i * down + o * across;
#pragma unroll
            for (int j = 0; j < T::T_DY / 8; j++, o += 8, to += 8 * across) {
                const float *v = &sum[4 * j + 2 * h];
                if (i >= a.x.c || o >= a.dy.c)
                    continue;
                if (T::IS_EXCHANGED) {
                    to[0] = v[0];
                    to[across] = v[1];
                } else {
                    *(float2 *)to = make_float2(v[0], v[1]);
                }
            }
        }
    }
};

/* SHARED is in the kernel's name for tests/tools/cuda_code.py. */
template <class T, int SHARED>
__global__ void __launch_bounds__(T::THREADS, T::BLOCKS)
    wgrad_wgmma_kernel(wgrad_call a, wgrad_items items)
{
#if HAS_WGMMA
    SP_SHARED_BYTES_AT(1024, ring);
    wgmma_wgrad_block<T> b(a, items, ring);
    float sum[T::T_DY / 2] = {};

    if (sp_shared_address(ring) % ATOM)
        sp_trap(); /* the swizzle depends on address bits */
    b.walk(sum);
    b.write(sum);
#else
    sp_grid_wait();
    (void)a;
    (void)items;
    sp_trap();
#endif
}

template <class T>
sp_status wgrad_wgmma_launch(sp_backend *be, const wgrad_call &a,
                             const wgrad_items &items, int tiles)
{
    static int ready_on = -1; /* the device that it is prepared for */

    SP_TRY(cuda_gemm_ready(be, &ready_on, wgrad_wgmma_kernel<T, T::SHARED>,
                           "wgrad_wgmma_kernel", T::T_DY, T::THREADS, T::SHARED,
                           T::BLOCKS));
    SP_LAUNCH_SHARED((wgrad_wgmma_kernel<T, T::SHARED>),
                     dim3((unsigned)tiles, (unsigned)items.first[items.n]),
                     dim3(T::THREADS), T::SHARED, cuda_of(be)->compute, a, items);
    return cuda_launched("wgrad_wgmma_kernel");
}

} // namespace

sp_status cuda_wgrad_wgmma(sp_backend *be, const wgrad_call &call,
                           const wgrad_items &items)
{
    enum { NARROW = CUDA_WGRAD_NARROW, WIDE = CUDA_WGRAD_WIDE };
    const cuda_wgrad_tile tile = cuda_wgrad_choose(true, call.x.c, call.dy.c);
    const int tiles = cuda_wgrad_tiles(call.x.c, call.dy.c, tile);
    wgrad_call a = call;

    if (tile.in == NARROW)
        return wgrad_wgmma_launch<wgmma_wgrad_tile<NARROW, WIDE>>(be, a, items, tiles);
    std::swap(a.x, a.dy);
    std::swap(a.in, a.out);
    return wgrad_wgmma_launch<wgmma_wgrad_tile<WIDE, NARROW>>(be, a, items, tiles);
}

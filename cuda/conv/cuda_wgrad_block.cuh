/* The work of a block of the weight gradient, whatever multiplies (cuda_wgrad.cu,
 * cuda_wgrad_wgmma.cu): the arguments of a round of launches, the block's item and part
 * of the matrix, and the copies that fill its ring of stages. The blocks of an item are
 * neighbours, so that they find its rows in the L2, and so that the blocks of the last
 * items, often short ones, begin last. A stage has the rows of x
 * of W::PAIRS pairs, T_X channels of each, and behind them T_DY channels of their rows
 * of dy. Pairs after the last one and channels after the last one are zeros.
 *
 * W, the tile, has besides
 *
 *     THREADS         of the block; LANES of them copy a row
 *     AT_ONCE         rows that they copy at a time: THREADS / LANES
 *     X, DY           chunks that a thread copies of a row of x and of dy
 *     DY_AT           the byte of a stage at which dy begins
 *     chunk(row, lane, e)   the number of the e-th chunk of thread `lane` of a row
 *     at(row, q)            the byte of chunk q of a row in its part of the stage
 */
#ifndef CUDA_WGRAD_BLOCK_CUH
#define CUDA_WGRAD_BLOCK_CUH

#include "cuda/conv/cuda_conv.cuh"

/* Of a round; the item is blockIdx.y. */
enum { WGRAD_MOST_ENTRIES = 384, WGRAD_MOST_ITEMS = 65535 };

/* The arguments of one round of launches. Entry e is one sample and one offset, the one
 * that follows the offset of entry e - 1. Its pairs are begin[e] .. begin[e + 1] - 1,
 * its items first[e] .. first[e + 1] - 1. */
struct wgrad_items {
    int n, k0;     /* entries, offset of entry 0 */
    bool is_added; /* dW has sums, of earlier rounds or of the caller */
    int first[WGRAD_MOST_ENTRIES + 1];
    int32_t begin[WGRAD_MOST_ENTRIES + 1];
};

/* The arguments of the weight gradient's kernels. */
struct wgrad_call {
    const int32_t *in, *out; /* rows of the pairs; NULL: every row with itself */
    sp_tensor x, dy;
    int K, item;                                /* item: pairs of an item */
    bool is_aligned_x, is_aligned_dy, is_whole; /* is_whole: rows of whole chunks */
    float *part;                                /* [items][c_in][c_out] */
};

/* IS_WHOLE: rows are aligned and consist of whole chunks. */
template <class W, bool IS_WHOLE> struct wgrad_block {
    enum { ROWS = W::PAIRS / W::AT_ONCE }; /* of x, and of dy, of a thread */
    typedef typename W::operand operand;

    const wgrad_call &a;
    char *stages;
    int32_t begin, count; /* pairs of the item */
    int i0, o0;           /* the block's first row and column of the matrix */
    int pair, lane;       /* of a stage: the first pair that this thread copies */
    int32_t at, left;     /* its next pair; how many pairs of the item begin there */
    /* The rows of the next stage to load; -1 if absent. */
    int32_t row_x[ROWS], row_dy[ROWS];
    uint32_t ring; /* the shared address of `stages` */

    __device__ wgrad_block(const wgrad_call &call, const wgrad_items &items,
                           char *shared)
        : a(call), stages(shared)
    {
        const int across = (a.dy.c + W::T_DY - 1) / W::T_DY, item = (int)blockIdx.y;
        int low = 0, high = items.n - 1;

        while (low < high) { /* the last entry that begins at or before the item */
            const int middle = (low + high + 1) / 2;
            if (items.first[middle] <= item)
                low = middle;
            else
                high = middle - 1;
        }
        begin = items.begin[low] + (item - items.first[low]) * a.item;
        count = min(a.item, items.begin[low + 1] - begin);
        i0 = (int)blockIdx.x / across * W::T_X;
        o0 = (int)blockIdx.x % across * W::T_DY;
        ring = sp_shared_base(stages);
        pair = (int)threadIdx.x / W::LANES;
        lane = (int)threadIdx.x % W::LANES;
        at = begin + pair;
        left = count - pair;
    }

    __device__ float *slot() const
    {
        return a.part + (size_t)blockIdx.y * (size_t)a.x.c * (size_t)a.dy.c;
    }

    __device__ int n_steps() const { return (count + W::PAIRS - 1) / W::PAIRS; }

    /* Reads the rows of this thread's pairs of the next stage. */
    __device__ void fetch_rows()
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const bool is_there = left > r * W::AT_ONCE;

            row_x[r] = row_dy[r] = is_there ? at + r * W::AT_ONCE : -1;
            if (is_there && a.in) {
                row_x[r] = a.in[at + r * W::AT_ONCE];
                row_dy[r] = a.out[at + r * W::AT_ONCE];
            }
        }
        at += W::PAIRS;
        left -= W::PAIRS;
    }

    /* Begins the copies of this thread's N chunks of a row, which is row `r` of the
     * part of a stage that begins at byte `to` of the ring. */
    template <int N>
    __device__ void load(const sp_tensor &t, bool is_aligned, int c0, int r,
                         int32_t row, int to) const
    {
        const unsigned pitch = (unsigned)t.ld * operand::BYTES;
        const int bytes = t.c * operand::BYTES - c0 * operand::BYTES;
        const char *from = (const char *)t.data + c0 * operand::BYTES;

#pragma unroll
        for (int e = 0; e < N; e++) {
            const int q = W::chunk(r, lane, e), first = q * CUDA_CHUNK_BYTES;
            const int place = to + W::at(r, q);
            const int n = row < 0 ? 0 : cuda_chunk_bytes(first, bytes);

            if (IS_WHOLE)
                sp_copy_chunk(ring + place,
                              from + first + (uint64_t)(unsigned)row * pitch,
                              first < bytes ? row : -1, 0);
            else
                cuda_copy_chunk(stages + place,
                                n ? from + first + (size_t)row * pitch
                                  : (const char *)t.data,
                                n, is_aligned);
        }
    }

    __device__ static int stage_at(int step)
    {
        return step % W::STAGES * W::STAGE_BYTES;
    }

    __device__ void load_stage(int step) const
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int p = pair + r * W::AT_ONCE;

            load<W::X>(a.x, a.is_aligned_x, i0, p, row_x[r], stage_at(step));
            load<W::DY>(a.dy, a.is_aligned_dy, o0, p, row_dy[r],
                        stage_at(step) + W::DY_AT);
        }
    }

    /* Begins the copies of the first AHEAD stages, a group of copies each. The pairs
     * are the map's, so that their rows are read ahead. */
    template <int AHEAD> __device__ void load_first()
    {
        sp_reads_ahead();
        fetch_rows();
        sp_grid_wait();
#pragma unroll 1
        for (int s = 0; s < AHEAD; s++)
            load_next(s);
    }

    /* Begins the copies of a step, if there is one, and reads the rows of the next. */
    __device__ void load_next(int step)
    {
        if (step < n_steps())
            load_stage(step);
        sp_copy_commit();
        fetch_rows();
    }
};

/* Launches the items by wgmma, on devices that have it: a call in bf16 of whole chunks
 * for whose channels cuda_wgrad_choose has its tile (cuda_wgrad_wgmma.cu). */
sp_status cuda_wgrad_wgmma(sp_backend *be, const wgrad_call &a,
                           const wgrad_items &items);

#endif

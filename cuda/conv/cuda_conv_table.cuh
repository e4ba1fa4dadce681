/* The table of a convolution's block: the input row of each of its rows at each offset
 * of the kernel, and the offsets that any of its rows has. All kernels of the
 * convolution share it (cuda_conv.cu, cuda_conv_wgmma.cu).
 *
 * A block owns BM rows of y, neighbours in the map's order, and BN of its channels. For
 * each word of the masks (32 offsets) it writes a table from offset and row to input
 * row (-1: absent) and lists the offsets that are present.
 */
#ifndef CUDA_CONV_TABLE_CUH
#define CUDA_CONV_TABLE_CUH

#include <type_traits>

#include "cuda/conv/cuda_conv.cuh"
#include "cuda/conv/cuda_conv_out.cuh"

enum { CONV_WORD = 32 };

/* The arguments of a convolution kernel; mask, first, nbr and order are the map's. */
struct conv_call : conv_result {
    const uint32_t *mask; /* NULL: every row is paired with itself, K = 1 */
    const int32_t *first, *nbr, *order;
    int K, n_words;
    sp_tensor from; /* x, or dy: its rows are gathered */
    const char *w;  /* packed weights (cuda_conv_pack.cu) */
    bool is_from_aligned;
    bool lets_next;             /* the next kernel may begin (cuda_lets_next) */
    bool is_shared;             /* two offsets share a unit */
    unsigned units, reciprocal; /* of an offset; 2^32 / units + 1, to divide by it */
};

/* The table for one word of the masks. */
template <int BM> struct conv_table {
    /* A bit for each group of 16 rows. */
    typedef std::conditional_t<(BM > 128), uint16_t, uint8_t> group_bits;
    int32_t in[CONV_WORD][BM]; /* input row, -1: absent */
    int32_t out[BM];           /* output row, -1 if absent */
    uint32_t has[BM / 16];     /* bit k: a row of the 16 has offset k */
    int n;                     /* offsets present */
    /* The offsets present, rising; halved where two share a unit. Zeros follow the last
     * one, so that two more may be read ahead. */
    uint8_t offset[CONV_WORD + 2];
    group_bits groups[CONV_WORD + 2]; /* bit g: group g of 16 rows has offset[i] */
    static_assert(BM / 16 <= 8 * sizeof(group_bits), "a bit for each group");
};

/* The table's entry for a unit. */
__device__ static inline int conv_entry_of(const conv_call &a, unsigned unit)
{
    return (int)(a.units == 1 ? unit : __umulhi(unit, a.reciprocal));
}

/* The part of a block that handles rows and their table. T is the tile: BM x BN, with
 * THREADS in WARPS. */
template <class T> struct conv_rows {
    const conv_call &a;
    conv_table<T::BM> &t;
    int tid, warp, lane, column0;

    __device__ conv_rows(const conv_call &call, conv_table<T::BM> &table)
        : a(call), t(table)
    {
        tid = (int)threadIdx.x;
        lane = tid % 32;
        /* Lane 0 passes it to the others, so that the compiler knows the value to be
         * the same for the warp. */
        warp = __shfl_sync(~0u, tid / 32, 0);
    }

    /* Column tiles of the same rows are adjacent in the grid, so that the L2 holds the
     * rows that they gather. The blocks of a cluster have adjacent rows and the same
     * columns. */
    __device__ unsigned across() const { return (unsigned)(a.y.c + T::BN - 1) / T::BN; }

    /* The tile of rows of this block. It may lie after the last row. */
    __device__ unsigned row_tile() const
    {
        return blockIdx.x / T::CLUSTER / across() * T::CLUSTER +
               blockIdx.x % T::CLUSTER;
    }

    __device__ void list_rows()
    {
        const int64_t row0 = (int64_t)row_tile() * T::BM;

        column0 = (int)(blockIdx.x / T::CLUSTER % across()) * T::BN;
        for (int r = tid; r < T::BM; r += T::THREADS) {
            const int64_t at = row0 + r;
            t.out[r] = at >= a.y.n ? -1 : a.order ? a.order[at] : (int32_t)at;
        }
    }

    /* Fills the table for one word. Call it after a barrier; it ends with one. */
    __device__ void fill_table(int word)
    {
        static_assert(CONV_WORD * T::BM % (T::THREADS * 4) == 0, "whole rounds");

#pragma unroll
        for (int e = 0; e < CONV_WORD * T::BM; e += T::THREADS * 4)
            *(int4 *)(&t.in[0][0] + e + tid * 4) = make_int4(-1, -1, -1, -1);
        __syncthreads();
        for (int r = tid; r < T::BM; r += T::THREADS) {
            const int32_t i = t.out[r];
            uint32_t has = 0;

            if (i >= 0 && a.mask) {
                has = look_up(word, i, r);
            } else if (i >= 0) {
                t.in[0][r] = i;
                has = 1;
            }
#pragma unroll
            for (int d = 1; d < 16; d *= 2)
                has |= __shfl_xor_sync(~0u, has, d);
            if (lane % 16 == 0)
                t.has[r / 16] = has;
        }
        __syncthreads();
    }

    /* Returns the row's mask. */
    __device__ uint32_t look_up(int word, int32_t i, int r)
    {
        const uint32_t *mask = a.mask + i;
        const int32_t *nbr = a.nbr + a.first[i];

        for (int w = 0; w < word; w++, mask += a.y.n)
            nbr += __popc(*mask);
        for (uint32_t left = *mask; left; left &= left - 1)
            t.in[__ffs((int)left) - 1][r] = *nbr++;
        return *mask;
    }

    /* Lists the offsets that any row has. Ends with a barrier. */
    __device__ void list_offsets(int)
    {
        list_with([](unsigned own) { return own; });
    }

    /* with(own), called by all threads, gives the offsets to list: the block's (warp 0
     * passes them as bits) and others that no row has. */
    template <class F> __device__ void list_with(const F &with)
    {
        const int k = a.is_shared ? 2 * lane : lane; /* the lane's first offset */
        uint32_t groups = 0;
        unsigned there = 0;

        if (warp == 0) {
#pragma unroll
            for (int g = 0; g < T::BM / 16; g++) {
                const uint32_t has = t.has[g], next = a.is_shared ? has >> 1 : 0;
                groups |= (k < CONV_WORD ? (has | next) >> k & 1 : 0) << g;
            }
            there = __ballot_sync(0xffffffffu, groups != 0);
        }
        there = with(there);
        if (warp == 0) {
            const int at = __popc(there & ((1u << lane) - 1));

            if (there >> lane & 1) {
                t.offset[at] = (uint8_t)lane;
                t.groups[at] = (typename conv_table<T::BM>::group_bits)groups;
            }
            for (int e = __popc(there) + lane; e < CONV_WORD + 2; e += 32) {
                t.offset[e] = 0;
                t.groups[e] = 0;
            }
            if (lane == 0)
                t.n = __popc(there);
        }
        __syncthreads();
    }
};

/* Both kinds of kernels go through their block like this: word after word of the masks,
 * the table, the list, and the products of the listed offsets. */
template <class B, class S>
__device__ __forceinline__ void conv_add_words(const conv_call &a, B &block, S &sum)
{
    int word = 0;

    sp_reads_ahead(); /* the map, for the table */
    block.list_rows();
    do { /* there is a word, so that the compiler sees the wait on every way */
        block.fill_table(word);
        block.list_offsets(word);
        sp_grid_begin(a.lets_next); /* from the second word on it has been passed */
        block.walk(word, sum);
    } while (++word < a.n_words);
}

#endif

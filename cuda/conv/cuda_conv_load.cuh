/* The copies that fill a convolution's ring of stages, for all kernels of the
 * convolution (cuda_conv.cu, cuda_conv_wgmma.cu). A stage holds one k-tile: A [BM] rows
 * of x, gathered by the block's table, zeros if a row is absent, and B [BN] rows of
 * the packed weights (cuda_conv_pack.cu), T::CHUNKS chunks of 16 bytes each. A thread
 * copies chunk q of every T::AT_ONCE-th row.
 *
 * There are two forms. The host chooses one for a call (cuda_is_whole); the chunks that
 * are copied, and therefore the bits of the result, are the same.
 *
 *   conv_load_whole  The rows of x are aligned and consist of whole k-tiles, so that a
 *                    k-tile lies within one offset and every chunk is copied as one. A
 *                    thread keeps the input rows of the current offset in registers and
 *                    reads the next offset's rows before it needs them, so that a
 *                    k-tile costs an address and a copy for each chunk. With T::IS_BULK
 *                    it copies only A and reports where the k-tile's weights are; they
 *                    are packed by k-tiles then (cuda_conv_pack.cu). A k-tile may have
 *                    T::PARTS parts, whose A [BM] lie one after another.
 *   conv_load_any    Any number of channels and any pitch. Each k-tile looks up its
 *                    offset and its rows.
 */
#ifndef CUDA_CONV_LOAD_CUH
#define CUDA_CONV_LOAD_CUH

#include "cuda/conv/cuda_conv_table.cuh"

/* True if conv_load_whole serves a call with elements of x of elem_bytes bytes, in
 * k-tiles of `chunks` chunks. */
static inline bool cuda_is_whole(const conv_call &a, int elem_bytes, int chunks)
{
    return a.is_from_aligned && !a.is_shared &&
           (size_t)a.from.c * (size_t)elem_bytes %
                   (size_t)(chunks * CUDA_CHUNK_BYTES) ==
               0;
}

/* The part that both forms share. A stage is named by its first byte in the ring. */
template <class T> struct conv_load {
    enum {
        ROW = T::CHUNKS * CUDA_CHUNK_BYTES, /* bytes of a row of a stage */
        UNITS = T::CHUNKS / 2,              /* units of a k-tile */
        A_ROWS = T::BM / T::AT_ONCE,        /* rows of A and of B of a thread */
        B_ROWS = (T::BN + T::AT_ONCE - 1) / T::AT_ONCE, /* or one fewer */
        A_STEP = T::AT_ONCE * ROW, /* bytes of a stage between two rows of a thread */
        A_PART = T::BM * ROW       /* and between two parts of a row */
    };
    static_assert(T::AT_ONCE % 8 == 0, "a thread's rows have one swizzle");

    const conv_call &a;
    const conv_table<T::BM> &t;
    int row, q;          /* first row, and chunk, of this thread */
    int columns;         /* channels of y from this thread's first row of B on */
    uint32_t to;         /* its chunk of its first row in the first stage */
    unsigned unit_bytes; /* of a unit of the packed weights */
    const char *w_word;  /* weights of its column at the first offset of the word */

    __device__ conv_load(const conv_call &call, const conv_table<T::BM> &table,
                         int column0, int word, const char *ring)
        : a(call), t(table)
    {
        const int units =
            a.is_shared ? word * (CONV_WORD / 2) : word * CONV_WORD * (int)a.units;

        row = (int)threadIdx.x / T::CHUNKS;
        q = (int)threadIdx.x % T::CHUNKS;
        columns = a.y.c - column0 - row;
        to = sp_shared_base(ring) + T::place(row, q);
        unit_bytes = (unsigned)a.y.c * CUDA_UNIT_BYTES;
        w_word = a.w + (size_t)units * unit_bytes +
                 (size_t)(column0 + row) * CUDA_UNIT_BYTES + q % 2 * CUDA_CHUNK_BYTES;
    }

    /* Copies this thread's chunks of B from w on; zeros if there is no unit or no
     * column. If the columns do not divide among the threads, whole warps have a row
     * fewer. */
    __device__ void copy_b(int stage, const char *w, bool is_there) const
    {
        static_assert(T::BN * T::CHUNKS % 32 == 0, "whole warps");
#pragma unroll
        for (int e = 0; e < B_ROWS; e++)
            if ((e + 1) * T::AT_ONCE <= T::BN || row + e * T::AT_ONCE < T::BN)
                sp_copy_chunk(to + stage + T::BM * ROW + e * A_STEP,
                              w + e * T::AT_ONCE * CUDA_UNIT_BYTES,
                              is_there ? columns : 0, e * T::AT_ONCE + 1);
    }
};

/* BYTES: bytes of an element of x. */
template <class T, int BYTES> struct conv_load_whole : conv_load<T> {
    typedef conv_load<T> base;
    using base::a;
    using base::t;

    /* This thread's input rows at the current offset and at the next, -1: absent. */
    int32_t from[base::A_ROWS], next[base::A_ROWS];
    int entry;         /* of the next offset in the table */
    int offset, after; /* the next offset, and the one after it */
    int left, deep;    /* k-tiles left of the current offset; of every offset */
    const char *x;     /* this thread's chunk of row 0 of x */
    /* The weights of the next k-tile: this thread's chunk, or the number of a row of
     * packed weights where bulk copies bring them (IS_BULK). */
    std::conditional_t<T::IS_BULK, unsigned, const char *> w, w_word;
    unsigned of_tile, of_offset; /* bytes or rows of weights */

    __device__ conv_load_whole(const conv_call &call, const conv_table<T::BM> &table,
                               int column0, int word, const char *ring)
        : base(call, table, column0, word, ring)
    {
        entry = 0;
        left = 0;
        deep = (int)(a.units / (T::PARTS * base::UNITS));
        if constexpr (T::IS_BULK) {
            of_tile = T::PARTS * (unsigned)a.y.c;
            of_offset = (unsigned)deep * of_tile;
            w_word = (unsigned)(word * CONV_WORD) * of_offset + (unsigned)column0;
        } else {
            of_tile = base::UNITS * base::unit_bytes;
            of_offset = a.units * base::unit_bytes;
            w_word = base::w_word + (size_t)((unsigned)base::q / 2 * base::unit_bytes);
        }
        offset = t.offset[0];
        after = t.offset[1];
        read_rows();
    }

    __device__ int n_tiles() const { return t.n * deep; }

    __device__ void read_rows()
    {
        const int32_t *in = &t.in[offset][base::row];

#pragma unroll
        for (int e = 0; e < base::A_ROWS; e++)
            next[e] = in[e * T::AT_ONCE];
    }

    /* Proceeds to the next offset that the block has. After the last one the table
     * names offset 0, since its rows can be read. */
    __device__ void proceed()
    {
#pragma unroll
        for (int e = 0; e < base::A_ROWS; e++)
            from[e] = next[e];
        x = (const char *)a.from.data + base::q * CUDA_CHUNK_BYTES;
        if constexpr (T::IS_BULK)
            w = w_word + (unsigned)offset * of_offset;
        else
            w = w_word + (uint64_t)(unsigned)offset * of_offset;
        left = deep;
        entry++;
        offset = after;
        after = t.offset[entry + 1];
        read_rows();
    }

    /* Begins the copies of the next k-tile; gives the place of its weights. */
    __device__ auto next_tile(int stage)
    {
        const unsigned pitch = (unsigned)a.from.ld * BYTES;

        if (left == 0)
            proceed();
        const auto weights = w;
#pragma unroll
        for (int e = 0; e < base::A_ROWS; e++)
#pragma unroll
            for (int p = 0; p < T::PARTS; p++)
                sp_copy_chunk(base::to + stage + p * base::A_PART + e * base::A_STEP,
                              x + p * base::ROW + (uint64_t)(unsigned)from[e] * pitch,
                              from[e], 0);
        if constexpr (!T::IS_BULK)
            base::copy_b(stage, w, true);
        x += T::PARTS * base::ROW;
        w += of_tile;
        left--;
        return weights;
    }
};

template <class T, int BYTES> struct conv_load_any : conv_load<T> {
    typedef conv_load<T> base;
    using base::a;
    using base::q;
    using base::t;

    char *ring;
    unsigned n_units;
    int tile; /* the next k-tile */

    __device__ conv_load_any(const conv_call &call, const conv_table<T::BM> &table,
                             int column0, int word, char *ring_of_block)
        : base(call, table, column0, word, ring_of_block), ring(ring_of_block)
    {
        n_units = (unsigned)t.n * a.units;
        tile = 0;
    }

    __device__ int n_tiles() const
    {
        return (int)((n_units + base::UNITS - 1) / base::UNITS);
    }

    /* Begins the copies of the next k-tile. */
    __device__ void next_tile(int stage)
    {
        const unsigned unit = (unsigned)(base::UNITS * tile++ + q / 2);
        const bool is_there = unit < n_units;
        const int entry = is_there ? conv_entry_of(a, unit) : 0;
        const unsigned within = is_there ? unit - (unsigned)entry * a.units : 0;
        const int k = is_there ? t.offset[entry] : 0;
        const int at = (int)within * CUDA_UNIT_BYTES + (q & 1) * CUDA_CHUNK_BYTES;
        char *place = ring + stage + T::place(base::row, q);

        if (a.is_shared)
            copy_a(place, t.in[2 * k + (q & 1)], 0, is_there);
        else
            copy_a(place, t.in[k], at, is_there);
        base::copy_b(stage,
                     base::w_word +
                         (size_t)((unsigned)k * a.units + within) * base::unit_bytes,
                     is_there);
    }

    /* at: first byte of the chunk in its row. */
    __device__ void copy_a(char *place, const int32_t *in, int at, bool is_there) const
    {
        const int bytes = is_there ? cuda_chunk_bytes(at, a.from.c * BYTES) : 0;
        const size_t pitch = (size_t)a.from.ld * BYTES;
        const char *x = (const char *)a.from.data;

#pragma unroll 2
        for (int e = 0; e < base::A_ROWS; e++) {
            const int32_t i = bytes ? in[base::row + e * T::AT_ONCE] : -1;

            cuda_copy_chunk(place + e * base::A_STEP,
                            i < 0 ? x : x + (size_t)i * pitch + at, i < 0 ? 0 : bytes,
                            a.is_from_aligned);
        }
    }
};

#endif
